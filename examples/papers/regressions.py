"""Many multinomial logistic regressions at once, each without one record: Newton steps by conjugate gradients.

For what the certified engine declines: beyond 8,000 parameters it would have to factor a Hessian of more than half a
gigabyte. Refits take 6 to 20 times as long at the same accuracy. Here all regressions share the records, so that a
product with all their Hessians is two matrix products, and one preconditioner: the Hessian's blocks of single classes
at the regression with all records.
"""

from dataclasses import dataclass

import numpy as np
import scipy.linalg as sl
from numpy.typing import NDArray

from privgate.errors import MeasurementError

Float = NDArray[np.float64]
Index = NDArray[np.int64]

#: half the squared Newton decrement, the gap to the minimum in nats of the whole objective, at which a fit is done
GAP = 1e-7
#: Newton steps, and products with the Hessian in each
STEPS, PRODUCTS = 60, 200


@dataclass(eq=False)
class Regressions:
    """``sum over records of cross-entropy + |W|^2 / (2 C)``, intercepts free, as ``LogisticRegression`` has it.

    Parameters
    ----------
    X : float64 array of shape (n, d)
    y : int64 array of shape (n,)
        Class positions.
    n_classes : int
    C : float
    """

    X: Float
    y: Index
    n_classes: int
    C: float

    def __post_init__(self) -> None:
        self._design = np.hstack([self.X, np.ones((len(self.X), 1))])
        self._penalty = np.full((self._design.shape[1], 1, 1), 1 / self.C)
        self._penalty[-1] = 0.0
        self._hot = (self.y[:, None] == np.arange(self.n_classes)).astype(np.float64)[:, None]
        # the free intercepts have one direction that changes nothing: a little curvature there keeps the factor sound
        self._blocks = [np.eye(self._design.shape[1]) for _ in range(self.n_classes)]

    def full(self) -> Float:
        """Return the minimiser with all records, shape (d + 1, 1, K), and make its curvature the preconditioner."""
        W = np.zeros((self._design.shape[1], 1, self.n_classes))
        kept = np.ones((len(self.X), 1))
        for gap in (1e-2, GAP):  # a rough minimum first: its curvature speeds up the rest
            W = self.minimise(W, kept, gap)
            p = self._probabilities(W)[:, 0]
            for k in range(self.n_classes):
                curvature = (self._design * (p[:, k] * (1 - p[:, k]))[:, None]).T @ self._design
                curvature[np.diag_indices(len(W))] += np.maximum(self._penalty[:, 0, 0], 1e-3 / self.C)
                self._blocks[k] = np.asarray(sl.inv(curvature))
        return W

    def without(self, start: Float, records: Index) -> Float:
        """Return the minimisers without each of ``records``, shape (d + 1, M, K), found from the full one."""
        kept = np.ones((len(self.X), len(records)))
        kept[records, np.arange(len(records))] = 0.0
        return self.minimise(np.repeat(start, len(records), axis=1), kept, GAP)

    def log_probabilities(self, W: Float, records: Index) -> Float:
        """Return what every model answers for its own record, shape (M, K)."""
        Z = np.einsum("md,dmk->mk", self._design[records], np.broadcast_to(W, (len(W), len(records), W.shape[2])))
        return np.asarray(Z - np.logaddexp.reduce(Z, axis=1, keepdims=True))

    def minimise(self, W: Float, kept: Float, gap: float) -> Float:
        """Return the minimisers over the records that ``kept`` (n, M) weighs, from ``W`` (d + 1, M, K).

        Raises
        ------
        MeasurementError
            Some regression has not come within ``gap`` of its minimum.
        """
        W, live = W.copy(), np.arange(W.shape[1])
        for _ in range(STEPS):
            P = self._probabilities(W[:, live])
            slope = self._back((P - self._hot) * kept[:, live, None]) + self._penalty * W[:, live]
            step = self._solve(slope, P * kept[:, live, None], P)
            decrement = (slope * step).sum(axis=(0, 2))
            W[:, live] -= self._lengths(W[:, live], step, decrement, kept[:, live])[:, None] * step
            live = live[decrement / 2 > gap]
            if not len(live):
                return W
        raise MeasurementError(f"{len(live)} regressions have not come within {gap:g} nats of their minimum")

    # -- products with all designs at once ----------------------------------------------------------------------------

    def _forth(self, W: Float) -> Float:
        return np.asarray((self._design @ W.reshape(len(W), -1)).reshape(len(self.X), *W.shape[1:]))

    def _back(self, R: Float) -> Float:
        return np.asarray((self._design.T @ R.reshape(len(R), -1)).reshape(-1, *R.shape[1:]))

    def _probabilities(self, W: Float) -> Float:
        Z = self._forth(W)
        Z -= Z.max(axis=2, keepdims=True)
        np.exp(Z, out=Z)
        return np.asarray(Z / Z.sum(axis=2, keepdims=True))

    def _values(self, W: Float, kept: Float) -> Float:
        Z = self._forth(W)
        top = Z.max(axis=2)
        loss = top + np.log(np.exp(Z - top[:, :, None]).sum(axis=2)) - (Z * self._hot).sum(axis=2)
        return np.asarray((loss * kept).sum(axis=0) + 0.5 * (self._penalty * W * W).sum(axis=(0, 2)))

    def _lengths(self, W: Float, step: Float, decrement: Float, kept: Float) -> Float:
        """Return the share of each step that lessens its objective enough (Armijo)."""
        before, length = self._values(W, kept), np.ones(len(decrement))
        open_ = decrement > 1e-8  # below, the objective's own rounding decides, and Newton's step is right
        for _ in range(30):
            after = self._values(W - length[:, None] * step, kept)
            open_ &= after > before - 1e-4 * length * decrement
            if not open_.any():
                break
            length[open_] /= 2
        return length

    def _preconditioned(self, R: Float) -> Float:
        return np.stack([self._blocks[k] @ R[:, :, k] for k in range(self.n_classes)], axis=2)

    def _solve(self, slope: Float, weighed: Float, P: Float) -> Float:
        """Return the Newton steps: conjugate gradients of all regressions side by side, each with its own lengths."""
        x, r = np.zeros_like(slope), slope.copy()
        z = self._preconditioned(r)
        p, rz = z, (r * z).sum(axis=(0, 2))
        # solved loosely far from the minimum, closely near it
        enough = rz * np.minimum(0.1, np.sqrt(rz)) ** 2
        for _ in range(PRODUCTS):
            U = self._forth(p)
            U -= (P * U).sum(axis=2, keepdims=True)
            Hp = self._back(weighed * U) + self._penalty * p
            curved = (p * Hp).sum(axis=(0, 2))
            a = np.where(rz > enough, rz / np.where(curved > 0, curved, np.inf), 0.0)[:, None]
            x += a * p
            r -= a * Hp
            z = self._preconditioned(r)
            before, rz = rz, (r * z).sum(axis=(0, 2))
            if (rz <= enough).all():
                break
            p = z + (rz / np.maximum(before, 1e-300))[:, None] * p
        return x
