"""Checks of the training data before anything is trained: what would make the numbers mean something else.

Counts only: no value, no label and no record's name leaves these checks. One 64-bit number a record, equal for equal
records, finds duplicates without comparing everybody with everybody.
"""

import re
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.arrays import Bool, Float, Index
from privgate.evidence import Count, Precondition
from privgate.subject.containers import as_numbers
from privgate.subject.data import TrainingData

Print = NDArray[np.uint64]

#: what to do about records that may be one person's
_OWNER = "if they belong to one person, name the person in 'groups', otherwise that person's risk is understated"
_NEAR = "at least {} of {} records differ from another person's record by rounding only"
_GOLDEN = 0x9E3779B97F4A7C15  # whose multiples spread over all 64 bits


def fingerprint(X: Any) -> Print:
    """Return a number a record, shape (n,); different records share one with probability about 2^-64.

    Of arrays of any rank, frames, sparse matrices and lists. Negative zero equals zero, NaN equals NaN, and an integer
    equals the float of the same value.
    """
    if hasattr(X, "tocsr"):
        return _print_sparse(X.tocsr())
    return _combine(map(_print_column, list_columns(X)))


def list_columns(X: Any) -> list[Any]:
    """Return the columns of a frame, of an array of any rank, or of a list."""
    if hasattr(X, "columns"):
        return [X.iloc[:, j] for j in range(X.shape[1])]
    values = np.asarray(X) if hasattr(X, "shape") else np.asarray(X, dtype=object)
    return list(values.reshape(len(values), -1).T)


def fingerprint_near(X: Any) -> tuple[Print, Print] | None:
    """Return two numbers a record that are equal for near-duplicates, or None where nearness has no meaning.

    Numbers are near when they fall into one cell of a grid of a thousandth of the column's standard deviation; two
    grids, half a cell apart, so that few pairs are cut. Everything else must be equal; text counts without case, spaces
    and punctuation.
    """
    if isinstance(X, list) and all(isinstance(v, str) for v in X):
        plain = _hash([re.sub(r"[\W_]+", " ", v).strip().casefold() for v in X])
        return plain, plain
    if not hasattr(X, "columns") and (hasattr(X, "tocsr") or np.asarray(X).dtype.kind != "f"):
        return None
    columns = list_columns(X)
    return _combine(_print_cells(c, 0.0) for c in columns), _combine(_print_cells(c, 0.5) for c in columns)


def _hash(values: Any) -> Print:
    """Return well-mixed bits of each text or 64-bit number (of numbers by SplitMix64; Steele et al., 2014)."""
    from pandas.util import hash_array

    values = np.array(values, dtype=object) if isinstance(values, list) else values
    return np.asarray(hash_array(values), dtype=np.uint64)


def _hash_numbers(numbers: Float) -> Print:
    numbers = numbers + 0.0  # -0.0 + 0.0 is 0.0
    numbers[np.isnan(numbers)] = np.nan
    return _hash(numbers.view(np.uint64))


def _print_column(column: Any) -> Print:
    numbers = as_numbers(column)
    return _hash([str(v) for v in column.tolist()]) if numbers is None else _hash_numbers(numbers)


def _print_cells(column: Any, shift: float) -> Print:
    if column.dtype.kind != "f":
        return _print_column(column)
    numbers = np.asarray(as_numbers(column))
    step = np.nanstd(numbers) * 1e-3
    return _hash_numbers(np.floor(numbers / (step if np.isfinite(step) and step > 0 else 1.0) + shift))


def _print_sparse(csr: Any) -> Print:
    csr = csr.copy()
    csr.sum_duplicates()
    csr.eliminate_zeros()
    places = _hash((csr.indices.astype(np.uint64) + np.uint64(1)) * np.uint64(_GOLDEN))
    cells = _hash(_hash_numbers(csr.data.astype(np.float64)) ^ places)
    # running sums wrap around, and so do their differences: exact
    total = np.concatenate([np.zeros(1, dtype=np.uint64), np.cumsum(cells, dtype=np.uint64)])
    return np.asarray(total[csr.indptr[1:]] - total[csr.indptr[:-1]], dtype=np.uint64)


def _combine(columns: Iterable[Print]) -> Print:
    mixed = (_hash(column ^ np.uint64(j * _GOLDEN % 2**64)) for j, column in enumerate(columns, start=1))
    return sum(mixed, start=np.zeros(1, dtype=np.uint64))


def check_data(data: TrainingData) -> list[Precondition]:
    """Return one precondition a check, always in this order, passed ones too; none for what cannot be looked for."""
    labels = [check_targets(data)] if data.numbers else [check_labels(data), check_class_of_one(data)]
    return [*labels, *check_duplicates(data)]


def check_labels(data: TrainingData) -> Precondition:
    """Check the label set: at least two labels, and no candidate with a label that training has never seen."""
    known = data.classes()
    detail = {"labels": len(known)}
    if len(known) < 2:
        text = "all training records have the same label; nothing can be judged"
        return Precondition("labels", "failed", text, detail)
    if data.candidates is not None and (unknown := int((~np.isin(data.candidates[1], known)).sum())):
        some = Count(unknown, len(data.candidates[1]))
        text = f"{some} candidates have a label that no training record has; attacks could tell them by it; remove them"
        return Precondition("labels", "inconclusive", text, {**detail, "unknown": unknown})
    return Precondition("labels", "passed", f"{len(known)} labels", detail)


def check_targets(data: TrainingData) -> Precondition:
    """Check a regressor's targets: that they differ, and are not a handful of codes."""
    known = len(data.classes())
    outcome, text = "passed", f"numbers with {known} different values"
    if known < 2:
        outcome, text = "failed", "all training records have the same target; nothing can be judged"
    elif known == 2:
        outcome = "warned"
        text = "the targets have two values only, as labels have; a classifier of them says more about people"
    return Precondition("targets", outcome, text, {"values": known})


def check_class_of_one(data: TrainingData) -> Precondition:
    """Check that every label belongs to at least two people: leaving out the only one removes the label."""
    pairs = np.unique(np.column_stack([np.searchsorted(data.classes(), data.y), data.units.owner]), axis=0)
    alone = int((np.bincount(pairs[:, 0]) == 1).sum())
    outcome, text = "passed", "every label belongs to at least two people"
    if alone:
        outcome, text = "warned", f"{Count(alone)} labels are each of one person only: without that person the model "
        text += "cannot give the label at all; merge rare labels"
    return Precondition("class_of_one", outcome, text, {"labels_of_one": alone})


def check_duplicates(data: TrainingData) -> list[Precondition]:
    """Look for equal and nearly equal records of different people: leaving one out leaves the other.

    Of near ones nothing is said where records have no distance: what was not looked for passes nothing.
    """
    owners, grids = data.units.owner, fingerprint_near(data.X)
    equal = is_shared(fingerprint_with_label(data.X, data.y), owners)
    near = None if grids is None else (is_shared(grids[0], owners) | is_shared(grids[1], owners)) & ~equal
    absent = "" if grids else "; nearly equal ones were not looked for, because these records have no distance"
    checks = []
    for name, rows, fine, what in (
        ("duplicates", equal, f"equal records{absent}", "{} of {} records equal another person's record"),
        ("near_duplicates", near, "nearly equal records", _NEAR),
    ):
        if rows is not None:
            count = int(rows.sum())
            text = f"{what.format(Count(count, data.n), data.n)}; {_OWNER}" if count else f"no two people have {fine}"
            detail = {"records": count, "share": count / data.n}
            checks.append(Precondition(name, "warned" if count else "passed", text, detail))
    return checks


def fingerprint_with_label(X: Any, y: NDArray[Any]) -> Print:
    """Return a number a record and its label together, shape (n,)."""
    return np.asarray(fingerprint(X) * np.uint64(3) + _print_column(y), dtype=np.uint64)


def is_shared(prints: Print, owners: Index) -> Bool:
    """Return which records have the fingerprint of another person's record, shape (n,)."""
    _, code = np.unique(prints, return_inverse=True)
    first = np.full(code.max() + 1, -1, dtype=np.int64)
    first[code[::-1]] = owners[::-1]  # the owner of each fingerprint's first record
    others = np.bincount(code, weights=owners != first[code])
    return np.asarray(others[code] > 0, dtype=np.bool_)
