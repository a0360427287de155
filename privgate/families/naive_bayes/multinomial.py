"""Multinomial naive Bayes: word counts without a unit in closed form, and bounds over documents of declared length."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.families import design
from privgate.families.certificate import Certificate, Certified, Units, attained
from privgate.families.engine import Cost
from privgate.families.naive_bayes import counts
from privgate.families.naive_bayes.tokens import TokenEngine, Tokens
from privgate.families.over_all_queries import applies, linear, rounding
from privgate.families.over_all_queries.reach import Reach
from privgate.families.over_all_queries.rounding import LOG, U
from privgate.families.removal import BLOCK, Float, Removal, rows_of, vanishing
from privgate.families.retrained import Index, Seeds
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
        n, d, K = subject.data.n, design.matrix(subject).shape[1], len(subject.classes)
        return Cost(0, 4 * n * d * K / 1e10 + n * d * 8e-9, 16 * n * d + 48 * len(units) * K + BLOCK * 24)

    def model(self, subject: Subject) -> tuple[_Model, counts.Prior]:
        """Return the token counts, and the prior."""
        estimator = subject.recipe.library_estimator
        X, _, tokens = self.tokens(subject)
        exact = rounding.exact_sums(X[: subject.data.n])
        return _Model(Tokens(X), tokens, self.alpha(estimator, X.shape[1]), exact), counts.prior_of(estimator, subject)

    def on_subsets(self, subject: Subject, masks: NDArray[np.bool_], label: Index, totals: Float) -> counts.OnSubsets:
        """Return models on subsets of the pool: one product of masks and records a class."""
        estimator = subject.recipe.library_estimator
        X, prior = design.matrix(subject).astype(np.float64, copy=False), counts.prior_of(estimator, subject)
        tokens = counts.sums_on_subsets(X, masks, label, totals.shape[1])
        weight = _weights(tokens, self.alpha(estimator, X.shape[1]))
        return counts.OnSubsets(counts.linear_on_subsets(X, weight, prior.log(totals)), prior)


#: entries of the largest temporary array
_CHUNK = 4_000_000
#: so many units are told their own worst question
_ASKED = 100


class MultinomialCertificate(Certificate):
    """A class's scores are linear in the document, so a document repeats the one word that tells most."""

    name = "multinomial_nb"
    source = "docs/mathematics.md, section 3.3; section 3.4 where several classes change"

    def unfit(self, subject: Subject) -> str:
        """Return why it does not apply; empty if it does."""
        if problem := applies.refusal(subject, "MultinomialNB"):
            return problem
        return applies.linear_domain(subject, "documents")

    def certify(self, about: Units) -> Certified:
        """Return the bound for each of ``units``."""
        subject, units = about.subject, about.units
        counts = _Counts.of(subject)
        reach = applies.reach(subject)
        members = about.members
        lower, upper = np.full(len(units), np.inf), np.full(len(units), np.inf)
        fine = ~vanishing(subject, units)
        single = fine & np.array([len(rows) == 1 for rows in members], dtype=bool)
        step = max(1, _CHUNK // max(1, counts.table.size))
        for c in range(len(counts.n)):
            place = np.flatnonzero(single & np.array([counts.labels[rows[0]] == c for rows in members], dtype=bool))
            for part in np.split(place, np.arange(step, len(place), step)):
                if len(part):
                    lower[part], upper[part] = counts.one_class(np.array([members[k][0] for k in part]), c, reach)
        all_bias, all_weights = counts.scores(np.zeros(0, dtype=np.int64))
        for k in np.flatnonzero(fine & ~single):
            bias, weights = counts.scores(members[k])
            lower[k : k + 1], upper[k : k + 1] = linear.any_classes(
                (all_bias[None], all_weights[None]), (bias[None], weights[None]), reach
            )
        if len(fine):
            lower, upper = rounding.widened(lower, upper, counts.rounding(members, fine, reach))
            upper = rounding.held(upper, float(linear.pair_ranges(all_bias[None], all_weights[None], reach)[1].max()))
        assumptions = (reach.words(), "the recipe is scikit-learn's MultinomialNB, which counts and nothing else")
        questions = None
        if len(members) <= _ASKED:
            questions = np.full((len(members), len(counts.alpha)), np.nan)
            for k in np.flatnonzero(fine):
                without = tuple(v[None] for v in counts.scores(members[k]))
                questions[k] = linear.most_telling((all_bias[None], all_weights[None]), (without[0], without[1]), reach)
        return Certified(upper, lower, attained(lower, upper), assumptions, questions=questions)


@dataclass(frozen=True, eq=False)
class _Counts:
    """Token counts ``table`` (K, d) and records ``n`` (K,) of each class; smoothing ``alpha`` (d,) above 0."""

    X: Float
    labels: Index
    table: Float
    n: Float
    alpha: Float
    learnt_prior: bool
    log_prior: Float | None

    @classmethod
    def of(cls, subject: Subject) -> "_Counts":
        estimator, X = design.estimator_of(subject, "MultinomialNB"), applies.dense(subject.data.X)
        if X is None:
            raise ValueError("bound() without applies(): the features are not numbers")
        codes, K = subject.label_codes, len(subject.classes)
        table = np.array([X[codes == c].sum(axis=0) for c in range(K)])
        n = np.bincount(codes, minlength=K).astype(np.float64)
        alpha = np.broadcast_to(applies.smoothings(estimator), X.shape[1:])
        return cls(X, codes, table, n, alpha, *applies.prior(estimator))

    def _prior(self, n: Float) -> Float:
        if self.learnt_prior:
            return np.asarray(np.log(n))
        return np.zeros(len(n)) if self.log_prior is None else self.log_prior

    def scores(self, rows: Index) -> tuple[Float, Float]:
        """Return (bias, weights), shapes (K,) and (K, d), of the model without these records."""
        table, n = self.table.copy(), self.n.copy()
        np.subtract.at(table, self.labels[rows], self.X[rows])
        np.subtract.at(n, self.labels[rows], 1.0)
        smoothed = np.maximum(table, 0.0) + self.alpha
        return self._prior(n), np.log(smoothed) - np.log(smoothed.sum(axis=1))[:, None]

    def rounding(self, members: list[Index], fine: NDArray[np.bool_], reach: Reach) -> Float:
        """Return how far rounding moves the change that leaving out each unit makes, shape (U,), nats."""
        found, off = np.zeros(len(members)), rounding.of_sums(self.X, self.table.sum(axis=0))
        prior = float(np.log(self.n.sum()) + (0.0 if self.log_prior is None else np.abs(self.log_prior).max()) + 1)
        size = np.array([len(rows) for rows in members])
        whole = rounding.of_linear(*self._off(self.table[None], off), reach, prior)
        for c in range(len(self.n)):
            place = np.flatnonzero(fine & (size == 1) & np.array([self.labels[r[0]] == c for r in members], dtype=bool))
            step = max(1, _CHUNK // max(1, self.table.size))
            for part in np.split(place, np.arange(step, len(place), step)):
                left = np.repeat(self.table[None], len(part), axis=0)
                left[:, c] -= self.X[[members[k][0] for k in part]]
                found[part] = rounding.of_linear(*self._off(left, off), reach, prior)
        for k in np.flatnonzero(fine & (size > 1)):
            table = self.table.copy()
            np.subtract.at(table, self.labels[members[k]], self.X[members[k]])
            found[k] = rounding.of_linear(*self._off(table[None], off), reach, prior)[0]
        return found + whole

    def _off(self, table: Float, off: Float) -> tuple[Float, Float]:
        """Return (error, weights), shapes (N, K, d), of tables (N, K, d) whose columns are off by ``off`` (d,)."""
        smoothed = np.maximum(table, 0.0) + self.alpha
        total = smoothed.sum(axis=-1, keepdims=True)
        logs = np.log(smoothed), np.log(total)
        error = rounding.of_logarithm(off / smoothed + 2 * U)
        error = error + rounding.of_logarithm(off.sum() / total + (table.shape[-1] + 4) * U)
        return error + 2 * LOG * (np.abs(logs[0]) + np.abs(logs[1])), logs[0] - logs[1]

    def one_class(self, rows: Index, y: int, reach: Reach) -> tuple[Float, Float]:
        """Return (lower, upper) for single records of class ``y``, each of shape (U,)."""
        bias, weights = self.scores(rows[:0])
        smoothed = np.maximum(self.table[y] - self.X[rows], 0.0) + self.alpha
        without = np.log(smoothed) - np.log(smoothed.sum(axis=1))[:, None]
        n = self.n.copy()
        n[y] -= 1
        prior = self._prior(n)
        others = np.arange(len(self.n)) != y
        d = np.full(len(rows), bias[y] - prior[y]), weights[y] - without
        rho = np.broadcast_to(prior[others] - prior[y], (len(rows), int(others.sum())))
        return linear.one_class(d, rho, weights[others] - without[:, None, :], reach)


ENGINE = MultinomialNb()
