"""The largest sum of one leaf a tree over a box of cells: best first, in two implementations with the same steps.

Values are whole numbers held as floats, small enough that every sum is exact in any order: so the compiled search and
the one in numpy take the same steps and end in the same bits.
"""

import heapq
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from privgate.families.trees.ensemble import Float, Index, Whole

#: sums are at most this many steps of the quantised values; times 21 in the choice of a cut, still exact in a double
STEPS = 2.0**46
#: numbers held for the boxes of one search
ROOM = 40_000_000


@dataclass(frozen=True, eq=False)
class Problem:
    """Maximise, over cells, the sum over trees of the value of the leaf that holds the cell.

    Parameters
    ----------
    start : int64 array of shape (T + 1,)
        Tree t has leaves ``start[t] .. start[t + 1] - 1``.
    low, high : int32 arrays of shape (L, d)
        Cells of each leaf; the leaves of one tree cover the box.
    value : float64 array of shape (L,)
        Whole numbers, rounded up.
    last : int64 array of shape (d,)
        Last cell of every feature.
    unit : float
        What a step of ``value`` is worth.
    base : float
        Added to every sum.
    """

    start: Index
    low: Whole
    high: Whole
    value: Float
    last: Index
    unit: float
    base: float


@dataclass(frozen=True, eq=False)
class Found:
    """What a search ended with.

    Parameters
    ----------
    upper : float
        No cell has a larger sum.
    attained : float
        The sum at ``cell``, not below what it is by more than a rounding of every leaf.
    cell : int64 array of shape (d,)
    nodes : int
        Boxes looked at.
    """

    upper: float
    attained: float
    cell: Index
    nodes: int


def problem(tree: Index, low: Whole, high: Whole, value: Float, last: Index) -> Problem:
    """Return the problem of leaves in ascending order of trees, without trees whose leaves are all alike."""
    if not len(tree):
        return Problem(np.zeros(1, dtype=np.int64), low, high, value, last, 1.0, 0.0)
    edges = np.flatnonzero(np.diff(tree, prepend=-1))
    size = np.diff(np.append(edges, len(tree)))
    top, bottom = np.maximum.reduceat(value, edges), np.minimum.reduceat(value, edges)
    alike = top == bottom
    base = float(np.nextafter(top[alike].sum() + len(edges) * np.finfo(np.float64).eps * np.abs(top).sum(), np.inf))
    kept = np.repeat(~alike, size)
    size, value = size[~alike], value[kept]
    whole = float(np.maximum(np.abs(top), np.abs(bottom))[~alike].sum())
    # the next power of two: dividing by it is exact
    unit = 2.0 ** np.ceil(np.log2(whole / STEPS)) if whole > 0 else 1.0
    start = np.append(0, np.cumsum(size)).astype(np.int64)
    return Problem(start, low[kept], high[kept], np.ceil(value / unit), last, float(unit), base if alike.any() else 0.0)


def maximise(given: Problem, *, nodes: int, stop: float = np.inf, slack: float = 1e-3, compiled: bool = True) -> Found:
    """Return bounds of the largest sum.

    Parameters
    ----------
    given : Problem
    nodes : int
        Boxes that may be looked at.
    stop : float
        End as soon as it is known on which side of this the maximum lies.
    slack : float
        End as soon as both bounds are this close.
    compiled : bool
        Whether numba may be used where it is installed; the answer is the same.
    """
    T, d = len(given.start) - 1, len(given.last)
    if T == 0:
        return Found(given.base, given.base, np.zeros(d, dtype=np.int64), 0)
    nodes = max(2, min(nodes, ROOM // (2 * d)))
    steps = np.floor(slack / given.unit)
    limit = np.floor((stop - given.base) / given.unit) - 1  # a step of room for the rounding of this line
    sides = (float(limit), float(limit + 2)) if np.isfinite(stop) else (-np.inf, np.inf)
    top = np.maximum.reduceat(given.value, given.start[:-1])
    bottom = np.minimum.reduceat(given.value, given.start[:-1])
    order = np.argsort(-(top - bottom), kind="stable")
    args = (given.start, given.low, given.high, given.value, given.last, order, nodes, float(steps), *sides)
    run = _compiled() if compiled else None
    upper, best, cell, seen = _search(*args) if run is None else run(*args)
    return Found(
        float(np.nextafter(upper * given.unit + given.base, np.inf)),
        float((best - T) * given.unit + given.base),
        np.asarray(cell, dtype=np.int64),
        int(seen),
    )


@cache
def _compiled() -> Any:
    """Return the search compiled by numba, or None where that is not installed."""
    try:
        from privgate.families.trees.search_compiled import search
    except ImportError:
        return None
    return search


def _search(  # noqa: PLR0917  the compiled twin takes the same
    start: Index,
    low: Whole,
    high: Whole,
    value: Float,
    last: Index,
    order: Index,
    nodes: int,
    slack: float,
    enough: float,
    beyond: float,
) -> tuple[float, float, Index, int]:
    """Return (upper, attained, cell, boxes looked at), in steps; ends clear of ``enough`` or ``beyond``."""
    T = len(start) - 1
    tree = np.repeat(np.arange(T), np.diff(start))
    first = np.zeros(len(last), dtype=np.int64)
    every = np.arange(len(value))
    best, cell = _descent(every, start, (low, high, value), order, first, last)
    upper = float(np.maximum.reduceat(value, start[:-1]).sum())
    heap = [(-upper, 0, first, last.astype(np.int64))]
    pruned, seen = -np.inf, 0
    while heap:
        top = -heap[0][0]
        if top <= best + slack or seen + 2 > nodes or top <= enough or best > beyond:
            break
        _, _, a, b = heapq.heappop(heap)
        active = np.flatnonzero(((low <= b) & (high >= a)).all(axis=1))
        f, c = _cut(tree[active], low[active], high[active], value[active], a, b, T)
        if f < 0:  # every tree has one leaf left: the descent has been here
            pruned = max(pruned, top)
            continue
        for side in (True, False):
            kept = active[(low[active, f] <= c) if side else (high[active, f] > c)]
            edges = np.searchsorted(tree[kept], np.arange(T + 1))
            bound = float(np.maximum.reduceat(value[kept], edges[:-1]).sum())
            x, z = a.copy(), b.copy()
            if side:
                z[f] = c
            else:
                x[f] = c + 1
            seen += 1
            reached, where = _descent(kept, edges, (low, high, value), order, x, z)
            if reached > best:
                best, cell = reached, where
            if bound > best + slack:
                heapq.heappush(heap, (-bound, seen, x, z))
            else:
                pruned = max(pruned, bound)
    return max(best, pruned, -heap[0][0] if heap else -np.inf), best, cell, seen


def _descent(  # noqa: PLR0917  the compiled twin takes the same
    active: Index, edges: Index, leaves: tuple[Whole, Whole, Float], order: Index, a: Index, b: Index
) -> tuple[float, Index]:
    """Return the sum at a cell reached by taking each tree's best leaf that still meets the box, and the cell."""
    low, high, value = leaves
    a, b, total = a.copy(), b.copy(), 0.0
    for t in order:
        mine = active[edges[t] : edges[t + 1]]
        fits = mine[((low[mine] <= b) & (high[mine] >= a)).all(axis=1)]
        leaf = fits[value[fits].argmax()]
        total += value[leaf]
        a, b = np.maximum(a, low[leaf]), np.minimum(b, high[leaf])
    return float(total), a


def _cut(  # noqa: PLR0917  ditto
    tree: Index, low: Whole, high: Whole, value: Float, a: Index, b: Index, T: int
) -> tuple[int, int]:
    """Return the (feature, cell) after which to cut: where the smaller of both sides' losses is largest; -1 if none."""
    top = np.full(T, -np.inf)
    np.maximum.at(top, tree, value)
    found, best = (-1, 0), -1.0
    for f in range(len(a)):
        n = int(b[f] - a[f])
        if n <= 0 or not ((low[:, f] > a[f]) | (high[:, f] < b[f])).any():
            continue
        before, after = np.full((T, n + 1), -np.inf), np.full((T, n + 1), -np.inf)
        np.maximum.at(before, (tree, np.maximum(low[:, f], a[f]) - a[f]), value)
        np.maximum.at(after, (tree, np.minimum(high[:, f], b[f]) - a[f]), value)
        before = np.maximum.accumulate(before, axis=1)[:, :n]
        after = np.maximum.accumulate(after[:, ::-1], axis=1)[:, ::-1][:, 1:]
        left, right = (top[:, None] - before).sum(axis=0), (top[:, None] - after).sum(axis=0)
        gain = 20 * np.minimum(left, right) + left + right
        c = int(gain.argmax())
        if gain[c] > best:
            found, best = (f, int(a[f]) + c), float(gain[c])
    return found
