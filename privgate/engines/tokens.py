"""Token counts of documents by their nonzero entries, and sums of logarithms over them.

Leaving a document out takes its own counts off a table; where it is also the query, only its nonzero entries matter,
and whole-number counts take few values, so the logarithms come from a small table.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.retrain.retrained import Index

Float = NDArray[np.float64]

#: entries of a table of logarithms: beyond this, computing each logarithm is cheaper than filling the table
TABLE = 2_000_000


@dataclass(frozen=True, eq=False)
class Tokens:
    """Nonzero entries of a matrix, row by row.

    Parameters
    ----------
    X : float64 array of shape (P, d)
    """

    X: Float

    @cached_property
    def _entries(self) -> tuple[Index, NDArray[np.int32], Float]:
        """(start of each row, shape (P + 1,), column of each entry, value of each entry)."""
        hit = self.X != 0
        size = hit.sum(axis=1)
        flat = np.flatnonzero(hit)
        column = flat - np.repeat(np.arange(len(size)) * self.X.shape[1], size)
        return np.append(0, np.cumsum(size)), column.astype(np.int32), self.X.ravel()[flat]

    @cached_property
    def highest(self) -> int:
        """Largest count if all are whole numbers, else 0."""
        value = self._entries[2]
        top = value.max(initial=0.0)
        return int(top) if top <= 1000 and np.array_equal(value, value.astype(np.int16)) else 0

    def tabulated(self, table: Float) -> bool:
        """Whether one small table holds the logarithms of every count left of ``table``."""
        return 0 < self.highest * table.size <= TABLE

    def entries(self, rows: Index) -> tuple[Index, NDArray[np.int32], Float]:
        """Return (number of entries of each row, columns, values) of the given rows."""
        start, column, value = self._entries
        size = start[rows + 1] - start[rows]
        if len(rows) and rows[-1] - rows[0] == len(rows) - 1 and (np.diff(rows) == 1).all():
            part = slice(start[rows[0]], start[rows[-1] + 1])
            return size, column[part], value[part]
        at = np.arange(size.sum()) + np.repeat(start[rows] - np.append(0, np.cumsum(size)[:-1]), size)
        return size, column[at], value[at]

    def matrix(self, rows: Index) -> Any:
        """Return the rows as a scipy CSR matrix."""
        import scipy.sparse as sp

        size, column, value = self.entries(rows)
        return sp.csr_matrix((value, column, np.append(0, np.cumsum(size))), shape=(len(rows), self.X.shape[1]))

    def logs(self, rows: Index, table: Float, *, weighted: bool) -> Float:
        """Return the sum over a row's entries of [x_j] ln(table_cj - x_j) for every table row c, shape (R, C).

        Parameters
        ----------
        rows : int64 array of shape (R,)
        table : float64 array of shape (C, d)
            Counts from which each row's own counts are taken; where nothing positive is left the answer is not for use.
        weighted : bool
            Whether each logarithm is multiplied by x_j, or is taken relative to ln(table_cj).
        """
        import scipy.sparse as sp

        size, column, value = self.entries(rows)
        start = np.append(0, np.cumsum(size))
        d, levels = self.X.shape[1], self.highest
        if self.tabulated(table):
            level = np.arange(1, levels + 1, dtype=np.float64)[:, None, None]
            filled = _logs(table[None], level, weighted=weighted)  # (levels, C, d)
            index = (value.astype(np.int32) - 1) * d + column
            hot = sp.csr_matrix((np.ones(len(index)), index, start), shape=(len(rows), levels * d))
            return np.asarray(hot @ filled.transpose(0, 2, 1).reshape(levels * d, -1))
        out = np.zeros((len(rows), len(table)))
        live = np.flatnonzero(size)
        for c, counts in enumerate(table):
            term = _logs(counts[column], value, weighted=weighted)
            if len(live):
                out[live, c] = np.add.reduceat(term, start[live])
        return out


def _logs(table: Float, value: Float, *, weighted: bool) -> Float:
    left = np.maximum(table - value, np.finfo(np.float64).tiny)
    return np.asarray(value * np.log(left) if weighted else np.log(left) - np.log(table))
