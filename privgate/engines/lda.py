"""Linear discriminant analysis without each record, in closed form."""

import numpy as np
from numpy.typing import NDArray

from privgate.engines import discriminant, single_records
from privgate.engines.base import SEVERAL, Cost, Declined
from privgate.engines.discriminant import Float
from privgate.retrain.fleet import Fleet
from privgate.retrain.retrained import Index, Retrained, Shadows
from privgate.subject import Subject

#: leverage left over, below which the downdated covariance has lost eight digits
KEPT = 1e-8


class Lda:
    """Leave-one-out for ``LinearDiscriminantAnalysis`` (svd, lsqr without shrinkage); exact, O(n d^2), full rank only.

    Identity: with r = x - mean of its class of m and S the pooled covariance over n, the record's removal gives
    ``S' = (n S - m / (m - 1) r r^T) / (n - 1)`` and mean' = mean - r / (m - 1); S'^-1 by Sherman and Morrison. Breaks
    down as 1 - m r^T S^-1 r / (n (m - 1)) goes to 0: such records are handed on.
    """

    name = "lda"
    version = 1
    hands_on = (SEVERAL, "their leverage is near 1")

    def supports(self, subject: Subject) -> str:
        """Return why the recipe or data is not covered; empty if it is."""
        from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

        if why := discriminant.refusal(subject, LinearDiscriminantAnalysis):
            return why
        estimator = subject.recipe.library_estimator
        if estimator.solver not in ("svd", "lsqr") or estimator.shrinkage is not None or estimator.priors is not None:
            return "shrinkage, fixed priors and the eigen solver have formulas of their own"
        return "covariance_estimator is set" if estimator.covariance_estimator is not None else ""

    def cost(self, subject: Subject, units: Index, seeds: tuple[int | None, ...]) -> Cost:
        """Return the cost of one factorisation and a few products."""
        n, d = discriminant.moments(subject).X.shape
        return Cost(0, 4 * n * d * d / 2e10 + 1e-6 * n, 32 * n * d)

    def leave_out(
        self,
        subject: Subject,
        units: Index,
        seeds: tuple[int | None, ...],
        fleet: Fleet,
        *,
        queries: tuple[Index, Index] | None = None,
    ) -> tuple[Retrained, Index]:
        """Return every record of sufficient leverage left; people with several records are handed on.

        Raises
        ------
        Declined
            The pooled covariance or the class means are near the rank tolerance of scikit-learn.
        """
        import scipy.linalg as sl

        M = discriminant.moments(subject)
        n, y = len(M.y), M.y
        residual = M.residual
        L = _factor(residual / np.sqrt(n), float(subject.recipe.library_estimator.tol))
        Z = sl.solve_triangular(L, M.X.T, lower=True, check_finite=False).T
        centers = sl.solve_triangular(L, M.mean.T, lower=True, check_finite=False).T
        _spread(centers, M.totals, float(subject.recipe.library_estimator.tol))
        R = Z[:n] - centers[y]

        def joint(record: Index, query: Index) -> tuple[Float, Float, NDArray[np.bool_]]:
            z, r, own = Z[query], R[record], y[record]
            m = M.totals[own]
            distance = _squares(z, centers)
            full = -0.5 * distance + np.log(M.totals)
            weight = m / (m - 1) / n
            kept = 1 - weight * (r * r).sum(axis=1)
            # a record also moves the mean of its own class, by r / (m - 1) along r
            along = (z * r).sum(axis=1)[:, None] - r @ centers.T
            here = np.arange(len(record)), own
            square = (r * r).sum(axis=1)
            distance[here] += 2 * along[here] / (m - 1) + square / (m - 1) ** 2
            along[here] += square / (m - 1)
            counts = np.tile(M.totals, (len(record), 1))
            counts[here] -= 1
            distance += (weight / kept)[:, None] * along**2
            rest = -0.5 * distance * ((n - 1) / n) + np.log(counts)
            return full, rest, np.asarray(kept > KEPT)

        return single_records.leave_out(self.name, joint, subject=subject, units=units, seeds=seeds, queries=queries)

    def subsets(
        self, subject: Subject, masks: NDArray[np.bool_], seeds: tuple[int | None, ...], fleet: Fleet
    ) -> Shadows | None:
        """Return None: refits answer."""
        return None


def _squares(z: Float, centers: Float) -> Float:
    return np.asarray((z * z).sum(axis=1)[:, None] - 2 * z @ centers.T + (centers * centers).sum(axis=1))


def _factor(within: Float, tolerance: float) -> Float:
    """Return the Cholesky factor of the pooled covariance, far from scikit-learn's rank tolerance."""
    std = np.sqrt((within**2).sum(axis=0))
    if std.min() == 0:
        raise Declined("a feature does not vary within classes")
    scaled = within / std
    values = np.linalg.eigvalsh(scaled.T @ scaled)
    if not np.sqrt(max(values[0], 0.0)) > 10 * max(tolerance, 1e-6):
        raise Declined("the pooled covariance is nearly singular, and scikit-learn drops directions there")
    return np.asarray(np.linalg.cholesky(within.T @ within))


def _spread(centers: Float, totals: Float, tolerance: float) -> None:
    """Refuse class means that scikit-learn would project to fewer dimensions than there are."""
    weights = totals / totals.sum()
    values = np.linalg.svd(np.sqrt(weights)[:, None] * (centers - weights @ centers), compute_uv=False)
    wanted = min(len(centers) - 1, centers.shape[1])
    if not values[wanted - 1] > 10 * max(tolerance, 1e-6) * values[0]:
        raise Declined("the class means nearly span fewer dimensions, and scikit-learn drops directions there")


ENGINE = Lda()
