"""Decision trees whose structure does not depend on the data: a unit changes the counts of its own leaves only."""

import numpy as np
from numpy.typing import NDArray

from privgate.families import certificate
from privgate.families.certificate import Certificate, Certified, Units, attained
from privgate.families.over_all_queries import applies, rounding
from privgate.families.removal import vanishing
from privgate.models import shares
from privgate.subject.subject import Subject

Float = NDArray[np.float64]


class RandomTreesCertificate(Certificate):
    """Geometric mean: ODTP in closed form. Arithmetic mean: the largest ratio of sums, by Dinkelbach's iteration."""

    name = "random_trees"
    source = "docs/mathematics.md, sections 4.2 and 4.3"

    def unfit(self, subject: Subject) -> str:
        """Return why it does not apply; empty if it does."""
        if problem := applies.own_refusal(subject, "RandomTrees"):
            return problem
        if not applies.own_estimator(subject, "RandomTrees").alpha > 0:
            return "without smoothing a label that one record holds alone makes DTP infinite"
        return ""

    def every_data_set(self, subject: Subject) -> float:
        """Return ``ln(1 + 1/alpha)`` for declared labels and one record a person."""
        alpha = float(applies.own_estimator(subject, "RandomTrees").alpha)
        error = applies.own_error(subject, alpha, subject.data.n) if alpha > 0 else 0.0
        return certificate.smoothed(subject, alpha) + error

    def certify(self, about: Units) -> Certified:
        """Return the bound for each of ``units``."""
        subject, units = about.subject, about.units
        estimator = applies.own_estimator(subject, "RandomTrees")
        X, labels = applies.dense(subject.data.X), subject.label_codes
        model = estimator.fit(X, subject.data.y)
        leaves, counts, alpha = model.leaves(X), model.counts_, float(estimator.alpha)
        lower, upper = np.full(len(units), np.inf), np.full(len(units), np.inf)
        tree = np.arange(counts.shape[0])
        for k in np.flatnonzero(~vanishing(subject, units)):
            rows = subject.data.units[int(units[k])]
            left = counts.copy()
            for row in rows:
                left[tree, leaves[row], labels[row]] -= 1
            own = (tree[None], leaves[rows])
            if estimator.average == "geometric":
                upper[k] = geometric(counts, left, alpha)
            else:
                upper[k] = arithmetic(counts, left, alpha)
            lower[k] = _at(counts[own], left[own], alpha, estimator.average)
        error = np.full(len(units), applies.own_error(subject, alpha, len(tree)))
        lower, upper = rounding.widened(lower, np.maximum(upper, lower), error)
        assumption = "splits are drawn from declared ranges before the data are seen; any query is allowed"
        return Certified(upper, lower, attained(lower, upper), (assumption,))


def _at(counts: Float, left: Float, alpha: float, average: str) -> float:
    """Return the largest label change at queries in the given leaves, counts of shape (Q, B, K)."""
    logs = []
    for table in (counts, left):
        if average == "arithmetic":
            logs.append(np.log(shares(table, alpha).mean(axis=1)))
        else:
            mean = np.log(shares(table, alpha)).mean(axis=1)
            logs.append(mean - np.logaddexp.reduce(mean, axis=1)[:, None])
    return float(np.abs(logs[0] - logs[1]).max())


def geometric(counts: Float, left: Float, alpha: float) -> float:
    """Return ODTP of the normalised geometric mean, nats, from leaf counts (B, leaves, K) with and without the unit.

    Leaf sizes are common to all labels and cancel; a pair of labels changes most where every tree does. Exact for one
    record, whose leaves meet at its own features; an upper bound for several.
    """
    change = np.log((counts + alpha) / (left + alpha))
    pair = change[..., :, None] - change[..., None, :]
    return float(pair.max(axis=1).mean(axis=0).max())


def arithmetic(counts: Float, left: Float, alpha: float) -> float:
    """Return an upper bound for the arithmetic mean of leaf shares, nats; exact if all leaves can meet.

    For each label and direction: the largest (sum of a) / (sum of b) over one leaf a tree, where leaves that did not
    change count as ``a = b =`` their smallest share.
    """
    p, q = shares(counts, alpha), shares(left, alpha)
    touched = (counts != left).any(axis=2)
    still = np.where(touched[..., None], np.inf, p).min(axis=1)
    worst = 0.0
    for label in range(p.shape[2]):
        for a, b in ((p[..., label], q[..., label]), (q[..., label], p[..., label])):
            worst = max(worst, np.log(_largest_ratio(a, b, touched, still[:, label])))
    return float(worst)


def _largest_ratio(a: Float, b: Float, touched: NDArray[np.bool_], still: Float) -> float:
    """Return the largest ratio of sums over one choice a tree, by Dinkelbach's iteration.

    Only its converged value is an upper bound, so that is checked; otherwise the worst single tree bounds the ratio.
    """

    def gain(ratio: float) -> tuple[float, float]:
        """Return the largest ``sum a - ratio sum b`` and the ratio of the choice that attains it."""
        value = np.where(touched, a - ratio * b, -np.inf)
        best = value.argmax(axis=1)
        row = np.arange(len(a))
        rest = np.where(np.isfinite(still), (1 - ratio) * np.where(np.isfinite(still), still, 0.0), -np.inf)
        stay = rest > value[row, best]
        chosen_a = np.where(stay, still, a[row, best]).sum()
        chosen_b = np.where(stay, still, b[row, best]).sum()
        return float(np.maximum(rest, value[row, best]).sum()), float(chosen_a / chosen_b)

    ratio = 1.0
    for _ in range(50):
        excess, better = gain(ratio)
        if excess <= 0 or better <= ratio:
            break
        ratio = better
    safe = ratio * (1 + 1e-12)
    if gain(safe)[0] <= 1e-13 * len(a):
        return safe
    return float(np.where(touched, a / b, 1.0).max())
