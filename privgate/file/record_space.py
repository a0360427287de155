"""Records as they may have been written, to be looked up in whatever order of rows and columns."""

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.arrays import Bool, Float

#: bits by which the values of a row must be rarer than chance, if one row is found, and if several are
ALONE, TOGETHER = 40.0, 20.0
#: bits on average, where nearly all rows of a table are records
FEW, _MOST = 8.0, 0.9
#: times as many records as chance meets
CHANCE = 5
#: times that columns are moved to see what chance meets
_DRAWN = 3
#: records from which on an array with an entry each is noticed
MANY = 20
#: rows, and numbers of them, that are tried before a whole array is
_TRIED = 512
#: share of a column's numbers that are the records', where some of its rows are
_FITS = 0.1
#: places where a record may begin that are compared at a time
_WINDOWS = 100_000
#: what stands for a missing value, and for what whole numbers cannot hold
_MISSING, _NOT_THERE = np.pi * 1e30, 1e300


class RecordSpace:
    """Records as they may have been written, each column's values in order, to be looked up.

    ``ulps`` allow for rounding: of printed numbers, and of arithmetic that scaled them.
    """

    def __init__(self, table: Float, dtype: Any, *, ulps: int) -> None:
        with np.errstate(all="ignore"):
            self.made = _plain(table.astype(dtype))
            absent = (self.made != table) & (np.dtype(dtype).kind in "biu")  # what whole numbers cannot hold
            self.made[absent] = _NOT_THERE
            #: whether some record stands whole
            self.whole = not absent.any(axis=1).all()
        kind = np.finfo(dtype) if np.dtype(dtype).kind == "f" else None
        self.near = 0.0 if kind is None else float(kind.eps) * ulps
        self.values = [_distinct(c) for c in self.made.T]
        #: below these, a column's values are rounded as if they were as large
        self.small = [1e-3 * np.abs(v[np.abs(v) < 1e30]).max(initial=0.0) for v in self.values]

    @cached_property
    def every(self) -> Float:
        """The values of all columns, in order."""
        return np.sort(np.concatenate([*self.values, [-np.inf, np.inf]]))

    @cached_property
    def rarest(self) -> list[int]:
        """The columns, those of the most different values first."""
        some = self.made[:: max(1, len(self.made) // _TRIED)]
        return sorted(range(len(self.values)), key=lambda j: -len(_distinct(some[:, j])))

    @cached_property
    def codes(self) -> NDArray[np.int64]:
        """The place of each record's value among its column's, shape (n, d)."""
        return np.column_stack([np.unique(c, return_inverse=True)[1] for c in self.made.T])

    @cached_property
    def bits(self) -> Float:
        """How rare each record's value is, in bits, shape (n, d); what cannot be told from it counts with it."""
        return -np.log2(np.column_stack([self._share(j) for j in range(len(self.values))]))

    def _share(self, j: int) -> Float:
        """Return the share of records whose value in a column is as good as each one's, shape (n,)."""
        own, every = self.values[j], np.sort(self.made[:, j])
        off = self._off(j, own)
        inside = np.searchsorted(every, own + off, side="right") - np.searchsorted(every, own - off, side="left")
        return np.asarray(inside / len(every), dtype=np.float64)[self.codes[:, j]]

    def _off(self, j: int, column: Float) -> Float:
        """Return by how much numbers may be off."""
        return np.asarray(self.near * np.maximum(np.abs(column), self.small[j]))

    def windows(self, flat: NDArray[Any]) -> Iterator[NDArray[Any]]:
        """Yield as many numbers as a record has, wherever one may begin in a row of numbers, in blocks."""
        width = len(self.values)
        flat = _plain(flat)
        start = np.arange(len(flat) - width + 1) if self.whole else np.zeros(0, dtype=np.int64)
        for j in self.rarest:
            start = start[self._code(j, flat[start + j]) >= 0]
        for k in range(0, len(start), _WINDOWS):
            yield flat[start[k : k + _WINDOWS, None] + np.arange(width)]

    @np.errstate(all="ignore")
    def _any(self, column: Float) -> float:
        """Return which share of these values are some column's at all."""
        at = np.searchsorted(self.every[1:-1], column) + 1
        off = np.minimum(np.abs(self.every[at] - column), np.abs(self.every[at - 1] - column))
        return float((off <= self.near * np.maximum(np.abs(column), max(self.small))).mean())

    @np.errstate(all="ignore")
    def _code(self, j: int, column: Float) -> NDArray[np.int64]:
        """Return the place of each value among the column's own, -1 where it is none of them."""
        own = self.values[j]
        at = np.clip(np.searchsorted(own, column), 0, len(own) - 1)
        if self.near:
            before = np.maximum(at - 1, 0)
            at = np.where(np.abs(own[before] - column) < np.abs(own[at] - column), before, at)
        return np.where(np.abs(own[at] - column) <= self._off(j, column), at, -1).astype(np.int64)

    def held(self, table: NDArray[Any], *, straight: bool = False) -> Bool:
        """Return which records are rows of a table, whatever the order of rows, and of columns if not ``straight``."""
        none, width = np.zeros(len(self.made), dtype=bool), len(self.values)
        if not len(table):
            return none
        some = _plain(table[:: max(1, len(table) // _TRIED), : min(4 * width, 256)])
        if not straight and self._any(some.ravel()[np.arange(_TRIED) * 40503 % some.size]) < 0.05:
            return none
        pairs = [(j, j) for j in self.rarest] if straight else self._columns(some)
        size, table = len(table), self._whole_rows(table) if straight else table
        if len(pairs) < 2 or not len(table):
            return none
        theirs = np.column_stack([self._code(j, _plain(table[:, c])) for c, j in pairs])
        mine = self.codes[:, [j for _, j in pairs]]
        found, rows = _common(mine, theirs)
        if not found.any():
            return none
        bits = self.bits[:, [j for _, j in pairs]].sum(axis=1)
        # the same numbers with each column moved by itself: what they meet, they meet by chance
        few = straight and len(theirs) < 8 * width  # too few to be moved: the records are
        if few:
            found[found] = [len(set(r)) > min(2, width - 1) for r in self.made[found].tolist()]
        still = mine if few else theirs
        chance = 0
        for _ in range(_DRAWN):
            moved = np.column_stack([np.roll(c, k) for k, c in zip(_shifts(*still.shape), still.T, strict=True)])
            chance += (_common(moved, theirs) if few else _common(mine, moved))[0].sum()
        if CHANCE * chance > _DRAWN * found.sum():
            return none
        if rows >= MANY and rows >= _MOST * size and bits[found].mean() >= FEW:
            return found
        some = self.made[:, [j for _, j in pairs]]
        found &= (bits >= TOGETHER) & (some != some[:, :1]).any(axis=1)  # one number again and again says nothing
        return found if found.sum() >= 2 or (found & (bits >= ALONE)).any() else none

    def _whole_rows(self, table: NDArray[Any]) -> NDArray[Any]:
        """Return the rows of which every number may be its column's."""
        rows = np.arange(len(table))
        for j in self.rarest:
            rows = rows[self._code(j, _plain(table[rows, j])) >= 0]
        return table[rows]

    def _columns(self, some: Float) -> list[tuple[int, int]]:
        """Return (column of the table, column of the records) that hold the same values, each used once."""
        free = set(range(len(self.values)))
        pairs = []
        for c in range(some.shape[1]):
            fits = self._any(some[:, c])
            if fits < 0.5 and fits < _FITS + self._any(1.001 * some[:, c]):  # what chance meets
                continue
            order = [c] if c in free else []
            order += [j for j in free if j != c and len(self.values[j]) >= MANY][:64]
            best, fits = -1, _FITS
            for j in order:
                if (share := (self._code(j, some[:, c]) >= 0).mean()) > fits:
                    best, fits = j, share
                if share >= 0.5:
                    break
            if best >= 0:
                pairs.append((c, best))
                free.discard(best)
        return pairs


def _shifts(rows: int, columns: int) -> NDArray[np.int64]:
    """Return by how many rows each column is moved: nobody who wrote the file can know."""
    return np.random.default_rng().permutation(max(rows, columns))[:columns]


def _distinct(column: Float) -> Float:
    """Return a column's values in order, each once."""
    made = np.sort(column)
    return np.asarray(made[np.append(True, made[1:] != made[:-1])])


@np.errstate(all="ignore")
def _plain(values: NDArray[Any]) -> Float:
    """Return numbers as float64, what is missing as a number that nothing else is."""
    return np.asarray(np.nan_to_num(values.astype(np.float64), nan=_MISSING))


def _common(mine: NDArray[np.int64], theirs: NDArray[np.int64]) -> tuple[Bool, int]:
    """Return which rows of mine are among theirs, and how many rows of theirs are among mine.

    Of each row 64 bits are compared: that two others have the same, chance brings about once in 10^19 pairs.
    """
    mix = 0x1E3779B97F4A7C15 ** np.arange(1, mine.shape[1] + 1, dtype=np.int64)
    own, rows = mine @ mix, theirs[(theirs >= 0).all(axis=1)] @ mix
    return _among(own, rows), int(_among(rows, own).sum())


def _among(some: NDArray[np.int64], others: NDArray[np.int64]) -> Bool:
    others = np.sort(others)
    at = np.searchsorted(others, some, side="right")
    return np.asarray(others[at - 1] == some) & (at > 0) if len(others) else np.zeros(len(some), dtype=bool)
