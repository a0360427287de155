"""Handing training rows to a recipe: exactly what ``np.delete`` would give, without new memory each time."""

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from privgate.subject.containers import take
from privgate.training.fit import Fit, Index


class Rows:
    """Training sets of one payload, in the original order of the records.

    A buffer that stays warm saves the page faults of a new copy a call. Leaving out record j after record i < j changes
    rows i .. j-1 of the result only, so where the learner is known not to write into its input, one row is copied
    instead of n. Everybody else gets a writable buffer, written anew from the stored data for every call.

    Parameters
    ----------
    X : container
        Pool records: n training records, then candidates.
    y : array of shape (P,)
    n : int
    classes : array of shape (K,)
    trusted : bool
        Whether the learner only reads its input (scikit-learn's own estimators, which refuse to write when the flag
        forbids it).
    """

    def __init__(self, X: Any, y: NDArray[Any], n: int, classes: NDArray[Any], *, trusted: bool = False) -> None:
        self.X, self.y, self.n, self.classes, self.trusted = X, y, n, classes, trusted
        self._plain = isinstance(X, np.ndarray) and X.dtype != object
        self._order: Literal["C", "F"] = "C" if not self._plain or X.flags.c_contiguous else "F"
        self._hole: int | None = None
        self._buffers: tuple[NDArray[Any], NDArray[Any]] | None = None

    def of(self, fit: Fit) -> tuple[Any, NDArray[Any]]:
        """Return (X, y) to train on."""
        if fit.left_out is not None and len(fit.left_out) == 1 and self._plain and not fit.relabel:
            return self._without(int(fit.left_out[0]))
        if fit.members is not None:
            keep: Index = np.asarray(fit.members, dtype=np.int64)
        else:
            kept = np.ones(self.n, dtype=bool)
            kept[fit.left_out] = False
            keep = np.flatnonzero(kept)
        X, y = take(self.X, keep), np.array(self.y[keep])
        for row, code in fit.relabel:
            y[keep == row] = self.classes[code]
        return X, y

    def _without(self, row: int) -> tuple[NDArray[Any], NDArray[Any]]:
        if not 0 <= row < self.n:
            raise IndexError(f"row {row} left out of {self.n} training records")
        if self._buffers is None:
            shape = (self.n - 1, *self.X.shape[1:])
            self._buffers = (np.empty(shape, self.X.dtype, order=self._order), np.empty(self.n - 1, self.y.dtype))
        for to, source in zip(self._buffers, (self.X, self.y), strict=True):
            to.flags.writeable = True
            if self._hole is None or not self.trusted:
                to[:row], to[row:] = source[:row], source[row + 1 : self.n]
            elif row > self._hole:
                to[self._hole : row] = source[self._hole : row]
            else:
                to[row : self._hole] = source[row + 1 : self._hole + 1]
            to.flags.writeable = not self.trusted
        self._hole = row
        return self._buffers
