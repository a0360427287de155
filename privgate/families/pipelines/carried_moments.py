"""Means and variances of classes without some records, where every feature has moved besides."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from privgate.families.retrained import Index

Float = NDArray[np.float64]
#: share of a sum of squares below which taking records off it has lost too many digits: the rest is summed anew
CANCELLED = 1e-4


@dataclass(frozen=True, eq=False)
class Moments:
    """Sums over training records, by class and over all.

    Parameters
    ----------
    Z, M : float64 arrays of shape (n, d)
        Features, and 1 where a value was filled in.
    y : int64 array of shape (n,)
    totals : float64 array of shape (K,)
    mean, held : float64 arrays of shape (K, d)
        Means of ``Z`` and of ``M``.
    squares : float64 array of shape (3, K, d)
        Sums of squares and products about these means: of Z, of Z and M, of M.
    whole : (mean (2, d), squares (3, d))
        The same over all classes.
    gone : int64 array
        Records that are not counted.
    """

    Z: Float
    M: Float
    y: Index
    totals: Float
    mean: Float
    held: Float
    squares: Float
    whole: tuple[Float, Float]
    gone: Index

    @classmethod
    def of(cls, Z: Float, M: Float, y: Index, K: int) -> "Moments":
        """Return the moments of all records."""
        totals = np.bincount(y, minlength=K).astype(np.float64)
        each = [_summed(Z[y == c], M[y == c]) for c in range(K)]
        means, squares = np.stack([m for m, _ in each]), np.stack([s for _, s in each], axis=1)
        return cls(Z, M, y, totals, means[:, 0], means[:, 1], squares, _summed(Z, M), y[:0])

    @cached_property
    def filled(self) -> bool:
        """Whether any value was filled in."""
        return bool(self.M.any())

    def without(self, parts: Sequence[tuple[int, Index]]) -> "Moments":
        """Return the moments without records of some classes, ``(class, records)`` each; no class may vanish."""
        totals, mean, held, squares = (v.copy() for v in (self.totals, self.mean, self.held, self.squares))
        gone = np.concatenate([rows for _, rows in parts])
        for c, rows in parts:
            totals[c] -= len(rows)
            about = np.stack([self.mean[c], self.held[c]])
            left, fewer = self._less(about, self.squares[:, c], totals[c], rows)
            if (fewer < CANCELLED * self.squares[:, c])[[0, 2]].any():
                left, fewer = self._anew(gone, self.y == c)
            (mean[c], held[c]), squares[:, c] = left, fewer
        whole = self._less(*self.whole, totals.sum(), gone)
        if (whole[1] < CANCELLED * self.whole[1])[[0, 2]].any():
            whole = self._anew(gone, np.ones(len(self.y), dtype=bool))
        return Moments(self.Z, self.M, self.y, totals, mean, held, squares, whole, gone)

    def _less(self, about: Float, squares: Float, left: float, rows: Index) -> tuple[Float, Float]:
        """Return means (2, d) and sums about them (3, d) without some rows, from those with them."""
        z, m = self.Z[rows] - about[0], self.M[rows] - about[1]
        first = np.stack([z.sum(axis=0), m.sum(axis=0)])
        gone = np.stack([(z * z).sum(axis=0), (z * m).sum(axis=0), (m * m).sum(axis=0)])
        shift = np.stack([first[0] * first[0], first[0] * first[1], first[1] * first[1]]) / left
        made = squares - gone - shift
        made[[0, 2]] = np.maximum(made[[0, 2]], 0.0)
        return about - first / left, made

    def _anew(self, gone: Index, among: NDArray[np.bool_]) -> tuple[Float, Float]:
        kept = among.copy()
        kept[gone] = False
        return _summed(self.Z[kept], self.M[kept])

    def variances(self, a: Float, g: Float) -> tuple[Float, Float]:
        """Return variances of ``a Z + g M``, (K, d) within classes and (d,) over all."""
        return (
            _moved(self.squares, a, g) / self.totals[:, None],
            np.asarray(_moved(self.whole[1], a, g) / self.totals.sum()),
        )


def _summed(Z: Float, M: Float) -> tuple[Float, Float]:
    about = np.stack([Z.mean(axis=0), M.mean(axis=0)])
    z, m = Z - about[0], M - about[1]
    return about, np.stack([(z * z).sum(axis=0), (z * m).sum(axis=0), (m * m).sum(axis=0)])


def _moved(squares: Float, a: Float, g: Float) -> Float:
    return np.asarray(np.maximum(a * a * squares[0] + 2 * a * g * squares[1] + g * g * squares[2], 0.0))
