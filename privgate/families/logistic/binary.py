"""Two-class logistic regression: the full minimiser, and solvers without some records."""

from functools import cached_property
from typing import Any, Self

import numpy as np
import scipy.linalg as sl
from numpy.typing import NDArray

from privgate.families.logistic import binary_sweeps, objective, sweeps
from privgate.families.logistic.answers import Kept, Solver
from privgate.families.logistic.binary_sweeps import Whitened
from privgate.families.logistic.objective import Float, Objective
from privgate.families.retrained import Index


class Binary(Solver):
    """The solver for two classes."""

    S: Whitened

    @classmethod
    def solve(cls, problem: Objective, start: Float) -> Self | None:
        """Return the solver at the minimiser; None where the Hessian is too ill-conditioned or Newton fails."""
        found = objective.minimise_binary(
            problem.X[: problem.n], problem.y.astype(np.float64), problem.lam, start, problem.weights
        )
        return None if found is None else cls(problem, Whitened(problem, *found))

    @property
    def u(self) -> Float:
        """Minimiser, shape (1, p)."""
        return self.S.w[None]

    @cached_property
    def reach(self) -> Float:
        """Return ||L^-1 x|| of every pool row."""
        return np.sqrt(self.S.h)

    @cached_property
    def spread(self) -> float:
        """Frobenius norm of L^-1, no smaller than its largest singular value."""
        return float(np.linalg.norm(self._half))

    @cached_property
    def influence(self) -> tuple[Float, Float]:
        """Return (c, where one step is c a_i in whitened coordinates, bound on its error) of training records (n,)."""
        return binary_sweeps.screen(self.S)

    def screened(self) -> tuple[Float, Float]:
        """Return (change of each record's own logit by one step, bound on the step's error in the Hessian's norm)."""
        c, radius = self.influence
        return c * self.S.h[: self.problem.n], radius

    def one_step(self, records: Index) -> Float:
        """Return the changes of the parameters by that step, shape (B, 1, p)."""
        return self._parameters(self.S.A[records] * self.influence[0][records, None])

    def shifts(self, records: Index, wanted: Float) -> tuple[Float, Float]:
        """Return (changes of the parameters (B, 1, p), bounds on their error in the Hessian's norm (B,))."""
        c, radius = (a[records] for a in self.influence)

        def sweep(some: Index, D: Float, precision: Any) -> tuple[Float, Float, Float, Float]:
            return binary_sweeps.sweep(self.S, records[some], D, precision)

        D, error = sweeps.settle(sweep, self.S.A[records] * c[:, None], radius, wanted)
        return self._parameters(D), error

    def _parameters(self, D: Float) -> Float:
        delta = sl.solve_triangular(self.S.L, D.T, lower=True, trans="T", check_finite=False)
        return np.asarray(delta.T)[:, None, :]

    @cached_property
    def inverse(self) -> Float:
        """H^-1."""
        return np.asarray(self._half.T @ self._half)

    @cached_property
    def _half(self) -> Float:
        return np.asarray(sl.solve_triangular(self.S.L, np.eye(len(self.S.L)), lower=True, check_finite=False))

    def length(self, delta: Float) -> Float:
        """Return the Hessian's norm of changes of the parameters (B, 1, p), shape (B,)."""
        return np.asarray(np.linalg.norm(delta[:, 0] @ self.S.L, axis=1))

    def minimised(self, keep: NDArray[np.bool_]) -> Kept | None:
        """Return the minimiser on the training records ``keep``; None if Newton fails."""
        problem = self.problem
        X, y = problem.X[: problem.n][keep], problem.y[keep].astype(np.float64)
        weights = None if problem.weights is None else problem.weights[keep]
        found = objective.minimise_binary(X, y, problem.lam, self.S.w, weights)
        if found is None:
            return None
        w, L = found
        reach = np.sqrt((sl.solve_triangular(L, problem.X.T, lower=True, check_finite=False) ** 2).sum(axis=0))
        half = sl.solve_triangular(L, np.eye(len(L)), lower=True, check_finite=False)
        P = objective.sigmoid(X @ w)[:, None]
        diagonal = (half**2).sum(axis=0)
        H = (L**2).sum(axis=1)
        apart = objective.settled(X, P, problem.lam, w[None], H=H, inverse=diagonal, weights=weights)
        return Kept(w[None], apart, half.T @ half, reach, float(np.linalg.norm(half)))
