"""Checks of the training data before anything is trained, because such data would make later numbers misleading.

They report counts only. A fingerprint is a 64-bit hash of a record: sorting finds duplicates.
"""

import re
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.arrays import Float
from privgate.evidence import Count, Precondition
from privgate.subject.containers import as_numbers
from privgate.subject.data import TrainingData

Fingerprints = NDArray[np.uint64]

_GOLDEN = 0x9E3779B97F4A7C15  # 2^64 / golden ratio: its multiples spread over all 64 bits


def fingerprint_records(X: Any) -> Fingerprints:
    """Return the fingerprint of each record, shape (n,); two different records share one with probability 2^-64.

    Negative zero equals zero, NaN equals NaN, and an integer equals the float of the same value.
    """
    if hasattr(X, "tocsr"):
        return _hash_sparse(X.tocsr())
    return _combine_columns(map(_hash_column, list_columns(X)))


def fingerprint_with_label(X: Any, y: NDArray[Any]) -> Fingerprints:
    """Return the fingerprint of each record together with its label, shape (n,)."""
    return np.asarray(fingerprint_records(X) * np.uint64(3) + _hash_column(y), dtype=np.uint64)


def fingerprint_grids(X: Any) -> tuple[Fingerprints, ...]:
    """Return fingerprints of each record, without its label, by which near copies share at least one.

    Records are rounded to two grids. A cell is a thousandth of the column's standard deviation wide, and the second
    grid lies half a cell beside the first. Other values must be equal, texts without case, spaces and punctuation.
    """
    shifts = (0.0, 0.5)
    if isinstance(X, list) and all(isinstance(v, str) for v in X):
        plain = _hash([re.sub(r"[\W_]+", " ", v).strip().casefold() for v in X])
        return tuple(plain for _ in shifts)
    if hasattr(X, "tocsr"):
        grids = [X.tocsr().astype(np.float64) for _ in shifts]
        step = (float(np.nanstd(grids[0].data)) if grids[0].nnz else 0.0) * 1e-3 or 1.0
        for grid, shift in zip(grids, shifts, strict=True):
            grid.data = np.floor(grid.data / step + shift)
        return tuple(map(_hash_sparse, grids))
    if not hasattr(X, "columns") and np.asarray(X).dtype.kind != "f":
        return (fingerprint_records(X),)
    columns = list_columns(X)
    return tuple(_combine_columns(_hash_rounded(c, shift) for c in columns) for shift in shifts)


def list_columns(X: Any) -> list[Any]:
    """Return the columns of a frame, of an array of any rank, or of a list."""
    if hasattr(X, "columns"):
        return [X.iloc[:, j] for j in range(X.shape[1])]
    values = np.asarray(X) if hasattr(X, "shape") else np.asarray(X, dtype=object)
    return list(values.reshape(len(values), -1).T)


def _hash(values: Any) -> Fingerprints:
    if isinstance(values, list):
        from pandas.util import hash_array

        return np.asarray(hash_array(np.array(values, dtype=object)), dtype=np.uint64)
    values = (values ^ values >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)  # SplitMix64 (Steele et al., 2014)
    values = (values ^ values >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return np.asarray(values ^ values >> np.uint64(31), dtype=np.uint64)


def _hash_numbers(numbers: Float) -> Fingerprints:
    numbers = numbers + 0.0  # -0.0 + 0.0 is 0.0
    numbers[np.isnan(numbers)] = np.nan  # one bit pattern for every NaN
    return _hash(numbers.view(np.uint64))


def _hash_column(column: Any) -> Fingerprints:
    numbers = as_numbers(column)
    return _hash([str(v) for v in column.tolist()]) if numbers is None else _hash_numbers(numbers)


def _hash_rounded(column: Any, shift: float) -> Fingerprints:
    if column.dtype.kind != "f":
        return _hash_column(column)
    numbers = np.asarray(as_numbers(column))
    step = np.nanstd(numbers) * 1e-3
    return _hash_numbers(np.floor(numbers / (step if np.isfinite(step) and step > 0 else 1.0) + shift))


def _hash_sparse(csr: Any) -> Fingerprints:
    csr = csr.copy()
    csr.sum_duplicates()
    csr.eliminate_zeros()
    places = _hash((csr.indices.astype(np.uint64) + np.uint64(1)) * np.uint64(_GOLDEN))
    cells = _hash(_hash_numbers(csr.data.astype(np.float64)) ^ places)
    # a row's sum of hashes is the difference of two running sums; both wrap around, so the difference is exact
    total = np.concatenate([np.zeros(1, dtype=np.uint64), np.cumsum(cells, dtype=np.uint64)])
    return np.asarray(total[csr.indptr[1:]] - total[csr.indptr[:-1]], dtype=np.uint64)


def _combine_columns(columns: Iterable[Fingerprints]) -> Fingerprints:
    mixed = (_hash(column ^ np.uint64(j * _GOLDEN % 2**64)) for j, column in enumerate(columns, start=1))
    return sum(mixed, start=np.zeros(1, dtype=np.uint64))


def check_data(data: TrainingData) -> list[Precondition]:
    """Return the result of each check, passed ones too, always in this order; a check that cannot run is absent."""
    labels = [_check_targets(data)] if data.predicts_numbers else [_check_labels(data), _check_single_owners(data)]
    return [*labels, _check_duplicates(data)]


def _check_labels(data: TrainingData) -> Precondition:
    known = data.classes
    detail = {"labels": len(known)}
    if len(known) < 2:
        text = "all training records have the same label; nothing can be judged"
        return Precondition("labels", "failed", text, detail)
    if data.candidates is not None and (unknown := int((~np.isin(data.candidates[1], known)).sum())):
        some = Count(unknown, len(data.candidates[1]))
        text = f"{some} candidates have a label that no training record has; attacks could tell them by it; remove them"
        return Precondition("labels", "inconclusive", text, {**detail, "unknown": unknown})
    return Precondition("labels", "passed", f"{len(known)} labels", detail)


def _check_targets(data: TrainingData) -> Precondition:
    known = len(data.classes)
    outcome, text = "passed", f"numbers with {known} different values"
    if known < 2:
        outcome, text = "failed", "all training records have the same target; nothing can be judged"
    return Precondition("targets", outcome, text, {"values": known})


def _check_single_owners(data: TrainingData) -> Precondition:
    pairs = np.unique(np.column_stack([np.searchsorted(data.classes, data.y), data.units.owner]), axis=0)
    single = int((np.bincount(pairs[:, 0]) == 1).sum())
    outcome, text = "passed", "every label belongs to at least two people"
    if single:
        outcome, text = "warned", f"{Count(single)} labels are each of one person only: without that person the model "
        text += "cannot give the label at all; merge rare labels"
    return Precondition("class_of_one", outcome, text, {"labels_of_one": single})


def _check_duplicates(data: TrainingData) -> Precondition:
    """Look for equal records of different people: training without one still knows the other."""
    code, people = np.unique(fingerprint_with_label(data.X, data.y), return_inverse=True)[1], len(data.units)
    held = np.bincount(np.unique(code * people + data.units.owner) // people)  # by how many people
    count = int((held[code] > 1).sum())
    outcome, text = "passed", "no two people have equal records"
    if count:
        outcome, text = "warned", f"{Count(count, data.n)} of {data.n} records equal another person's record; if they "
        text += "belong to one person, name the person in 'groups', otherwise that person's risk is understated"
    return Precondition("duplicates", outcome, text, {"records": count, "share": count / data.n})
