"""The cells of two ensembles: between neighbouring thresholds of both nothing changes, so a box has finitely many."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privgate.families.over_all_queries.reach import Reach
from privgate.families.trees.ensemble import Ensemble, Float, Index, Whole


@dataclass(frozen=True, eq=False)
class Grid:
    """Every feature's cells, 0 .. count: cell c lies above ``cuts[c - 1]`` and reaches up to ``cuts[c]``, inclusive.

    Parameters
    ----------
    cuts : tuple of float64 arrays
        Ascending, one array a feature.
    high : float64 array of shape (d,)
        Where the last cells end; infinite without a declared domain.
    largest : float
        Finite number that a question may hold; beyond a cut of that size there is infinity alone.
    """

    cuts: tuple[Float, ...]
    high: Float
    largest: float

    @property
    def last(self) -> Index:
        """Last cell of every feature, shape (d,)."""
        return np.array([len(c) for c in self.cuts], dtype=np.int64)

    def question(self, cell: Index) -> Float:
        """Return the largest question of a cell, shape (d,)."""
        made = np.empty(len(self.cuts))
        for f, (cuts, c) in enumerate(zip(self.cuts, cell.tolist(), strict=True)):
            if c < len(cuts):
                made[f] = cuts[c]
            elif np.isfinite(self.high[f]):
                made[f] = self.high[f]
            elif not len(cuts):
                made[f] = 0.0
            elif cuts[-1] >= self.largest:
                made[f] = np.inf
            else:
                made[f] = min(cuts[-1] + max(1.0, abs(cuts[-1])), self.largest)
        return made


def reach_of(reach: Reach | None, n_features: int, *, cast: bool) -> tuple[Float, Float, bool]:
    """Return (low, high, whole numbers only) of the questions as the trees see them; everything where none is declared.

    Rounding to single precision moves the ends of the box, which is widened to where they go.
    """
    low, high = np.full(n_features, -np.inf), np.full(n_features, np.inf)
    if reach is None:
        return low, high, False
    if reach.low is not None and reach.high is not None:
        low, high = reach.low.astype(np.float64), reach.high.astype(np.float64)
    if reach.length is not None or reach.norm is not None:
        low = np.maximum(low, 0.0)
        longest = min(v for v in (reach.length, reach.norm) if v is not None) * (1 + 1e-9)
        high = np.minimum(high, longest)
    if cast:
        with np.errstate(over="ignore"):
            low = np.minimum(low, low.astype(np.float32).astype(np.float64))
            high = np.maximum(high, high.astype(np.float32).astype(np.float64))
    return low, high, reach.whole and bool((high < 2**24).all())


def doubled(low: Float, high: Float, missing: NDArray[np.bool_]) -> tuple[Float, Float]:
    """Return the ends of twice the features, the second half for whether one is missing."""
    return np.append(low, np.zeros(len(low))), np.append(high, missing.astype(np.float64))


def grid_of(ensembles: tuple[Ensemble, ...], low: Float, high: Float, *, whole: bool) -> tuple[Grid, tuple[Whole, ...]]:
    """Return the cells that thresholds of all ensembles cut a box into, and the last cell left of each node's cut.

    Parameters
    ----------
    ensembles : tuple of Ensemble
    low, high : float64 arrays of shape (d,)
    whole : bool
        Whether questions are whole numbers: thresholds with none between them are one.

    Returns
    -------
    Grid
    tuple of int32 arrays, one an ensemble, of shape (N,)
        Cells up to this one go left; -1 where none does.
    """
    feature = np.concatenate([e.feature for e in ensembles]).astype(np.int64)
    inner = np.flatnonzero(feature >= 0)
    cut = np.concatenate([e.cut for e in ensembles])
    cut = np.floor(cut) if whole else cut
    order = inner[np.lexsort((cut[inner], feature[inner]))]
    f, c = feature[order], cut[order]
    # the largest double stands for a cut that infinity does not exceed either: beyond it there is no cell
    largest = float(np.finfo(np.float64).max)
    inside = (c >= low[f]) & (c < np.minimum(high[f], largest))
    largest = float(np.finfo(np.float32).max) if ensembles[0].cast else largest
    new = inside.copy()
    new[1:] &= ~((f[1:] == f[:-1]) & (c[1:] == c[:-1]))
    d = len(low)
    count = np.bincount(f[new], minlength=d)
    first = np.append(0, np.cumsum(count))
    code = np.cumsum(new) - 1 - first[f]
    code = np.where(c < low[f], -1, np.where(inside, code, count[f]))
    of_node = np.full(len(feature), -1, dtype=np.int32)
    of_node[order] = code
    edges = np.cumsum([len(e.feature) for e in ensembles])[:-1]
    cuts = np.split(c[new], first[1:-1])
    return Grid(tuple(cuts), high, largest), tuple(np.split(of_node, edges))


@dataclass(frozen=True, eq=False)
class Leaves:
    """Where leaves of a tree of one ensemble and of its partner meet, ascending by tree.

    Parameters
    ----------
    tree : int64 array of shape (L,)
    low, high : int32 arrays of shape (L, d)
        First and last cell of every feature.
    one, other : int64 arrays of shape (L,)
        The nodes of both ensembles.
    """

    tree: Index
    low: Whole
    high: Whole
    one: Index
    other: Index


def joint(one: Ensemble, other: Ensemble, codes: tuple[Whole, Whole], last: Index) -> Leaves:
    """Return the common leaves of tree t of one ensemble and tree t of the other, for every t; both have as many.

    All trees go down at once: first along one ensemble's tree, then along the other's, keeping what cells are left.
    """
    node = [one.start[:-1].astype(np.int64), other.start[:-1].astype(np.int64)]
    tree = np.arange(one.trees)
    low = np.zeros((len(tree), len(last)), dtype=np.int32)
    high = np.repeat(last.astype(np.int32)[None], len(tree), axis=0)

    for k, (ensemble, code) in enumerate(zip((one, other), codes, strict=True)):
        ended: list[tuple[Index, Whole, Whole, Index, Index]] = []
        while len(tree):
            at_leaf = ensemble.feature[node[k]] < 0
            ended.append((tree[at_leaf], low[at_leaf], high[at_leaf], node[0][at_leaf], node[1][at_leaf]))
            go = np.flatnonzero(~at_leaf)
            here = node[k][go]
            f, c = ensemble.feature[here], code[here]
            a, b = low[go, f], high[go, f]
            to_left, to_right = np.flatnonzero(a <= c), np.flatnonzero(b > c)
            kept = np.concatenate([go[to_left], go[to_right]])
            tree, low, high = tree[kept], low[kept], high[kept]
            node = [n[kept] for n in node]
            node[k] = np.concatenate([ensemble.left[here[to_left]], ensemble.right[here[to_right]]]).astype(np.int64)
            n = len(to_left)
            high[np.arange(n), f[to_left]] = np.minimum(b[to_left], c[to_left])
            low[np.arange(n, len(kept)), f[to_right]] = np.maximum(a[to_right], c[to_right] + 1)
        tree, low, high, first, second = (np.concatenate(p) for p in zip(*ended, strict=True))
        node = [first, second]
    order = np.argsort(tree, kind="stable")
    return Leaves(tree[order], low[order], high[order], node[0][order], node[1][order])
