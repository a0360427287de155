"""Bernoulli naive Bayes: without a unit in closed form."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.arrays import Float, Index
from privgate.families import designs
from privgate.families.closed_form import BLOCK, Removal
from privgate.families.engine import Cost
from privgate.families.naive_bayes import counts
from privgate.families.over_all_queries import applies
from privgate.families.retrained import Seeds
from privgate.subject.subject import Subject


@dataclass(frozen=True, eq=False)
class _Model(counts.ClassModel):
    """Counts of ones of each (class, feature)."""

    X: Float  # pool, zeros and ones, (P, d)
    ones: Float  # (K, d)
    totals: Float  # (K,)
    alpha: float

    @property
    def width(self) -> int:
        return int(self.X.shape[1]) * 4

    def scores(self, queries: Index, unit: Index, prepared: Any) -> tuple[Float, None]:
        weight, constant = _linear(self.ones, self.totals, self.alpha)
        return self.X[queries] @ weight.T + constant, None

    def without(self, queries: Index, pair: Index, removal: Removal, prepared: Any) -> Float:
        if removal.single:
            return self._without_record(queries, removal.rows[pair], removal.label[pair])
        label, lost = removal.label[pair], removal.lost[pair].astype(np.float64)
        x = self.X[queries]
        ones = self.ones[label] - removal.sums(self.X)[pair]
        total = self.totals[label] - lost
        chosen = np.where(x > 0, ones, total[:, None] - ones)
        return np.asarray(np.log(chosen + self.alpha).sum(axis=1) - x.shape[1] * np.log(total + 2 * self.alpha))

    def _without_record(self, queries: Index, record: Index, label: Index) -> Float:
        """Only features on which query and record agree lose a count: one matrix product a class."""
        x, t = self.X[queries], self.X[record]
        weight, constant = _linear(self.ones, self.totals, self.alpha)
        d, a = x.shape[1], self.alpha
        zeros = self.totals[:, None] - self.ones
        both = np.log(np.maximum(self.ones - 1, 0) + a) - np.log(self.ones + a)
        neither = np.log(np.maximum(zeros - 1, 0) + a) - np.log(zeros + a)
        left = np.maximum(self.totals - 1, 0)
        shift = d * (np.log(self.totals + 2 * a) - np.log(left + 2 * a)) + neither.sum(axis=1) + constant
        out = np.empty(len(queries))
        own = queries is record or np.array_equal(queries, record)
        for c in np.unique(label):
            at = np.flatnonzero(label == c)
            xs = x[at]
            if own:  # then x t = x, and one product with one vector does
                out[at] = xs @ (weight[c] + both[c] - neither[c])
            else:
                ts = t[at]
                out[at] = xs @ (weight[c] - neither[c]) - ts @ neither[c] + (xs * ts) @ (both[c] + neither[c])
            out[at] += shift[c]
        return out


def _linear(ones: Float, totals: Float, alpha: float) -> tuple[Float, Float]:
    """Return (weights, constants) of log p(x | c) = w_c . x + b_c."""
    log_one = np.log(ones + alpha)
    log_zero = np.log(totals[..., None] - ones + alpha)
    return log_one - log_zero, log_zero.sum(axis=-1) - ones.shape[-1] * np.log(totals + 2 * alpha)


def _binary(subject: Subject, estimator: Any) -> Float:
    X = designs.matrix(subject)
    return (X if estimator.binarize is None else np.greater(X, estimator.binarize)).astype(np.float64)


class BernoulliNb(counts.CountingEngine):
    """Leave-one-out for ``sklearn.naive_bayes.BernoulliNB``; exact, O(n d K), no retraining.

    Identity: log p'(x | c) = sum_j x_j ln(n1_j + a) + (1 - x_j) ln(N_c - n1_j + a) - d ln(N_c + 2a) with the unit's
    records taken off n1 and N_c (docs/mathematics.md, section 3.1 with V_j = 2). ``binarize`` is a fixed threshold,
    so it is no data-dependent preprocessing.
    """

    name = "bernoulli_nb"
    library = "BernoulliNB"

    def unfit(self, estimator: Any, subject: Subject) -> str:
        """Return which parameters are not covered; empty if all are."""
        if why := counts.prior_refusal(estimator, subject):
            return why
        if not np.isscalar(estimator.alpha) or applies.smoothings(estimator) <= 0:
            return "alpha is not one number above 0"
        if estimator.binarize is None and not np.isin(designs.matrix(subject), (0, 1)).all():
            return "binarize is off and the records hold other numbers than 0 and 1"
        return ""

    def cost(self, subject: Subject, units: Index, seeds: Seeds, *, mode: str = "all") -> Cost:
        """Return the cost of two matrix products."""
        n, d, K = subject.data.n, designs.matrix(subject).shape[1], len(subject.classes)
        return Cost(0, 4 * n * d * K / 1e10, 16 * n * d + 48 * len(units) * K + BLOCK * 24)

    def model(self, subject: Subject) -> tuple[_Model, counts.Prior]:
        """Return the counts of ones, and the prior."""
        estimator = subject.recipe.library_estimator
        X, prior = _binary(subject, estimator), counts.prior_of(estimator, subject)
        hot = (subject.label_codes[:, None] == np.arange(len(prior.counts))).astype(np.float64)
        return _Model(X, hot.T @ X[: subject.data.n], prior.counts, float(applies.smoothings(estimator))), prior

    def on_subsets(self, subject: Subject, masks: NDArray[np.bool_], label: Index, totals: Float) -> counts.OnSubsets:
        """Return models on subsets of the pool: one product of masks and records a class."""
        estimator = subject.recipe.library_estimator
        X, prior = _binary(subject, estimator), counts.prior_of(estimator, subject)
        ones, alpha = _ones(X, label, masks, len(prior.counts)), float(applies.smoothings(estimator))
        return counts.OnSubsets(_answers(X, ones, totals, alpha, prior), prior)


def _ones(X: Float, label: Index, masks: NDArray[np.bool_], K: int) -> NDArray[np.int32]:
    """Return how many records of each class, model and feature are 1, shape (K, N, d)."""
    # whole numbers up to 2^24 are exact in single precision, and twice as fast
    precise = np.float32 if len(X) < 1 << 24 else np.float64
    ones = np.empty((K, len(masks), X.shape[1]), dtype=np.int32)
    for c in range(K):
        at = label == c
        ones[c] = masks[:, at].astype(precise) @ X[at].astype(precise)
    return ones


def _answers(X: Float, ones: NDArray[np.int32], totals: Float, alpha: float, prior: counts.Prior) -> Float:
    """Return log-probabilities (N, P, K) of all models: one matrix product for all models and classes of a block.

    Classes come first until the end, so that normalising runs along records and not along a handful of classes.
    """
    K, N, d = ones.shape
    held = totals.T.astype(np.int64)  # (K, N)
    logs = np.log(np.arange(int(held.max(initial=0)) + 1) + alpha)
    zero = logs[held[:, :, None] - ones]
    constant = zero.sum(axis=2) - d * np.log(held + 2 * alpha) + prior.log(totals).T
    weight = (logs[ones] - zero).reshape(K * N, d)
    out = np.empty((N, len(X), K))
    step = max(64, BLOCK // max(1, K * N))
    for i in range(0, len(X), step):
        joint = (weight @ X[i : i + step].T).reshape(K, N, -1)
        joint += constant[:, :, None]
        out[:, i : i + step] = counts.by_class(joint, axis=0).transpose(1, 2, 0)
    return out


ENGINE = BernoulliNb()
