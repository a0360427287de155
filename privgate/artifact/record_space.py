"""Records as they may have been written, to be looked up in whatever order of rows and columns."""

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
#: records from which on an array with an entry each is noticed
MANY = 20
#: rows that are tried before a whole array is
_TRIED = 512
#: places at which a record may begin that are tried
_WINDOWS = 100_000


class RecordSpace:
    """Records as they may have been written, each column's values in order, to be looked up.

    ``ulps`` allow for rounding: of printed numbers, and of arithmetic that scaled them.
    """

    def __init__(self, table: Float, dtype: Any, *, ulps: int) -> None:
        with np.errstate(all="ignore"):
            self.made = _plain(table.astype(dtype))
            if np.dtype(dtype).kind in "biu":  # a column that whole numbers cannot hold is not there
                self.made[:, (self.made != table).any(axis=0)] = 1e300
        kind = np.finfo(dtype) if np.dtype(dtype).kind == "f" else None
        self.near = 0.0 if kind is None else float(kind.eps) * ulps
        self.values = [np.unique(c) for c in self.made.T]
        self.every = np.unique(np.append(np.concatenate(self.values), np.inf))
        self.most = float(np.abs(self.made).max())
        self.codes = np.column_stack([self._code(j, c) for j, c in enumerate(self.made.T)])
        #: how rare each record's value is, in bits, shape (n, d); what cannot be told from it counts with it
        self.bits = -np.log2(np.column_stack([self._share(j) for j in range(len(self.values))]))

    def _share(self, j: int) -> Float:
        """Return the share of records whose value in a column is as good as each one's, shape (n,)."""
        own, every = self.made[:, j], np.sort(self.made[:, j])
        off = self.near * np.maximum(np.abs(own), np.abs(every).max() * 1e-3)
        inside = np.searchsorted(every, own + off, side="right") - np.searchsorted(every, own - off, side="left")
        return np.asarray(inside / len(own), dtype=np.float64)

    def windows(self, flat: NDArray[Any]) -> NDArray[Any]:
        """Return as many numbers as a record has, wherever one may begin in a row of numbers."""
        width = len(self.values)
        rare = int(self.bits.mean(axis=0).argmax())
        start = np.flatnonzero(self._code(rare, self._likely(flat, rare)) >= 0) - rare
        start = start[(start >= 0) & (start + width <= len(flat))][:_WINDOWS]
        found: NDArray[Any] = flat[start[:, None] + np.arange(width)]
        return found

    def _any(self, column: Float, share: float = 0.5) -> bool:
        """Return whether a share of these values are some column's at all."""
        at = np.clip(np.searchsorted(self.every, column), 1, len(self.every) - 1)
        off = np.minimum(np.abs(self.every[at] - column), np.abs(self.every[at - 1] - column))
        return bool((off <= self.near * np.maximum(np.abs(column), self.most * 1e-3)).mean() >= share)

    def _likely(self, flat: NDArray[Any], j: int) -> Float:
        """Return numbers as float64; of many, only those whose bits may be a value of the column, NaN for others."""
        with np.errstate(all="ignore"):
            if self.near or len(flat) < 1 << 16 or flat.dtype.itemsize not in (4, 8):
                return np.asarray(flat, dtype=np.float64)
            kind = np.dtype(f"u{flat.dtype.itemsize}")
            shift, odd = kind.itemsize * 8 - 16, kind.type(0x9E3779B97F4A7C15 & ((1 << kind.itemsize * 8) - 1))
            table = np.zeros(1 << 16, dtype=bool)
            own = self.values[j].astype(flat.dtype)
            table[((own.view(kind) * odd) >> shift).astype(np.int64)] = True
            made = np.full(len(flat), np.nan)
            for k in range(0, len(flat), 1 << 20):
                part = np.ascontiguousarray(flat[k : k + (1 << 20)])
                maybe = np.flatnonzero(table[(part.view(kind) * odd) >> shift])
                made[k + maybe] = part[maybe]
            return made

    @np.errstate(all="ignore")
    def _code(self, j: int, column: Float) -> NDArray[np.int64]:
        """Return the place of each value among the column's own, -1 where it is none of them."""
        own = self.values[j]
        at = np.clip(np.searchsorted(own, column), 0, len(own) - 1)
        if self.near:
            before = np.maximum(at - 1, 0)
            at = np.where(np.abs(own[before] - column) < np.abs(own[at] - column), before, at)
        with np.errstate(all="ignore"):
            off = np.abs(own[at] - column)
            fine = off <= self.near * np.maximum(np.abs(column), np.abs(own).max() * 1e-3)
        return np.where(fine, at, -1).astype(np.int64)

    def held(self, table: NDArray[Any], *, straight: bool = False) -> Bool:
        """Return which records are rows of a table, whatever the order of rows, and of columns if not ``straight``."""
        none, width = np.zeros(len(self.made), dtype=bool), len(self.values)
        some = _plain(table[:: max(1, len(table) // _TRIED)])
        if not len(table) or (not straight and not self._any(some.ravel()[:4096], 0.1)):
            return none
        pairs = [(j, j) for j in range(width)] if straight else self._columns(some)
        if len(pairs) < 2:
            return none
        theirs = np.column_stack([self._code(j, _plain(table[:, c])) for c, j in pairs])
        mine, bits = self.codes[:, [j for _, j in pairs]], self.bits[:, [j for _, j in pairs]].sum(axis=1)
        found, rows = _common(mine, theirs)
        if not found.any():
            return none
        # the same numbers with each column moved by itself: what they meet, they meet by chance
        moved = np.column_stack([np.roll(c, 7 * k + 1) for k, c in enumerate(theirs.T)])
        if CHANCE * _common(mine, moved)[0].sum() > found.sum():
            return none
        if rows >= MANY and rows >= _MOST * len(theirs) and bits[found].mean() >= FEW:
            return found
        found &= bits >= TOGETHER
        return found if found.sum() >= 2 or (found & (bits >= ALONE)).any() else none

    def _columns(self, some: Float) -> list[tuple[int, int]]:
        """Return (column of the table, column of the records) that hold the same values, each used once."""
        d, free = len(self.values), set(range(len(self.values)))
        pairs = []
        for c in range(min(some.shape[1], 4 * d, 256)):
            if not self._any(some[:, c]):
                continue
            order = [c] if c in free else []
            order += [j for j in free if j != c and len(self.values[j]) >= MANY][:64]
            for j in order:
                if (self._code(j, some[:, c]) >= 0).mean() >= 0.5:
                    pairs.append((c, j))
                    free.discard(j)
                    break
        return pairs


@np.errstate(all="ignore")
def _plain(values: NDArray[Any]) -> Float:
    """Return numbers as float64, what is missing as a number that nothing else is."""
    return np.asarray(np.nan_to_num(values.astype(np.float64), nan=np.pi * 1e30))


def _common(mine: NDArray[np.int64], theirs: NDArray[np.int64]) -> tuple[Bool, int]:
    """Return which rows of mine are among theirs, and how many rows of theirs are among mine."""
    kind = np.dtype((np.void, 8 * mine.shape[1]))
    theirs = theirs[(theirs >= 0).all(axis=1)]
    own, rows = (np.ascontiguousarray(v).view(kind).ravel() for v in (mine, theirs))
    return np.isin(own, rows), int(np.isin(rows, own).sum())
