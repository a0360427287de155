"""Moments of classes, and which scikit-learn computes them in the way that closed forms assume."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privgate.families import design
from privgate.families.retrained import Index
from privgate.subject.subject import Subject

Float = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ClassMoments:
    """Means and counts of classes; everything centred at the training mean, where digits are not eaten by an offset."""

    X: Float  # pool, (P, d)
    y: Index  # (n,)
    totals: Float  # (K,)
    mean: Float  # (K, d)

    @property
    def residual(self) -> Float:
        """Training records minus the mean of their class, shape (n, d)."""
        return np.asarray(self.X[: len(self.y)] - self.mean[self.y])


def moments(subject: Subject) -> ClassMoments:
    """Return the moments of a numeric pool; ``refusal`` must have been empty."""
    n, y = subject.data.n, subject.label_codes
    X = design.matrix(subject).astype(np.float64, copy=False)
    X = X - X[:n].mean(axis=0)
    totals = np.bincount(y, minlength=len(subject.classes)).astype(np.float64)
    hot = (y[:, None] == np.arange(len(totals))).astype(np.float64)
    return ClassMoments(X, y, totals, (hot.T @ X[:n]) / totals[:, None])


def refusal(subject: Subject) -> str:
    """Return why the library computes by another convention than the one known here, or there is one class only."""
    import sklearn

    if tuple(int(v) for v in sklearn.__version__.split(".")[:2]) < (1, 9):
        return "scikit-learn before 1.9 divides covariances by another number"
    return "there is one class only" if len(subject.classes) < 2 else ""


def without(M: ClassMoments, label: int, rows: Index) -> tuple[Float, Float]:
    """Return (mean of a class without some of its records, what its sums of squares and products about it fall by).

    Notes
    -----
    With m of N records gone, whose mean is g: mean' = mean + m (mean - g) / (N - m), and the sums fall by those of the
    lost records about g and N m / (N - m) (mean - g)(mean - g)^T (Chan, Golub and LeVeque 1979, run backwards).
    """
    x, N, m = M.X[rows], M.totals[label], len(rows)
    gone = x.mean(axis=0)
    away = M.mean[label] - gone
    return M.mean[label] + m / (N - m) * away, (x - gone).T @ (x - gone) + N * m / (N - m) * np.outer(away, away)
