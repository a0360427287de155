"""The papers' data: read from a folder that the user names, or made up and marked so."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from privgate.errors import UsageError

Float = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Data:
    """Records of one data set.

    Parameters
    ----------
    name : str
        With the word "synthetic" where nobody lived these records.
    X : float64 array of shape (n, d)
        Numeric features, for networks and regressions.
    codes : int64 array of shape (n, c)
        The same records as categories, for naive Bayes.
    y : int64 array of shape (n,)
        Class positions 0 .. K-1.
    """

    name: str
    X: Float
    codes: NDArray[np.int64]
    y: NDArray[np.int64]

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return int(self.y.max()) + 1

    @property
    def binary(self) -> bool:
        """Whether all features are 0 or 1."""
        return self.codes.shape == self.X.shape

    def sample(self, count: int, rng: Generator) -> "Data":
        """Return ``count`` records at random, without repetition."""
        if count > len(self.y):
            raise UsageError(f"{self.name} has {len(self.y)} records; {count} were asked for")
        rows = rng.permutation(len(self.y))[:count]
        return Data(self.name, self.X[rows], self.codes[rows], self.y[rows])


def _file(folder: Path, name: str) -> Path:
    path = folder / name
    if not path.is_file():
        raise UsageError(f"{name} is not in {folder}; name the folder with the papers' data sets by --data")
    return path


def location(folder: Path) -> Data:
    """Return the Bangkok check-ins of Shokri et al.: 5,010 x 446 binary features, 30 classes."""
    with np.load(_file(folder, "location30.npz")) as z:
        X = np.unpackbits(z["X_packed"], axis=1, count=int(z["n_features"]))
        y = z["y"].astype(np.int64)
    return Data("Location", X.astype(np.float64), X.astype(np.int64), y)


@dataclass(frozen=True, eq=False)
class Doses:
    """Warfarin doses: regression with two genes.

    Parameters
    ----------
    X : float64 array of shape (n, d)
        Numbers scaled, categories one-hot.
    y : float64 array of shape (n,)
        Square root of the weekly dose, scaled.
    genes : slice
        Columns of VKORC1, one-hot.
    """

    X: Float
    y: Float
    genes: slice


def warfarin(folder: Path) -> Doses:
    """Return the patients of the IWPC with a stable dose and a known VKORC1 (-1639), prepared as Yeom et al. do.

    Missing numbers are the median, missing categories one of their own.
    """
    import pandas as pd

    frame = pd.read_csv(_file(folder, "iwpc.csv.gz"))
    frame = frame[(frame.stable_dose == 1) & frame.dose_mg_per_week.notna() & frame.vkorc1_m1639.notna()]
    numbers = frame[["age_decade", "height_cm", "weight_kg"]]
    numbers = ((numbers - numbers.mean()) / numbers.std(ddof=0)).fillna(0.0)
    text = frame[["race", "cyp2c9", "amiodarone", "carbamazepine", "phenytoin", "rifampin"]].astype(object).fillna("?")
    other = pd.get_dummies(text.astype(str)).to_numpy(dtype=np.float64)
    gene = pd.get_dummies(frame.vkorc1_m1639).to_numpy(dtype=np.float64)
    X = np.hstack([gene, numbers.to_numpy(dtype=np.float64), other])
    y = np.sqrt(frame.dose_mg_per_week.to_numpy(dtype=np.float64))
    return Doses(X, (y - y.mean()) / y.std(), slice(0, gene.shape[1]))


def adult(folder: Path) -> Data:
    """Return UCI Adult without ``fnlwgt`` and without repeated rows, as Long et al. use it.

    Numbers are standardised and categories one-hot for networks; for naive Bayes numbers are cut at their deciles.
    """
    import pandas as pd

    frame = pd.read_csv(_file(folder, "adult.csv.gz")).drop(columns=["split", "fnlwgt"]).drop_duplicates()
    y = (frame.pop("income") == ">50K").to_numpy().astype(np.int64)
    numeric = frame.select_dtypes("number").columns
    text = [c for c in frame.columns if c not in numeric]
    values = frame[numeric].to_numpy(dtype=np.float64)
    scaled = (values - values.mean(axis=0)) / values.std(axis=0)
    hot = pd.get_dummies(frame[text].fillna("?")).to_numpy(dtype=np.float64)
    cuts = [np.unique(np.quantile(v, np.linspace(0.1, 0.9, 9))) for v in values.T]
    binned = np.column_stack([np.searchsorted(c, v, side="right") for c, v in zip(cuts, values.T, strict=True)])
    coded = np.column_stack([pd.factorize(frame[c].fillna("?"), sort=True)[0] for c in text])
    return Data("Adult", np.hstack([scaled, hot]), np.hstack([binned, coded]).astype(np.int64), y)


def purchase_like(rng: Generator, *, n: int, features: int = 600, classes: int = 10, spread: float = 0.6) -> Data:
    """Return made-up purchases: a mixture of Bernoulli prototypes, labelled by k-means as both papers did.

    Parameters
    ----------
    rng : Generator
    n, features, classes : int
    spread : float
        How far prototypes lie apart, on the logit scale; tuned so that a network shows the published gap between
        training and test accuracy.
    """
    from sklearn.cluster import KMeans

    usual = rng.normal(-2.0, 1.0, features)
    prototypes = usual + spread * rng.normal(size=(3 * classes, features))
    kind = rng.integers(0, len(prototypes), n)
    X = (rng.random((n, features)) < 1 / (1 + np.exp(-prototypes[kind]))).astype(np.float64)
    y = KMeans(classes, n_init=1, max_iter=30, random_state=int(rng.integers(2**31))).fit_predict(X).astype(np.int64)
    return Data(f"Purchase-like (synthetic, {classes} classes)", X, X.astype(np.int64), y)
