"""Checks of the training data before anything is trained: what would make the numbers mean something else.

Counts only: no value, no label and no record's name leaves these checks. One 64-bit number a record, equal for equal
records, finds duplicates without comparing everybody with everybody.
"""

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.arrays import Bool, Index
from privgate.evidence import Count, Precondition
from privgate.subject.containers import as_numbers, take
from privgate.subject.data import TrainingData

Print = NDArray[np.uint64]

#: what to do about records that may be one person's
_OWNER = "if they belong to one person, name the person in 'groups', otherwise that person's risk is understated"
_ROWS = 1 << 14  # records hashed at once, so that images need no second copy of the data
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_M1, _M2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def fingerprint(X: Any) -> Print:
    """Return a number a record, shape (n,); different records share one with probability about 2^-64.

    Parameters
    ----------
    X : array of any rank, DataFrame, scipy sparse matrix, or list
        Negative zero equals zero, NaN equals NaN, and an integer equals the float of the same value.
    """
    if hasattr(X, "tocsr"):
        return _sparse(X.tocsr())
    if hasattr(X, "columns"):
        return _combine([_column(X.iloc[:, j]) for j in range(X.shape[1])], len(X))
    if hasattr(X, "shape") and np.asarray(X).dtype.kind in "biuf":
        return _numbers(np.asarray(X))
    values = np.asarray(X, dtype=object)
    if values.ndim == 1:
        return _text([str(v) for v in values])
    return _combine([_text([str(v) for v in values[:, j]]) for j in range(values.shape[1])], len(values))


def fingerprint_near(X: Any) -> tuple[Print, Print] | None:
    """Return two numbers a record that are equal for near-duplicates, or None where nearness has no meaning.

    Numbers are near when they fall into one cell of a grid of a thousandth of the column's standard deviation; two
    grids, half a cell apart, so that few pairs are cut. Everything else must be equal; text counts without case, spaces
    and punctuation.
    """
    if hasattr(X, "tocsr"):
        return None
    if hasattr(X, "columns"):
        both = [[_cells(X.iloc[:, j], shift) for j in range(X.shape[1])] for shift in (0.0, 0.5)]
        return _combine(both[0], len(X)), _combine(both[1], len(X))
    if hasattr(X, "shape"):
        array = np.asarray(X)
        if array.dtype.kind != "f":
            return None
        flat = array.reshape(len(array), -1)
        step = _step(flat)
        return _numbers(np.floor(flat / step)), _numbers(np.floor(flat / step + 0.5))
    if all(isinstance(v, str) for v in X):
        plain = _text([re.sub(r"[\W_]+", " ", v).strip().casefold() for v in X])
        return plain, plain
    return None


def _mix(x: Print) -> Print:
    """Return well-mixed bits of each number (the finalizer of SplitMix64; Steele et al., 2014)."""
    x = (x ^ (x >> np.uint64(30))) * _M1
    x = (x ^ (x >> np.uint64(27))) * _M2
    return np.asarray(x ^ (x >> np.uint64(31)), dtype=np.uint64)


def _bits(a: NDArray[Any]) -> Print:
    """Return the bits of each number as float64, one form for zero and one for NaN."""
    f = a.astype(np.float64) + 0.0  # -0.0 + 0.0 is 0.0
    f[np.isnan(f)] = np.nan
    return f.view(np.uint64)


def _keys(width: int) -> Print:
    return _mix(_GOLDEN * np.arange(1, width + 1, dtype=np.uint64))


def _numbers(array: NDArray[Any]) -> Print:
    flat = array.reshape(len(array), -1)
    keys = _keys(flat.shape[1])
    out = np.empty(len(flat), dtype=np.uint64)
    for start in range(0, len(flat), _ROWS):
        block = np.ascontiguousarray(flat[start : start + _ROWS])
        out[start : start + _ROWS] = _mix(_bits(block) ^ keys).sum(axis=1, dtype=np.uint64)
    return out


def _sparse(csr: Any) -> Print:
    csr = csr.copy()
    csr.sum_duplicates()
    csr.eliminate_zeros()
    cells = _mix(_bits(csr.data) ^ _mix(_GOLDEN * (csr.indices.astype(np.uint64) + np.uint64(1))))
    # running sums wrap around, and so do their differences: exact
    total = np.concatenate([np.zeros(1, dtype=np.uint64), np.cumsum(cells, dtype=np.uint64)])
    return np.asarray(total[csr.indptr[1:]] - total[csr.indptr[:-1]], dtype=np.uint64)


def _text(values: list[str]) -> Print:
    from pandas.util import hash_array

    return np.asarray(hash_array(np.array(values, dtype=object)), dtype=np.uint64)


def _column(column: Any) -> Print:
    numbers = as_numbers(column)
    return _text([str(v) for v in column.tolist()]) if numbers is None else _mix(_bits(numbers))


def _cells(column: Any, shift: float) -> Print:
    if column.dtype.kind != "f":
        return _column(column)
    numbers = np.asarray(as_numbers(column))
    return _mix(_bits(np.floor(numbers / _step(numbers[:, None])[0] + shift)))


def _step(reference: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return a thousandth of each column's standard deviation; 1 for a constant column."""
    step = np.nanstd(reference.astype(np.float64), axis=0) * 1e-3
    return np.asarray(np.where(np.isfinite(step) & (step > 0), step, 1.0))


def _combine(columns: list[Print], n: int) -> Print:
    out = np.zeros(n, dtype=np.uint64)
    for key, column in zip(_keys(len(columns)), columns, strict=True):
        out += _mix(column ^ key)
    return out


def check_data(data: TrainingData) -> list[Precondition]:
    """Return one precondition a check, always in this order, passed ones too; none for what cannot be looked for."""
    prints = fingerprint_with_label(data.X, data.y)
    labels = [check_targets(data)] if data.numbers else [check_labels(data), check_class_of_one(data)]
    return [*labels, check_duplicates(data, prints), *check_near_duplicates(data, prints)]


def check_labels(data: TrainingData) -> Precondition:
    """Check the label set: at least two labels, and no candidate with a label that training has never seen."""
    known = data.classes()
    count = {"labels": len(known)}
    if len(known) < 2:
        return Precondition(
            "labels", "failed", "all training records have the same label; nothing can be judged", count
        )
    if data.candidates is not None and (unknown := int((~np.isin(data.candidates[1], known)).sum())):
        some = Count(unknown, len(data.candidates[1]))
        text = f"{some} candidates have a label that no training record has; attacks could tell them by it; remove them"
        return Precondition("labels", "inconclusive", text, {**count, "unknown": unknown})
    return Precondition("labels", "passed", f"{len(known)} labels", count)


def check_targets(data: TrainingData) -> Precondition:
    """Check a regressor's targets: that they differ, and are not a handful of codes."""
    known, detail = len(data.classes()), {"values": len(data.classes())}
    outcome, text = "passed", f"numbers with {known} different values"
    if known < 2:
        outcome, text = "failed", "all training records have the same target; nothing can be judged"
    elif known == 2:
        outcome = "warned"
        text = "the targets have two values only, as labels have; a classifier of them says more about people"
    return Precondition("targets", outcome, text, detail)


def check_class_of_one(data: TrainingData) -> Precondition:
    """Check that every label belongs to at least two people: leaving out the only one removes the label."""
    pairs = np.unique(np.column_stack([np.searchsorted(data.classes(), data.y), data.units.owner]), axis=0)
    alone = int((np.bincount(pairs[:, 0]) == 1).sum())
    detail = {"labels_of_one": alone}
    if not alone:
        return Precondition("class_of_one", "passed", "every label belongs to at least two people", detail)
    text = (
        f"{Count(alone)} labels are each of one person only: without that person the model cannot give the label at "
        "all; merge rare labels"
    )
    return Precondition("class_of_one", "warned", text, detail)


def check_duplicates(data: TrainingData, prints: Print) -> Precondition:
    """Look for equal records of different people: leaving one out leaves the other, and the risk looks too small."""
    copies = int(is_shared(prints, data.units.owner).sum())
    detail = {"records": copies, "share": copies / data.n}
    if copies:
        text = f"{Count(copies, data.n)} of {data.n} records equal another person's record; {_OWNER}"
        return Precondition("duplicates", "warned", text, detail)
    text = "no two people have equal records"
    if fingerprint_near(take(data.X, np.arange(1))) is None:
        text += "; nearly equal ones were not looked for, because these records have no distance"
    return Precondition("duplicates", "passed", text, detail)


def check_near_duplicates(data: TrainingData, prints: Print) -> list[Precondition]:
    """Look for records of different people that differ by rounding only; equal ones are counted by their own check.

    Nothing where records have no distance: what was not looked for passes nothing.
    """
    if (grids := fingerprint_near(data.X)) is None:
        return []
    owners, outcome, text = data.units.owner, "passed", "no two people have nearly equal records"
    near = is_shared(grids[0], owners) | is_shared(grids[1], owners)
    count = int((near & ~is_shared(prints, owners)).sum())
    if count:
        some, outcome = f"{Count(count, data.n)} of {data.n}", "warned"
        text = f"at least {some} records differ from another person's record by rounding only; {_OWNER}"
    return [Precondition("near_duplicates", outcome, text, {"records": count, "share": count / data.n})]


def fingerprint_with_label(X: Any, y: NDArray[Any]) -> Print:
    """Return a number a record and its label together, shape (n,)."""
    label = fingerprint(y[:, None] if y.dtype.kind in "biuf" else [str(v) for v in y])
    return np.asarray(fingerprint(X) * np.uint64(3) + label, dtype=np.uint64)


def is_shared(prints: Print, owners: Index) -> Bool:
    """Return which records have the fingerprint of another person's record, shape (n,)."""
    _, code = np.unique(prints, return_inverse=True)
    first = np.full(code.max() + 1, -1, dtype=np.int64)
    first[code[::-1]] = owners[::-1]  # the owner of each fingerprint's first record
    others = np.bincount(code, weights=owners != first[code])
    return np.asarray(others[code] > 0, dtype=np.bool_)
