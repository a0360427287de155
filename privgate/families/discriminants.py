"""Linear and quadratic discriminant analysis without each record, in closed form."""

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from privgate.arrays import Float, Index
from privgate.families import designs
from privgate.families.closed_form import ClosedForm, Form, Scores, by_size
from privgate.families.engine import Cost, Declined, LibraryEngine
from privgate.families.retrained import Seeds
from privgate.subject.subject import Subject


@dataclass(frozen=True, eq=False)
class ClassMoments:
    """Means and counts of classes; everything centred at the training mean, where digits are not eaten by an offset."""

    X: Float  # pool, (P, d)
    y: Index  # (n,)
    totals: Float  # (K,)
    mean: Float  # (K, d)

    @property
    def residual(self) -> Float:
        """Training records minus the mean of their class, shape (n, d)."""
        return np.asarray(self.X[: len(self.y)] - self.mean[self.y])


def moments(subject: Subject) -> ClassMoments:
    """Return the moments of a numeric pool; ``refusal`` must have been empty."""
    n, y = subject.data.n, subject.label_codes
    X = designs.matrix(subject).astype(np.float64, copy=False)
    X = X - X[:n].mean(axis=0)
    totals = np.bincount(y, minlength=len(subject.classes)).astype(np.float64)
    hot = (y[:, None] == np.arange(len(totals))).astype(np.float64)
    return ClassMoments(X, y, totals, (hot.T @ X[:n]) / totals[:, None])


def refusal(subject: Subject) -> str:
    """Return why the library computes by another convention than the one known here, or there is one class only."""
    import sklearn

    if tuple(int(v) for v in sklearn.__version__.split(".")[:2]) < (1, 9):
        return "scikit-learn before 1.9 divides covariances by another number"
    return "there is one class only" if len(subject.classes) < 2 else ""


def without(M: ClassMoments, label: int, rows: Index) -> tuple[Float, Float]:
    """Return (mean of a class without some of its records, what its sums of squares and products about it fall by).

    Notes
    -----
    With m of N records gone, whose mean is g: mean' = mean + m (mean - g) / (N - m), and the sums fall by those of the
    lost records about g and N m / (N - m) (mean - g)(mean - g)^T (Chan, Golub and LeVeque 1979, run backwards).
    """
    x, N, m = M.X[rows], M.totals[label], len(rows)
    gone = x.mean(axis=0)
    away = M.mean[label] - gone
    return M.mean[label] + m / (N - m) * away, (x - gone).T @ (x - gone) + N * m / (N - m) * np.outer(away, away)


#: leverage left over, below which the downdated covariance has lost eight digits
KEPT = 1e-8
#: condition number of a covariance, not scaled, of which least squares lose half the digits
UNSCALED = 1e8


class Lda(LibraryEngine, ClosedForm):
    """Leave-one-out for ``LinearDiscriminantAnalysis`` (svd, lsqr without shrinkage); exact, O(n d^2), full rank only.

    Identity: with r = x - mean of its class of m and S the pooled covariance over n, the record's removal gives
    ``S' = (n S - m / (m - 1) r r^T) / (n - 1)`` and mean' = mean - r / (m - 1); S'^-1 by Sherman and Morrison. Breaks
    down as 1 - m r^T S^-1 r / (n (m - 1)) goes to 0: such records are handed on. A unit of several records takes what
    ``without`` says off n S, and the rest is factored anew: O(d^3) a unit.
    """

    name = "lda"
    library = "LinearDiscriminantAnalysis"
    double = True
    version = 4
    hands_on = "their leverage is near 1"
    complements = True

    def unfit(self, estimator: Any, subject: Subject) -> str:
        """Return which parameters are not covered; empty if all are."""
        if why := refusal(subject):
            return why
        if estimator.solver not in ("svd", "lsqr") or estimator.shrinkage is not None or estimator.priors is not None:
            return "shrinkage, fixed priors and the eigen solver have formulas of their own"
        return "covariance_estimator is set" if estimator.covariance_estimator is not None else ""

    def cost(self, subject: Subject, units: Index, seeds: Seeds, *, mode: str = "all") -> Cost:
        """Return the cost of one factorisation and a few products."""
        n, d = moments(subject).X.shape
        return Cost(0, 4 * n * d * d / 2e10 + 1e-6 * n, 32 * n * d)

    def form(self, subject: Subject) -> Form:
        """Return the closed form; units of too much leverage are handed on.

        Raises
        ------
        Declined
            The pooled covariance or the class means are near the rank tolerance of scikit-learn.
        """
        import scipy.linalg as sl

        M, tolerance = moments(subject), float(subject.recipe.library_estimator.tol)
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
            centers[c], fall = without(white, c, rows)
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


LDA = Lda()


class Qda(LibraryEngine, ClosedForm):
    """Leave-one-out for ``QuadraticDiscriminantAnalysis`` (svd, no regularisation); exact, O(n d^2).

    Identity: for a class of m with covariance S over m, ``S' = (m S - m / (m - 1) r r^T) / (m - 1)`` and mean' = mean -
    r / (m - 1); determinant and inverse by Sherman and Morrison. Where the class falls to d + 1 records, or an
    eigenvalue comes near scikit-learn's tolerance, a refit may raise: such records are handed on. A unit of several
    records takes what ``without`` says off m S, and the rest is factored anew: O(d^3) a class.
    """

    name = "qda"
    library = "QuadraticDiscriminantAnalysis"
    double = True
    hands_on = "their class is hardly of full rank without them"

    def unfit(self, estimator: Any, subject: Subject) -> str:
        """Return which parameters are not covered; empty if all are."""
        if why := refusal(subject):
            return why
        if estimator.solver != "svd" or estimator.reg_param != 0 or estimator.priors is not None:
            return "regularisation, fixed priors and the eigen solver have formulas of their own"
        counts = np.bincount(subject.label_codes)
        d = int(subject.data.X.shape[1])
        return "a class has no more records than features" if counts.min() <= d + 1 else ""

    def cost(self, subject: Subject, units: Index, seeds: Seeds, *, mode: str = "all") -> Cost:
        """Return the cost of one factorisation a class."""
        n, d = moments(subject).X.shape
        return Cost(0, 3 * n * d * d * len(subject.classes) / 2e10 + 1e-6 * n, 32 * n * d)

    def form(self, subject: Subject) -> Form:
        """Return the closed form; units whose class hardly stays of full rank are handed on.

        Raises
        ------
        Declined
            A class covariance is near scikit-learn's rank tolerance.
        """
        M, tolerance = moments(subject), float(subject.recipe.library_estimator.tol)
        residual, classes = M.residual, []
        for c, m in enumerate(M.totals):
            S = residual[M.y == c].T @ residual[M.y == c] / m
            least = float(np.linalg.eigvalsh(S)[0])
            if not least > 2 * max(tolerance, 1e-9 * np.trace(S)):
                raise Declined("a class covariance is nearly singular, where scikit-learn raises")
            classes.append(_Class(S, _whitening(S), least))
        one = partial(_one_of_class, M, classes, tolerance)
        return Form(by_size(one, partial(_several_of_class, M, classes, tolerance)), 16 * M.X.shape[1])


class _Class(NamedTuple):
    covariance: Float  # over the number of records
    whiten: Float  # the inverse of its Cholesky factor
    least: float  # its smallest eigenvalue


def _density(away: Float, whiten: Float) -> tuple[Float, Float]:
    """Return (whitened (R, d), log density up to a constant (R,)) of ``away`` (R, d) by an inverse Cholesky factor."""
    z = away @ whiten.T
    return z, -0.5 * np.einsum("ij,ij->i", z, z) + np.log(np.diag(whiten)).sum()


def _whitening(covariance: Float) -> Float:
    """Return the inverse of the Cholesky factor: one product with it is faster than solving for thousands of rows."""
    import scipy.linalg as sl

    L = np.linalg.cholesky(covariance)
    return np.asarray(sl.solve_triangular(L, np.eye(len(L)), lower=True, check_finite=False))


def _one_of_class(M: ClassMoments, classes: list[_Class], tolerance: float, record: Index, query: Index) -> Scores:
    x, own, d = M.X[query], M.y[record], M.X.shape[1]
    full, rest = np.empty((len(record), len(classes))), np.empty((len(record), len(classes)))
    fine = np.ones(len(record), dtype=bool)
    for c, ((_, whiten, least), m) in enumerate(zip(classes, M.totals, strict=True)):
        z, density = _density(x - M.mean[c], whiten)
        full[:, c] = rest[:, c] = density + np.log(m)
        at = np.flatnonzero(own == c)
        r = (M.X[record[at]] - M.mean[c]) @ whiten.T
        z = z[at] + r / (m - 1)
        square, grow = (r * r).sum(axis=1), m / (m - 1)
        kept = 1 - square / (m - 1)
        along = (z * r).sum(axis=1)
        distance = ((z * z).sum(axis=1) + along**2 / ((m - 1) * kept)) / grow
        determinant = 0.5 * (np.log(kept) + d * np.log(grow)) - np.log(np.diag(whiten)).sum()
        rest[at, c] = -0.5 * distance - determinant + np.log(m - 1)
        fine[at] = (kept > KEPT) & (least * kept * grow > 2 * tolerance) & (m - 1 > d + 1)
    return Scores(full, rest, fine)


def _several_of_class(
    M: ClassMoments, classes: list[_Class], tolerance: float, lost: list[tuple[int, Index]], query: Index
) -> Scores:
    x, d = M.X[query], M.X.shape[1]
    full = np.stack([_density(x - mean, c.whiten)[1] for c, mean in zip(classes, M.mean, strict=True)], axis=1)
    full += np.log(M.totals)
    rest, sure = full.copy(), True
    for c, rows in lost:
        left = M.totals[c] - len(rows)
        if left <= d + 1:
            return Scores(full, np.full_like(full, np.nan), np.zeros(len(query), dtype=bool))
        mean, fall = without(M, c, rows)
        S = (M.totals[c] * classes[c].covariance - fall) / left
        least = float(np.linalg.eigvalsh(S)[0])
        if least > max(2 * tolerance, KEPT * classes[c].least):
            rest[:, c] = _density(x - mean, _whitening(S))[1] + np.log(left)
        else:
            sure = False
    return Scores(full, rest, np.full(len(query), sure))


QDA = Qda()
