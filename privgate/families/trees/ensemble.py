"""A fitted ensemble of trees as arrays: what it answers at every question, and nothing of the library that made it."""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float64]
Index = NDArray[np.int64]
Whole = NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Ensemble:
    """Trees, and how their leaves become probabilities.

    Parameters
    ----------
    link : {"logistic", "softmax", "mean"}
        Sums of leaves through a logistic function or a softmax, or the mean of leaves that are distributions.
    start : int32 array of shape (T + 1,)
        Tree t has nodes ``start[t] .. start[t + 1] - 1``, its root first.
    feature : int32 array of shape (N,)
        Feature of each node's question; -1 at a leaf.
    cut : float64 array of shape (N,)
        A number of at most this goes left.
    left, right : int32 arrays of shape (N,)
        Nodes, counted over all trees.
    value : float64 array of shape (N, V)
        V is 1 for sums, the number of classes for means.
    group : int32 array of shape (T,)
        Which score a tree adds to.
    base : float64 array of shape (G,)
        Scores before any tree: one for two classes, otherwise one a class.
    base_error : float
        How far the library's own base may be from it.
    scale : float
        What the logistic function multiplies the score by.
    floor : float
        Added to each mean probability before they are normalised again.
    single : bool
        Whether sums and link are computed in single precision.
    cast : bool
        Whether questions are rounded to single precision before they are compared.
    width : int
        Features of a question; half of those that the trees ask about, whose second half says which are missing. 0
        where no value may be missing.
    """

    link: Literal["logistic", "softmax", "mean"]
    start: Whole
    feature: Whole
    cut: Float
    left: Whole
    right: Whole
    value: Float
    group: Whole
    base: Float
    base_error: float = 0.0
    scale: float = 1.0
    floor: float = 0.0
    single: bool = False
    cast: bool = False
    width: int = 0

    def __post_init__(self) -> None:
        inner = self.feature >= 0
        if not (np.isfinite(self.cut[inner]).all() and np.isfinite(self.value[~inner]).all()):
            raise FloatingPointError("a tree holds a threshold or a leaf that is no finite number")

    @property
    def trees(self) -> int:
        """T."""
        return len(self.start) - 1

    def padded(self, trees: int) -> "Ensemble":
        """Return the same ensemble with trees of one leaf of 0 added: early stopping leaves models of two lengths."""
        more = trees - self.trees
        if more <= 0:
            return self
        N, zero = len(self.feature), np.zeros(more, dtype=np.int32)
        groups = max(1, len(self.base))
        return replace(
            self,
            start=np.append(self.start, N + 1 + np.arange(more)).astype(np.int32),
            feature=np.append(self.feature, zero - 1).astype(np.int32),
            cut=np.append(self.cut, zero),
            left=np.append(self.left, zero).astype(np.int32),
            right=np.append(self.right, zero).astype(np.int32),
            value=np.concatenate([self.value, np.zeros((more, self.value.shape[1]))]),
            group=np.append(self.group, (self.trees + np.arange(more)) % groups).astype(np.int32),
        )

    def leaf_sums(self, X: Float) -> Float:
        """Return the sums of leaves at questions (n, d), in exact order of trees: (n, G) scores, or (n, C) of means."""
        X = X.astype(np.float32).astype(np.float64) if self.cast else X
        if self.width:
            lost = np.isnan(X)
            X = np.concatenate([np.where(lost, 0.0, X), lost.astype(np.float64)], axis=1)
        node = np.repeat(self.start[None, :-1].astype(np.int64), len(X), axis=0)
        row = np.arange(len(X))[:, None]
        while (inner := self.feature[node] >= 0).any():
            goes_left = X[row, np.maximum(self.feature[node], 0)] <= self.cut[node]
            node = np.where(inner, np.where(goes_left, self.left[node], self.right[node]), node)
        leaf = self.value[node]  # (n, T, V)
        if self.link == "mean":
            return np.asarray(leaf.sum(axis=1))
        sums = np.repeat(self.base[None], len(X), axis=0)
        for g in range(len(self.base)):
            sums[:, g] += leaf[:, self.group == g, 0].sum(axis=1)
        return sums

    def log_probabilities(self, X: Float) -> Float:
        """Return natural log-probabilities at questions (n, d), computed in float64."""
        sums = self.leaf_sums(X)
        if self.link == "mean":
            C = sums.shape[1]
            with np.errstate(divide="ignore"):
                return np.asarray(np.log((sums / self.trees + self.floor) / (1 + C * self.floor)))
        if self.link == "logistic":
            z = self.scale * sums[:, 0]
            return np.column_stack([-np.logaddexp(0.0, z), -np.logaddexp(0.0, -z)])
        return np.asarray(sums - np.logaddexp.reduce(sums, axis=1, keepdims=True))
