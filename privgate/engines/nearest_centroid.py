"""Nearest centroid without each record, in closed form."""

import numpy as np
from numpy.typing import NDArray

from privgate.engines import discriminant, single_records
from privgate.engines.base import SEVERAL, Cost, Declined
from privgate.engines.discriminant import Float
from privgate.retrain.fleet import Fleet
from privgate.retrain.retrained import Index, Retrained, Shadows
from privgate.subject import Subject

#: share of a feature's within-class sum of squares that one record may hold: beyond, too few digits are left
HELD = 1 - 1e-6


class NearestCentroid:
    """Leave-one-out for ``NearestCentroid`` with Euclidean distances and no shrinking; exact, O(n d K).

    Identity: with r = x - centroid of its class of m, centroid' = centroid - r / (m - 1) and the pooled sums of
    squares, by which features are scaled in ``predict_proba``, fall by m r^2 / (m - 1), so all classes change.
    """

    name = "nearest_centroid"
    version = 1
    hands_on = (SEVERAL, "they hold nearly all of a feature's variance")

    def supports(self, subject: Subject) -> str:
        """Return why the recipe or data is not covered; empty if it is."""
        from sklearn.neighbors import NearestCentroid as Library

        if why := discriminant.refusal(subject, Library):
            return why
        estimator = subject.recipe.library_estimator
        if estimator.metric != "euclidean" or estimator.shrink_threshold:
            return "other metrics and shrunken centroids have formulas of their own"
        return "" if estimator.priors in ("uniform", "empirical") else "priors are fixed one by one"

    def cost(self, subject: Subject, units: Index, seeds: tuple[int | None, ...]) -> Cost:
        """Return the cost of a few passes over n d K numbers."""
        n, d = discriminant.moments(subject).X.shape
        return Cost(0, 4e-9 * n * d * len(subject.classes), 32 * n * d)

    def leave_out(
        self,
        subject: Subject,
        units: Index,
        seeds: tuple[int | None, ...],
        fleet: Fleet,
        *,
        queries: tuple[Index, Index] | None = None,
    ) -> tuple[Retrained, Index]:
        """Return every record; people with several records, and records that hold a feature's variance, are handed on.

        Raises
        ------
        Declined
            A feature does not vary within classes.
        """
        M = discriminant.moments(subject)
        n, K = len(M.y), len(M.totals)
        residual = M.residual
        squares = (residual**2).sum(axis=0)
        if squares.min() <= 0 or n - 1 - K < 1:
            raise Declined("a feature does not vary within classes, or there are hardly more records than classes")
        learnt = subject.recipe.library_estimator.priors == "empirical"

        def joint(record: Index, query: Index) -> tuple[Float, Float, NDArray[np.bool_]]:
            x, r, own = M.X[query], residual[record], M.y[record]
            m = M.totals[own][:, None]
            left = squares - m / (m - 1) * r**2
            scale, scale_without = (n - K) / squares, (n - 1 - K) / left
            full, rest = np.empty((len(record), K)), np.empty((len(record), K))
            for c in range(K):
                away = x - M.mean[c]
                full[:, c] = -(away**2) @ scale
                away[own == c] += (r / (m - 1))[own == c]
                rest[:, c] = -((away**2) * scale_without).sum(axis=1)
            if learnt:
                counts = np.tile(M.totals, (len(record), 1))
                counts[np.arange(len(record)), own] -= 1
                full += 2 * np.log(M.totals)
                rest += 2 * np.log(counts)
            return full, rest, np.asarray((left > (1 - HELD) * squares).all(axis=1))

        return single_records.leave_out(self.name, joint, subject=subject, units=units, seeds=seeds, queries=queries)

    def subsets(
        self, subject: Subject, masks: NDArray[np.bool_], seeds: tuple[int | None, ...], fleet: Fleet
    ) -> Shadows | None:
        """Return None: refits answer."""
        return None


ENGINE = NearestCentroid()
