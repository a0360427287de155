"""Records without whom a node would have another split: its scores without one depend on class, weight and side only.

So all records of one class and weight are tried at once at every other split, and whom it would pass the best one
without are those up to the largest such split and those beyond the smallest.
"""

from dataclasses import dataclass

import numpy as np

from privgate.models.splitting import TABLE, WEIGHT, Bool, Cells, Entries, Float, Index, gini

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
