"""Multinomial naive Bayes: word counts without a unit in closed form."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.arrays import Float, Index
from privgate.families import designs
from privgate.families.closed_form import BLOCK, Removal, rows_of
from privgate.families.engine import Cost
from privgate.families.naive_bayes import counts
from privgate.families.naive_bayes.tokens import TokenEngine, Tokens, exact_sums
from privgate.families.retrained import Seeds
from privgate.subject.subject import Subject


@dataclass(frozen=True, eq=False)
class _Model(counts.ClassModel):
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
        return rows_of(self.X.X, queries) @ _weights(self.counts, self.alpha).T, None

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


def _weights(tokens: Float, alpha: Float) -> Float:
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

    def model(self, subject: Subject) -> tuple[_Model, counts.Prior]:
        """Return the token counts, and the prior."""
        estimator = subject.recipe.library_estimator
        X, _, tokens = self.tokens(subject)
        exact = exact_sums(X[: subject.data.n])
        return _Model(Tokens(X), tokens, self.alpha(estimator, X.shape[1]), exact), counts.prior_of(estimator, subject)

    def on_subsets(self, subject: Subject, masks: NDArray[np.bool_], label: Index, totals: Float) -> counts.OnSubsets:
        """Return models on subsets of the pool: one product of masks and records a class."""
        estimator = subject.recipe.library_estimator
        X, prior = designs.matrix(subject).astype(np.float64, copy=False), counts.prior_of(estimator, subject)
        tokens = counts.sums_on_subsets(X, masks, label, totals.shape[1])
        weight = _weights(tokens, self.alpha(estimator, X.shape[1]))
        return counts.OnSubsets(counts.linear_on_subsets(X, weight, prior.log(totals)), prior)


ENGINE = MultinomialNb()
