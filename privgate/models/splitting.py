"""All splits of the nodes of a level, and the best of each.

A split lies halfway between neighbouring values of a node's records. Of all of them the first of least Gini impurity is
taken, features in the order in which a node draws them, values ascending.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privgate.arrays import Bool, Float, Index

Hash = NDArray[np.uint64]

#: bits of a weight: those of Poisson(1) end at 17
WEIGHT = 5
#: bits of a number that can be sorted
_BITS = 63
#: entries of the largest temporary table: what a core has at hand
TABLE = 300_000


@dataclass(frozen=True, eq=False)
class Values:
    """A table of numbers as places in the list of each column's distinct values, ascending, one column after the other.

    Parameters
    ----------
    code : int64 array of shape (n, d)
    value : float64 array
    """

    code: Index
    value: Float

    @classmethod
    def of(cls, X: Float) -> "Values":
        """Return a table's values."""
        code, value, first = np.empty(X.shape, dtype=np.int64), [np.zeros(0)], 0
        for j in range(X.shape[1]):
            found, place = np.unique(X[:, j] + 0.0, return_inverse=True)  # -0 and 0 are one number
            code[:, j] = first + place
            value.append(found)
            first += len(found)
        return cls(code, np.concatenate(value))

    def between(self, low: Index, high: Index) -> Float:
        """Return a number from each low value on and below the high one, halfway where there is one."""
        a, b = self.value[low], self.value[high]
        half = a / 2 + b / 2
        return np.where((half >= a) & (half < b), half, a)


@dataclass(frozen=True, eq=False)
class Entries:
    """Records in nodes.

    Parameters
    ----------
    node, y, weight : int64 arrays of shape (E,)
    code : int64 array of shape (E, m)
        Of the features that the node looks at.
    """

    node: Index
    y: Index
    weight: Index
    code: Index

    def only(self, some: Index) -> "Entries":
        """Return some of them."""
        return Entries(self.node[some], self.y[some], self.weight[some], self.code[some])


@dataclass(frozen=True, eq=False)
class Cells:
    """The distinct values that nodes hold of their features: a split is behind each that is not a feature's last.

    Parameters
    ----------
    node, slot, code : int64 arrays of shape (C,)
        Whose value of which of the node's features; ascending in this order.
    entries : int64 array of shape (C,)
        Records that have it.
    sides : float64 array of shape (2, K, C)
        Whole numbers: weights of each class up to this value, and beyond it.
    sums, squares : float64 arrays of shape (2, C)
        Of a side's weights.
    score : float64 array of shape (C,)
        -1 where no split is allowed.
    least : int
        Weight on either side of a split.
    """

    node: Index
    slot: Index
    code: Index
    entries: Index
    sides: Float
    sums: Float
    squares: Float
    score: Float
    least: int

    @classmethod
    def of(cls, entries: Entries, counts: Index, least: int) -> "Cells":
        """Return the cells of nodes whose classes weigh ``counts``, shape (N, K).

        Raises
        ------
        ValueError
            A node, feature, value, class and weight are no number of 63 bits.
        """
        m, (N, K) = entries.code.shape[1], counts.shape
        bits, classes = int(entries.code.max(initial=0)).bit_length(), int(K - 1).bit_length()
        if (N * m).bit_length() + bits + classes + WEIGHT > _BITS:
            raise ValueError(f"KeyedForest cannot grow on a table of so many numbers and {K} classes")
        # numbers that hold all there is to know are sorted far quicker than places are
        key = (entries.node[:, None] * m + np.arange(m)) << bits | entries.code
        key = np.sort((key << classes | entries.y[:, None]) << WEIGHT | entries.weight[:, None], axis=None)
        own = key >> (WEIGHT + classes)
        begins = np.flatnonzero(np.diff(own, prepend=-1))
        many, C = lengths(begins, len(own)), len(begins)
        y = (key >> WEIGHT) & ((1 << classes) - 1)
        table = np.bincount(y * C + np.repeat(np.arange(C), many), key & ((1 << WEIGHT) - 1), K * C).reshape(K, C)
        segment, code = own[begins] >> bits, own[begins] & ((1 << bits) - 1)
        node = segment // m
        first = np.flatnonzero(np.diff(segment, prepend=-1))
        sides = np.empty((2, K, C))
        table.cumsum(axis=1, out=sides[0])
        sides[0] -= np.repeat(sides[0][:, first] - table[:, first], lengths(first, C), axis=1)
        np.subtract(np.take(counts.T, node, axis=1), sides[0], out=sides[1])
        sums, squares = sides.sum(axis=1), np.einsum("skc,skc->sc", sides, sides)
        return cls(node, segment % m, code, many, sides, sums, squares, gini(sums, squares, least), least)

    def best(self, nodes: int) -> Index:
        """Return the first cell of the best score of every node, -1 where no split is allowed."""
        begins = np.flatnonzero(np.diff(self.node, prepend=-1))
        top = np.repeat(np.maximum.reduceat(self.score, begins), lengths(begins, len(self.node)))
        found = np.flatnonzero((self.score == top) & (top >= 0))[::-1]
        best = np.full(nodes, -1)
        best[self.node[found]] = found  # the first is written last
        return best


def lengths(begins: Index, end: int) -> Index:
    """Return how long each run is."""
    return np.diff(np.append(begins, end))


def gini(sums: Float, squares: Float, least: int) -> Float:
    """Return sum L^2 / n_L + sum R^2 / n_R, largest where the weighted Gini impurity is smallest; -1 where no split."""
    fine = (sums[0] >= max(1, least)) & (sums[1] >= max(1, least))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(fine, squares[0] / sums[0] + squares[1] / sums[1], -1.0)


# Records without whom a node would have another split: its scores without one depend on class, weight and side only.
#
# So all records of one class and weight are tried at once at every other split, and whom it would pass the best one
# without are those up to the largest such split and those beyond the smallest.

#: scores that differ by this more than they could move do not change places by rounding
_ROUNDING = 0.01


@dataclass(frozen=True, eq=False)
class _Kinds:
    """Records of one class and weight in a node."""

    node: Index
    y: Index
    weight: Float
    of: Index  # each record's

    @classmethod
    def among(cls, records: Entries, K: int) -> "_Kinds":
        kind, of = np.unique((records.node * K + records.y) << WEIGHT | records.weight, return_inverse=True)
        place = kind >> WEIGHT
        return cls(place // K, place % K, (kind & ((1 << WEIGHT) - 1)).astype(np.float64), of)

    def scores(self, kind: Index, cells: Cells, cell: Index, side: int) -> Float:
        """Return the scores of cells without a record of a kind up to the split (side 0) or beyond it (side 1)."""
        w = self.weight[kind]
        sums, squares = cells.sums[:, cell], cells.squares[:, cell]
        sums[side] -= w
        squares[side] -= w * (2 * cells.sides[side, self.y[kind], cell] - w)
        return gini(sums, squares, cells.least)


def moved(cells: Cells, best: Index, records: Entries) -> Bool:
    """Return the records without whom their node has another split, or none.

    Parameters
    ----------
    cells : Cells
    best : int64 array of shape (N,)
        Each node's cell, from 0 on where a record is.
    records : Entries
    """
    chosen, code = best[records.node], records.code
    own = code[np.arange(len(chosen)), cells.slot[chosen]]
    side = (own > cells.code[chosen]).astype(np.int64)
    # the number halfway is another one without the only record of either value
    gone = (own == cells.code[chosen + side]) & (cells.entries[chosen + side] == 1)
    kinds = _Kinds.among(records, cells.sides.shape[1])
    every = np.arange(len(kinds.node))
    without = np.stack([kinds.scores(every, cells, best[kinds.node], s) for s in (0, 1)])
    low, high = _reach(cells, best, kinds, without, code.shape[1])
    at = side, kinds.of
    return np.asarray(gone | (without[at] < 0) | ((code <= low[at]) | (code > high[at])).any(axis=1))


def _reach(cells: Cells, best: Index, kinds: _Kinds, without: Float, m: int) -> tuple[Index, Index]:
    """Return, by side of the best split, kind and feature, up to which code and beyond which one records move it."""
    shape = 2, len(kinds.node), m
    low, high = np.full(shape, -1), np.full(shape, np.iinfo(np.int64).max)
    begins = np.searchsorted(kinds.node, np.arange(len(best) + 1))
    cell = _near(cells, best, kinds)
    many = np.diff(begins)[cells.node[cell]]
    for some in np.split(np.arange(len(cell)), np.flatnonzero(np.diff(np.cumsum(many) // TABLE)) + 1):
        c = np.repeat(cell[some], many[some])
        kind = np.arange(len(c)) + np.repeat(
            begins[cells.node[cell[some]]] - np.cumsum(many[some]) + many[some], many[some]
        )
        first = c < best[cells.node[c]]  # goes before the best where both are as good
        for there, reach, end in ((0, low, np.maximum), (1, high, np.minimum)):
            score = kinds.scores(kind, cells, c, there)
            for side in (0, 1):
                passes = np.flatnonzero((score > without[side, kind]) | (first & (score == without[side, kind])))
                end.at(reach[side], (kind[passes], cells.slot[c[passes]]), cells.code[c[passes]])
    return low, high


def _near(cells: Cells, best: Index, kinds: _Kinds) -> Index:
    """Return the other cells that could pass the best: a score moves by the weight that leaves, at most.

    s(v) = sum v^2 / n, n the sum of a side's weights v, is convex and homogeneous: s(v) <= s(v - w e) + s(w e), and
    s(w e) = w; and down a coordinate its slope, s / n - 2 v_c / n, is at most 1 all the way.
    """
    weight = np.zeros(len(best))
    np.maximum.at(weight, kinds.node, kinds.weight)
    least = cells.score[best] - 2 * weight - _ROUNDING
    near = (cells.score >= least[cells.node]) & (cells.score >= 0) & (weight > 0)[cells.node]
    near[best] = False
    return np.flatnonzero(near)
