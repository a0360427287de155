"""Nearest neighbours and nearest centroids without each record, in closed form.

Smoothed, one record is one vote among neighbours at any query.
"""

from typing import Any

import numpy as np

from privgate.arrays import Float, Index
from privgate.families import designs, discriminants
from privgate.families.closed_form import ClosedForm, Form, Removal, Scores, rows_of
from privgate.families.engine import Cost, Declined, LibraryEngine
from privgate.families.retrained import Seeds
from privgate.subject.subject import Subject

#: relative difference of squared distances below which two neighbours may change places by rounding
TIE = 1e-9
#: records of a unit that are searched past: where all of more lie among the nearest, the unit is handed on
MOST = 64


class KNearest(LibraryEngine, ClosedForm):
    """Leave-one-out for ``KNeighborsClassifier`` with uniform weights, Euclidean distances; exact where nothing ties.

    Identity: without a unit of m records the k nearest of x are the first k of its k + m nearest that are not the
    unit's. scikit-learn breaks ties by no rule that survives a removal, so a query whose k-th and next neighbours tie,
    with or without the unit, is handed on (docs/mathematics.md, section 5).
    """

    name = "k_nearest"
    library = "KNeighborsClassifier"
    hands_on = "the distances of their neighbours tie"

    def unfit(self, estimator: Any, subject: Subject) -> str:
        """Return which parameters are not covered; empty if all are."""
        if estimator.weights != "uniform":
            return "neighbours are weighted"
        euclidean = estimator.metric == "euclidean" or (estimator.metric == "minkowski" and estimator.p == 2)
        if not euclidean or estimator.metric_params:
            return "distances are not Euclidean"
        return "there are hardly more records than neighbours" if subject.data.n < estimator.n_neighbors + 3 else ""

    def cost(self, subject: Subject, units: Index, seeds: Seeds, *, mode: str = "all") -> Cost:
        """Return the cost of one search over all records."""
        n, d = subject.data.n, int(subject.data.X.shape[1])
        return Cost(0, 2e-10 * n * len(units) * d + 2e-5 * len(units), 64 * n)

    def form(self, subject: Subject) -> Form:
        """Return the closed form; units with a query whose neighbours tie are handed on.

        Raises
        ------
        Declined
            All records are equal.
        """
        from sklearn.neighbors import NearestNeighbors

        estimator, n = subject.recipe.library_estimator, subject.data.n
        k, K = int(estimator.n_neighbors), len(subject.classes)
        X, y = designs.matrix(subject).astype(np.float64, copy=False), subject.label_codes
        # scikit-learn may multiply squares out, uncentred: what that rounds may be a tie
        rounded = 16 * float(np.finfo(np.float64).eps) * float((X**2).sum(axis=1).max())
        X = X - X[:n].mean(axis=0)
        search = NearestNeighbors(algorithm=estimator.algorithm, leaf_size=estimator.leaf_size).fit(X[:n])
        scale = float((X[:n] ** 2).sum(axis=1).max())
        if not scale > 0:
            raise Declined("all records are equal")

        def joint(lost: Removal, unit: Index, query: Index) -> Scores:
            wide = k + 1 + min(int(lost.size.max()), MOST, n - k - 1)
            distance, found = search.kneighbors(X[query], n_neighbors=wide)
            owner = np.full(n, -1)
            owner[lost.rows] = np.repeat(np.arange(len(lost.size)), lost.size)
            stays = owner[found] != unit[:, None]
            rank = np.cumsum(stays, axis=1)  # among those that stay
            votes, rest = np.zeros((len(query), K)), np.zeros((len(query), K))
            rows = np.arange(len(query))
            for j in range(wide):
                label = y[found[:, j]]
                votes[rows, label] += j < k
                rest[rows, label] += stays[:, j] & (rank[:, j] <= k)
            square = distance**2
            allowed = TIE * (square[:, -1] + 1e-3 * scale) + rounded
            last, following = (rank < k).sum(axis=1), (rank <= k).sum(axis=1)  # places of the k-th and the next
            fine = (following < wide) & (square[:, k] - square[:, k - 1] > allowed)
            fine &= square[rows, np.minimum(following, wide - 1)] - square[rows, np.minimum(last, wide - 1)] > allowed
            return Scores(np.log(votes / k), np.log(rest / k), fine)

        return Form(joint, 4 * (k + 3) + X.shape[1], normalize=False)


K_NEAREST = KNearest()


#: share of a feature's within-class sum of squares that a unit may hold: beyond, too few digits are left
HELD = 1 - 1e-6
#: largest x^2 / variance at which (x - centroid)^2 may be multiplied out: four digits of sixteen are lost, not more
EXPANDED = 1e4
#: largest sum of x^2 / variance, not centred: scikit-learn multiplies out, so that beyond it loses the seventh digit
MULTIPLIED = 1e8


class NearestCentroid(LibraryEngine, ClosedForm):
    """Leave-one-out for ``NearestCentroid`` with Euclidean distances and no shrinking; exact, O(n d K).

    Identity: with m of N records of a class gone, whose mean is g and scatter s, centroid' = centroid +
    m (centroid - g) / (N - m), and the pooled sums of squares, by which features are scaled in ``predict_proba``, fall
    by s + N m (centroid - g)^2 / (N - m), so all classes change.
    """

    name = "nearest_centroid"
    library = "NearestCentroid"
    double = True
    hands_on = "they hold nearly all of a feature's variance, or records are too far from 0 for it"

    def unfit(self, estimator: Any, subject: Subject) -> str:
        """Return which parameters are not covered; empty if all are."""
        if why := discriminants.refusal(subject):
            return why
        if estimator.metric != "euclidean" or estimator.shrink_threshold:
            return "other metrics and shrunken centroids have formulas of their own"
        return "" if estimator.priors in ("uniform", "empirical") else "priors are fixed one by one"

    def cost(self, subject: Subject, units: Index, seeds: Seeds, *, mode: str = "all") -> Cost:
        """Return the cost of a few passes over n d K numbers."""
        n, d = discriminants.moments(subject).X.shape
        return Cost(0, 4e-9 * n * d * len(subject.classes), 32 * n * d)

    def form(self, subject: Subject) -> Form:
        """Return the closed form; units that hold a feature's variance are handed on.

        Raises
        ------
        Declined
            A feature does not vary within classes.
        """
        M = discriminants.moments(subject)
        n, K = len(M.y), len(M.totals)
        squares = (M.residual**2).sum(axis=0)
        if squares.min() <= 0 or n - 1 - K < 1:
            raise Declined("a feature does not vary within classes, or there are hardly more records than classes")
        far = (designs.matrix(subject).astype(np.float64, copy=False) ** 2).max(axis=0)
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


CENTROID = NearestCentroid()
