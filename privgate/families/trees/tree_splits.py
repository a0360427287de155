"""Splits of the nodes of a classification tree that could be best for some record left out, for many nodes at once.

Without record t of class c a split with counts L on its left and R on its right scores as with it, but for one count on
t's side. That moves the score by little, so most splits are beaten whichever record is left out, and never looked at
again.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from privgate.arrays import Float, Index
from privgate.families.closed_form import spread

#: entries of the tables of one chunk of nodes and features: 8 MB
CHUNK = 1_000_000
#: relative room left for rounding where splits are dropped because another one is better
SLACK = 1e-9


@dataclass(frozen=True, eq=False)
class Growth:
    """Training data of a tree, and when a node is a leaf.

    Parameters
    ----------
    X : float32 array of shape (n, d)
    codes : unsigned integer array of shape (d, n)
        Rank of each value among the distinct values of its feature.
    far : array like codes
        Highest rank between which and the value scikit-learn would draw no threshold; ``codes`` itself if always equal.
    squeezed : bool array of shape (n,)
        Records with such other values on both sides: without them a threshold may be drawn that is none with them.
    y : int64 array of shape (n,)
    K : int
        Number of classes.
    max_depth, min_split, min_leaf : int
    """

    X: NDArray[np.float32]
    codes: NDArray[Any]
    far: NDArray[Any]
    squeezed: NDArray[np.bool_]
    y: Index
    K: int
    max_depth: int
    min_split: int
    min_leaf: int


@dataclass(frozen=True, eq=False)
class Nodes:
    """Records of some nodes, node by node; a record may be in several.

    Parameters
    ----------
    rows : int64 array of shape (M,)
    start : int64 array of shape (N + 1,)
        Node a holds ``rows[start[a]:start[a + 1]]``, ascending.
    counts : float64 array of shape (N, K)
        Class counts.
    """

    rows: Index
    start: Index
    counts: Float

    @property
    def size(self) -> Index:
        """Records of each node, shape (N,)."""
        return np.diff(self.start)

    @property
    def node(self) -> Index:
        """Node of each row, shape (M,)."""
        return np.repeat(np.arange(len(self.start) - 1), self.size)

    def only(self, kept: Index) -> "Nodes":
        """Return some of the nodes."""
        size = self.size[kept]
        return Nodes(self.rows[spread(self.start[kept], size)], np.append(0, np.cumsum(size)), self.counts[kept])


@dataclass(frozen=True, eq=False)
class Splits:
    """Candidate splits, ascending by node: codes up to ``bound`` go left.

    Parameters
    ----------
    node, feature, bound : int64 arrays of shape (C,)
    left : float64 array of shape (C, K)
        Class counts on the left.
    total : float64 array of shape (C, K)
        Class counts of the node.
    around : int64 array of shape (C, 4)
        The last two records on the left and the first two on the right, in the order of the feature; -1 where the node
        ends.
    """

    node: Index
    feature: Index
    bound: Index
    left: Float
    total: Float
    around: Index

    def without(self, split: Index, label: Index, min_leaf: int) -> tuple[Float, Float]:
        """Return the scores of splits without a record of a class on their left, and on their right.

        Parameters
        ----------
        split, label : int64 arrays of shape (E,)

        Returns
        -------
        float64 arrays of shape (E,)
            -1 where the split would leave too few records on a side.

        Notes
        -----
        Maximizing ``sum L^2 / n_L + sum R^2 / n_R`` is minimizing the weighted Gini impurity; taking one record of
        class c off a side lowers its sum of squares by 2 N_c - 1.
        """
        right = self.total - self.left
        n_left, n_right = self.left.sum(axis=1), right.sum(axis=1)
        square_left, square_right = (self.left**2).sum(axis=1), (right**2).sum(axis=1)
        least = max(min_leaf, 1)
        n_left, n_right, L, R = n_left[split], n_right[split], self.left[split, label], right[split, label]
        square_left, square_right = square_left[split], square_right[split]
        with np.errstate(divide="ignore", invalid="ignore"):
            from_left = (square_left - 2 * L + 1) / (n_left - 1) + square_right / n_right
            from_right = square_left / n_left + (square_right - 2 * R + 1) / (n_right - 1)
        from_left[(n_left - 1 < least) | (n_right < least)] = -1
        from_right[(n_left < least) | (n_right - 1 < least)] = -1
        return from_left, from_right


def runs(size: Index) -> list[Index]:
    """Return positions in runs whose sizes add up to about ``CHUNK``, one position at least."""
    edges = np.flatnonzero(np.diff(np.cumsum(size) // CHUNK)) + 1
    return np.split(np.arange(len(size)), edges) if len(size) else []


def nodes_of(growth: Growth, rows: Index, start: Index) -> Nodes:
    """Return nodes by their records."""
    N = len(start) - 1
    key = np.repeat(np.arange(N), np.diff(start)) * growth.K + growth.y[rows]
    return Nodes(rows, start, np.bincount(key, minlength=N * growth.K).reshape(N, growth.K).astype(np.float64))


def promising(growth: Growth, nodes: Nodes) -> Splits:
    """Return the splits of each node that could be best without one of its records."""
    reached, features = np.zeros(len(nodes.counts)), np.arange(len(growth.codes))
    width = max(1, CHUNK // 4 // len(nodes.rows))
    parts = [_sorted(growth, nodes, reached, features[k : k + width]) for k in range(0, len(features), width)]
    node, feature, bound, left, around = (np.concatenate(a) for a in zip(*parts, strict=True))
    order = np.argsort(node, kind="stable")
    node = node[order]
    return Splits(node, feature[order], bound[order], left[order], nodes.counts[node], around[order])


Part = tuple[Index, Index, Index, Float, Index]


class _Tables(NamedTuple):
    """Every split of features (F) at places (A) of nodes, with every record."""

    node: Index  # (A,)
    n_left: Float  # broadcasts to (F, A): records on the left
    square: NDArray[Any]  # (F, A): sum of L_c^2 over the classes c
    along: Float  # (F, A): sum of N_c L_c
    inside: NDArray[np.bool_]  # broadcasts to (F, A): no split, because equal values or another node follow


def _sorted(growth: Growth, nodes: Nodes, reached: Float, features: Index) -> Part:
    """Return (node, feature, bound, left, around) of the splits of some features, along their sorted values."""
    counts, node, M, K = nodes.counts, nodes.node, len(nodes.rows), growth.K
    order = _in_order(growth.codes[features][:, nodes.rows], node)
    rows = nodes.rows[order]
    codes = growth.codes[features[:, None], rows]
    far = codes if growth.far is growth.codes else growth.far[features[:, None], rows]
    inside = np.ones(codes.shape, dtype=bool)
    inside[:, :-1] = (codes[:, 1:] <= far[:, :-1]) | (node[1:] != node[:-1])
    whole = np.int32 if M < 2**15 else np.int64  # holds the squares of counts
    label = growth.y[nodes.rows]
    y = label.astype(np.uint8 if K < 2**8 else np.int64)[order]
    L, square = np.empty((K, *y.shape), dtype=whole), np.zeros(y.shape, dtype=whole)
    for k in range(K):
        here = (y == k).astype(whole)
        here[:, nodes.start[1:-1]] -= counts[:-1, k].astype(whole)  # every node counts from 0
        np.cumsum(here, axis=1, dtype=whole, out=L[k])
        np.multiply(L[k], L[k], out=here)
        square += here
    own = counts[node, label]  # N_c of each record's class: along is its sum so far
    squares = (counts**2).sum(axis=1)
    along = np.cumsum(own[order], axis=1) - (np.cumsum(squares) - squares)[node]
    n_left = np.asarray(np.arange(1, M + 1) - nodes.start[node], dtype=np.float64)
    f, i = _contenders(growth, nodes, reached, _Tables(node, n_left, square, along, inside))
    beside = np.clip(i[:, None] + np.arange(-1, 3), 0, M - 1)
    around = nodes.rows[order[f[:, None], beside]]
    around[(node[beside] != node[i][:, None]) | (beside != i[:, None] + np.arange(-1, 3))] = -1
    return node[i], features[f], codes[f, i].astype(np.int64), L[:, f, i].T.astype(np.float64), around


def _in_order(codes: NDArray[Any], node: Index) -> Index:
    """Return places by ascending code within each node, feature by feature, shape (F, M)."""
    order = np.argsort(codes, axis=1, kind="stable")
    if node[-1] == 0:
        return order
    small = node.astype(np.uint16 if node[-1] < 2**16 else np.int64)  # 16 bits are sorted by radix
    return np.take_along_axis(order, np.argsort(small[order], axis=1, kind="stable"), axis=1)


def _contenders(growth: Growth, nodes: Nodes, reached: Float, tables: _Tables) -> tuple[Index, ...]:
    """Return the places (f, a) of splits that may be best without some record, and raise what is reached in any case.

    Parameters
    ----------
    reached : float64 array of shape (N,)
        A score that some split of the node has whichever record is left out; raised in place.

    Notes
    -----
    Leaving one record out moves a score by at most 1. With q = sum L^2, between n_L and n_L^2, the left side's part
    q / n_L turns into (q - 2 L_c + 1) / (n_L - 1) for some L_c between 1 and sqrt(q): by (q - n_L) / (n_L (n_L - 1))
    at most, and by no less than it falls where q = n_L^2.
    """
    node, n_left, square, along, inside = tables
    least = max(growth.min_leaf, 1)
    n_right = nodes.counts.sum(axis=1)[node] - n_left
    with np.errstate(divide="ignore", invalid="ignore"):
        score = square / n_left + ((nodes.counts**2).sum(axis=1)[node] - 2 * along + square) / n_right
    fewer, more = np.minimum(n_left, n_right), np.maximum(n_left, n_right)
    score[inside | (fewer < least) | (more == least)] = -1
    np.maximum.at(reached, node, np.where(fewer > least, score - 1, 0).max(axis=0))
    return tuple(np.nonzero((score > 0) & (score + 1 >= reached[node] * (1 - SLACK))))
