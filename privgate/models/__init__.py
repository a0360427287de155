"""Models that can be certified: classifiers that one person cannot move far, and first steps that learn nothing.

They follow scikit-learn's conventions (``fit``, ``predict_proba``, ``get_params``) without importing it, and are
recipes like any other estimator. Each exists because the library's own version breaks a hypothesis of its theorem: no
smoothing, ties that depend on who else is there, a structure that follows the data.
"""

from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np

from privgate.arrays import Float, Index
from privgate.errors import SubjectError
from privgate.models.ball_logistic import BallLogistic
from privgate.models.classifier import Classifier
from privgate.models.fixed import FixedOneHot, FixedScaler
from privgate.models.sharded import Sharded

__all__ = [
    "BallLogistic",
    "ContingencyTable",
    "FixedOneHot",
    "FixedScaler",
    "RandomTrees",
    "Sharded",
    "SmoothedNeighbors",
]


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


@dataclass(eq=False, repr=False)
class RandomTrees(Classifier):
    """Decision trees whose splits are drawn before the data are seen; only the leaves count.

    Parameters
    ----------
    low, high : float or sequence of float
        Range of every feature from which thresholds are drawn; declared, not read off the data.
    n_features : int
        Number of features.
    n_trees, depth : int
        Every tree is complete: ``2 ** depth`` leaves.
    alpha : float
        Added to each label's count in a leaf.
    average : {"geometric"}
        How trees are combined; the mean is normalised again.
    random_state : int
        Draws the splits.
    classes : sequence, optional
        As in ``ContingencyTable``.
    """

    n_features: int = 1
    low: Any = 0.0
    high: Any = 1.0
    n_trees: int = 10
    depth: int = 3
    alpha: float = 1.0
    average: Literal["geometric"] = "geometric"
    random_state: int = 0
    classes: Any = None

    def fit(self, X: Any, y: Any) -> Self:
        """Count labels in every leaf."""
        codes = self._labels(y)
        K = len(self.classes_)
        leaves = self.leaves(X)
        self.counts_ = np.zeros((self.n_trees, 2**self.depth, K))
        for b in range(self.n_trees):
            np.add.at(self.counts_[b], (leaves[:, b], codes), 1.0)
        return self

    def leaves(self, X: Any) -> Index:
        """Return the leaf of every record in every tree, shape (n, n_trees); needs no training."""
        rng = np.random.default_rng(self.random_state)
        inner = (self.n_trees, 2**self.depth - 1)
        feature = rng.integers(0, self.n_features, inner)
        low, high = (
            np.broadcast_to(np.asarray(v, dtype=np.float64), (self.n_features,)) for v in (self.low, self.high)
        )
        threshold = low[feature] + rng.random(inner) * (high - low)[feature]
        X = np.asarray(X, dtype=np.float64)
        if X.shape[1] != self.n_features:
            raise ValueError(f"X has {X.shape[1]} features, the trees were declared for {self.n_features}")
        node = np.zeros((len(X), self.n_trees), dtype=np.int64)
        tree = np.arange(self.n_trees)
        for _ in range(self.depth):
            right = np.take_along_axis(X, feature[tree, node], axis=1) > threshold[tree, node]
            node = 2 * node + 1 + right
        return np.asarray(node - (2**self.depth - 1), dtype=np.int64)

    def predict_proba(self, X: Any) -> Float:
        """Return the average over trees."""
        if self.average != "geometric":
            # of a sentence of ours a check tells the words: earlier versions had an arithmetic mean
            raise SubjectError(f"average must be 'geometric', not {self.average!r}; train and log the model again")
        each = shares(self.counts_, self.alpha)[np.arange(self.n_trees), self.leaves(X)]
        with np.errstate(divide="ignore"):
            log = np.log(each).mean(axis=1)
        top = log.max(axis=1, keepdims=True)
        p = np.exp(log - np.where(np.isfinite(top), top, 0.0))
        total = p.sum(axis=1, keepdims=True)
        return np.asarray(np.divide(p, total, out=np.full(p.shape, 1.0 / p.shape[1]), where=total > 0))
