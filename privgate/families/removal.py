"""What leaving units out takes from the classes, and units in blocks that stay near the processor."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.families import design
from privgate.families.retrained import Index
from privgate.subject.subject import Subject

Float = NDArray[np.float64]

VANISHED = "without the unit one class has no record left"

#: numbers handled at once: 8 MB of float64 stay near the processor
BLOCK = 1_000_000


@dataclass(frozen=True, eq=False)
class Removal:
    """Which classes lose which records when units are left out: one pair for each (unit, class) that loses some.

    Parameters
    ----------
    label : int64 array of shape (T,)
        Class of each pair.
    start : int64 array of shape (T + 1,)
        Pair p loses ``rows[start[p]:start[p + 1]]``.
    rows : int64 array
        Training records.
    first : int64 array of shape (U + 1,)
        Unit u has pairs ``first[u] .. first[u + 1] - 1``.
    """

    label: Index
    start: Index
    rows: Index
    first: Index

    @property
    def lost(self) -> Index:
        """Number of records that each pair loses, shape (T,)."""
        return np.diff(self.start)

    @property
    def size(self) -> Index:
        """Number of records of each unit, shape (U,)."""
        return np.diff(self.start[self.first])

    @property
    def single(self) -> bool:
        """Whether every pair loses exactly one record."""
        return len(self.rows) == len(self.start) - 1  # not the labels, which `whole` leaves as they are

    @property
    def records(self) -> bool:
        """Whether every unit is one record."""
        return len(self.rows) == len(self.first) - 1

    @property
    def whole(self) -> "Removal":
        """The same units with one pair each, whatever the classes of their records."""
        return Removal(self.label, self.start[self.first], self.rows, self.first)

    def sums(self, X: NDArray[Any]) -> Float:
        """Return the sum of the lost records' features of each pair, shape (T, d)."""
        lost = rows_of(X, self.rows).astype(np.float64, copy=False)
        return lost if self.single or not len(lost) else np.asarray(np.add.reduceat(lost, self.start[:-1], axis=0))

    def scatter(self, X: Float, means: Float) -> Float | float:
        """Return the sum of squares of each pair's lost records about their mean (T, d); 0 for one record."""
        if (self.lost == 1).all():
            return 0.0
        square = (X[self.rows] - np.repeat(means, self.lost, axis=0)) ** 2
        return np.asarray(np.add.reduceat(square, self.start[:-1], axis=0))

    def pairs_of(self, unit: Index) -> tuple[Index, Index]:
        """Return (row, pair): every pair of the unit of each row, shape (C,) each; ``unit`` (R,) indexes units."""
        pairs = np.diff(self.first)[unit]
        return np.repeat(np.arange(len(unit), dtype=np.int64), pairs), spread(self.first[unit], pairs)

    def parts(self, unit: int) -> list[tuple[int, Index]]:
        """Return (class, lost records) of the pairs of one unit."""
        pairs = range(int(self.first[unit]), int(self.first[unit + 1]))
        return [(int(self.label[p]), self.rows[self.start[p] : self.start[p + 1]]) for p in pairs]


def spread(first: Index, size: Index) -> Index:
    """Return first[0], first[0] + 1, … (size[0] numbers), first[1], … in one array."""
    return np.repeat(first - (np.cumsum(size) - size), size) + np.arange(size.sum())


def rows_of(X: NDArray[Any], rows: Index) -> NDArray[Any]:
    """Return rows of a matrix, without copying where they lie together; not to be written to."""
    together = len(rows) > 0 and rows[-1] - rows[0] == len(rows) - 1 and bool((np.diff(rows) == 1).all())
    return X[rows[0] : rows[-1] + 1] if together else X[rows]


def removal(subject: Subject, units: Index) -> Removal:
    """Return what the classes lose when each of ``units`` is left out."""
    labels, K = subject.label_codes, len(subject.classes)
    unit, rows = design.unit_rows(subject, units)
    edges = np.arange(len(units) + 1, dtype=np.int64)
    if subject.data.groups is None:
        return Removal(labels[rows], edges, rows, edges)
    key = unit * K + labels[rows]
    order = np.argsort(key, kind="stable")
    pairs, start = np.unique(key[order], return_index=True)
    first = np.searchsorted(pairs // K, edges).astype(np.int64)
    return Removal(pairs % K, np.append(start, len(rows)).astype(np.int64), rows[order], first)


def blocks(row_unit: Index, n_units: int, width: int) -> Iterator[tuple[slice, slice]]:
    """Yield (units, rows) slices with at most about ``BLOCK`` numbers each, never less than one unit."""
    ends = np.searchsorted(row_unit, np.arange(n_units + 1))
    unit = 0
    while unit < n_units:
        stop = int(np.searchsorted(ends, ends[unit] + max(BLOCK // max(width, 1), 1), side="right")) - 1
        stop = min(max(stop, unit + 1), n_units)
        yield slice(unit, stop), slice(int(ends[unit]), int(ends[stop]))
        unit = stop


def vanishing(subject: Subject, units: Index) -> NDArray[np.bool_]:
    """Return which units take the last record of some class with them, shape (U,); a declared class stays."""
    if subject.declared_classes is not None or subject.task == "regression":
        return np.zeros(len(units), dtype=bool)
    labels = subject.label_codes
    counts = np.bincount(labels, minlength=len(subject.classes))
    if subject.data.groups is None:
        return np.asarray((counts <= 1)[labels[units]])
    lost = removal(subject, units)
    alone = lost.lost >= counts[lost.label]
    return np.asarray(np.bincount(np.repeat(np.arange(len(units)), np.diff(lost.first)), alone, len(units)) > 0)
