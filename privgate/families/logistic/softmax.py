"""Multinomial logistic regression: the full minimiser, and certified solvers without some records."""

from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from privgate.families.logistic import objective, sweeps
from privgate.families.logistic.answers import Kept, Solver
from privgate.families.logistic.objective import Float, Objective
from privgate.families.logistic.softmax_sweeps import Minimum, grams, inverse_of, probabilities, reach_of
from privgate.families.retrained import Index

#: parameters beyond which the Hessian and its inverse take more than 1 GB
LARGEST = 8000


def hessian(X: Float, P: Float, lam: Float, *, gauge: bool) -> Float:
    """Return the Hessian (K p, K p) of the objective; with ``gauge``, of (sum_k b_k)^2 / 2 as well (section 6.3 ii)."""
    p, K = X.shape[1], P.shape[1]
    H = np.empty((K, p, K, p))
    for a in range(K):
        for b in range(a, K):
            H[a, :, b] = (X * (P[:, a] * ((a == b) - P[:, b]))[:, None]).T @ X
            H[b, :, a] = H[a, :, b]
    flat = H.reshape(K * p, K * p)
    flat[np.diag_indices(K * p)] += np.tile(lam, K)
    if gauge:
        last = np.arange(K) * p + p - 1
        flat[np.ix_(last, last)] += 1.0
    return flat


def minimise(X: Float, Y: Float, lam: Float, start: Float, *, gauge: bool) -> tuple[Float, Float] | None:
    """Return (minimiser (K, p), Cholesky factor of the Hessian there); None without convergence."""
    first = start.copy()
    if gauge:
        first[:, -1] -= first[:, -1].mean()

    def value(V: Float) -> float:
        Z = X @ V.T
        top = Z.max(axis=1, keepdims=True)
        return float((top[:, 0] + np.log(np.exp(Z - top).sum(axis=1)) - (Y * Z).sum(axis=1)).sum()) + 0.5 * float(
            (lam * V * V).sum()
        )

    def slope(W: Float) -> tuple[Float, Float]:
        P = probabilities(X @ W.T, 1)
        return (P - Y).T @ X + lam * W, hessian(X, P, lam, gauge=gauge)

    return objective.newton(first, value, slope)


class Softmax(Solver):
    """The solver for three classes or more."""

    S: Minimum

    @classmethod
    def solve(cls, problem: Objective, start: Float) -> Self | None:
        """Return the solver at the minimiser; None where the Hessian is too large or ill-conditioned."""
        if start.size > LARGEST:
            return None
        hot = (problem.y[:, None] == np.arange(problem.K)).astype(np.float64)
        found = minimise(problem.X[: problem.n], hot, problem.lam, start, gauge=_free(problem))
        return None if found is None else cls(problem, Minimum(problem, *found))

    @property
    def u(self) -> Float:
        """Minimiser, shape (K, p)."""
        return self.S.u

    @property
    def inverse(self) -> Float:
        """H^-1."""
        return self.S.inverse

    @property
    def reach(self) -> Float:
        """Largest change of a logit difference at each pool row when parameters move by 1 in the Hessian's norm."""
        return self.S.reach

    @cached_property
    def spread(self) -> float:
        """Square root of the trace of H^-1, no smaller than its largest singular value's."""
        return float(np.sqrt(np.trace(self.S.inverse)))

    def shifts(self, records: Index, wanted: Float) -> tuple[Float, Float]:
        """Return (changes of the parameters (B, K, p), bounds on their error in the Hessian's norm (B,))."""
        start = self.S.start(records)

        def sweep(some: Index, D: Float, precision: Any) -> tuple[Float, Float, Float, Float]:
            return self.S.sweep(records[some], start[some], D, precision)

        D, error = sweeps.settle(sweep, start, np.full(len(records), np.inf), wanted)
        return D.reshape(len(records), self.problem.K, -1), error

    def length(self, delta: Float) -> Float:
        """Return the Hessian's norm of changes of the parameters (B, K, p), shape (B,)."""
        flat = delta.reshape(len(delta), -1)
        square = np.einsum("bq,bq->b", flat, flat @ self.S.precisions[np.float64][3])
        return np.asarray(np.sqrt(np.maximum(square, 0)))

    def minimised(self, keep: NDArray[np.bool_]) -> Kept | None:
        """Return the minimiser on the training records ``keep``; None if Newton fails."""
        problem = self.problem
        X, hot = problem.X[: problem.n][keep], (problem.y[keep, None] == np.arange(problem.K)).astype(np.float64)
        found = minimise(X, hot, problem.lam, self.u, gauge=_free(problem))
        if found is None:
            return None
        u, L = found
        inverse = inverse_of(L)
        P, diagonal = probabilities(X @ u.T, 1), np.diag(inverse)
        apart = objective.settled(X, P, problem.lam, u, H=(L**2).sum(axis=1), inverse=diagonal)
        reach = reach_of(grams(inverse, problem.X, problem.K))
        return Kept(u, apart, inverse, reach, float(np.sqrt(diagonal.sum())))


def _free(problem: Objective) -> bool:
    """Whether all intercepts may move together without changing the objective."""
    return problem.intercept
