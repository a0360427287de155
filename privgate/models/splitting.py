"""The best splits of all nodes of a level, and the records without whom a node would have another one.

A split lies halfway between neighbouring values of a node's records. Of all of them the first of least Gini impurity is
taken, features in the order in which a node draws them, values ascending; without a record the choice is the same
function of the counts that are left.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float64]
Index = NDArray[np.int64]
Bool = NDArray[np.bool_]
Hash = NDArray[np.uint64]

#: bits of a weight: those of Poisson(1) end at 17
WEIGHT = 5
#: entries of the largest temporary table
TABLE = 300_000
#: scores differ by this at least before rounding is left out of account
_ROUNDING = 0.01


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
    """

    node: Index
    slot: Index
    code: Index
    entries: Index
    sides: Float
    sums: Float
    squares: Float
    score: Float

    @classmethod
    def of(cls, code: Index, at: Index, y: Index, weight: Index, counts: Index, least: int) -> "Cells":
        """Return the cells of entries of nodes.

        Parameters
        ----------
        code : int64 array of shape (E, m)
            Of the features of each entry's node.
        at, y, weight : int64 arrays of shape (E,)
            Node, class and weight.
        counts : int64 array of shape (N, K)
        least : int
            Weight on either side.
        """
        m, (_, K) = code.shape[1], counts.shape
        bits = int(code.max(initial=0)).bit_length(), int(K - 1).bit_length()
        # numbers that hold all there is to know are sorted far quicker than places are
        key = (at[:, None] * m + np.arange(m)) << bits[0] | code
        key = np.sort((key << bits[1] | y[:, None]) << WEIGHT | weight[:, None], axis=None)
        of = key >> (WEIGHT + bits[1])
        begins = np.flatnonzero(np.diff(of, prepend=-1))
        entries, C = _lengths(begins, len(of)), len(begins)
        own = (key >> WEIGHT) & ((1 << bits[1]) - 1)
        table = np.bincount(own * C + np.repeat(np.arange(C), entries), key & ((1 << WEIGHT) - 1), K * C).reshape(K, C)
        segment = of[begins] >> bits[0]
        node = segment // m
        first = np.flatnonzero(np.diff(segment, prepend=-1))
        sides = np.empty((2, K, C))
        table.cumsum(axis=1, out=sides[0])
        sides[0] -= np.repeat(sides[0][:, first] - table[:, first], _lengths(first, C), axis=1)
        np.subtract(np.take(counts.T, node, axis=1), sides[0], out=sides[1])
        sums, squares = sides.sum(axis=1), np.einsum("skc,skc->sc", sides, sides)
        code = of[begins] & ((1 << bits[0]) - 1)
        return cls(node, segment % m, code, entries, sides, sums, squares, gini(sums, squares, least))

    def best(self, nodes: int) -> Index:
        """Return the first cell of the best score of every node, -1 where no split is allowed."""
        begins = np.flatnonzero(np.diff(self.node, prepend=-1))
        top = np.maximum.reduceat(self.score, begins)
        fine = np.flatnonzero(self.score == np.repeat(top, _lengths(begins, len(self.node))))
        best = np.full(nodes, -1)
        fine = fine[self.score[fine] >= 0][::-1]
        best[self.node[fine]] = fine  # the first is written last
        return best


def _lengths(begins: Index, end: int) -> Index:
    return np.diff(np.append(begins, end))


def gini(sums: Float, squares: Float, least: int) -> Float:
    """Return sum L^2 / n_L + sum R^2 / n_R, largest where the weighted Gini impurity is smallest; -1 where no split."""
    fine = (sums[0] >= max(1, least)) & (sums[1] >= max(1, least))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(fine, squares[0] / sums[0] + squares[1] / sums[1], -1.0)


@dataclass(frozen=True, eq=False)
class _Kinds:
    """Records of one class and weight in a node: without one of them, all scores depend on its sides only."""

    node: Index
    y: Index
    weight: Float
    of: Index  # each record's kind

    @classmethod
    def of_records(cls, node: Index, y: Index, weight: Index, K: int) -> "_Kinds":
        kind, of = np.unique((node * K + y) << WEIGHT | weight, return_inverse=True)
        own = kind >> WEIGHT
        return cls(own // K, own % K, (kind & ((1 << WEIGHT) - 1)).astype(np.float64), of)


def moved(cells: Cells, best: Index, code: Index, at: Index, y: Index, weight: Index, least: int) -> Bool:
    """Return the records without whom a node that has a split has another one, or none.

    Parameters
    ----------
    cells : Cells
    best : int64 array of shape (N,)
        Each node's cell, all from 0 on where a record is.
    code : int64 array of shape (E, m)
    at, y, weight : int64 arrays of shape (E,)
    least : int
    """
    chosen = best[at]
    own = code[np.arange(len(at)), cells.slot[chosen]]
    right = own > cells.code[chosen]
    # the number halfway is another one without the only record of either value
    alone = np.where(right, cells.entries[chosen + 1] == 1, cells.entries[chosen] == 1)
    gone = alone & (own == cells.code[chosen + right])
    kinds = _Kinds.of_records(at, y, weight, cells.sides.shape[1])
    without = np.stack([_without(cells, best[kinds.node], kinds, np.arange(len(kinds.node)), s, least) for s in (0, 1)])
    gone |= without[right.astype(np.int64), kinds.of] < 0
    low, high = _reach(cells, best, kinds, without, code.shape[1], least)
    side = right.astype(np.int64)
    return np.asarray(gone | ((code <= low[side, kinds.of]) | (code > high[side, kinds.of])).any(axis=1))


def _without(cells: Cells, cell: Index, kinds: _Kinds, kind: Index, side: int, least: int) -> Float:
    """Return the scores of cells without a record of a kind to the left (0) or right (1) of the split."""
    w = kinds.weight[kind]
    sums, squares = cells.sums[:, cell], cells.squares[:, cell]
    sums[side] -= w
    squares[side] -= w * (2 * cells.sides[side, kinds.y[kind], cell] - w)
    return gini(sums, squares, least)


def _reach(
    cells: Cells, best: Index, kinds: _Kinds, without: Float, m: int, least: int
) -> tuple[Index, Index]:
    """Return, by side of the chosen split, kind and feature, up to which code and beyond which one records move it.

    A score changes by no more than the weight that leaves, as sum L^2 / n is convex, homogeneous and has slopes
    within 1: so only splits within twice that weight of the best are looked at.
    """
    G = len(kinds.node)
    low, high = np.full((2, G, m), -1), np.full((2, G, m), np.iinfo(np.int64).max)
    heaviest = np.zeros(len(best))
    np.maximum.at(heaviest, kinds.node, kinds.weight)
    near = cells.score >= (cells.score[best] - 2 * heaviest - _ROUNDING)[cells.node]
    near &= (cells.score >= 0) & (heaviest > 0)[cells.node]
    near[best] = False
    cell = np.flatnonzero(near)
    begins = np.searchsorted(kinds.node, np.arange(len(best) + 1))
    many = np.diff(begins)[cells.node[cell]]
    for some in np.split(np.arange(len(cell)), np.flatnonzero(np.diff(np.cumsum(many) // TABLE)) + 1):
        t = np.repeat(cell[some], many[some])
        place = np.arange(len(t)) - np.repeat(np.cumsum(many[some]) - many[some], many[some])
        kind = begins[cells.node[t]] + place
        first = t < best[cells.node[t]]
        for there in (0, 1):
            score = _without(cells, t, kinds, kind, there, least)
            for side in (0, 1):
                than = without[side, kind]
                beats = np.flatnonzero((score > than) | (first & (score == than)))
                at = side, kind[beats], cells.slot[t[beats]]
                (np.maximum.at if there == 0 else np.minimum.at)(low if there == 0 else high, at, cells.code[t[beats]])
    return low, high
