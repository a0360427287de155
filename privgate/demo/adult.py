"""The UCI Adult sample (Becker and Kohavi, 1996, CC BY 4.0) as categorical codes with a declared domain."""

import csv
import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from privgate.errors import SubjectError
from privgate.subject.data import TrainingData
from privgate.subject.domain import Domain


def _file(name: str) -> Path:
    """Return where a file of the sample lies: inside an installed package, or in the checkout."""
    here = Path(__file__).resolve().parent
    for path in (here / name, here.parents[1] / "examples" / "adult" / name):
        if path.is_file():
            return path
    raise SubjectError(f"{name} of the Adult sample is not installed; reinstall privgate, or run from a checkout")


_DECLARED = json.loads(_file("adult-domain.json").read_text(encoding="utf-8"))
#: values an application form would offer; declared, never read off the training set
CATEGORIES: dict[str, list[str]] = _DECLARED["categories"]
#: lower ends of the bins of numeric columns, also declared
BINS: dict[str, list[int]] = _DECLARED["bins"]
SIZES = tuple([len(v) for v in CATEGORIES.values()] + [len(v) + 1 for v in BINS.values()])


def codes(rows: list[dict[str, str]]) -> NDArray[np.int64]:
    """Return category codes of shape (n, 12), int64, one column a declared feature."""
    columns = [[values.index(row[name]) for row in rows] for name, values in CATEGORIES.items()]
    columns += [list(np.digitize([float(row[name]) for row in rows], edges)) for name, edges in BINS.items()]
    return np.array(columns, dtype=np.int64).T


def load(people: int = 1000) -> TrainingData:
    """Return training records and at most as many candidates, no two of them alike, with the declared domain."""
    with _file("adult-sample.csv").open(encoding="utf-8", newline="") as f:
        rows = list(csv.DictReader(f))
    X = codes(rows)
    # two people of one record are one more question: the sample holds none, so that a decision rests on the model alone
    alone = np.sort(np.unique(X, axis=0, return_index=True)[1])
    X, y = X[alone], np.array([row["income"] for row in rows])[alone]
    ids = np.array([row["record"] for row in rows])[alone]
    others = slice(people, 2 * people)
    return TrainingData(
        X[:people],
        y[:people],
        ids=ids[:people],
        candidates=(X[others], y[others]),
        domain=Domain(categories=SIZES),
        one_record_each=True,
    )
