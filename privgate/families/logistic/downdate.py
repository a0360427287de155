"""Balls that hold the minimiser of a softmax loss without a unit, from one factorisation of the Hessian.

``H`` is the Hessian with every record, ``H'`` without the unit at the same parameters; radii are in the norm of ``H'``.
``R`` is the largest change of a logit difference at any record for parameters moved by 1 in that norm.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privgate.families.logistic import distances, objective
from privgate.families.logistic.minimum import FittedProblem

Float = NDArray[np.float64]
Index = NDArray[np.int64]

#: logits held at once
_LOGITS = 2_000_000


@dataclass(frozen=True, eq=False)
class Downdate:
    """The Hessian without U units of m records each, by the push-through identity.

    With ``B`` the unit's records, ``S`` their curvatures and ``A = B' H^-1 B``: ``H' = H - B S B'``.

    Parameters
    ----------
    problem : Problem
    rows : int64 array of shape (U, m)
    half : float64 array of shape (U, C, p, m C)
        ``H^-1 B``.
    curvature, core : float64 arrays of shape (U, m C, m C)
        ``S``, and ``(I - S A)^-1``.
    shrink : float64 array of shape (U,)
        ``H' >= shrink^2 H``; NaN where the unit holds a direction alone.
    residual : float64 array of shape (U, m C)
        Minus the gradient of the unit's own losses, per record.
    """

    problem: FittedProblem
    rows: Index
    half: Float
    curvature: Float
    core: Float
    shrink: Float
    residual: Float

    @classmethod
    def of(cls, problem: FittedProblem, rows: Index) -> "Downdate":
        """Return the downdate of ``rows``, shape (U, m)."""
        (U, m), C = rows.shape, problem.C
        x = problem.X[rows]
        residual, curvature = problem.at(problem.u, rows.ravel())
        S = np.zeros((U, m, C, m, C))
        for i in range(m):
            S[:, i, :, i, :] = curvature.reshape(U, m, C, C)[:, i]
        flat = S.reshape(U, m * C, m * C)
        half = np.einsum("apbq,uiq->uapib", problem.inverse, x, optimize=True).reshape(U, C, -1, m * C)
        A = np.einsum("ujp,uapk->ujak", x, half, optimize=True).reshape(U, m * C, m * C)
        leverage = np.linalg.eigvals(flat @ A).real.max(axis=1)
        fine = leverage < 1 - 1e-9
        inner = np.eye(m * C) - np.where(fine[:, None, None], flat @ A, 0.0)
        core = np.asarray(np.linalg.inv(inner), dtype=np.float64)
        shrink = np.where(fine, np.sqrt(np.where(fine, 1 - leverage, 1.0)), np.nan)
        return cls(problem, rows, half, flat, core, shrink, -residual.reshape(U, m * C))

    def select(self, keep: Index) -> "Downdate":
        """Return some of the units."""
        parts = (self.half, self.curvature, self.core, self.shrink, self.residual)
        return Downdate(self.problem, self.rows[keep], *(v[keep] for v in parts))

    def solve(self, g: Float) -> Float:
        """Return ``H'^-1 g`` for gradients of shape (U, C, p)."""
        U, C, p = g.shape
        flat = self.problem.inverse.reshape(C * p, C * p)
        inner = np.einsum("ucpk,ucp->uk", self.half, g, optimize=True)
        extra = np.einsum("ukl,ulj,uj->uk", self.core, self.curvature, inner, optimize=True)
        return np.asarray((g.reshape(U, -1) @ flat).reshape(g.shape) + np.einsum("ucpk,uk->ucp", self.half, extra))

    def step(self) -> tuple[Float, Float]:
        """Return the Newton step from ``u``, shape (U, C, p), and its length in the norm of ``H'``, (U,)."""
        weight = np.einsum("ukl,ul->uk", self.core, self.residual)
        step = np.einsum("ucpk,uk->ucp", self.half, weight)
        x = self.problem.X[self.rows]
        inner = np.einsum("uip,ucp->uic", x, step).reshape(self.residual.shape)
        return step, np.sqrt(np.maximum((self.residual * inner).sum(axis=1), 0.0))


def radius(gamma: Float, R: Float) -> tuple[Float, Float]:
    """Return (nu, rho): how far the minimiser is from the start and from the end of a Newton step.

    Parameters
    ----------
    gamma : float64 array of shape (U,)
        Length of the gradient in the norm of the inverse Hessian at the start.
    R : float64 array of shape (U,)

    References
    ----------
    docs/mathematics.md, section 6.3 (ii): ``nu = -ln(1 - R gamma) / R``, infinite from ``R gamma = 1``.
    """
    nu = distances.radius(gamma, R)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        q = R * nu
        rho = nu * np.where(q < 1e-4, q / 2 + q * q / 6 + q**3, (np.expm1(q) - q) / q)
    return nu, np.where(np.isnan(rho), np.inf, rho)


def one_step(down: Downdate, R: Float, rest: float) -> tuple[Float, Float, Float]:
    """Return (parameters (U, C, p), radius (U,), length of the step (U,)) after one Newton step for every unit.

    ``rest`` is the length of what rounding left of the gradient at ``u``, in the norm of the inverse of ``H``.
    """
    step, length = down.step()
    left = rest / down.shrink
    _, rho = radius(length + left, R)
    return down.problem.u - step, rho + left, length


def _blocks(down: Downdate) -> list[slice]:
    """Return units in blocks whose logits at all records fit the memory."""
    size = max(1, _LOGITS // (len(down.problem.X) * down.problem.C))
    return [slice(k, k + size) for k in range(0, len(down.rows), size)]


def _gradient(down: Downdate, u: Float, part: slice) -> Float:
    """Return the gradient without each unit at its own parameters, shape (block, C, p)."""
    p, u, rows = down.problem, u[part], down.rows[part]
    n, U = len(p.X), len(u)
    logits = (p.X @ u.reshape(U * p.C, -1).T).reshape(n * U, p.C)
    residual = objective.residuals(logits, np.repeat(p.labels, U), curvature=False)[0].reshape(n, U, p.C)
    residual[rows.ravel(), np.repeat(np.arange(U), rows.shape[1])] = 0.0
    gradient = (residual.reshape(n, -1).T @ p.X).reshape(u.shape) + p.lam * u
    if p.gauge:
        gradient[:, :, -1] += u[:, :, -1].sum(axis=1)[:, None]
    return np.asarray(gradient)


def second_step(down: Downdate, u: Float, length: Float, R: Float) -> tuple[Float, Float, Float]:
    """Return (parameters, radius, how far the minimiser is from ``u``) after a second step with the same Hessian.

    Between the two, ``H'`` changes by a factor of at most ``exp(R length)``, which enters ``gamma`` and ``R``. The
    minimiser ``u + v`` obeys ``H' (v + H'^-1 g) = -(mean Hessian - H') v``, hence the radius
    ``|v| (exp(R (length + |v|)) - 1)``. One sweep over all records for each unit: O(n p C).
    """
    gradient = np.concatenate([_gradient(down, u, part) for part in _blocks(down)])
    step = down.solve(gradient)
    gamma = np.sqrt(np.maximum(np.einsum("ucp,ucp->u", gradient, step), 0.0))
    with np.errstate(over="ignore", invalid="ignore"):
        bend = np.exp(np.minimum(R * length / 2, 300.0))
        nu = radius(gamma * bend, R * bend)[0] * bend
        rho = nu * np.expm1(np.minimum(R * (length + nu), 700.0))
    return u - step, np.where(np.isnan(rho), np.inf, rho), nu
