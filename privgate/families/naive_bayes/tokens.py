"""Multinomial and complement naive Bayes: counts of words without a unit, in closed form.

Leaving a document out takes its own counts off a table; where it is also the query, only its nonzero entries matter,
and whole-number counts take few values, so the logarithms come from a small table.
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from privgate.arrays import Float, Index
from privgate.families import designs
from privgate.families.closed_form import BLOCK, Removal, rows_of
from privgate.families.engine import Cost
from privgate.families.naive_bayes import counts
from privgate.families.over_all_queries import applies
from privgate.families.retrained import Seeds
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


@dataclass(frozen=True, eq=False)
class _OfWords(counts.ClassModel):
    """Token counts of each (class, feature)."""

    X: Tokens  # pool, (P, d)
    counts: Float  # (K, d)
    alpha: Float  # (d,)
    exact: NDArray[np.bool_]  # (d,) sums of a feature are, in any order

    @property
    def width(self) -> int:
        return int(self.X.X.shape[1]) * 3

    def doubt(self, queries: Index, pair: Index, removal: Removal) -> Float | None:
        """Return how far logarithms of what is left are off, times how often the query has each word."""
        table = self.counts, self.alpha, self.exact
        return counts.taken_off(rows_of(self.X.X, queries), pair, removal, self.X.X, table)

    def scores(self, queries: Index, unit: Index, prepared: Any) -> tuple[Float, None]:
        return rows_of(self.X.X, queries) @ _shares(self.counts, self.alpha).T, None

    def without(self, queries: Index, pair: Index, removal: Removal, prepared: Any) -> Float:
        totals = self.counts.sum(axis=1) + self.alpha.sum()
        if removal.single and np.array_equal(queries, removal.rows[pair]):
            return self._without_itself(queries, removal.label[pair], totals)
        x, gone = self.X.X[queries], removal.sums(self.X.X)
        total = totals[removal.label] - gone.sum(axis=1)
        # a difference of sums of fractions may come out as -1e-17 where it is 0
        left = np.maximum(self.counts[removal.label[pair]] - gone[pair], 0.0) + self.alpha
        score = np.einsum("ij,ij->i", x, np.log(left))
        return np.asarray(score - x.sum(axis=1) * np.log(total)[pair])

    def _without_itself(self, record: Index, label: Index, totals: Float) -> Float:
        length = rows_of(self.X.X, record).sum(axis=1)
        out = self.X.own_logs(record, self.counts + self.alpha, label)
        return np.asarray(out - length * np.log(totals[label] - length))


def _shares(tokens: Float, alpha: Float) -> Float:
    smoothed = tokens + alpha
    return np.asarray(np.log(smoothed) - np.log(smoothed.sum(axis=-1, keepdims=True)))


class MultinomialNb(TokenEngine):
    """Leave-one-out for ``sklearn.naive_bayes.MultinomialNB``; exact, O(n d K) and n d logarithms, no retraining.

    Identity: log p'(x | c) = sum_j x_j [ln(N_cj - t_j + a_j) - ln(N_c - |t| + sum_j a_j)] (docs/mathematics.md,
    section 3.3).
    """

    name = "multinomial_nb"
    library = "MultinomialNB"

    def cost(self, subject: Subject, units: Index, seeds: Seeds, *, mode: str = "all") -> Cost:
        """Return the cost of two matrix products and n d logarithms."""
        n, d, K = subject.data.n, designs.matrix(subject).shape[1], len(subject.classes)
        return Cost(0, 4 * n * d * K / 1e10 + n * d * 8e-9, 16 * n * d + 48 * len(units) * K + BLOCK * 24)

    def model(self, subject: Subject) -> tuple[_OfWords, counts.Prior]:
        """Return the token counts, and the prior."""
        estimator = subject.recipe.library_estimator
        X, _, tokens = self.tokens(subject)
        exact = exact_sums(X[: subject.data.n])
        return _OfWords(Tokens(X), tokens, self.alpha(estimator, X.shape[1]), exact), counts.prior_of(
            estimator, subject
        )

    def on_subsets(self, subject: Subject, masks: NDArray[np.bool_], label: Index, totals: Float) -> counts.OnSubsets:
        """Return models on subsets of the pool: one product of masks and records a class."""
        estimator = subject.recipe.library_estimator
        X, prior = designs.matrix(subject).astype(np.float64, copy=False), counts.prior_of(estimator, subject)
        tokens = counts.sums_on_subsets(X, masks, label, totals.shape[1])
        weight = _shares(tokens, self.alpha(estimator, X.shape[1]))
        return counts.OnSubsets(counts.linear_on_subsets(X, weight, prior.log(totals)), prior)


@dataclass(frozen=True, eq=False)
class _OfOthers(counts.ClassModel):
    """Token counts of everything but each class, smoothed."""

    X: Tokens  # pool, (P, d)
    complement: Float  # (K, d), alpha included
    norm: bool
    floor: Float  # (d,) the smoothing: what is left of a count of 0
    exact: NDArray[np.bool_]  # (d,) sums of a feature are, in any order

    @property
    def width(self) -> int:
        return int(self.X.X.shape[1])

    def doubt(self, queries: Index, pair: Index, removal: Removal) -> Float | None:
        """Return how far logarithms of what is left are off, of any class but the own, times the query's words."""
        x, found = rows_of(self.X.X, queries), np.zeros(len(queries))
        for c, complement in enumerate(self.complement):
            table = np.broadcast_to(complement - self.floor, self.complement.shape), self.floor, self.exact
            if (off := counts.taken_off(x, pair, removal, self.X.X, table)) is None:
                return None
            found = np.maximum(found, np.where(removal.label[pair] == c, 0.0, off))
        return found

    def scores(self, queries: Index, unit: Index, prepared: Removal) -> tuple[Float, Float]:
        """Return scores; records of one class belong to the complement of every other class."""
        removal, N = prepared, len(prepared.first) - 1
        x = rows_of(self.X.X, queries)
        full = x @ _weights(self.complement, norm=self.norm).T
        if removal.records and np.array_equal(queries, removal.rows[unit]):
            return full, self._without_itself(queries, full, removal.label[unit])
        own = removal.sums(self.X.X)
        gone = own if removal.single else np.add.reduceat(own, removal.first[:-1], axis=0)
        lost_by = np.full((N, len(self.complement)), -1)
        lost_by[np.repeat(np.arange(N), np.diff(removal.first)), removal.label] = np.arange(len(removal.label))
        rest = np.empty_like(full)
        for c, complement in enumerate(self.complement):
            pair = lost_by[unit, c]
            taken = gone[unit] - np.where(pair[:, None] >= 0, own[np.maximum(pair, 0)], 0.0)
            rest[:, c] = _score(x, np.maximum(complement - taken, self.floor), norm=self.norm)
        return full, rest

    def _without_itself(self, record: Index, full: Float, label: Index) -> Float:
        """Return scores without the record that is also the query; a record is no part of its class's complement."""
        length, total = rows_of(self.X.X, record).sum(axis=1), self.complement.sum(axis=1)
        log_total = np.log(np.maximum(total - length[:, None], self.floor.sum()))
        score = length[:, None] * log_total - self.X.logs(record, self.complement, weighted=True)
        if self.norm:
            logged = np.log(self.complement).sum(axis=1) + self.X.logs(record, self.complement, weighted=False)
            score /= len(self.floor) * log_total - logged
        at = np.arange(len(record)), label
        score[at] = full[at]
        return np.asarray(score)


def _weights(complement: Float, *, norm: bool) -> Float:
    logged = np.log(complement / complement.sum(axis=-1, keepdims=True))
    return np.asarray(logged / logged.sum(axis=-1, keepdims=True) if norm else -logged)


def _score(x: Float, complement: Float, *, norm: bool) -> Float:
    """Return w . x row by row, for one table of complement counts a row."""
    total = np.log(complement.sum(axis=1))
    logged = np.log(complement)
    score = np.einsum("ij,ij->i", x, logged) - x.sum(axis=1) * total
    return np.asarray(score / (logged.sum(axis=1) - x.shape[1] * total) if norm else -score)


class ComplementNb(TokenEngine):
    """Leave-one-out for ``sklearn.naive_bayes.ComplementNB``, normalised or not; exact, O(n d K) logarithms.

    Identity: the weights of class c come from the counts of all other classes; removing t takes x_t off the
    complement of every class but its own (docs/mathematics.md, section 3.4). Priors play no part (Rennie et al.
    2003).
    """

    name = "complement_nb"
    library = "ComplementNB"

    def unfit(self, estimator: Any, subject: Subject) -> str:
        """Return which parameters are not covered; empty if all are."""
        if why := super().unfit(estimator, subject):
            return why
        if designs.matrix(subject).shape[1] == 1:
            return "with one feature every weight is ln 1 = 0"
        return "there is one class only" if len(subject.classes) < 2 else ""

    def cost(self, subject: Subject, units: Index, seeds: Seeds, *, mode: str = "all") -> Cost:
        """Return the cost of n d K logarithms."""
        n, d, K = subject.data.n, designs.matrix(subject).shape[1], len(subject.classes)
        return Cost(0, 8e-9 * n * d * K, 16 * n * d + 48 * len(units) * K + BLOCK * 32)

    def model(self, subject: Subject) -> tuple[_OfOthers, counts.Prior]:
        """Return the token counts of complements, and the prior, which counts only where a class is missing."""
        estimator, (X, hot, tokens) = subject.recipe.library_estimator, self.tokens(subject)
        alpha, K = self.alpha(estimator, X.shape[1]), len(tokens)
        prior = counts.Prior(hot.sum(axis=0), np.zeros(K), listed=estimator.class_prior is not None)
        exact = exact_sums(X[: subject.data.n])
        return _OfOthers(Tokens(X), tokens.sum(axis=0) - tokens + alpha, bool(estimator.norm), alpha, exact), prior

    def on_subsets(self, subject: Subject, masks: NDArray[np.bool_], label: Index, totals: Float) -> counts.OnSubsets:
        """Return models on subsets of the pool: one product of masks and records a class."""
        estimator = subject.recipe.library_estimator
        X, K = designs.matrix(subject).astype(np.float64, copy=False), totals.shape[1]
        tokens = counts.sums_on_subsets(X, masks, label, K)
        complement = tokens.sum(axis=1, keepdims=True) - tokens + self.alpha(estimator, X.shape[1])
        prior = counts.Prior(totals.sum(axis=0), np.zeros(K), listed=estimator.class_prior is not None)
        weight = _weights(complement, norm=bool(estimator.norm))
        return counts.OnSubsets(counts.linear_on_subsets(X, weight, prior.log(totals)), prior)


MULTINOMIAL = MultinomialNb()
COMPLEMENT = ComplementNb()
