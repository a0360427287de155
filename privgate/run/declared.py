"""What was declared about training data, as columns that a suite of any data set may name.

So one suite can be shipped: that no label is one person's and that every record lies in the declared domain means the
same for every table. The names begin with ``privgate.``; a column of the data by such a name is not looked at.
"""

from collections.abc import Collection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.subject.data import TrainingData

#: the record's id, or its number where none was given
RECORD = "privgate.record"
#: how many people have the record's label; for targets that are numbers, how many there are
WITH_LABEL = "privgate.people_with_label"
#: whether the record lies outside the declared ranges, categories or columns, 0 or 1; 0 where none are declared
OUTSIDE = "privgate.outside_domain"
COLUMNS = (RECORD, WITH_LABEL, OUTSIDE)


def columns(data: TrainingData, wanted: Collection[str]) -> dict[str, NDArray[Any]]:
    """Return those of the columns that are wanted, each of shape (n,)."""
    made = {RECORD: _records, WITH_LABEL: _with_label, OUTSIDE: _outside}
    return {name: make(data) for name, make in made.items() if name in wanted}


def _records(data: TrainingData) -> NDArray[Any]:
    return np.arange(data.n) if data.ids is None else np.asarray(data.ids)


def _with_label(data: TrainingData) -> NDArray[np.int64]:
    if data.numbers:
        return np.full(data.n, len(data.units), dtype=np.int64)
    owners = np.arange(data.n) if data.groups is None else np.unique(data.groups, return_inverse=True)[1]
    label = np.searchsorted(data.classes(), data.y)
    pairs = np.unique(np.column_stack([label, owners]), axis=0)
    return np.asarray(np.bincount(pairs[:, 0], minlength=len(data.classes()))[label], dtype=np.int64)


def _outside(data: TrainingData) -> NDArray[np.int64]:
    """Return 1 for records that the declared domain does not hold; what cannot be compared, NaN too, is outside."""
    domain = data.domain
    if domain is None:
        return np.zeros(data.n, dtype=np.int64)
    inside = np.ones(data.n, dtype=np.bool_)
    if domain.columns is not None:
        inside &= domain.holds(data.X)
    elif domain.box is not None or domain.categories is not None:
        inside &= _within(data.X, domain.box, domain.categories)
    return (~inside).astype(np.int64)


def _within(X: Any, box: Any, categories: Any) -> NDArray[np.bool_]:
    try:
        table = np.asarray(X.toarray() if hasattr(X, "toarray") else X, dtype=np.float64)
    except (TypeError, ValueError):
        return np.zeros(len(X), dtype=np.bool_)
    table = table.reshape(len(table), -1)
    inside = np.ones(len(table), dtype=np.bool_)
    if box is not None:
        low, high = np.array(box, dtype=np.float64).T
        inside &= ((table >= low) & (table <= high)).all(axis=1)
    if categories is not None:
        most = np.array(categories, dtype=np.float64)
        inside &= ((table >= 0) & (table < most) & (table == np.floor(table))).all(axis=1)
    return inside
