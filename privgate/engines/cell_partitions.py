"""Partitions for the kernel's cells: best first, cut where the smaller of both sides' losses is largest.

What is found here may be any partition. The kernel bounds each of its boxes by itself.
"""

import heapq
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.kernel import Case
from privgate.kernel.cells import Ensembles, Twins, box_of, scores_of, twins_of, value_of

Float = NDArray[np.float64]
Index = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Effort:
    """How long is searched: boxes an objective, and sums below which no box is cut any more."""

    boxes: int = 100
    enough: float = -np.inf


def proposed(case: Case, effort: Effort, limit: float = 1.0) -> Case:
    """Return the case with a partition for each person and objective; ``limit`` is where means are compared, nats."""
    all_, box, link = Ensembles.of(case), box_of(case), case.setting("link", str)
    whole, people = all_.leaves(0, box), len(all_.model) - 2
    starts, features, cuts, ratios = [0], list[Index](), list[Float](), list[list[float]]()
    for person in range(people):
        twins = twins_of(all_, person, whole, box, averages=link == "mean")
        told = list[float]()
        for value in objectives(case, all_, twins, limit):
            ratio, one = value if isinstance(value, tuple) else (1.0, value)
            feature, cut = partition(twins, one, box, effort)
            features, cuts, told = [*features, feature], [*cuts, cut], [*told, ratio]
            starts.append(starts[-1] + len(feature))
        ratios.append(told)
    made: Mapping[str, Any] = {
        "partition_start": np.array(starts, dtype=np.int64),
        "partition": np.concatenate(features),
        "cuts": np.concatenate(cuts),
    }
    more = {"ratio": np.array(ratios)} if link == "mean" else {}
    return Case(case.family, case.asked, case.settings, {**case.arrays, **made, **more})


def objectives(case: Case, all_: Ensembles, twins: Twins, limit: float) -> list[Any]:
    """Return what each pair of leaves adds to each objective, in the kernel's order; beside a ratio for means."""
    if case.setting("link", str) == "mean":
        found, labels = [], all_.value.shape[1]
        for k in range(2 * labels):
            p, q = (value_of(all_, n, k // 2) for n in (twins.one, twins.other)[:: 1 if k % 2 == 0 else -1])
            found.append((float(np.exp(limit)), p - np.exp(limit) * q))
        return found
    group, change = scores_of(all_, twins), value_of(all_, twins.one) - value_of(all_, twins.other)
    if (classes := all_.base.shape[1]) == 1:
        return [change, -change]
    pairs = [(g, h) for g in range(classes) for h in range(classes) if g != h]
    return [np.where(group == g, change, np.where(group == h, -change, 0.0)) for g, h in pairs]


def partition(twins: Twins, value: Float, box: Float, effort: Effort) -> tuple[Index, Float]:
    """Return (feature, cut) of each node of a partition in preorder; -1 is a box."""
    search = _Search(twins, value, box)
    todo = [(-search.upper(search.all_boxes()), 0)]
    while todo and len(search.nodes) < 2 * effort.boxes and -todo[0][0] > effort.enough:
        at = heapq.heappop(todo)[1]
        for child in search.split(at):
            heapq.heappush(todo, (-search.upper(child), child))
    return search.preorder()


class _Search:
    """A growing partition, in cells: between two neighbouring ends of leaves nothing changes."""

    def __init__(self, twins: Twins, value: Float, box: Float) -> None:
        self.ends = [np.unique(twins.high[:, f][twins.high[:, f] < box[1, f]]) for f in range(box.shape[1])]
        edges = np.flatnonzero(np.diff(twins.tree, prepend=-1))
        same = np.minimum.reduceat(value, edges) == np.maximum.reduceat(value, edges)
        live = ~np.repeat(same, np.diff(np.append(edges, len(value))))  # trees that agree everywhere need no cut
        self.base = float(value[edges[same]].sum())
        self.tree = np.unique(twins.tree[live], return_inverse=True)[1]
        columns = range(box.shape[1])
        self.low = np.column_stack([np.searchsorted(self.ends[f], twins.low[live, f]) for f in columns])
        self.high = np.column_stack([np.searchsorted(self.ends[f], twins.high[live, f]) for f in columns])
        self.value, self.trees = value[live], int(self.tree.max(initial=-1)) + 1
        last = np.array([len(e) for e in self.ends], dtype=np.int64)
        self.boxes = [(np.zeros(len(last), dtype=np.int64), last, np.arange(len(self.value)))]
        self.nodes: list[tuple[int, float, int, int]] = [(-1, 0.0, -1, -1)]

    def all_boxes(self) -> int:
        """Return the node that holds every question."""
        return 0

    def upper(self, at: int) -> float:
        """Return the sum of every tree's largest pair in the box of a node."""
        near = self.boxes[at][2]
        top = np.full(self.trees, -np.inf)
        np.maximum.at(top, self.tree[near], self.value[near])
        return self.base + float(top.sum())

    def split(self, at: int) -> list[int]:
        """Cut the box of a node where it pays most, and return its two sides; none where nothing changes in it."""
        a, b, near = self.boxes[at]
        f, c = self._cut(a, b, near)
        if f < 0:
            return []
        left, right = b.copy(), a.copy()
        left[f], right[f] = c, c + 1
        first = len(self.nodes)
        self.nodes[at] = (f, float(self.ends[f][c]), first, first + 1)
        self.nodes += [(-1, 0.0, -1, -1)] * 2
        self.boxes += [(a, left, near[self.low[near, f] <= c]), (right, b, near[self.high[near, f] > c])]
        return [first, first + 1]

    def _cut(self, a: Index, b: Index, near: Index) -> tuple[int, int]:
        tree, value, found, best = self.tree[near], self.value[near], (-1, 0), -1.0
        top = np.full(self.trees, -np.inf)
        np.maximum.at(top, tree, value)
        for f in np.flatnonzero(b > a).tolist():
            low, high = np.maximum(self.low[near, f], a[f]) - a[f], np.minimum(self.high[near, f], b[f]) - a[f]
            n = int(b[f] - a[f])
            if not ((low > 0) | (high < n)).any():
                continue
            before, after = (np.full((self.trees, n + 1), -np.inf) for _ in range(2))
            np.maximum.at(before, (tree, low), value)
            np.maximum.at(after, (tree, high), value)
            before = np.maximum.accumulate(before, axis=1)[:, :n]
            after = np.maximum.accumulate(after[:, ::-1], axis=1)[:, ::-1][:, 1:]
            left, right = (top[:, None] - before).sum(axis=0), (top[:, None] - after).sum(axis=0)
            gain = 20 * np.minimum(left, right) + left + right
            c = int(gain.argmax())
            if gain[c] > best:
                found, best = (f, int(a[f]) + c), float(gain[c])
        return found

    def preorder(self) -> tuple[Index, Float]:
        """Return the partition as the kernel reads it."""
        todo, feature, cut = [0], list[int](), list[float]()
        while todo:
            f, c, left, right = self.nodes[todo.pop()]
            feature, cut = [*feature, f], [*cut, c]
            todo += [right, left] if f >= 0 else []
        return np.array(feature, dtype=np.int64), np.array(cut)


def case_of(ensembles: list[Any], box: Float) -> Case:
    """Return the case, without partitions, of ensembles as ``families.trees.ensemble`` holds them.

    Parameters
    ----------
    ensembles : list of Ensemble
        The one with everybody, then each without a person.
    box : float64 array of shape (2, d)
        Accepted questions; twice the features where values may be missing.
    """
    first, nodes = ensembles[0], np.cumsum([0, *(len(e.feature) for e in ensembles)])
    roots = [e.start[:-1].astype(np.int64) + at for e, at in zip(ensembles, nodes, strict=False)]

    def moved(name: str) -> Index:
        return np.concatenate([getattr(e, name).astype(np.int64) + at for e, at in zip(ensembles, nodes, strict=False)])

    arrays = {
        "feature": np.concatenate([e.feature.astype(np.int64) for e in ensembles]),
        "cut": np.concatenate([e.cut for e in ensembles]).astype(np.float64),
        "left": moved("left"),
        "right": moved("right"),
        "value": np.concatenate([e.value for e in ensembles]).astype(np.float64),
        "tree": np.append(np.concatenate(roots), nodes[-1]),
        "model": np.cumsum([0, *(e.trees for e in ensembles)]),
        "group": np.concatenate([e.group.astype(np.int64) for e in ensembles]),
        "base": np.array([e.base for e in ensembles]),
        "box": np.asarray(box, dtype=np.float64),
    }
    settings = {"link": first.link, "scale": float(first.scale), "single": bool(first.single), "cast": bool(first.cast)}
    settings |= {"base_off": max(float(e.base_error) for e in ensembles)}
    settings |= {"floor": float(first.floor)} if first.link == "mean" else {}
    return Case("cells", "any", settings, arrays)
