"""Multinomial logistic regression without each record: fixed-Hessian sweeps for many records at once, each certified.

Without i the minimiser moves by d with ``(H - S_i (x) x_i x_i^T) d + sum_{j != i} e_j(d) (x) x_j = r_i (x) x_i``,
H the Hessian at the full minimiser, S_i = diag(p_i) - p_i p_i^T, r_i = p_i - y_i, e_j the second-order remainder of the
softmax.
One inverse of H serves all records (Woodbury); the remainder goes through products of all records of a block: in
float32 while that only leads on, in float64 where a bound is evaluated.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.linalg as sl
from numpy.typing import NDArray

from privgate.families.logistic.binary_sweeps import DEGENERATE, radius_of
from privgate.families.logistic.objective import Float, Objective, settled
from privgate.families.retrained import Index

#: left-out records times classes, and training records, in one product: what it touches stays in the second cache
WIDTH, CHUNK = 320, 256


def probabilities(Z: NDArray[Any], axis: int) -> NDArray[Any]:
    """Return the softmax of ``Z`` along an axis; overwrites ``Z``."""
    Z -= Z.max(axis=axis, keepdims=True)
    np.exp(Z, out=Z)
    Z /= Z.sum(axis=axis, keepdims=True)
    return Z


@dataclass(frozen=True, eq=False)
class Minimum:
    """The full model, and what of the equations without a record can be said before any sweep.

    Parameters
    ----------
    problem : Objective
    u : float64 array of shape (K, p)
        Minimiser with every record.
    L : float64 array of shape (K p, K p)
        Cholesky factor of the Hessian at ``u``.
    """

    problem: Objective
    u: Float
    L: Float

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
        return inverse_of(self.L)

    @cached_property
    def precisions(self) -> dict[Any, tuple[NDArray[Any], ...]]:
        """Design (n, p), probabilities (K, n), H^-1 and H, in both precisions."""
        full = self.problem.X[: self.problem.n], self.P.T, self.inverse, self.L @ self.L.T
        return {t: tuple(np.ascontiguousarray(a, dtype=t) for a in full) for t in (np.float32, np.float64)}

    @cached_property
    def gram(self) -> Float:
        """K_j = (x_j (x) I)^T H^-1 (x_j (x) I) of every pool row, shape (P, K, K)."""
        return grams(self.inverse, self.problem.X, self.problem.K)

    @cached_property
    def reach(self) -> Float:
        """Largest change of a logit difference at each pool row when parameters move by 1 in the Hessian's norm."""
        return reach_of(self.gram)

    @cached_property
    def radius(self) -> float:
        """Largest change of a training record's logit difference for parameters moved by 1: self-concordance."""
        return float(self.reach[: self.problem.n].max())

    @cached_property
    def curvature(self) -> Float:
        """S_j = diag(p_j) - p_j p_j^T of the training records, shape (n, K, K)."""
        return np.asarray(self.P[:, :, None] * (np.eye(self.problem.K) - self.P[:, None, :]))

    @cached_property
    def keep(self) -> Float:
        """1 - largest leverage of the training records, shape (n,)."""
        root = np.sqrt(self.P)  # S = B B^T with B = diag(root) (I - root root^T)
        half = root[:, :, None] * (np.eye(self.problem.K) - root[:, :, None] * root[:, None, :])
        return np.asarray(1 - np.linalg.eigvalsh(half.swapaxes(1, 2) @ self.gram[: self.problem.n] @ half)[:, -1])

    @cached_property
    def defects(self) -> tuple[float, float]:
        """How far H and its inverse are off by rounding, in the norm where H is the identity, and the minimiser.

        Sums of H_ij lose shares of sqrt(H_ii H_jj), which in that norm count as often as the diagonals of H and its
        inverse multiply to (variance inflation); the factor and the inverse lose as much again.
        """
        problem, H, inverse = self.problem, (self.L**2).sum(axis=1), np.diag(self.inverse)
        apart = settled(problem.X[: problem.n], self.P, problem.lam, self.u, H=H, inverse=inverse)
        return float(4 * len(H) * np.finfo(np.float64).eps * (H @ inverse)), apart

    @cached_property
    def downdate(self) -> Float:
        """(I - K_j S_j)^-1 of the training records, shape (n, K, K)."""
        return np.asarray(np.linalg.inv(np.eye(self.problem.K) - self.gram[: self.problem.n] @ self.curvature))

    def start(self, records: Index) -> Float:
        """Return the solutions of the linear part (B, K p), with no remainder."""
        own = (self.gram[records] @ self.residual[records][:, :, None])[:, :, 0]
        return np.asarray(self._moved(records, own) + self._product(self.residual[records], records))

    def sweep(self, records: Index, start: Float, D: Float, precision: Any) -> tuple[Float, Float, Float, Float]:
        """Apply the fixed-point map once; see ``sweeps.Sweep``. Shapes (B, K p) and (B,).

        As for two classes: the Hessian without i at D is at least ``(1 - leverage) exp(-max range(u_j)) H`` because the
        third derivative of a record's loss is at most range_k(change of its logits) times the second.

        Parameters
        ----------
        start : float64 array of shape (B, K p)
            Solutions of the linear part, with no remainder: exact, so that only what is small is ever rounded.
        """
        curvature, keep = self.curvature[records], self.keep[records] - self.defects[0]
        inverse, H = self.precisions[precision][2:]
        with np.errstate(all="ignore"):  # what overflows becomes a bound that is infinite
            G, largest = self._remainder(records, D, precision)
            pull = G @ inverse
            new = start - pull - self._moved(records, self._own(records, pull), precision)
            step = new - D
            along = self._own(records, step)
            bent = np.einsum("bkl,bl->bk", curvature, along)
            square = np.einsum("bq,bq->b", step, step.astype(precision, copy=False) @ H)
            square += ((np.einsum("bkl,bl->bk", self.gram[records], bent) - 2 * along) * bent).sum(axis=1)
            # where a bound is evaluated, what the Hessian is off by moves the gradient as the change is long
            wrong = self._wrong(D) if precision is np.float64 else np.zeros(len(D))
            mu = np.where(keep > DEGENERATE, keep, 0) * np.exp(-largest)
            s = radius_of(np.sqrt(np.maximum(square, 0)) + wrong, self.radius, mu)
            at_new = np.expm1(largest + self.radius * s) / keep * s + wrong / keep
        at_new = np.where(np.isfinite(s) & np.isfinite(at_new), at_new, np.inf)
        return new, s, at_new, np.full(len(D), 0.0 if precision is np.float64 else np.inf)

    def _wrong(self, D: Float) -> Float:
        """Return a bound on the length of the gradient's error at D, shape (B,)."""
        off, apart = self.defects
        length = np.sqrt(np.maximum(np.einsum("bq,bq->b", D, D @ self.precisions[np.float64][3]), 0))
        return np.asarray(off * length + apart)

    def _own(self, records: Index, D: NDArray[Any]) -> Float:
        """Return the change of each record's own logits, shape (B, K)."""
        return np.asarray(np.einsum("bkp,bp->bk", D.reshape(len(D), self.problem.K, -1), self.problem.X[records]))

    def _product(self, c: Float, records: Index, precision: Any = np.float64) -> NDArray[Any]:
        """Return H^-1 (c_i (x) x_i), shape (B, K p)."""
        outer = c[:, :, None] * self.problem.X[records][:, None, :]
        return np.asarray(outer.reshape(len(c), -1).astype(precision, copy=False) @ self.precisions[precision][2])

    def _moved(self, records: Index, own: Float, precision: Any = np.float64) -> NDArray[Any]:
        """Return how the parameters follow, the record's curvature being gone, where its own logits move by ``own``."""
        follow = self.curvature[records] @ self.downdate[records] @ own[:, :, None]
        return self._product(follow[:, :, 0], records, precision)

    def _remainder(self, records: Index, D: Float, precision: Any) -> tuple[NDArray[Any], Float]:
        """Return (sum_j e_j(D) (x) x_j without each record (B, K p), largest range of a record's change (B,)).

        With t = e^u - 1 the remainder is ``p ((t - p.t) / (1 + p.t) - (u - p.u))``, in which nothing cancels but the
        linear part.
        """
        X, P = self.precisions[precision][:2]
        G, largest = np.zeros(D.shape, dtype=precision), np.zeros(len(D))
        few = max(1, WIDTH // len(P))
        for first in range(0, len(D), few):
            block = slice(first, first + few)
            V = D[block].reshape(-1, X.shape[1]).astype(precision, copy=False)
            space = np.empty((2, len(V) * CHUNK), dtype=precision)
            for begin in range(0, len(X), CHUNK):
                part, p = X[begin : begin + CHUNK], P[:, begin : begin + CHUNK]
                U, T = (a[: len(V) * len(part)].reshape(-1, len(P), len(part)) for a in space)
                np.matmul(V, part.T, out=U.reshape(len(V), -1))
                near = records[block] - begin
                mine = np.flatnonzero((near >= 0) & (near < len(part)))
                U[mine, :, near[mine]] = 0
                np.maximum(largest[block], (U.max(axis=1) - U.min(axis=1)).max(axis=1), out=largest[block])
                np.expm1(U, out=T)
                rise = np.einsum("bkm,km->bm", T, p)
                level = np.einsum("bkm,km->bm", U, p) - rise / (1 + rise)
                T *= (1 / (1 + rise))[:, None]
                T -= U
                T += level[:, None]
                T *= p
                G[block] += (T.reshape(len(V), -1) @ part).reshape(-1, G.shape[1])
        return G, largest


def inverse_of(L: Float) -> Float:
    """Return the inverse of a matrix from its lower Cholesky factor."""
    inverse = sl.lapack.dpotri(L, lower=1)[0]
    return np.asarray(np.tril(inverse) + np.tril(inverse, -1).T)


def grams(inverse: Float, X: Float, K: int) -> Float:
    """Return x_j^T (H^-1)_kl x_j of every row, shape (P, K, K)."""
    blocks = inverse.reshape(K, X.shape[1], K, X.shape[1])
    gram = np.empty((len(X), K, K))
    for a in range(K):
        for b in range(a, K):
            gram[:, a, b] = gram[:, b, a] = np.einsum("np,np->n", X @ blocks[a, :, b], X)
    return gram


def reach_of(gram: Float) -> Float:
    """Return the largest norm of (e_k - e_l) (x) x_j in H^-1 over pairs of classes, shape (P,)."""
    diagonal = np.einsum("nkk->nk", gram)
    square = diagonal[:, :, None] + diagonal[:, None, :] - 2 * gram
    return np.asarray(np.sqrt(np.maximum(square.max(axis=(1, 2)), 0)))
