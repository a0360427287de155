"""Tables, texts and images as registries hold them; UCI Adult from the papers' data, or from the packaged sample."""

import os
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn import datasets

from privgate import TrainingData

#: folder with adult.csv.gz, if there is one
FOLDER = Path(os.environ.get("PRIVGATE_DATA", "../shared/data"))
SAMPLE = Path(__file__).parents[1] / "adult" / "adult-sample.csv"
NUMBERS = ["age", "education_num", "capital_gain", "capital_loss", "hours_per_week"]
WORDS = ["workclass", "education", "marital_status", "occupation", "relationship", "race", "sex", "native_country"]


def source() -> Path:
    """Return the file of Adult that is there."""
    path = FOLDER / "adult.csv.gz"
    return path if path.is_file() else SAMPLE


@cache
def _adult() -> pd.DataFrame:
    table = pd.read_csv(source(), na_values=["?"], skipinitialspace=True)
    return table.sample(frac=1.0, random_state=0).reset_index(drop=True)


def adult(n: int, *, columns: list[str] | None = None) -> TrainingData:
    """Return n people of Adult as a frame with missing text, and as many others as candidates."""
    table = _adult().iloc[: 2 * n]
    X, y = table[columns or NUMBERS + WORDS], table["income"].astype(str).str.rstrip(".").to_numpy()
    half = len(table) // 2
    ids = np.array([f"person-{i}" for i in range(half)])
    return TrainingData(
        X.iloc[:half].reset_index(drop=True),
        y[:half],
        ids=ids,
        candidates=(X.iloc[half:].reset_index(drop=True), y[half:]),
        one_record_each=True,
    )


def adult_numbers(n: int) -> TrainingData:
    """Return the numeric columns of Adult as an array, standardised by public constants."""
    found = adult(n, columns=NUMBERS)
    scale = np.array([80.0, 16.0, 1e5, 4e3, 99.0])
    assert found.candidates is not None
    X, out = (np.asarray(t, dtype=np.float64) / scale for t in (found.X, found.candidates[0]))
    return TrainingData(X, found.y, ids=found.ids, candidates=(out, found.candidates[1]), one_record_each=True)


def adult_codes(n: int) -> tuple[TrainingData, list[int]]:
    """Return the text columns of Adult as codes, and how many values each has."""
    found = adult(n, columns=WORDS)
    assert found.candidates is not None
    both = pd.concat([found.X, found.candidates[0]])
    codes = np.column_stack([pd.Categorical(both[c].fillna("missing")).codes for c in WORDS]).astype(np.int64)
    known = _adult()[WORDS].fillna("missing")
    sizes = [int(known[c].nunique()) for c in WORDS]
    half = len(found.y)
    return TrainingData(
        codes[:half], found.y, ids=found.ids, candidates=(codes[half:], found.candidates[1]), one_record_each=True
    ), sizes


def texts(n: int) -> TrainingData:
    """Return sentences made from rows of Adult."""
    found = adult(n)
    assert found.candidates is not None

    def said(table: Any) -> NDArray[Any]:
        return np.array(
            [" ".join(str(v).replace(" ", "-").lower() for v in r) for r in table[WORDS].to_numpy()], dtype=object
        )

    return TrainingData(
        said(found.X),
        found.y,
        ids=found.ids,
        candidates=(said(found.candidates[0]), found.candidates[1]),
        one_record_each=True,
    )


def half(X: Any, y: NDArray[Any], n: int, **more: Any) -> TrainingData:
    """Return the first n of a shuffled data set, and as many as there are after them, up to n, as candidates."""
    order = np.random.default_rng(0).permutation(len(y))
    rows, out = order[:n], order[n : 2 * n]
    pick = (lambda r: X.iloc[r].reset_index(drop=True)) if isinstance(X, pd.DataFrame) else (lambda r: X[r])
    return TrainingData(pick(rows), y[rows], candidates=(pick(out), y[out]), one_record_each=True, **more)


def breast_cancer(n: int = 280) -> TrainingData:
    """Return breast cancer as a frame."""
    X, y = datasets.load_breast_cancer(return_X_y=True, as_frame=True)
    return half(X, y.to_numpy(), n)


def digits(n: int = 800) -> TrainingData:
    """Return 8 x 8 digits, grey values between 0 and 1."""
    X, y = datasets.load_digits(return_X_y=True)
    return half(X / 16.0, y, n)


def rare(n: int) -> TrainingData:
    """Return numbers with one positive in a hundred."""
    draw = np.random.default_rng(1)
    X = draw.normal(size=(2 * n, 6))
    y = (X[:, 0] + 0.5 * draw.normal(size=2 * n) > np.quantile(X[:, 0], 0.99)).astype(np.int64)
    return half(X, y, n)


def several_rows(n: int) -> TrainingData:
    """Return numbers of people with one to three rows each."""
    draw = np.random.default_rng(2)
    X = draw.normal(size=(n, 5))
    y = (X[:, 0] + draw.normal(size=n) > 0).astype(np.int64)
    return TrainingData(X, y, groups=np.repeat(np.arange(n), draw.integers(1, 4, n))[:n])


def diabetes(n: int = 220) -> TrainingData:
    """Return the diabetes data: a real-valued target."""
    X, y = datasets.load_diabetes(return_X_y=True)
    return half(X, y, n)


def prices(n: int) -> TrainingData:
    """Return whole-numbered prices: numbers that look like labels."""
    draw = np.random.default_rng(3)
    X = draw.normal(size=(2 * n, 4))
    return half(X, np.round(1000 + 200 * X[:, 0] + 50 * draw.normal(size=2 * n)).astype(np.int64), n)
