"""Four data sets whose features lie between 0 and 1 by declared ranges: nothing is read off the records."""

import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn import datasets

from papers import datasets as published
from privgate import Domain, TrainingData

Float = NDArray[np.float64]
Index = NDArray[np.int64]

#: folder with adult.csv.gz and location30.npz
FOLDER = Path(os.environ.get("PRIVGATE_DATA", "../shared/data"))
#: ranges that anybody would declare who has not seen a record
ADULT = {"age": (0, 100), "education_num": (0, 16), "capital_gain": (0, 1e5), "capital_loss": (0, 5e3),
         "hours_per_week": (0, 100)}  # fmt: skip
WORDS = ("workclass", "marital_status", "occupation", "relationship", "race", "sex", "native_country")


@dataclass(frozen=True, eq=False)
class Table:
    """Records of one data set.

    Parameters
    ----------
    name : str
    X : float64 array of shape (N, d)
        Between 0 and 1.
    y : int64 array of shape (N,)
        Class positions.
    train, test : int
        People of a training and of a test set.
    blocks : tuple of tuples of int
        Columns that are one-hot together.
    """

    name: str
    X: Float
    y: Index
    train: int
    test: int
    blocks: tuple[tuple[int, ...], ...] = ()

    @property
    def labels(self) -> list[int]:
        """Every label there can be; said, not read off a training set."""
        return list(range(int(self.y.max()) + 1))

    def split(self, seed: int) -> tuple[Float, Index, Float, Index]:
        """Return training records and labels, test records and labels, drawn anew for each seed."""
        order = np.random.default_rng(seed).permutation(len(self.y))
        first, second = order[: self.train], order[self.train : self.train + self.test]
        return self.X[first], self.y[first], self.X[second], self.y[second]

    def data(self, seed: int) -> TrainingData:
        """Return the training set of a seed as the gate takes it."""
        X, y, out, labels = self.split(seed)
        box = Domain(box=((0.0, 1.0),) * X.shape[1], blocks=self.blocks)
        return TrainingData(X, y, domain=box, candidates=(out, labels), one_record_each=True)

    def at_most(self, people: int) -> "Table":
        """Return a table whose training sets have no more people than this."""
        return Table(self.name, self.X, self.y, min(self.train, people), min(self.test, people), self.blocks)


def _adult() -> Table:
    frame = pd.read_csv(FOLDER / "adult.csv.gz")
    y = frame.income.astype(str).str.startswith(">50K").to_numpy().astype(np.int64)
    numbers = [np.clip((frame[c].to_numpy(dtype=np.float64) - a) / (b - a), 0, 1) for c, (a, b) in ADULT.items()]
    hot = [pd.get_dummies(frame[c].fillna("?")).to_numpy(dtype=np.float64) for c in WORDS]
    edges = len(numbers) + np.cumsum([0, *(h.shape[1] for h in hot)])
    blocks = tuple(tuple(range(a, b)) for a, b in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True))
    return Table("Adult", np.column_stack([*numbers, *hot]), y, 4000, 10_000, blocks)


def _digits() -> Table:
    X, y = datasets.load_digits(return_X_y=True)
    return Table("digits", np.asarray(X) / 16.0, np.asarray(y, dtype=np.int64), 1297, 500)


def _breast_cancer() -> Table:
    X, y = datasets.load_breast_cancer(return_X_y=True)
    # twice the largest value of another, larger collection would do; these are round numbers above what can be measured
    tops = np.array([40, 50, 250, 3000, 0.3, 0.5, 0.6, 0.3, 0.4, 0.2, 4, 6, 30, 700, 0.05, 0.2, 0.5, 0.1, 0.1, 0.05,
                     50, 60, 300, 5000, 0.3, 1.5, 1.5, 0.4, 0.8, 0.3])  # fmt: skip
    return Table("breast cancer", np.clip(np.asarray(X) / tops, 0, 1), np.asarray(y, dtype=np.int64), 400, 169)


def _location() -> Table:
    found = published.location(FOLDER)
    return Table("Location", found.X, found.y, 3500, 1510)


@cache
def table(name: str) -> Table:
    """Return one of the four by its name."""
    made = {
        "Adult": _adult,
        "digits": _digits,
        "breast cancer": _breast_cancer,
        "Location": _location,
    }
    return made[name]()


NAMES = ("Adult", "digits", "breast cancer", "Location")
