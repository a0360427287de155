"""Logistic regression behind steps that learn, without each record: sweeps for many records at once, each certified.

In the scale of the model with every record, leaving out i multiplies feature j by ``a_j``, moves it by ``b_j`` and its
filled-in values by ``g_j``. With parameters ``v = a w`` and the free intercept taking the ``b``, what is minimised is
``sum_{k != i} l(y_k, (z_k + g M_k) v) + 1/2 sum_j lam_j v_j^2 / a_j^2``: the old problem with a slightly different
penalty, and where values are missing a slightly different design (docs/mathematics.md, section 17.2).
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from privgate.families.logistic import objective
from privgate.families.logistic.answers import Solver
from privgate.families.logistic.binary_sweeps import DEGENERATE, radius_of, stopped
from privgate.families.logistic.objective import Float, Objective
from privgate.families.logistic.softmax_sweeps import grams, reach_of
from privgate.families.retrained import Index

_EPS = float(np.finfo(np.float64).eps)
#: logits held at once
_LOGITS = 2_000_000
#: sweeps after which a record is left to Newton's method
_SWEEPS = 15


@dataclass(frozen=True, eq=False)
class Moved:
    """What leaving out each of U units does to the problem.

    Parameters
    ----------
    ease : float64 array of shape (U, p)
        ``1 / a^2``: factors of the penalty.
    fill : float64 array of shape (U, m)
        ``g / a``: by how much filled-in values of the m columns in ``holes`` move, in the scale of the full model.
    holes : int64 array of shape (m,)
        Columns in which values are missing.
    M : float64 array of shape (P, m)
        1 where they are.
    weights : float64 array of shape (U, K), optional
        Factors of each class's losses; those of the full problem if absent.
    """

    ease: Float
    fill: Float
    holes: Index
    M: Float
    weights: Float | None = None

    def design(self, X: Float, unit: int) -> Float:
        """Return the pool's design without a unit, in the scale of the full model."""
        if not self.fill[unit].any():
            return X
        made = X.copy()
        made[:, self.holes] += self.M * self.fill[unit]
        return made


@dataclass(frozen=True, eq=False)
class Sweeps:
    """The full model's solver, and the problems without single records.

    Parameters
    ----------
    solver : Solver
    moved : Moved
        One row a unit; unit u leaves out ``records[u]``.
    records : int64 array of shape (U,)
    """

    solver: Solver
    moved: Moved
    records: Index

    @property
    def problem(self) -> Objective:
        """The objective with every record."""
        return self.solver.problem

    @cached_property
    def X(self) -> Float:
        """Training records, shape (n, p)."""
        return np.ascontiguousarray(self.problem.X[: self.problem.n])

    @cached_property
    def logits(self) -> Float:
        """Of the training records by the full model, shape (C, n)."""
        return np.asarray(self.solver.u @ self.X.T)

    @cached_property
    def curvature(self) -> Float:
        """Second derivatives of each record's loss, shape (n, C, C)."""
        found = objective.residuals(self.logits.T, self.problem.y)[1]
        return found if self.problem.weights is None else found * self.problem.weights[:, None, None]

    @cached_property
    def gram(self) -> Float:
        """``x' H^-1 x`` of each training record by pairs of parameter vectors, shape (n, C, C)."""
        return grams(self.solver.inverse, self.X, len(self.solver.u))

    @cached_property
    def downdate(self) -> Float:
        """``S (I - K S)^-1`` of each training record, shape (n, C, C)."""
        C = self.curvature.shape[1]
        return np.asarray(self.curvature @ np.linalg.inv(np.eye(C) - self.gram @ self.curvature))

    @cached_property
    def axes(self) -> Float:
        """How far a logit difference moves for a feature of 1 and parameters of 1 in the Hessian's norm, shape (m,)."""
        unit = np.eye(self.X.shape[1])[self.moved.holes]
        gram = grams(self.solver.inverse, unit, len(self.solver.u))
        return np.sqrt(gram[:, 0, 0]) if gram.shape[1] == 1 else reach_of(gram)

    @cached_property
    def single(self) -> float:
        """Sum over records of the largest length of one parameter vector's share, for rounding."""
        return float(np.sqrt(np.einsum("ncc->nc", self.gram)).sum())

    @cached_property
    def radius(self) -> Float:
        """Largest change of a record's logits for parameters of length 1, without each unit, shape (U,)."""
        return np.asarray(self.solver.S.radius + np.abs(self.moved.fill) @ self.axes)

    @cached_property
    def least(self) -> Float:
        """Share of the full Hessian that is left without each unit before any curvature changes, shape (U,)."""
        counts = self.moved.M[: self.problem.n].sum(axis=0)
        heaviest = 1.0 if self.problem.weights is None else float(self.problem.weights.max())
        lost = 0.5 * np.sqrt(heaviest) * np.abs(self.moved.fill) @ (self.axes * np.sqrt(counts))
        keep = np.maximum(self.solver.S.keep[self.records] - self.solver.S.defects[0], 0.0)
        whole = np.maximum(np.sqrt(keep) - lost, 0.0) ** 2
        least = np.minimum(self.moved.ease.min(axis=1), 1.0) * np.minimum(self.lighter.min(axis=1), 1.0)
        return np.asarray(np.where(keep > DEGENERATE, whole * least, 0.0))

    @cached_property
    def lighter(self) -> Float:
        """How much each class's losses count without each unit, as a share of what they do, shape (U, K)."""
        if self.moved.weights is None or self.problem.weights is None:
            return np.ones((len(self.moved.ease), self.problem.K))
        y, base = self.problem.y, np.ones(self.problem.K)
        base[y] = self.problem.weights
        return np.asarray(self.moved.weights / base)

    @cached_property
    def shifted(self) -> Float:
        """How far logits move at the full model's own parameters because filled-in values do, shape (U,)."""
        u = self.solver.u[:, self.moved.holes]
        span = np.abs(u[0]) if len(u) == 1 else u.max(axis=0) - u.min(axis=0)
        return np.asarray(np.abs(self.moved.fill) @ span)

    def run(self, units: Index, wanted: Float) -> tuple[Float, Float]:
        """Return (changes of the parameters v (B, C, p), bounds on their error in the Hessian's norm (B,))."""
        C, p = self.solver.u.shape
        D, error = np.zeros((len(units), C, p)), np.full(len(units), np.inf)
        best = D.copy()
        block = max(1, _LOGITS // (self.problem.n * C))
        live = np.arange(len(units))
        for _ in range(_SWEEPS):
            if not len(live):
                break
            for begin in range(0, len(live), block):
                some = live[begin : begin + block]
                step, bound = self._sweep(units[some], D[some])
                closer = bound < error[some]
                best[some[closer]], error[some[closer]] = D[some[closer]], bound[closer]
                D[some] -= step
            live = live[~(error[live] <= wanted[live]) & np.isfinite(D[live]).all(axis=(1, 2))]
        return best, error

    def _sweep(self, units: Index, D: Float) -> tuple[Float, Float]:
        """Return (Newton's step with the full Hessian but the record's, bound on the distance to the minimiser)."""
        problem, X, own = self.problem, self.X, self.records[units]
        fill, holes, M = self.moved.fill[units], self.moved.holes, self.moved.M[: self.problem.n]
        B, C, p = D.shape
        V = self.solver.u + D
        change = D.reshape(B * C, p) @ X.T
        if len(holes):
            change += (V[:, :, holes] * fill[:, None]).reshape(B * C, -1) @ M.T
        change = change.reshape(B, C, -1)
        change[np.arange(B), :, own] = 0.0
        Z = change + self.logits
        if C == 1:
            R: Float = objective.sigmoid(Z) - problem.y
            span = np.abs(change).max(axis=(1, 2))
        else:
            Z -= Z.max(axis=1, keepdims=True)
            np.exp(Z, out=Z)
            R = Z / Z.sum(axis=1, keepdims=True)
            R[:, problem.y, np.arange(problem.n)] -= 1.0
            span = (change.max(axis=1) - change.min(axis=1)).max(axis=1)
        heavy = 1.0
        if self.moved.weights is not None:
            R = R * self.moved.weights[units][:, None, problem.y]
            heavy = max(1.0, float(self.moved.weights[units].max()))
        R[np.arange(B), :, own] = 0.0
        flat = R.reshape(B * C, -1)
        G = (flat @ X).reshape(B, C, p) + problem.lam * self.moved.ease[units][:, None] * V
        if len(holes):
            G[:, :, holes] += (flat @ M).reshape(B, C, -1) * fill[:, None]
        if C > 1 and problem.intercept:
            G[:, :, -1] += V[:, :, -1].sum(axis=1)[:, None]
        pull = G.reshape(B, -1) @ self.solver.inverse
        length = np.sqrt(np.maximum((G.reshape(B, -1) * pull).sum(axis=1), 0.0))
        off, apart = self.solver.S.defects
        moved = self.solver.length(D)
        logit = (p + len(holes) + 4) * _EPS * np.abs(V).sum(axis=(1, 2)) * float(np.abs(X).max())
        wrong = off * (moved + length) + apart + ((problem.n + 20) * _EPS + logit) * self.single * C * heavy
        with np.errstate(over="ignore"):
            mu = self.least[units] * np.exp(-span)
        bound = radius_of(length * (1 + off) + wrong, self.radius[units], mu)  # type: ignore[arg-type]  # one a record
        along = np.einsum("bcp,bp->bc", pull.reshape(B, C, p), X[own])
        follow = np.einsum("bkl,bl->bk", self.downdate[own], along)
        outer = (follow[:, :, None] * X[own][:, None, :]).reshape(B, -1)
        return (pull + outer @ self.solver.inverse).reshape(B, C, p), bound

    def stops(self, units: Index, allowed: Float, moved: Float) -> Float:
        """Return how far from its minimum a training without each record may stop, in the Hessian's norm.

        ``allowed`` (p,) bounds the gradient by v, ``moved`` (B,) how far the minimum is from the full model's.
        """
        keep = self.least[units] * np.exp(-self.shifted[units])
        return stopped(self.solver.inverse, allowed, self.radius[units], keep, moved)  # type: ignore[arg-type]  # one a record

    def reach(self, units: Index, query: NDArray[np.int64]) -> Float:
        """Return how far logit differences at pool rows move for parameters of length 1, pairwise, shape (R,)."""
        extra = (np.abs(self.moved.fill[units]) * self.moved.M[query]) @ self.axes
        return np.asarray(self.solver.reach[query] + extra)
