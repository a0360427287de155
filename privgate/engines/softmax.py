"""Multinomial logistic regression: the full minimiser, and certified solvers without some records.

Without i the minimiser moves by d with ``(H - S_i (x) x_i x_i^T) d + sum_{j != i} e_j(d) (x) x_j = r_i (x) x_i``,
H the Hessian at the full minimiser, S_i = diag(p_i) - p_i p_i^T, r_i = p_i - y_i, e_j the second-order remainder of the
softmax.
One inverse of H serves all records (Woodbury); the remainder goes through products of all records of a block.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import scipy.linalg as sl
from numpy.typing import NDArray

from privgate.engines import regression
from privgate.engines.anderson import Accelerated
from privgate.engines.binary_sweeps import radius_of
from privgate.engines.regression import Float, Objective
from privgate.retrain.retrained import Index

#: parameters beyond which the Hessian and its inverse take more than 1 GB
LARGEST = 8000
#: where Newton stops, the decrement is below 1e-22
STOPPED = 2e-11


def probabilities(Z: NDArray[Any], axis: int) -> NDArray[Any]:
    """Return the softmax of ``Z`` along an axis; overwrites ``Z``."""
    Z -= Z.max(axis=axis, keepdims=True)
    np.exp(Z, out=Z)
    Z /= Z.sum(axis=axis, keepdims=True)
    return Z


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
    W = start.copy()
    if gauge:
        W[:, -1] -= W[:, -1].mean()

    def value(V: Float) -> float:
        Z = X @ V.T
        top = Z.max(axis=1, keepdims=True)
        return float((top[:, 0] + np.log(np.exp(Z - top).sum(axis=1)) - (Y * Z).sum(axis=1)).sum()) + 0.5 * float(
            (lam * V * V).sum()
        )

    f = value(W)
    for _ in range(60):
        P = probabilities(X @ W.T, 1)
        g = (P - Y).T @ X + lam * W
        L = regression.factor(hessian(X, P, lam, gauge=gauge))
        if L is None:
            return None
        step = sl.cho_solve((L, True), g.ravel(), check_finite=False).reshape(W.shape)
        decrement = float((g * step).sum())
        if decrement < 1e-22:
            return W - step, L
        t = 1.0
        while t > 1e-10:
            new = value(W - t * step)
            if new <= f - 1e-4 * t * decrement or decrement < 1e-12 * max(1.0, abs(f)):
                break
            t /= 2
        W, f = W - t * step, new
    return None


@dataclass(eq=False)
class Softmax:
    """The minimiser with every record, and how to leave records out; ``logistic.Solver`` for three classes or more."""

    problem: Objective
    u: Float  # (K, p)
    L: Float  # (K p, K p)
    tolerance: float = 1e-6
    fast: int = 2

    @classmethod
    def solve(cls, problem: Objective, start: Float) -> Self | None:
        """Return the solver at the minimiser; None where the Hessian is too large or ill-conditioned."""
        if start.size > LARGEST:
            return None
        hot = (problem.y[:, None] == np.arange(problem.K)).astype(np.float64)
        found = minimise(problem.X[: problem.n], hot, problem.lam, start, gauge=_free(problem))
        return None if found is None else cls(problem, *found)

    @cached_property
    def P(self) -> Float:
        """Probabilities of the training records, shape (n, K)."""
        return probabilities(self.problem.X[: self.problem.n] @ self.u.T, 1)

    @cached_property
    def residual(self) -> Float:
        """Gradient of each record's loss by its logits, shape (n, K)."""
        return np.asarray(self.P - (self.problem.y[:, None] == np.arange(self.problem.K)))

    @cached_property
    def inverse(self) -> Float:
        """H^-1."""
        return _inverse(self.L)

    @cached_property
    def precisions(self) -> dict[Any, tuple[NDArray[Any], ...]]:
        """Design, logits and probabilities (K, n), H^-1, and H in both precisions."""
        X = self.problem.X[: self.problem.n]
        full = X, (X @ self.u.T).T, self.P.T, self.inverse
        return {t: tuple(np.ascontiguousarray(a, dtype=t) for a in full) for t in (np.float32, np.float64)}

    @cached_property
    def H(self) -> Float:
        """Hessian at the full minimiser, shape (K p, K p)."""
        return np.asarray(self.L @ self.L.T)

    @cached_property
    def gram(self) -> Float:
        """K_j = (x_j (x) I)^T H^-1 (x_j (x) I) of every pool row, shape (P, K, K)."""
        return _grams(self.inverse, self.problem.X, self.problem.K)

    @cached_property
    def reach(self) -> Float:
        """Largest change of a logit difference at each pool row when parameters move by 1 in the Hessian's norm."""
        return _reach(self.gram)

    @cached_property
    def radius(self) -> float:
        """Largest change of a training record's logit difference for parameters moved by 1: self-concordance."""
        return float(self.reach[: self.problem.n].max())

    @cached_property
    def spread(self) -> float:
        """Square root of the trace of H^-1, no smaller than its largest singular value's."""
        return float(np.sqrt(np.trace(self.inverse)))

    def shifts(self, records: Index) -> tuple[Float, Float]:
        """Return (changes of the parameters (B, K, p), bounds on their error in the Hessian's norm (B,))."""
        block = _Block.of(self, records)
        D = block.next(np.float32, None)
        walk = Accelerated()
        for _ in range(self.fast):
            D = walk.next(D, block.next(np.float32, D))
        D, walk = D.astype(np.float64), Accelerated()
        best, error = D, np.full(len(records), np.inf)
        for count in range(12):  # noqa: B007  looked at afterwards
            new = block.next(np.float64, D)
            at_D, at_new = block.bounds(D, new)
            for point, bound in ((D, at_D), (new, at_new)):
                best = np.where(bound < error, point, best)
                error = np.minimum(error, bound)
            if (error * self.reach[records] <= self.tolerance).all() or not np.isfinite(new).all():
                break
            D = walk.next(D, new)
        if count > 0 and self.fast < 8:
            self.fast += 1
        return np.ascontiguousarray(best.T).reshape(len(records), self.problem.K, -1), error

    def without(self, rows: Index) -> tuple[Float, Float, float] | None:
        """Return parameters (K, p) and error bounds by damped Newton from the full minimiser; see ``Solver``."""
        problem = self.problem
        keep = np.ones(problem.n, dtype=bool)
        keep[rows] = False
        hot = (problem.y[keep, None] == np.arange(problem.K)).astype(np.float64)
        found = minimise(problem.X[: problem.n][keep], hot, problem.lam, self.u, gauge=_free(problem))
        if found is None:
            return None
        u, L = found
        inverse = _inverse(L)
        reach = _reach(_grams(inverse, problem.X, problem.K))
        if reach.max() * STOPPED > 1e-3:
            return None
        return u, STOPPED * reach, STOPPED * float(np.sqrt(np.trace(inverse)))


@dataclass(eq=False)
class _Block:
    """One block of records: what of their equations does not change from sweep to sweep."""

    S: Softmax
    records: Index
    B: Float  # (B, K, K p): rows of (x_i (x) I)^T H^-1
    curvature: Float  # (B, K, K): S_i
    solve: NDArray[Any]  # (B, K, K): (I - K_i S_i)^-1
    keep: Float  # (B,) 1 - largest leverage

    @classmethod
    def of(cls, S: Softmax, records: Index) -> Self:
        K, p = S.problem.K, S.problem.X.shape[1]
        P = S.P[records]
        curvature = P[:, :, None] * np.eye(K) - P[:, :, None] * P[:, None, :]
        x = S.problem.X[records]
        rows = np.moveaxis(S.inverse.reshape(K, p, -1), 1, 0).reshape(p, -1)  # (p, K * K p)
        gram = S.gram[records]
        values, vectors = np.linalg.eigh(curvature)
        root = vectors * np.sqrt(np.maximum(values, 0))[:, None, :]
        leverage = np.linalg.eigvalsh(np.swapaxes(root, 1, 2) @ gram @ root)[:, -1]
        solve = np.linalg.inv(np.eye(K) - gram @ curvature)
        return cls(S, records, (x @ rows).reshape(len(x), K, -1), curvature, solve, 1 - leverage)

    @property
    def residual(self) -> Float:
        return self.S.residual[self.records]

    def next(self, precision: Any, D: NDArray[Any] | None) -> NDArray[Any]:
        """Return the shift (K p, B) that solves the linear part with the remainder at D; without one if D is None."""
        S = self.S
        K, count = S.problem.K, len(self.records)
        gram, r = S.gram[self.records], self.residual[:, :, None]
        if D is None:
            own, pull = np.zeros((count, K, 1)), 0.0
        else:
            X, Z, P, inverse = S.precisions[precision]
            U = np.matmul(X, D.reshape(K, -1, count))  # (K, n, B)
            U[:, self.records, np.arange(count)] = 0
            self.largest = (U.max(axis=0) - U.min(axis=0)).max(axis=0)
            Q = probabilities(U + Z[:, :, None], 0)
            Q -= P[:, :, None]
            U -= np.einsum("knb,kn->nb", U, P, optimize=False)
            U *= P[:, :, None]
            Q -= U
            pull = inverse @ np.matmul(X.T, Q).reshape(-1, count)
            x = S.problem.X[self.records]
            own = np.einsum("kpb,bp->bk", pull.reshape(K, -1, count), x)[:, :, None]
        change = self.solve @ (gram @ r - own)
        coefficient = (r + self.curvature @ change)[:, :, 0]
        return np.asarray(np.einsum("bkq,bk->qb", self.B, coefficient, optimize=True) - pull, dtype=precision)

    def bounds(self, D: Float, new: Float) -> tuple[Float, Float]:
        """Return bounds on the distance to the minimiser, in the norm of H, from D and from the next iterate.

        As for two classes: the Hessian without i at D is at least ``(1 - leverage) exp(-max range(u_j)) H`` because the
        third derivative of a record's loss is at most range_k(change of its logits) times the second.
        """
        S, step = self.S, D - new
        K, x = S.problem.K, S.problem.X[self.records]
        along = np.einsum("kpb,bp->bk", step.reshape(K, -1, step.shape[1]), x)
        bent = np.einsum("bkl,bl->bk", self.curvature, along)
        square = np.einsum("qb,qb->b", step, S.H @ step) - 2 * (bent * along).sum(axis=1)
        square += np.einsum("bk,bkl,bl->b", bent, S.gram[self.records], bent)
        s = radius_of(np.sqrt(np.maximum(square, 0)), S.radius, self.keep * np.exp(-self.largest))
        with np.errstate(over="ignore", invalid="ignore"):
            shrink = np.expm1(np.minimum(self.largest + S.radius * s, 700)) / self.keep
            return s, np.where(np.isfinite(s), shrink * s, np.inf)


def _free(problem: Objective) -> bool:
    """Whether all intercepts may move together without changing the objective."""
    return problem.scale != 0 and problem.lam[-1] == 0


def _inverse(L: Float) -> Float:
    inverse = sl.lapack.dpotri(L, lower=1)[0]
    return np.asarray(np.tril(inverse) + np.tril(inverse, -1).T)


def _grams(inverse: Float, X: Float, K: int) -> Float:
    """Return x_j^T (H^-1)_kl x_j of every row, shape (P, K, K)."""
    blocks = inverse.reshape(K, X.shape[1], K, X.shape[1])
    gram = np.empty((len(X), K, K))
    for a in range(K):
        for b in range(a, K):
            gram[:, a, b] = gram[:, b, a] = np.einsum("np,np->n", X @ blocks[a, :, b], X)
    return gram


def _reach(gram: Float) -> Float:
    """Return the largest norm of (e_k - e_l) (x) x_j in H^-1 over pairs of classes, shape (P,)."""
    diagonal = np.einsum("nkk->nk", gram)
    square = diagonal[:, :, None] + diagonal[:, None, :] - 2 * gram
    return np.asarray(np.sqrt(np.maximum(square.max(axis=(1, 2)), 0)))
