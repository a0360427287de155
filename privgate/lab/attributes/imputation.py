"""What anybody guesses without the model: the feature from all others and the target, learned from people outside."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.lab.attributes.values import Attribute
from privgate.run.run import Run
from privgate.subject.data import TrainingData

Index = NDArray[np.int64]


def guesses(run: Run, attribute: Attribute, rows: Index, learn: NDArray[np.bool_]) -> Index:
    """Return the guessed value of each pool row, learned from those of ``rows`` that ``learn`` marks; all shape (U,).

    A forest on every other column, categories as codes, and the target. It sees no answer of the model.
    """
    from sklearn.ensemble import RandomForestClassifier

    table = known_of(run.subject.data, attribute.column, rows)
    known = learn & (attribute.codes[rows] >= 0)
    if len(np.unique(attribute.codes[rows][known])) < 2:
        return np.full(len(rows), int(np.argmax(attribute.prior)), dtype=np.int64)
    forest = RandomForestClassifier(100, min_samples_leaf=5, random_state=0, n_jobs=1)
    forest.fit(table[known], attribute.codes[rows][known])
    return np.asarray(forest.predict(table), dtype=np.int64)


def known_of(data: TrainingData, column: str | int, rows: Index) -> NDArray[np.float64]:
    """Return every feature but one, categories as codes, and the target of some pool rows."""
    X, y = data.pool()
    return np.column_stack([*_others(X, column, rows), _codes(np.asarray(y)[rows])])


def _others(X: Any, column: str | int, rows: Index) -> list[NDArray[np.float64]]:
    if hasattr(X, "iloc"):
        return [_codes(np.asarray(X[c])[rows]) for c in X.columns if c != column]
    return [_codes(np.asarray(X)[rows, j]) for j in range(X.shape[1]) if j != column]


def _codes(values: NDArray[Any]) -> NDArray[np.float64]:
    if values.dtype.kind in "biuf":
        return np.nan_to_num(values.astype(np.float64), nan=-1e9)
    return np.unique(values.astype(str), return_inverse=True)[1].astype(np.float64)
