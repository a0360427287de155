"""Models that can be certified: classifiers that one person cannot move far, and first steps that learn nothing.

Each follows scikit-learn's conventions without importing it, and exists because the library's own version breaks a
hypothesis of its theorem: no smoothing, ties that depend on who else is there.
"""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from privgate.arrays import Float
from privgate.models.classifier import Classifier
from privgate.models.fixed import FixedOneHot, FixedScaler
from privgate.models.sharded import Sharded

__all__ = ["ContingencyTable", "FixedOneHot", "FixedScaler", "Sharded", "SmoothedNeighbors"]


@dataclass(eq=False, repr=False)
class ContingencyTable(Classifier):
    """Shares of labels among records with exactly the same features, smoothed.

    Parameters
    ----------
    alpha : float
        Added to each label's count. With 0, and for features that nobody has, every label is equally probable.
    classes : sequence, optional
        Every label there can be, declared before the data are seen. Read off the data if absent: then leaving out the
        only record with a label is without limit.
    """

    alpha: float = 1.0
    classes: Any = None

    def fit(self, X: Any, y: Any) -> Self:
        """Count labels in every cell."""
        codes = self._labels(y)
        cells, inverse = np.unique(np.asarray(X), axis=0, return_inverse=True)
        K = len(self.classes_)
        counts = np.bincount(inverse.ravel() * K + codes, minlength=len(cells) * K).reshape(-1, K)
        self.cells_ = {tuple(cell): row.astype(np.float64) for cell, row in zip(cells.tolist(), counts, strict=True)}
        return self

    def predict_proba(self, X: Any) -> Float:
        """Return smoothed shares."""
        K = len(self.classes_)
        rows = [self.cells_.get(tuple(x), np.zeros(K)) for x in np.asarray(X).tolist()]
        return shares(np.array(rows).reshape(-1, K), self.alpha)


def shares(counts: Float, alpha: float) -> Float:
    """Return (count + alpha) / (sum + K alpha) along the last axis; uniform where that is 0/0."""
    K = counts.shape[-1]
    total = counts.sum(axis=-1, keepdims=True) + K * alpha
    return np.asarray(np.divide(counts + alpha, total, out=np.full(counts.shape, 1.0 / K), where=total > 0))


@dataclass(eq=False, repr=False)
class SmoothedNeighbors(Classifier):
    """k nearest neighbors with additive smoothing; equally distant records count in the order of their own features.

    A record's place depends on itself and the query alone: not on its position, on memory order, or on who else is
    there.

    Parameters
    ----------
    n_neighbors : int
        k; with fewer records all of them vote, and nobody stands in for those who are absent.
    alpha : float
        Added to each label's count. 0.582 or more keeps DTP at 1 or below.
    classes : sequence, optional
        As in ``ContingencyTable``.
    """

    n_neighbors: int = 5
    alpha: float = 1.0
    classes: Any = None

    def fit(self, X: Any, y: Any) -> Self:
        """Keep the records, in the order of their features, then of their labels."""
        if self.n_neighbors < 1:
            raise ValueError(f"n_neighbors must be at least 1, not {self.n_neighbors}")
        features, codes = np.asarray(X, dtype=np.float64), self._labels(y)
        order = np.lexsort((codes, *features.T[::-1]))
        self.X_, self.codes_ = np.ascontiguousarray(features[order]), codes[order]
        return self

    def predict_proba(self, X: Any) -> Float:
        """Return smoothed shares of labels among the nearest records."""
        votes = []
        for query in np.asarray(X, dtype=np.float64):
            # feature by feature: the rounding of a distance must not depend on how many records there are
            distance = np.zeros(len(self.X_))
            for own, wanted in zip(self.X_.T, query, strict=True):
                distance += (own - wanted) ** 2
            nearest = np.argsort(distance, kind="stable")[: self.n_neighbors]
            votes.append(np.bincount(self.codes_[nearest], minlength=len(self.classes_)))
        return shares(np.array(votes, dtype=np.float64).reshape(-1, len(self.classes_)), self.alpha)
