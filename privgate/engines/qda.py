"""Quadratic discriminant analysis without each record, in closed form."""

import numpy as np
from numpy.typing import NDArray

from privgate.engines import discriminant, single_records
from privgate.engines.base import SEVERAL, Cost, Declined
from privgate.engines.discriminant import Float
from privgate.retrain.fleet import Fleet
from privgate.retrain.retrained import Index, Retrained, Shadows
from privgate.subject import Subject

KEPT = 1e-8


class Qda:
    """Leave-one-out for ``QuadraticDiscriminantAnalysis`` (svd, no regularisation); exact, O(n d^2).

    Identity: for a class of m with covariance S over m, ``S' = (m S - m / (m - 1) r r^T) / (m - 1)`` and mean' = mean -
    r / (m - 1); determinant and inverse by Sherman and Morrison. Where the class falls to d + 1 records, or an
    eigenvalue comes near scikit-learn's tolerance, a refit may raise: such records are handed on.
    """

    name = "qda"
    version = 1
    hands_on = (SEVERAL, "their class is hardly of full rank without them")

    def supports(self, subject: Subject) -> str:
        """Return why the recipe or data is not covered; empty if it is."""
        from sklearn.discriminant_analysis import QuadraticDiscriminantAnalysis

        if why := discriminant.refusal(subject, QuadraticDiscriminantAnalysis):
            return why
        estimator = subject.recipe.library_estimator
        if estimator.solver != "svd" or estimator.reg_param != 0 or estimator.priors is not None:
            return "regularisation, fixed priors and the eigen solver have formulas of their own"
        counts = np.bincount(subject.label_codes)
        d = int(subject.data.X.shape[1])
        return "a class has no more records than features" if counts.min() <= d + 1 else ""

    def cost(self, subject: Subject, units: Index, seeds: tuple[int | None, ...]) -> Cost:
        """Return the cost of one factorisation a class."""
        n, d = discriminant.moments(subject).X.shape
        return Cost(0, 3 * n * d * d * len(subject.classes) / 2e10 + 1e-6 * n, 32 * n * d)

    def leave_out(
        self,
        subject: Subject,
        units: Index,
        seeds: tuple[int | None, ...],
        fleet: Fleet,
        *,
        queries: tuple[Index, Index] | None = None,
    ) -> tuple[Retrained, Index]:
        """Return every record whose class stays of full rank; people with several records are handed on.

        Raises
        ------
        Declined
            A class covariance is near scikit-learn's rank tolerance.
        """
        import scipy.linalg as sl

        M = discriminant.moments(subject)
        tolerance, d = float(subject.recipe.library_estimator.tol), M.X.shape[1]
        residual = M.residual
        factors, smallest = [], np.empty(len(M.totals))
        for c, m in enumerate(M.totals):
            S = residual[M.y == c].T @ residual[M.y == c] / m
            smallest[c] = np.linalg.eigvalsh(S)[0]
            if not smallest[c] > 2 * max(tolerance, 1e-9 * np.trace(S)):
                raise Declined("a class covariance is nearly singular, where scikit-learn raises")
            factors.append(np.linalg.cholesky(S))

        def joint(record: Index, query: Index) -> tuple[Float, Float, NDArray[np.bool_]]:
            x, own = M.X[query], M.y[record]
            full, rest = np.empty((len(record), len(factors))), np.empty((len(record), len(factors)))
            fine = np.ones(len(record), dtype=bool)
            for c, (L, m) in enumerate(zip(factors, M.totals, strict=True)):
                log_det = 2 * np.log(np.diag(L)).sum()
                z = sl.solve_triangular(L, (x - M.mean[c]).T, lower=True, check_finite=False)
                full[:, c] = rest[:, c] = -0.5 * ((z * z).sum(axis=0) + log_det) + np.log(m)
                at = np.flatnonzero(own == c)
                r = sl.solve_triangular(L, residual[record[at]].T, lower=True, check_finite=False)
                z = z[:, at] + r / (m - 1)
                square, grow = (r * r).sum(axis=0), m / (m - 1)
                kept = 1 - square / (m - 1)
                along = (z * r).sum(axis=0)
                distance = ((z * z).sum(axis=0) + along**2 / ((m - 1) * kept)) / grow
                rest[at, c] = -0.5 * (distance + log_det + np.log(kept) + d * np.log(grow)) + np.log(m - 1)
                fine[at] = (kept > KEPT) & (smallest[c] * kept * grow > 2 * tolerance) & (m - 1 > d + 1)
            return full, rest, fine

        return single_records.leave_out(self.name, joint, subject=subject, units=units, seeds=seeds, queries=queries)

    def subsets(
        self, subject: Subject, masks: NDArray[np.bool_], seeds: tuple[int | None, ...], fleet: Fleet
    ) -> Shadows | None:
        """Return None: refits answer."""
        return None


ENGINE = Qda()
