"""Anderson acceleration of many fixed-point iterations at once, one a row."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float64]


@dataclass
class Accelerated:
    """Extrapolates each row from its last ``depth`` steps; whether the result is any good is for others to certify.

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
