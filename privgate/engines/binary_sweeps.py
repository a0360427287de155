"""Two-class logistic regression without each record: fixed-Hessian sweeps for many records at once, each certified.

In coordinates where the Hessian at the full minimiser is the identity (a_j = L^-1 x_j), the minimiser without record i
lies at d with ``(I - v_i a_i a_i^T) d + sum_{j != i} a_j e(a_j . d) = r_i a_i``, e the second-order remainder of the
sigmoid.
The linear part is solved exactly in float64; only the small remainder goes through float32 products, two a sweep.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import scipy.linalg as sl
from numpy.typing import NDArray

from privgate.engines.regression import Float, Objective, sigmoid
from privgate.retrain.retrained import Index

#: records per product: blocks of two matrices of n x 64 stay near the processor
BLOCK = 64


@dataclass(frozen=True, eq=False)
class Whitened:
    """The full model in coordinates where its Hessian is the identity.

    Parameters
    ----------
    problem : Objective
    w : float64 array of shape (p,)
        Minimiser with every record.
    L : float64 array of shape (p, p)
        Cholesky factor of the Hessian at ``w``.
    """

    problem: Objective
    w: Float
    L: Float

    @cached_property
    def A(self) -> Float:
        """L^-1 x of every pool record, shape (p, P)."""
        return np.asarray(sl.solve_triangular(self.L, self.problem.X.T, lower=True, check_finite=False))

    @property
    def A_train(self) -> Float:
        """L^-1 x of the training records, shape (p, n)."""
        return self.A[:, : self.problem.n]

    @cached_property
    def A32(self) -> NDArray[np.float32]:
        """The same in single precision."""
        return np.ascontiguousarray(self.A_train, dtype=np.float32)

    @cached_property
    def logits(self) -> Float:
        """Logits of every pool record, shape (P,)."""
        return np.asarray(self.problem.X @ self.w)

    @cached_property
    def z(self) -> Float:
        """Logits of the training records, shape (n,)."""
        return self.logits[: self.problem.n]

    @cached_property
    def p(self) -> Float:
        """Probability of the second class, shape (n,)."""
        return np.asarray(sigmoid(self.z))

    @cached_property
    def v(self) -> Float:
        """Curvature of each record's loss, shape (n,)."""
        return self.p * (1 - self.p)

    @cached_property
    def r(self) -> Float:
        """Gradient of each record's loss by its logit, shape (n,)."""
        return self.p - self.problem.y

    @cached_property
    def h(self) -> Float:
        """||a||^2 of every pool record, shape (P,); v h is the leverage."""
        return np.asarray((self.A**2).sum(axis=0))

    @cached_property
    def radius(self) -> float:
        """Largest ||a_j|| of a training record: how fast curvature can change (self-concordance)."""
        return float(np.sqrt(self.h[: self.problem.n].max()))


def screen(S: Whitened) -> tuple[Float, Float]:
    """Return (D0 coefficients c with D0 = c a_i, bound on ||D - D0||) for every training record, O(n p).

    One-step influence (approximate leave-one-out) with a rigorous a-priori radius: with psi(u) = (e^u - 1 - u)/u, the
    remainder over the ball of radius s is at most psi(R s) s, so the smallest fixed point of
    ``s = ||D0|| + psi(R s) s / (1 - v h)`` contains the minimiser.
    """
    n = S.problem.n
    h, keep = S.h[:n], 1 - S.v * S.h[:n]
    c = S.r / keep
    first = np.abs(c) * np.sqrt(h)
    s = first.copy()
    for _ in range(200):
        s = np.minimum(first + _psi(S.radius * s) * s / keep, 1e6)
    return c, np.where(s < 1e5, _psi(S.radius * s) * s / keep, np.inf)


def _psi(u: Float) -> Float:
    return np.where(u < 1e-6, u / 2, (np.exp(np.minimum(u, 50)) - 1 - u) / np.maximum(u, 1e-300))


def sweep(S: Whitened, records: Index, *, tolerance: float, fast: int, slow: int = 12) -> tuple[Float, Float, int]:
    """Return (shifts D (p, B), bounds on ||D - D*|| (B,), float64 sweeps made) for a block of records.

    Parameters
    ----------
    tolerance : float
        Wanted bound on the error of the record's own logit without it.
    fast : int
        Sweeps in float32 before those in float64; bounds are evaluated in float64 only, so they cover its rounding.
    """
    fixed = _Fixed.of(S, records, np.float32)
    D: NDArray[Any] = fixed.own * fixed.base
    single = tuple(a.astype(np.float32)[:, None] for a in (S.z, S.p, S.v))
    for _ in range(fast):
        D = fixed.next(S.A32, _remainder(S.A32.T @ D, *single))
    fixed, D = _Fixed.of(S, records, np.float64), D.astype(np.float64)
    double = tuple(a[:, None] for a in (S.z, S.p, S.v))
    A = S.A_train
    best, error, count = D, np.full(len(records), np.inf), 0
    while count < slow and np.isfinite(D).all():
        count += 1
        U = A.T @ D
        U[records, np.arange(len(records))] = 0
        largest = np.maximum(U.max(axis=0), -U.min(axis=0))
        new = fixed.next(A, _remainder(U.copy(), *double))
        at_D, at_new = _bounds(S, records, U, largest, new - D)
        for point, bound in ((D, at_D), (new, at_new)):
            best = np.where(bound < error, point, best)
            error = np.minimum(error, bound)
        D = new
        if (error * np.sqrt(S.h[records]) <= tolerance).all():
            break
    return best, error, count


def _remainder(U: NDArray[Any], z: NDArray[Any], p: NDArray[Any], v: NDArray[Any]) -> NDArray[Any]:
    """Return e(U) = sigmoid(z + U) - p - v U in the precision of ``U``, which is overwritten."""
    q = U + z
    np.negative(q, out=q)
    with np.errstate(over="ignore"):
        np.exp(q, out=q)
    q += 1
    np.reciprocal(q, out=q)
    q -= p
    U *= v
    q -= U
    return np.asarray(q)


@dataclass(frozen=True, eq=False)
class _Fixed:
    """The linear part of a block's equations, in one precision."""

    records: Index
    own: NDArray[Any]  # (p, B) a_i
    base: NDArray[Any]  # (B,) r / (1 - v h)
    back: NDArray[Any]  # (B,) v / (1 - v h)

    @classmethod
    def of(cls, S: Whitened, records: Index, precision: Any) -> Self:
        keep = 1 - S.v[records] * S.h[records]
        parts = S.A[:, records], S.r[records] / keep, S.v[records] / keep
        return cls(records, *(a.astype(precision) for a in parts))

    def next(self, A: NDArray[Any], remainder: NDArray[Any]) -> NDArray[Any]:
        """Return the shift that solves the linear part with the remainder (n, B) given; changes the remainder."""
        remainder[self.records, np.arange(len(self.records))] = 0
        pull = A @ remainder
        return np.asarray(self.own * (self.base - (self.own * pull).sum(axis=0) * self.back) - pull)


def _bounds(S: Whitened, records: Index, U: Float, largest: Float, step: Float) -> tuple[Float, Float]:
    """Return bounds on the distance to the minimiser from D and from the next iterate D + step, shape (B,) each.

    The gradient at D is ``-(I - v a a^T) step``. The Hessian there is at least ``mu I``: every curvature is at least
    exp(-max |u|) of its old value, and all lost curvature together is at most sum (v_j - v_j(D))_+ h_j. Along the
    segment to D* it falls by at most exp(-R s), hence ``s <= -ln(1 - R ||g|| / mu) / R``. The next iterate is the image
    of a map whose derivative on that segment is at most ``(exp(max |u| + R s) - 1) / (1 - v h)``.
    """
    n = S.problem.n
    v, h = S.v[records], S.h[records]
    keep = 1 - v * h
    mu = keep * np.exp(-largest)
    far = np.flatnonzero(largest > 1)  # nearer, the first bound is the better one or good enough
    if len(far):
        q = sigmoid(U[:, far] + S.z[:, None])
        lost = np.maximum(S.v[:, None] - q * (1 - q), 0)
        mu[far] = np.maximum(mu[far], keep[far] - S.h[:n] @ lost)
    along = (S.A[:, records] * step).sum(axis=0)
    g = np.sqrt(np.maximum((step**2).sum(axis=0) - 2 * v * along**2 + v**2 * h * along**2, 0))
    s = radius_of(g, S.radius, mu)
    with np.errstate(over="ignore", invalid="ignore"):
        shrink = np.expm1(np.minimum(largest + S.radius * s, 700)) / keep
        return s, np.where(np.isfinite(s), shrink * s, np.inf)


def radius_of(gradient: Float, R: float, mu: Float) -> Float:
    """Return -ln(1 - R g / mu) / R, or inf where the hypothesis R g < mu fails (mathematical reference, 6.3 ii)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        rho = np.where(mu > 0, R * gradient / mu, np.inf)
        return np.where(rho < 1, -np.log1p(-np.minimum(rho, 1 - 1e-16)) / R, np.inf)
