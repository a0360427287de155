"""Complement naive Bayes: every class is scored by what the others hold, so leaving one out changes all others."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.arrays import Float, Index
from privgate.families import designs
from privgate.families.closed_form import BLOCK, Removal, rows_of
from privgate.families.engine import Cost
from privgate.families.naive_bayes import counts
from privgate.families.naive_bayes.counts import Prior
from privgate.families.naive_bayes.tokens import TokenEngine, Tokens, exact_sums
from privgate.families.retrained import Seeds
from privgate.subject.subject import Subject


@dataclass(frozen=True, eq=False)
class _Model(counts.ClassModel):
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

    def model(self, subject: Subject) -> tuple[_Model, Prior]:
        """Return the token counts of complements, and the prior, which counts only where a class is missing."""
        estimator, (X, hot, tokens) = subject.recipe.library_estimator, self.tokens(subject)
        alpha, K = self.alpha(estimator, X.shape[1]), len(tokens)
        prior = Prior(hot.sum(axis=0), np.zeros(K), listed=estimator.class_prior is not None)
        exact = exact_sums(X[: subject.data.n])
        return _Model(Tokens(X), tokens.sum(axis=0) - tokens + alpha, bool(estimator.norm), alpha, exact), prior

    def on_subsets(self, subject: Subject, masks: NDArray[np.bool_], label: Index, totals: Float) -> counts.OnSubsets:
        """Return models on subsets of the pool: one product of masks and records a class."""
        estimator = subject.recipe.library_estimator
        X, K = designs.matrix(subject).astype(np.float64, copy=False), totals.shape[1]
        tokens = counts.sums_on_subsets(X, masks, label, K)
        complement = tokens.sum(axis=1, keepdims=True) - tokens + self.alpha(estimator, X.shape[1])
        prior = Prior(totals.sum(axis=0), np.zeros(K), listed=estimator.class_prior is not None)
        weight = _weights(complement, norm=bool(estimator.norm))
        return counts.OnSubsets(counts.linear_on_subsets(X, weight, prior.log(totals)), prior)


ENGINE = ComplementNb()
