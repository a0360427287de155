"""Nearest centroid without each record, in closed form."""

import numpy as np

from privgate.families import design
from privgate.families.closed_form import ClosedForm, Form, Scores
from privgate.families.discriminants import discriminant
from privgate.families.engine import Cost, Declined
from privgate.families.removal import Float, Removal, rows_of
from privgate.families.retrained import Index, Seeds
from privgate.subject.subject import Subject

#: share of a feature's within-class sum of squares that a unit may hold: beyond, too few digits are left
HELD = 1 - 1e-6
#: largest x^2 / variance at which (x - centroid)^2 may be multiplied out: four digits of sixteen are lost, not more
EXPANDED = 1e4
#: largest sum of x^2 / variance, not centred: scikit-learn multiplies out, so that beyond it loses the seventh digit
MULTIPLIED = 1e8


class NearestCentroid(ClosedForm):
    """Leave-one-out for ``NearestCentroid`` with Euclidean distances and no shrinking; exact, O(n d K).

    Identity: with m of N records of a class gone, whose mean is g and scatter s, centroid' = centroid +
    m (centroid - g) / (N - m), and the pooled sums of squares, by which features are scaled in ``predict_proba``, fall
    by s + N m (centroid - g)^2 / (N - m), so all classes change.
    """

    name = "nearest_centroid"
    hands_on = "they hold nearly all of a feature's variance, or records are too far from 0 for it"

    def supports(self, subject: Subject) -> str:
        """Return why the recipe or data is not covered; empty if it is."""
        from sklearn.neighbors import NearestCentroid as Library

        if why := discriminant.refusal(subject, Library):
            return why
        estimator = subject.recipe.library_estimator
        if estimator.metric != "euclidean" or estimator.shrink_threshold:
            return "other metrics and shrunken centroids have formulas of their own"
        return "" if estimator.priors in ("uniform", "empirical") else "priors are fixed one by one"

    def cost(self, subject: Subject, units: Index, seeds: Seeds, *, mode: str = "all") -> Cost:
        """Return the cost of a few passes over n d K numbers."""
        n, d = discriminant.moments(subject).X.shape
        return Cost(0, 4e-9 * n * d * len(subject.classes), 32 * n * d)

    def form(self, subject: Subject) -> Form:
        """Return the closed form; units that hold a feature's variance are handed on.

        Raises
        ------
        Declined
            A feature does not vary within classes.
        """
        M = discriminant.moments(subject)
        n, K = len(M.y), len(M.totals)
        squares = (M.residual**2).sum(axis=0)
        if squares.min() <= 0 or n - 1 - K < 1:
            raise Declined("a feature does not vary within classes, or there are hardly more records than classes")
        far = (design.matrix(subject).astype(np.float64, copy=False) ** 2).max(axis=0)
        prior = 2 * np.log(M.totals) if subject.recipe.library_estimator.priors == "empirical" else np.zeros(K)

        def joint(lost: Removal, unit: Index, query: Index) -> Scores:
            size, kept = lost.lost[:, None], M.totals[lost.label][:, None] - lost.lost[:, None]
            gone = lost.sums(M.X) / size
            away = M.mean[lost.label] - gone
            fall = M.totals[lost.label][:, None] * size / kept * away**2 + lost.scatter(M.X, gone)
            left = squares - (fall if lost.records else np.add.reduceat(fall, lost.first[:-1], axis=0))
            scale = (n - lost.size[:, None] - K) / left
            sure = (left > (1 - HELD) * squares).all(axis=1) & (n - lost.size > K) & (scale @ far < MULTIPLIED)
            x, own = rows_of(M.X, query), rows_of(scale, unit)
            rest = prior - _distances(x, M.mean, own)
            row, pair = lost.pairs_of(unit)
            moved = rows_of(x, row) - (M.mean[lost.label] + size / kept * away)[pair]
            moved *= moved
            moved *= rows_of(own, row)
            rest[row, lost.label[pair]] = -moved.sum(axis=1)
            if prior.any():
                rest[row, lost.label[pair]] += 2 * np.log(kept[pair, 0])
            return Scores(prior - _distances(x, M.mean, (n - K) / squares), rest, sure[unit])

        return Form(joint, 24 * M.X.shape[1])


def _distances(x: Float, centers: Float, scale: Float) -> Float:
    """Return sum_j scale_j (x_j - c_j)^2 for every center, shape (R, K); ``scale`` is (d,) or (R, d)."""
    scaled = x * scale
    if (x * scaled).max(initial=0.0) < EXPANDED:
        constant = (centers**2) @ scale if scale.ndim == 1 else scale @ (centers**2).T
        return np.asarray((x * scaled).sum(axis=1)[:, None] - 2 * (scaled @ centers.T) + constant)
    return np.stack([((x - c) ** 2 * scale).sum(axis=1) for c in centers], axis=1)  # expanded squares would cancel


ENGINE = NearestCentroid()
