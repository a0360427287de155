"""Two-class logistic regression: the full minimiser, and solvers without some records."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import scipy.linalg as sl

from privgate.families.logistic import binary_sweeps, objective, sweeps
from privgate.families.logistic.binary_sweeps import Whitened, stopped
from privgate.families.logistic.objective import Float, Objective
from privgate.families.retrained import Index


@dataclass(eq=False)
class Binary:
    """The minimiser with every record, and how to leave records out; ``certified.Solver`` for two classes."""

    problem: Objective
    S: Whitened

    @classmethod
    def solve(cls, problem: Objective, start: Float) -> Self | None:
        """Return the solver at the minimiser; None where the Hessian is too ill-conditioned or Newton fails."""
        found = objective.minimise_binary(problem.X[: problem.n], problem.y.astype(np.float64), problem.lam, start)
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
        return _spread(self.S.L)

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
        return _inverse(self.S.L)

    def length(self, delta: Float) -> Float:
        """Return the Hessian's norm of changes of the parameters (B, 1, p), shape (B,)."""
        return np.asarray(np.linalg.norm(delta[:, 0] @ self.S.L, axis=1))

    def stops(self, allowed: Float, records: Index, length: Float) -> Float:
        """Return how far from their minima trainings without some records may stop; see ``Solver``."""
        off = self.S.defects[0]
        return stopped(self.inverse, allowed, self.S.radius, (self.S.keep[records] - off) * (1 - off), length)

    def stops_whole(self, allowed: Float) -> float:
        """Return how far from its minimum a training on all records may stop, in the Hessian's norm."""
        kept = np.array([1 - 2 * self.S.defects[0]])
        return float(stopped(self.inverse, allowed, self.S.radius, kept, np.zeros(1))[0])

    def without(self, rows: Index, allowed: Float | None = None) -> tuple[Float, Float, float] | None:
        """Return parameters (1, p) and error bounds by damped Newton from the full minimiser; see ``Solver``."""
        problem = self.problem
        keep = np.ones(problem.n, dtype=bool)
        keep[rows] = False
        X, y = problem.X[: problem.n][keep], problem.y[keep].astype(np.float64)
        found = objective.minimise_binary(X, y, problem.lam, self.S.w)
        if found is None:
            return None
        w, L = found
        reach = np.sqrt((sl.solve_triangular(L, problem.X.T, lower=True, check_finite=False) ** 2).sum(axis=0))
        inverse = (sl.solve_triangular(L, np.eye(len(L)), lower=True, check_finite=False) ** 2).sum(axis=0)
        P = objective.sigmoid(X @ w)[:, None]
        apart = objective.settled(X, P, problem.lam, w[None], H=(L**2).sum(axis=1), inverse=inverse)
        if not reach.max() * apart <= 1e-3:
            return None
        if allowed is not None:
            radius = float(reach[: problem.n][keep].max())
            apart += float(stopped(_inverse(L), allowed, radius, np.full(1, 0.99), np.full(1, apart))[0])
        return w[None], apart * reach, apart * _spread(L)


def _inverse(L: Float) -> Float:
    half = sl.solve_triangular(L, np.eye(len(L)), lower=True, check_finite=False)
    return np.asarray(half.T @ half)


def _spread(L: Float) -> float:
    return float(np.linalg.norm(sl.solve_triangular(L, np.eye(len(L)), lower=True, check_finite=False)))
