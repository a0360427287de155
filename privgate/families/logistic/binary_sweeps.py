"""Two-class logistic regression without each record: fixed-Hessian sweeps for many records at once, each certified.

In coordinates where the Hessian at the full minimiser is the identity (a_j = L^-1 x_j), the minimiser without record i
lies at d with ``(I - v_i a_i a_i^T) d + sum_{j != i} a_j e(a_j . d) = r_i a_i``, e the second-order remainder of the
sigmoid.
The linear part is solved exactly in float64; only the small remainder goes through float32 products, two a sweep, and
what they round is part of every bound.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.linalg as sl
from numpy.typing import NDArray

from privgate.families.logistic.objective import Float, Objective, settled, sigmoid
from privgate.families.retrained import Index

#: training records per product: with 64 records left out, everything one product touches stays in the second cache
CHUNK = 512
#: 1 - leverage below which it is mostly rounding
DEGENERATE = 1e-8


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
        """L^-1 x of every pool record, shape (P, p)."""
        return np.ascontiguousarray(sl.solve_triangular(self.L, self.problem.X.T, lower=True, check_finite=False).T)

    @cached_property
    def precisions(self) -> dict[Any, tuple[NDArray[Any], ...]]:
        """Of the training records: L^-1 x (n, p), curvature times that, and probabilities (n,), in both precisions."""
        A = self.A[: self.problem.n]
        full = A, A * self.v[:, None], self.p
        return {t: tuple(a.astype(t, copy=False) for a in full) for t in (np.float32, np.float64)}

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
        return self.p * (1 - self.p) * self.weights

    @cached_property
    def r(self) -> Float:
        """Gradient of each record's loss by its logit, shape (n,)."""
        return (self.p - self.problem.y) * self.weights

    @cached_property
    def weights(self) -> Float | float:
        """Factors of the training records' losses."""
        return 1.0 if self.problem.weights is None else self.problem.weights

    @cached_property
    def h(self) -> Float:
        """||a||^2 of every pool record, shape (P,); v h is the leverage."""
        return np.asarray(np.einsum("ij,ij->i", self.A, self.A))

    @cached_property
    def radius(self) -> float:
        """Largest ||a_j|| of a training record: how fast curvature can change (self-concordance)."""
        return float(np.sqrt(self.h[: self.problem.n].max()))

    @cached_property
    def defects(self) -> tuple[float, float]:
        """How far the Hessian is from the identity here, in the spectral norm, and the gradient from 0, by rounding.

        L comes from a Hessian whose sums are rounded, which counts as often as the condition number: 1e-6 at 1e10. Both
        are measured in these coordinates, where sums lose little, and doubled: A itself is off by as much.
        """
        A, p = self.A[: self.problem.n], self.A.shape[1]
        half = sl.solve_triangular(self.L, np.diag(np.sqrt(self.problem.lam)), lower=True, check_finite=False)
        off = float(np.linalg.norm((A * self.v[:, None]).T @ A + half @ half.T - np.eye(p)))
        pull = self.r @ A + half @ (np.sqrt(self.problem.lam) * self.w)
        inverse = (sl.solve_triangular(self.L, np.eye(p), lower=True, check_finite=False) ** 2).sum(axis=0)
        X, H = self.problem.X[: self.problem.n], (self.L**2).sum(axis=1)
        apart = settled(
            X, self.p[:, None], self.problem.lam, self.w[None], H=H, inverse=inverse, weights=self.problem.weights
        )
        return 2 * off + 16 * p * float(np.finfo(np.float64).eps), 2 * float(np.linalg.norm(pull)) + apart

    @cached_property
    def keep(self) -> Float:
        """1 - leverage of the training records, shape (n,)."""
        return np.asarray(1 - self.v * self.h[: self.problem.n])


def screen(S: Whitened) -> tuple[Float, Float]:
    """Return (D0 coefficients c with D0 = c a_i, bound on ||D - D0||) for every training record, O(n).

    One-step influence (approximate leave-one-out) with a rigorous a-priori radius: the remainder over the ball of
    radius s is at most ``(e^(R s) - 1 - R s) / R``, so a ball where ``||D0||`` and that over 1 - v h are no more than s
    together is mapped into itself and holds the minimiser. Newton's method finds the smallest, from below. What the
    coordinates are off by adds to the remainder.
    """
    R, h, (off, rest) = S.radius, S.h[: S.problem.n], S.defects
    keep = S.keep - off
    with np.errstate(all="ignore"):  # what overflows is refused at the end
        c = S.r / S.keep
        first = np.abs(c) * np.sqrt(h)

        def image(s: Float) -> Float:
            return first + (np.expm1(R * s) - R * s + R * (off * s + rest)) / (R * keep)

        s = first.copy()
        for _ in range(10):
            s += (image(s) - s) / (1 - (np.expm1(R * s) + off) / keep)
        s *= 1 + 1e-6
        inside = (image(s) <= s) & (keep > DEGENERATE)
    return c, np.where(inside, s - first, np.inf)


def sweep(S: Whitened, records: Index, D: Float, precision: Any) -> tuple[Float, Float, Float, Float]:
    """Apply the fixed-point map once; see ``sweeps.Sweep``. Shapes (B, p) and (B,).

    The gradient at D is ``-(I - v a a^T) step``. The Hessian there is at least ``mu I``: every curvature is at least
    exp(-max |u|) of its old value, and all lost curvature together is at most sum (v_j - v_j(D))_+ h_j. Along the
    segment to D* it falls by at most exp(-R s), hence ``s <= -ln(1 - R ||g|| / mu) / R``. The image is that of a map
    whose derivative on that segment is at most ``(exp(max |u| + R s) - 1) / (1 - v h)``. What the coordinates are off
    by counts as rounding, and is taken off 1 - v h.
    """
    own, keep, v, h = S.A[records], S.keep[records], S.v[records], S.h[records]
    length = np.sqrt(np.einsum("ij,ij->i", D, D))
    pull, largest, lost = _pull(S, records, D, precision, S.radius * length > 1)
    with np.errstate(all="ignore"):  # what overflows becomes a bound that is infinite
        inner = np.einsum("ij,ij->i", own, pull)
        new = own * ((S.r[records] - v * inner) / keep)[:, None] - pull
        unit = np.finfo(precision).eps / 2
        wrong = 2 * (D.shape[1] + 3) * unit * S.radius * length  # at most, any u
        largest = largest + wrong
        off, rest = S.defects
        rounding = _rounding(S, length, largest, unit) + off * length + rest
        sure = keep - off
        lost = lost + D.shape[1] * np.exp(2 * largest) * (64 * unit + wrong)  # A V A^T <= I, so sum v h <= p
        mu = np.where(sure > DEGENERATE, np.maximum(sure * np.exp(-largest), sure - lost), 0)
        step = new - D
        along = np.einsum("ij,ij->i", own, step)
        g = np.einsum("ij,ij->i", step, step) - 2 * v * along**2 + v**2 * h * along**2
        s = radius_of(np.sqrt(np.maximum(g, 0)) + rounding, S.radius, mu)
        shrink = np.expm1(largest + S.radius * s) / sure
        rounding /= sure
        at_new = shrink * s + rounding
    return new, s, np.where(np.isfinite(s) & np.isfinite(at_new), at_new, np.inf), rounding


def _pull(S: Whitened, records: Index, D: Float, precision: Any, far: NDArray[np.bool_]) -> tuple[Float, Float, Float]:
    """Return (A e(A^T D) without each record (B, p), its max |u| (B,), curvature lost (B,); infinite where not far).

    With t = e^u - 1 the remainder is ``v (t / (1 + p t) - u)``, in which nothing cancels but the linear part.
    """
    A, VA, p = S.precisions[precision]
    D = D.astype(precision, copy=False)
    pull, largest = np.zeros(D.shape), np.zeros(len(D))
    lost = np.where(far, 0.0, np.inf)
    space = np.empty((3, len(D), CHUNK), dtype=precision)
    for begin in range(0, len(A), CHUNK):
        rows = slice(begin, begin + CHUNK)
        U, T, bend = space[:, :, : len(A[rows])]
        np.matmul(D, A[rows].T, out=U)
        mine = np.flatnonzero((records >= begin) & (records < begin + CHUNK))
        U[mine, records[mine] - begin] = 0
        np.maximum(largest, np.maximum(U.max(axis=1), -U.min(axis=1)), out=largest)
        with np.errstate(all="ignore"):
            np.expm1(U, out=T)
            np.multiply(T, p[rows], out=bend)
            bend += 1
            if far.any():
                curvature = (1 + T[far]) / bend[far] ** 2  # v(u) / v
                lost[far] += np.maximum(1 - curvature, 0) @ (S.v[rows] * S.h[: len(A)][rows])
            T /= bend
            T -= U
            pull += T @ VA[rows]
    return pull, largest, lost


def _rounding(S: Whitened, length: Float, largest: Float, unit: float) -> Float:
    """Return a bound on what rounding in ``_pull`` changes in A e, in the Euclidean norm, shape (B,).

    With A V A^T <= I, unit roundoff w and R = max ||a||: 22 w e^(2 max |u|) ||D|| from the remainder (expm1 is good to
    8 w, the sum 1 + p t to 11 w e^|u|, their quotient to 20 w e^|u|, the difference to 22 w e^(2 |u|), all times |u|);
    (p + 3) w R e^(max |u|) ||D||^2 from the first product, as the remainder's slope is at most v (e^|u| - 1); half of
    (m + 3) w R e^(max |u|) ||D||^2 from the second, of m terms, as the remainder is at most v u^2 e^|u| / 2.
    Higher orders are below a tenth as long as p sqrt(p) w is; beyond that nothing is claimed.
    """
    p = S.A.shape[1]
    if p * np.sqrt(p) * unit > 0.05:
        return np.full(len(length), np.inf)
    e = np.exp(largest)
    terms = p + 3 + (CHUNK + 3) / 2
    return np.asarray(1.1 * unit * (22 * e**2 * length + terms * S.radius * e * length**2))


def radius_of(gradient: Float, R: float, mu: Float) -> Float:
    """Return -ln(1 - R g / mu) / R, or inf where R g < mu fails (docs/mathematics.md, section 6.3 (ii))."""
    with np.errstate(divide="ignore", invalid="ignore"):
        rho = np.where(mu > 0, R * gradient / mu, np.inf)
        return np.where(rho < 1, -np.log1p(-np.minimum(rho, 1 - 1e-16)) / R, np.inf)


def stopped(inverse: Float, allowed: Float, R: float, keep: Float, length: Float) -> Float:
    """Return how far from its minimum a training may stop whose gradient is bounded, in the Hessian's norm, shape (B,).

    At the minimum without a record the Hessian is at least ``mu H``, ``mu = keep exp(-R length)``; a gradient g is
    there at most ``|g| / sqrt(mu)`` long in the inverse norm, and self-concordance holds from the minimum's side as
    well: ``||g|| >= (1 - exp(-R s)) / R`` at distance s.

    Parameters
    ----------
    inverse : float64 array of shape (m, m)
        H^-1, of all parameters.
    allowed : float64 array of shape (p,)
        Largest components of the gradient, the same for every class.
    R : float
        Largest change of a training record's logits for parameters moved by 1.
    keep : float64 array of shape (B,)
        1 - leverage of the records left out.
    length : float64 array of shape (B,)
        How far the minimum moves without them, at most.
    """
    size = np.tile(allowed, len(inverse) // len(allowed))
    with np.errstate(over="ignore", invalid="ignore"):
        gradient = np.full(len(keep), np.sqrt(size @ np.abs(inverse) @ size) * (1 + 1e-6))
        mu = np.where(keep > DEGENERATE, keep * np.exp(-R * length * (1 + 1e-6)), 0.0)
    return radius_of(gradient, R, mu)
