"""Certified fixed-point iterations for many records at once: each sweep is for those that are not yet sure enough."""

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from privgate.families.retrained import Index

Float = NDArray[np.float64]

#: sweeps in single precision before all go on in double
SINGLE = 8


class Sweep(Protocol):
    """One application of the fixed-point map to some of the records."""

    def __call__(self, some: Index, D: Float, precision: Any) -> tuple[Float, Float, Float, Float]:
        """Return (image of D, bounds on the distance to the solution of D and of the image, share of rounding).

        Parameters
        ----------
        some : int64 array of shape (B,)
            Positions among the records.
        D : float64 array of shape (B, m)
        precision : numpy.float32 or numpy.float64
            Of the products. Where rounding is infinite, the bounds are estimates and certify nothing.
        """
        ...


def settle(
    sweep: Sweep, D: Float, error: Float, wanted: Float, *, block: int = 128, limit: int = 40
) -> tuple[Float, Float]:
    """Return (best points (B, m), bounds on their distance to the solutions (B,)).

    Parameters
    ----------
    D : float64 array of shape (B, m)
        Where to start.
    error : float64 array of shape (B,)
        Bounds that are known for the start; inf where nothing is.
    wanted : float64 array of shape (B,)
        Bounds below which a record needs no further sweep.
    block : int
        Records in one product.
    limit : int
        Sweeps after which the others are given up.
    """
    best, error = D.copy(), error.copy()
    at = D.copy()
    for precision, most in ((np.float32, SINGLE), (np.float64, limit)):
        live = np.flatnonzero(~(error <= wanted) & np.isfinite(at).all(axis=1))
        walk, before = Accelerated(), np.full(len(live), np.nan)
        for count in range(most):
            if not len(live):
                break
            D, new, bounds = at[live], np.empty((len(live), at.shape[1])), np.empty((3, len(live)))
            for begin in range(0, len(live), block):
                part = slice(begin, begin + block)
                new[part], *bounds[:, part] = sweep(live[part], D[part], precision)
            at_D, at_new, rounding = bounds
            for point, bound in ((D, at_D), (new, at_new)):
                closer = np.isfinite(rounding) & (bound < error[live])
                best[live[closer]], error[live[closer]] = point[closer], bound[closer]
            at[live] = walk.next(D, new) if count > 1 else new  # most records need no more than two
            done = (error[live] <= wanted[live]) | ~np.isfinite(at[live]).all(axis=1)
            if precision is np.float32:
                done |= ~(rounding <= wanted[live] / 2) & _ready(at_D, at_new, before, wanted[live])
            walk.keep(~done)
            live, before = live[~done], at_D[~done]
    return best, error


@dataclass
class Accelerated:
    """Anderson acceleration of many iterations at once: extrapolates each row from its last ``depth`` steps.

    Whether the result is any good is for others to certify.

    References
    ----------
    Walker and Ni (2011), "Anderson acceleration for fixed-point iterations", SIAM J. Numer. Anal. 49(4), equation 2.2.
    """

    depth: int = 4
    _steps: list[tuple[Float, Float]] = field(default_factory=list)  # (change of residual, of image)
    _last: tuple[Float, Float] | None = None

    def keep(self, rows: NDArray[np.bool_]) -> None:
        """Forget the iterations of all other rows."""
        self._steps = [(a[rows], b[rows]) for a, b in self._steps]
        self._last = None if self._last is None else (self._last[0][rows], self._last[1][rows])

    def next(self, x: Float, image: Float) -> Float:
        """Return the next point for points ``x`` and their images, shape (B, m) each."""
        residual = image - x
        if self._last is not None:
            self._steps = [*self._steps[1 - self.depth :], (residual - self._last[0], image - self._last[1])]
        self._last = residual, image
        if not self._steps:
            return image
        F = np.stack([s[0] for s in self._steps], axis=1)
        gram = F @ F.swapaxes(1, 2)
        trace = np.einsum("bii->b", gram)
        gram += (1e-10 * trace + np.finfo(gram.dtype).tiny)[:, None, None] * np.eye(F.shape[1])
        weight = np.linalg.solve(gram, F @ residual[:, :, None])[:, :, 0]
        weight = np.where(np.isfinite(weight).all(axis=1, keepdims=True), weight, 0)
        return np.asarray(image - sum(weight[:, i, None] * s[1] for i, s in enumerate(self._steps)))


def _ready(at_D: Float, at_new: Float, before: Float, wanted: Float) -> NDArray[np.bool_]:
    """Return where one more sweep suffices, so that it had better certify, or single precision leads no further."""
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        shrink = at_new / at_D
        next_D = at_D * np.fmin(at_D / before, shrink)
        return np.asarray((next_D * np.fmin(shrink, 1) <= wanted) | (at_D > before / 2))
