"""Where a record falls in the classification tree grown without it, for all records at once, exactly.

Only a record's own path in its own tree matters, and records whose paths begin alike share the statistics of the nodes
on them. Without record t of class c a split with counts L on its left and R on its right scores as with it, but for one
count on t's side: two numbers a split and class. Running maxima from either end then give every record its best split.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privgate.retrain.retrained import Index

Float = NDArray[np.float64]

#: splits whose scores differ by less, relatively, may be equal, and scikit-learn then chooses at random
TIE = 1e-11
#: branches down which a record is followed where its best splits tie
BRANCHES = 32
#: entries of the tables of one chunk of features
CHUNK = 2_000_000


@dataclass(frozen=True, eq=False)
class Growth:
    """Training data of a tree, and when a node is a leaf.

    Parameters
    ----------
    X : float32 array of shape (n, d)
    codes : int32 array of shape (n, d)
        Rank of each value among the distinct values of its feature.
    y : int64 array of shape (n,)
    K : int
        Number of classes.
    max_depth, min_split, min_leaf : int
    """

    X: NDArray[np.float32]
    codes: NDArray[np.int32]
    y: Index
    K: int
    max_depth: int
    min_split: int
    min_leaf: int


@dataclass(frozen=True, eq=False)
class Falls:
    """What each record's own tree says about it.

    Parameters
    ----------
    counts : float64 array of shape (n, K)
        Class counts of the leaf, for records asked about and not tied.
    tied : bool array of shape (n,)
        Whether equal splits of the record's path lead it to leaves of different shares of classes.
    nodes : int
        Nodes looked at.
    """

    counts: Float
    tied: NDArray[np.bool_]
    nodes: int


class _Leaves:
    """Collects the leaf of each record; a record whose splits tie is followed down every branch, up to a limit."""

    def __init__(self, growth: Growth) -> None:
        self.counts = np.zeros((len(growth.y), growth.K))
        self.tied = np.zeros(len(growth.y), dtype=bool)
        self.branches = np.ones(len(growth.y), dtype=np.int64)

    def reach(self, members: Index, counts: Float) -> None:
        before = self.counts[members]
        size = before.sum(axis=1)
        other = (size > 0) & (np.abs(before * counts.sum(axis=1)[:, None] - counts * size[:, None]) > 0).any(axis=1)
        self.tied[members[other]] = True
        self.counts[members] = counts

    def branch(self, member: int, more: int) -> bool:
        """Return whether a record may be followed down ``more`` further branches; it is tied if not."""
        self.branches[member] += more
        if self.branches[member] > BRANCHES:
            self.tied[member] = True
        return not self.tied[member]


def falls(growth: Growth, records: Index) -> Falls:
    """Return the leaf counts of each record in the tree grown without it (Gini, best splits, all features)."""
    leaves, nodes = _Leaves(growth), 0
    stack = [(np.arange(len(growth.y)), np.sort(np.asarray(records, dtype=np.int64)), 0)]
    while stack:
        S, T, depth = stack.pop()
        T = T[~leaves.tied[T]]
        if not len(T):
            continue
        nodes += 1
        here = np.bincount(growth.y[S], minlength=growth.K).astype(np.float64)
        left = np.tile(here, (len(T), 1))
        left[np.arange(len(T)), growth.y[T]] -= 1
        size = len(S) - 1
        leaf = (left > 0).sum(axis=1) <= 1
        leaf |= depth >= growth.max_depth or size < growth.min_split or size < 2 * growth.min_leaf
        leaves.reach(T[leaf], left[leaf])
        T, left = T[~leaf], left[~leaf]
        if not len(T):
            continue
        choices, final = _Node(growth, S, T, here).choose(leaves)
        leaves.reach(T[final], left[final])
        if not len(choices):
            continue
        _, feature, bound, goes_left = choices.T
        key = (feature * (len(growth.y) + 1) + bound) * 2 + goes_left
        order = np.argsort(key, kind="stable")
        starts = np.flatnonzero(np.append(True, np.diff(key[order]) != 0))
        for first, members in zip(order[starts], np.split(choices[order, 0], starts[1:]), strict=True):
            left_side = growth.codes[S, feature[first]] <= bound[first]
            child = S[left_side] if goes_left[first] else S[~left_side]
            stack.append((child, T[np.sort(members)], depth + 1))
    return Falls(leaves.counts, leaves.tied, nodes)


class _Node:
    """One node: which split each member would take if it were absent."""

    def __init__(self, growth: Growth, S: Index, T: Index, counts: Float) -> None:
        self.growth, self.S, self.T, self.counts = growth, S, T, counts
        self.codes = growth.codes[S]
        self.y = growth.y[S]
        self.place = np.searchsorted(S, T)  # S is ascending throughout
        self.label = growth.y[T]
        self.classes = np.unique(self.label)

    def choose(self, leaves: _Leaves) -> tuple[Index, NDArray[np.bool_]]:
        """Return rows (member, feature, bound, goes left), one or more a member, and who has no split at all."""
        U = len(self.T)
        low, high = self.codes.min(axis=0), self.codes.max(axis=0)
        two = np.flatnonzero(high - low == 1)
        many = np.flatnonzero(high - low > 1)
        width = max(1, CHUNK // (len(self.S) * (2 + self.growth.K)))
        parts = [self._two_values(two, low[two])] if len(two) else []
        parts += [self._sorted(many[k : k + width]) for k in range(0, len(many), width)]
        none = np.zeros((0, 4), dtype=np.int64)
        if not parts:
            return none, np.ones(U, dtype=bool)
        value, runner, bound, side = (np.concatenate(a, axis=1) for a in zip(*parts, strict=True))
        features = np.concatenate([two, many])
        rows, at = np.arange(U), value.argmax(axis=1)
        best = value[rows, at]
        level = best * (1 - TIE)
        close = (value >= level[:, None]).sum(axis=1) + (runner >= level[:, None]).sum(axis=1)
        sure = (best > 0) & (close <= 1)
        made = [np.stack([rows, features[at], bound[rows, at], side[rows, at]], axis=1)[sure]]
        for k in np.flatnonzero((best > 0) & (close > 1)):
            tied = features[value[k] >= level[k]]
            found = self._distinct(int(k), tied, float(level[k]))
            if leaves.branch(int(self.T[k]), len(found) - 1):
                made.append(np.array([[k, *f] for f in found], dtype=np.int64))
        return np.concatenate(made), best <= 0

    def _two_values(self, features: Index, low: Index) -> tuple[Float, Float, Index, NDArray[np.bool_]]:
        """Return (score, runner-up, bound, goes left), shape (U, d) each, over features of two values here."""
        high = (self.codes[:, features] > low).astype(np.float32)
        hot = (self.y[:, None] == np.arange(self.growth.K)).astype(np.float32)
        R = (high.T @ hot).astype(np.float64)  # (d, K)
        A, B = _scores((self.counts - R).T[:, None], R.T[:, None], self.growth.min_leaf)  # (K, 1, d) each
        goes_left = high[self.place] == 0
        value = np.where(goes_left, A[self.label, 0], B[self.label, 0])
        return value, np.full_like(value, -1), np.broadcast_to(low.astype(np.int64), value.shape), goes_left

    def _sorted(self, features: Index) -> tuple[Float, Float, Index, NDArray[np.bool_]]:
        """Return the same over features of more values, by running maxima along their sorted values."""
        codes, m = self.codes[:, features], len(self.S)
        order = np.argsort(codes, axis=0, kind="stable")
        ordered, y = np.take_along_axis(codes, order, axis=0), self.y[order]
        rank = np.empty_like(order)
        np.put_along_axis(rank, order, np.arange(m)[:, None], axis=0)
        rank = rank[self.place]  # (U, d)
        L = np.stack([np.cumsum(y == k, axis=0, dtype=np.float64) for k in range(self.growth.K)])  # (K, m, d)
        split = np.append(ordered[1:] != ordered[:-1], np.zeros((1, len(features)), dtype=bool), axis=0)
        A, B = _scores(L, self.counts[:, None, None] - L, self.growth.min_leaf, self.classes)
        A[:, ~split] = -1
        B[:, ~split] = -1
        # split after i: a member at rank <= i is on its left, one at rank > i on its right
        columns = np.arange(len(features))
        kind = np.searchsorted(self.classes, self.label)[:, None]
        up, up_second, up_at = (a[kind, rank, columns] for a in _running(A[:, ::-1], flip=True))
        before = np.maximum(rank - 1, 0)
        down, down_second, down_at = (a[kind, before, columns] for a in _running(B, flip=False))
        first = rank == 0
        down, down_second = np.where(first, -1, down), np.where(first, -1, down_second)
        side = up >= down
        runner = np.maximum(np.where(side, down, up), np.where(side, up_second, down_second))
        bound = ordered[np.where(side, up_at, down_at), columns].astype(np.int64)
        return np.maximum(up, down), runner, bound, side

    def _distinct(self, k: int, features: Index, level: float) -> list[tuple[int, int, int]]:
        """Return the best splits of a member that leave it with different companions: (feature, bound, goes left)."""
        at = int(self.place[k])
        found: list[tuple[int, int, int]] = []
        seen: list[NDArray[np.bool_]] = []
        for feature, bound in self._candidates(at, int(self.label[k]), features, level):
            here, after = self._thresholded(feature, bound, at)
            company = (self.codes[:, feature] <= after) == here
            if not any(np.array_equal(company, other) for other in seen):
                seen.append(company)
                found.append((feature, after, int(here)))
        return found

    def _candidates(self, at: int, label: int, features: Index, level: float) -> Iterator[tuple[int, int]]:
        """Yield (feature, bound) of every split that scores at least ``level`` without the member."""
        counts = self.counts.copy()
        counts[label] -= 1
        for feature in features:
            column = self.codes[:, feature]
            low = int(column.min())
            table = np.bincount((column - low) * self.growth.K + self.y).astype(np.float64)
            table = np.append(table, np.zeros(-len(table) % self.growth.K)).reshape(-1, self.growth.K)
            table[column[at] - low, label] -= 1
            values = np.flatnonzero(table.any(axis=1))
            L = np.cumsum(table[values], axis=0)[:-1]
            R = counts - L
            n_left, n_right = L.sum(axis=1), R.sum(axis=1)
            score = (L * L).sum(axis=1) / n_left + (R * R).sum(axis=1) / n_right
            fine = (n_left >= self.growth.min_leaf) & (n_right >= self.growth.min_leaf) & (score >= level)
            for j in np.flatnonzero(fine):
                yield int(feature), low + int(values[j])

    def _thresholded(self, feature: int, bound: int, at: int) -> tuple[bool, int]:
        """Return (whether the member goes left of the midpoint drawn without it, bound that puts it there)."""
        column = self.codes[:, feature]
        own = int(column[at])
        alone = (column == own).sum() == 1
        others = column[column != own] if alone else column
        low, high = int(others[others <= bound].max()), int(others[others > bound].min())
        if not alone or own < low or own > high:
            return own <= bound, low
        X = self.growth.X[self.S, feature]
        below, above = X[np.argmax(column == low)], X[np.argmax(column == high)]
        goes_left = float(X[at]) <= float(below) / 2.0 + float(above) / 2.0
        return goes_left, own if goes_left else own - 1  # the bound moves to the member's side


def _scores(L: Float, R: Float, min_leaf: int, classes: Index | None = None) -> tuple[Float, Float]:
    """Return scores without one record of each class on the left (A) and on the right (B); -1 where not allowed.

    Parameters
    ----------
    L, R : float64 arrays of shape (K, ...)
        Class counts on either side, the record included.

    Notes
    -----
    Maximising ``sum L^2 / n_L + sum R^2 / n_R`` is minimising the weighted Gini impurity; taking one record of class
    c off a side lowers its sum of squares by 2 N_c - 1.
    """
    n_left, n_right = L.sum(axis=0), R.sum(axis=0)
    square_left, square_right = (L * L).sum(axis=0), (R * R).sum(axis=0)
    if classes is not None:
        L, R = L[classes], R[classes]
    least = max(min_leaf, 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        A = (square_left - 2 * L + 1) / (n_left - 1) + square_right / n_right
        B = square_left / n_left + (square_right - 2 * R + 1) / (n_right - 1)
    A[:, (n_left - 1 < least) | (n_right < least)] = -1
    B[:, (n_left < least) | (n_right - 1 < least)] = -1
    return A, B


def _running(scores: Float, *, flip: bool) -> tuple[Float, Float, Index]:
    """Return (largest so far, second largest so far, where the largest is) along axis 1; reversed with ``flip``."""
    best = np.maximum.accumulate(scores, axis=1)
    earlier = np.concatenate([np.full_like(best[:, :1], -1), best[:, :-1]], axis=1)
    second = np.maximum.accumulate(np.minimum(scores, earlier), axis=1)
    size = scores.shape[1]
    place = np.where(scores > earlier, np.arange(size)[None, :, None], 0)
    where = np.maximum.accumulate(place, axis=1)
    if flip:
        return best[:, ::-1], second[:, ::-1], size - 1 - where[:, ::-1]
    return best, second, where
