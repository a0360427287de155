"""Anderson acceleration of many fixed-point iterations at once, one a column."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass
class Accelerated:
    """Extrapolates each column from its last ``depth`` steps; whether the result is any good is for others to certify.

    References
    ----------
    Walker and Ni (2011), "Anderson acceleration for fixed-point iterations", SIAM J. Numer. Anal. 49(4), equation 2.2.
    """

    depth: int = 4
    _steps: list[tuple[NDArray[Any], NDArray[Any]]] = field(default_factory=list)  # (change of residual, of image)
    _last: tuple[NDArray[Any], NDArray[Any]] | None = None

    def next(self, x: NDArray[Any], image: NDArray[Any]) -> NDArray[Any]:
        """Return the next point for points ``x`` and their images, shape (m, B) each."""
        residual = image - x
        if self._last is not None:
            self._steps = [*self._steps[1 - self.depth :], (residual - self._last[0], image - self._last[1])]
        self._last = residual, image
        if not self._steps:
            return image
        F = np.stack([s[0] for s in self._steps])
        gram = np.einsum("imb,jmb->bij", F, F, optimize=True)
        trace = np.einsum("bii->b", gram)
        gram += (1e-10 * trace + np.finfo(gram.dtype).tiny)[:, None, None] * np.eye(len(F), dtype=gram.dtype)
        weight = np.linalg.solve(gram, np.einsum("imb,mb->bi", F, residual)[:, :, None])[:, :, 0]
        weight = np.where(np.isfinite(weight).all(axis=1, keepdims=True), weight, 0)
        return np.asarray(image - sum(weight[:, i] * s[1] for i, s in enumerate(self._steps)))
