"""Linear discriminant analysis without each record, in closed form."""

from functools import partial
from typing import Any

import numpy as np

from privgate.families.closed_form import ClosedForm, Form, Scores, by_size
from privgate.families.discriminants import discriminant
from privgate.families.discriminants.discriminant import ClassMoments
from privgate.families.engine import Cost, Declined, LibraryEngine
from privgate.families.removal import Float
from privgate.families.retrained import Index, Seeds
from privgate.subject.subject import Subject

#: leverage left over, below which the downdated covariance has lost eight digits
KEPT = 1e-8
#: condition number of a covariance, not scaled, of which least squares lose half the digits
UNSCALED = 1e8


class Lda(LibraryEngine, ClosedForm):
    """Leave-one-out for ``LinearDiscriminantAnalysis`` (svd, lsqr without shrinkage); exact, O(n d^2), full rank only.

    Identity: with r = x - mean of its class of m and S the pooled covariance over n, the record's removal gives
    ``S' = (n S - m / (m - 1) r r^T) / (n - 1)`` and mean' = mean - r / (m - 1); S'^-1 by Sherman and Morrison. Breaks
    down as 1 - m r^T S^-1 r / (n (m - 1)) goes to 0: such records are handed on. A unit of several records takes what
    ``discriminant.without`` says off n S, and the rest is factored anew: O(d^3) a unit.
    """

    name = "lda"
    library = "LinearDiscriminantAnalysis"
    double = True
    version = 4
    hands_on = "their leverage is near 1"
    complements = True

    def unfit(self, estimator: Any, subject: Subject) -> str:
        """Return which parameters are not covered; empty if all are."""
        if why := discriminant.refusal(subject):
            return why
        if estimator.solver not in ("svd", "lsqr") or estimator.shrinkage is not None or estimator.priors is not None:
            return "shrinkage, fixed priors and the eigen solver have formulas of their own"
        return "covariance_estimator is set" if estimator.covariance_estimator is not None else ""

    def cost(self, subject: Subject, units: Index, seeds: Seeds, *, mode: str = "all") -> Cost:
        """Return the cost of one factorisation and a few products."""
        n, d = discriminant.moments(subject).X.shape
        return Cost(0, 4 * n * d * d / 2e10 + 1e-6 * n, 32 * n * d)

    def form(self, subject: Subject) -> Form:
        """Return the closed form; units of too much leverage are handed on.

        Raises
        ------
        Declined
            The pooled covariance or the class means are near the rank tolerance of scikit-learn.
        """
        import scipy.linalg as sl

        M, tolerance = discriminant.moments(subject), float(subject.recipe.library_estimator.tol)
        n = len(M.y)
        L, least = _factor(M.residual / np.sqrt(n), tolerance)
        if subject.recipe.library_estimator.solver == "lsqr" and np.linalg.cond(L) ** 2 > UNSCALED:
            raise Declined("features differ too much in scale for the least-squares solver, which scales none")
        white = ClassMoments(  # here the pooled covariance is the unit matrix
            sl.solve_triangular(L, M.X.T, lower=True, check_finite=False).T,
            M.y,
            M.totals,
            sl.solve_triangular(L, M.mean.T, lower=True, check_finite=False).T,
        )
        _spread(white.mean, M.totals, tolerance)
        # scikit-learn drops directions below its tolerance, so none may come near it
        kept = max(KEPT, (2 * tolerance) ** 2 / least)
        return Form(by_size(partial(_one, white, kept), partial(_several, white, kept)), 4 * L.shape[0])


def _full(white: ClassMoments, query: Index) -> Float:
    return -0.5 * _squares(white.X[query], white.mean) + np.log(white.totals)


def _one(white: ClassMoments, least: float, record: Index, query: Index) -> Scores:
    own, centers, n = white.y[record], white.mean, len(white.y)
    z, r, m = white.X[query], white.X[record] - centers[own], white.totals[own]
    distance = _squares(z, centers)
    full = -0.5 * distance + np.log(white.totals)
    weight = m / (m - 1) / n
    kept = 1 - weight * (r * r).sum(axis=1)
    # a record also moves the mean of its own class, by r / (m - 1) along r
    along = (z * r).sum(axis=1)[:, None] - r @ centers.T
    here = np.arange(len(record)), own
    square = (r * r).sum(axis=1)
    distance[here] += 2 * along[here] / (m - 1) + square / (m - 1) ** 2
    along[here] += square / (m - 1)
    counts = np.tile(white.totals, (len(record), 1))
    counts[here] -= 1
    distance += (weight / kept)[:, None] * along**2
    rest = -0.5 * distance * ((n - 1) / n) + np.log(counts)
    return Scores(full, rest, kept > least)


def _several(white: ClassMoments, least: float, lost: list[tuple[int, Index]], query: Index) -> Scores:
    import scipy.linalg as sl

    full, n = _full(white, query), len(white.y)
    centers, counts, within = white.mean.copy(), white.totals.copy(), n * np.eye(white.X.shape[1])
    for c, rows in lost:
        counts[c] -= len(rows)
        if counts[c] > 0:
            centers[c], fall = discriminant.without(white, c, rows)
            within -= fall
    left = int(counts.sum())
    if counts.min() <= 0 or np.linalg.eigvalsh(within)[0] <= n * least:
        return Scores(full, np.full_like(full, np.nan), np.zeros(len(query), dtype=bool))
    L = np.linalg.cholesky(within / left)
    z, centers = (sl.solve_triangular(L, a.T, lower=True, check_finite=False).T for a in (white.X[query], centers))
    return Scores(full, -0.5 * _squares(z, centers) + np.log(counts), np.ones(len(query), dtype=bool))


def _squares(z: Float, centers: Float) -> Float:
    return np.asarray((z * z).sum(axis=1)[:, None] - 2 * z @ centers.T + (centers * centers).sum(axis=1))


def _factor(within: Float, tolerance: float) -> tuple[Float, float]:
    """Return (Cholesky factor of the pooled covariance, smallest eigenvalue of the correlations within classes)."""
    std = np.sqrt((within**2).sum(axis=0))
    if std.min() == 0:
        raise Declined("a feature does not vary within classes")
    scaled = within / std
    values = np.linalg.eigvalsh(scaled.T @ scaled)
    if not np.sqrt(max(values[0], 0.0)) > 10 * max(tolerance, 1e-6):
        raise Declined("the pooled covariance is nearly singular, and scikit-learn drops directions there")
    return np.asarray(np.linalg.cholesky(within.T @ within)), float(values[0])


def _spread(centers: Float, totals: Float, tolerance: float) -> None:
    """Refuse class means that scikit-learn would project to fewer dimensions than there are."""
    weights = totals / totals.sum()
    values = np.linalg.svd(np.sqrt(weights)[:, None] * (centers - weights @ centers), compute_uv=False)
    wanted = min(len(centers) - 1, centers.shape[1])
    if not values[wanted - 1] > 10 * max(tolerance, 1e-6) * values[0]:
        raise Declined("the class means nearly span fewer dimensions, and scikit-learn drops directions there")


ENGINE = Lda()
