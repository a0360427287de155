"""Multinomial naive Bayes: word counts, documents of declared length."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privgate.families.certificate import Certificate, Certified
from privgate.families.over_all_queries import applies, linear, rounding
from privgate.families.over_all_queries.discrete import attained
from privgate.families.over_all_queries.reach import Reach
from privgate.families.over_all_queries.rounding import LOG, U
from privgate.families.removal import vanishing
from privgate.families.retrained import Index, Retrained
from privgate.subject.subject import Subject

Float = NDArray[np.float64]

#: entries of the largest temporary array
_CHUNK = 4_000_000
#: so many units are told their own worst question
_ASKED = 100


class MultinomialNB(Certificate):
    """A class's scores are linear in the document, so a document repeats the one word that tells most."""

    name = "multinomial_nb"
    source = "docs/mathematics.md, section 3.3; section 3.4 where several classes change"

    def applies(self, subject: Subject) -> str:
        """Return "does not apply, because …" or an empty text."""
        if problem := applies.refusal(subject, "MultinomialNB"):
            return problem
        return applies.linear_domain(subject, "documents")

    def bound(
        self, subject: Subject, units: Index, retrained: Retrained | None, *, limit: float | None = None
    ) -> Certified:
        """Return the bound for each of ``units``."""
        del retrained, limit
        counts = _Counts.of(subject)
        reach = applies.reach(subject)
        members = [subject.data.units[int(u)] for u in units]
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
        estimator, X = applies.estimator_of(subject, "MultinomialNB"), applies.dense(subject.data.X)
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
