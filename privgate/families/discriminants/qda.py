"""Quadratic discriminant analysis without each record, in closed form."""

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from privgate.families.closed_form import ClosedForm, Form, Scores, by_size
from privgate.families.discriminants import discriminant
from privgate.families.discriminants.discriminant import ClassMoments
from privgate.families.engine import Cost, Declined, LibraryEngine
from privgate.families.removal import Float
from privgate.families.retrained import Index, Seeds
from privgate.subject.subject import Subject

KEPT = 1e-8


class Qda(LibraryEngine, ClosedForm):
    """Leave-one-out for ``QuadraticDiscriminantAnalysis`` (svd, no regularisation); exact, O(n d^2).

    Identity: for a class of m with covariance S over m, ``S' = (m S - m / (m - 1) r r^T) / (m - 1)`` and mean' = mean -
    r / (m - 1); determinant and inverse by Sherman and Morrison. Where the class falls to d + 1 records, or an
    eigenvalue comes near scikit-learn's tolerance, a refit may raise: such records are handed on. A unit of several
    records takes what ``discriminant.without`` says off m S, and the rest is factored anew: O(d^3) a class.
    """

    name = "qda"
    library = "QuadraticDiscriminantAnalysis"
    double = True
    hands_on = "their class is hardly of full rank without them"

    def unfit(self, estimator: Any, subject: Subject) -> str:
        """Return which parameters are not covered; empty if all are."""
        if why := discriminant.refusal(subject):
            return why
        if estimator.solver != "svd" or estimator.reg_param != 0 or estimator.priors is not None:
            return "regularisation, fixed priors and the eigen solver have formulas of their own"
        counts = np.bincount(subject.label_codes)
        d = int(subject.data.X.shape[1])
        return "a class has no more records than features" if counts.min() <= d + 1 else ""

    def cost(self, subject: Subject, units: Index, seeds: Seeds, *, mode: str = "all") -> Cost:
        """Return the cost of one factorisation a class."""
        n, d = discriminant.moments(subject).X.shape
        return Cost(0, 3 * n * d * d * len(subject.classes) / 2e10 + 1e-6 * n, 32 * n * d)

    def form(self, subject: Subject) -> Form:
        """Return the closed form; units whose class hardly stays of full rank are handed on.

        Raises
        ------
        Declined
            A class covariance is near scikit-learn's rank tolerance.
        """
        M, tolerance = discriminant.moments(subject), float(subject.recipe.library_estimator.tol)
        residual, classes = M.residual, []
        for c, m in enumerate(M.totals):
            S = residual[M.y == c].T @ residual[M.y == c] / m
            least = float(np.linalg.eigvalsh(S)[0])
            if not least > 2 * max(tolerance, 1e-9 * np.trace(S)):
                raise Declined("a class covariance is nearly singular, where scikit-learn raises")
            classes.append(_Class(S, _whitening(S), least))
        one = partial(_one, M, classes, tolerance)
        return Form(by_size(one, partial(_several, M, classes, tolerance)), 16 * M.X.shape[1])


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


def _one(M: ClassMoments, classes: list[_Class], tolerance: float, record: Index, query: Index) -> Scores:
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


def _several(
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
        mean, fall = discriminant.without(M, c, rows)
        S = (M.totals[c] * classes[c].covariance - fall) / left
        least = float(np.linalg.eigvalsh(S)[0])
        if least > max(2 * tolerance, KEPT * classes[c].least):
            rest[:, c] = _density(x - mean, _whitening(S))[1] + np.log(left)
        else:
            sure = False
    return Scores(full, rest, np.full(len(query), sure))


ENGINE = Qda()
