"""Token counts of documents by their nonzero entries, and sums of logarithms over them.

Leaving a document out takes its own counts off a table; where it is also the query, only its nonzero entries matter,
and whole-number counts take few values, so the logarithms come from a small table.
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from privgate.arrays import Float, Index
from privgate.families import designs
from privgate.families.closed_form import rows_of
from privgate.families.naive_bayes import counts
from privgate.families.over_all_queries import applies
from privgate.subject.subject import Subject

#: entries of a table of logarithms: beyond this, computing each logarithm is cheaper than filling the table
TABLE = 2_000_000


#: numbers that stay in a core's cache
PART = 2**15


def exact_sums(X: Float) -> NDArray[np.bool_]:
    """Return the columns of ``X`` (n, d) whose sums are exact in any order: whole numbers, none of them large."""
    if _small_and_whole(X):
        return np.ones(X.shape[1], dtype=bool)
    whole = (np.floor(X) == X).all(axis=0)
    return np.asarray(whole & (np.abs(X).sum(axis=0) < 2.0**52))


def _small_and_whole(X: Float) -> bool:
    """Whether all of ``X`` is whole and no column's sum can be large; looks at parts that stay in the cache."""
    step, top = max(1, PART // max(1, X.shape[1])), 0.0
    for start in range(0, len(X), step):
        part = X[start : start + step]
        if not (np.floor(part) == part).all():
            return False
        top = max(top, float(part.max(initial=0.0)), -float(part.min(initial=0.0)))
    return top * len(X) < 2.0**52


class Entries(NamedTuple):
    """Nonzero entries of some rows, row by row."""

    start: Index  # (R + 1,)
    column: NDArray[np.int64]
    value: Float

    @property
    def highest(self) -> int:
        """Largest count if all are small whole numbers, else 0."""
        top = self.value.max(initial=0.0)
        return int(top) if top <= 1000 and np.array_equal(self.value, self.value.astype(np.int16)) else 0


@dataclass(eq=False)
class Tokens:
    """A matrix of counts that is read by its nonzero entries.

    Parameters
    ----------
    X : float64 array of shape (P, d)
    """

    X: Float
    _last: tuple[Index, Entries] | None = field(default=None, repr=False)

    def entries(self, rows: Index) -> Entries:
        """Return the entries of the given rows; the last answer is kept, because engines ask for a block twice."""
        if self._last is None or not np.array_equal(self._last[0], rows):
            X = rows_of(self.X, rows)
            hit = X != 0
            size = np.count_nonzero(hit, axis=1)
            flat = np.flatnonzero(hit)
            column = flat - np.repeat(np.arange(len(size)) * X.shape[1], size)
            self._last = rows, Entries(np.append(0, np.cumsum(size)), column, X.ravel()[flat])
        return self._last[1]

    def tabulated(self, rows: Index, table: Float) -> bool:
        """Whether one small table holds the logarithms of every count that the rows can leave of ``table``."""
        return 0 < self.entries(rows).highest * table.size <= TABLE

    def own_logs(self, rows: Index, table: Float, label: Index) -> Float:
        """Return the sum over a row's entries of x_j ln(table_cj - x_j) for its own table row c = label, shape (R,)."""
        found = self.entries(rows)
        size = np.diff(found.start)
        own = np.repeat(label, size)
        if self.tabulated(rows, table):
            level = np.arange(1, found.highest + 1, dtype=np.float64)[:, None, None]
            filled = _logs(table[None], level, weighted=True)  # (levels, C, d)
            index = (found.value.astype(np.int64) - 1) * table.size + own * table.shape[1] + found.column
            term = filled.ravel()[index]
        else:
            term = _logs(table[own, found.column], found.value, weighted=True)
        out, live = np.zeros(len(rows)), np.flatnonzero(size)
        if len(live):
            out[live] = np.add.reduceat(term, found.start[live])
        return out

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

        found = self.entries(rows)
        start, column, value = found
        d, levels = self.X.shape[1], found.highest
        if self.tabulated(rows, table):
            level = np.arange(1, levels + 1, dtype=np.float64)[:, None, None]
            filled = _logs(table[None], level, weighted=weighted)  # (levels, C, d)
            index = (value.astype(np.int64) - 1) * d + column
            hot = sp.csr_matrix((np.ones(len(index)), index, start), shape=(len(rows), levels * d))
            return np.asarray(hot @ filled.transpose(0, 2, 1).reshape(levels * d, -1))
        out = np.zeros((len(rows), len(table)))
        live = np.flatnonzero(np.diff(start))
        for c, row in enumerate(table):
            term = _logs(row[column], value, weighted=weighted)
            if len(live):
                out[live, c] = np.add.reduceat(term, start[live])
        return out


def _logs(table: Float, value: Float, *, weighted: bool) -> Float:
    left = np.maximum(table - value, np.finfo(np.float64).tiny)
    return np.asarray(value * np.log(left) if weighted else np.log(left) - np.log(table))


class TokenEngine(counts.CountingEngine):
    """A closed form about counts of tokens, of which none are negative and each has a smoothing above 0."""

    non_negative = True

    def unfit(self, estimator: Any, subject: Subject) -> str:
        """Return which parameters are not covered; empty if all are."""
        if why := counts.prior_refusal(estimator, subject):
            return why
        alpha = applies.smoothings(estimator)
        fine = alpha.shape in ((), (designs.matrix(subject).shape[1],)) and alpha.min() > 0
        return "" if fine else "alpha is not above 0 for each feature"

    def alpha(self, estimator: Any, d: int) -> Float:
        """Return the smoothing of each of ``d`` features."""
        return np.broadcast_to(applies.smoothings(estimator), (d,))

    def tokens(self, subject: Subject) -> tuple[Float, Float, Float]:
        """Return (the pool (P, d), which class each training record is of (n, K), tokens of each class (K, d))."""
        X = designs.matrix(subject).astype(np.float64, copy=False)
        hot = (subject.label_codes[:, None] == np.arange(len(subject.classes))).astype(np.float64)
        return X, hot, hot.T @ X[: subject.data.n]
