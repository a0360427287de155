"""Partitions for the kernel's cells: best first, cut where the smaller of both sides' losses is largest.

What is found here may be any partition, and any question. The kernel bounds each of the partition's boxes by itself,
and real models answer the question.
"""

import heapq
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from privgate.arrays import Float, Index
from privgate.kernel import Case
from privgate.kernel.cells import Compared, Ensembles, Objective, box_of

Whole = NDArray[np.int32]
#: of pairs: place and rank; by rank: slot, feature and tree, and what is added
Table = tuple[Whole, Whole, Index, Index, Float]
#: pairs of leaves from which on nothing is searched: of sums, where most cancel, and of means
_MANY = {False: 1_000_000, True: 40_000}
#: boxes in which the largest score is looked for where the sum of every tree's largest leaf says too little, nats
_SCORES, _LITTLE = 256, 1e-3
#: ratios tried until the bounds of one meet
_TRIES = 8


@dataclass(frozen=True, slots=True)
class Effort:
    """How long is searched.

    Parameters
    ----------
    boxes : int
        Looked at for each objective.
    limit : float
        Nats: what ratios of means are compared with.
    settle : bool
        Whether a search ends as soon as it is known on which side of ``limit`` it ends.
    close : float
        Nats from what is attained to what is bounded at which a search ends.
    """

    boxes: int = 100
    limit: float = 1.0
    settle: bool = False
    close: float = 1e-3


@dataclass(frozen=True, eq=False)
class Proposal:
    """A case with partitions; for each person a change that scores attain, nats, and where; and boxes looked at."""

    case: Case
    attained: Float
    questions: Float
    boxes: int


@dataclass(frozen=True, eq=False)
class _Found:
    """A partition in preorder, a bound and what is attained, shift included, a question, and boxes looked at."""

    feature: Index
    cut: Float
    upper: float
    attained: float
    question: Float
    boxes: int


def proposed(case: Case, effort: Effort) -> Proposal:
    """Return the case with a partition for each person and objective."""
    with np.errstate(all="ignore"):
        all_, box, link = Ensembles.of(case), box_of(case), case.setting("link", str)
        whole, people = all_.leaves(0, box), len(all_.model) - 2
        attained, questions, boxes = np.zeros(people), np.zeros((people, box.shape[1])), 0
        parts, ratios = list[_Found](), list[list[float]]()
        for person in range(people):
            asked = Compared.of(case, all_, person, box, whole)
            many = len(asked.group) > _MANY[link == "mean"]
            few = Effort(1, effort.limit, settle=True) if many else effort
            found, told = _means(asked, few) if link == "mean" else (_sums(asked, few), [])
            top = max(found[: 2 if link == "logistic" else None], key=lambda f: f.attained)
            attained[person], questions[person] = 0.0 if many else max(top.attained, 0.0), top.question
            boxes += sum(f.boxes for f in found)
            parts, ratios = [*parts, *found], [*ratios, told]
    made = {
        "partition_start": np.cumsum([0, *(len(f.feature) for f in parts)]),
        "partition": np.concatenate([f.feature for f in parts]),
        "cuts": np.concatenate([f.cut for f in parts]),
        **({"ratio": np.array(ratios)} if link == "mean" else {}),
    }
    return Proposal(Case(case.family, case.asked, case.settings, {**case.arrays, **made}), attained, questions, boxes)


def _sums(asked: Compared, effort: Effort) -> list[_Found]:
    """Return partitions for sums through a link; scores attain changes in nats."""
    objectives, scale = asked.objectives(np.ones(0)), asked.case.setting("scale", float, 1.0)
    two, scores = asked.base.shape[1] == 1, list[_Found]()
    if two:
        scores = [_searched(asked, o, 1, slack=np.inf) for o in objectives[2:]]
        for k, rough in enumerate(scores):
            if asked.rounding(k, rough.upper) > _LITTLE:
                scores[k] = _searched(asked, objectives[2 + k], _SCORES, slack=0.1)
        objectives = objectives[:2]
    rounding = sum(asked.rounding(k, scores[k].upper if two else 0.0) for k in (0, 1))
    settle = effort.settle and np.isfinite(rounding)
    boxes = effort.boxes if np.isfinite(rounding) else min(effort.boxes, _SCORES)
    stop = (effort.limit - rounding) / scale if settle else np.inf
    found = list[_Found]()
    for one in objectives:
        over = any(f.attained > stop for f in found)  # what decides is found
        made = _searched(asked, one, 1 if over else boxes, stop=stop, slack=effort.close / scale)
        found.append(made)
    return [replace(f, attained=scale * f.attained) for f in found] + scores


def _means(asked: Compared, effort: Effort) -> tuple[list[_Found], list[float]]:
    """Return partitions for means of distributions, and ratios; compared is what rounding leaves of the limit."""
    same = np.ones(2 * asked.one.shape[1])
    limit = max(effort.limit - 2 * asked.nats([0.0] * len(same), same), 0.0)
    found = [_ratio(asked, effort, limit, k) for k in range(len(same))]
    return [f for f, _ in found], [r for _, r in found]


def _ratio(asked: Compared, effort: Effort, limit: float, k: int) -> tuple[_Found, float]:
    """Return a partition and a ratio for an objective: the limit's, or one next to what was attained there."""
    alpha, many = asked.case.setting("floor", float) * asked.trees, 2 * asked.one.shape[1]
    p, q = (v[:, k // 2] for v in (asked.one, asked.other)[:: 1 if k % 2 == 0 else -1])
    ratio, stop, slack = float(np.exp(limit)), 0.0 if effort.settle else np.inf, max(1e-9, effort.close * alpha)
    tried, attained, where, boxes = list[tuple[float, float, _Found]](), 0.0, np.zeros(asked.box.shape[1]), 0
    for _ in range(1 if effort.settle else _TRIES):
        made = _searched(asked, asked.objectives(np.full(many, ratio))[k], effort.boxes, stop=stop, slack=slack)
        tried.append((asked.logarithm(ratio, made.upper), ratio, made))
        here = ((asked.twins.low <= made.question) & (asked.twins.high >= made.question)).all(axis=1)
        reached = float(np.log((p[here].sum() + alpha) / (q[here].sum() + alpha)))
        stuck, boxes = reached <= attained and made.upper > 0, boxes + made.boxes
        if reached > attained:
            attained, where = reached, made.question
        upper, at, best = min(tried, key=lambda t: t[0])
        if stuck or upper - attained < effort.close:
            break
        ratio = float(np.exp(attained + min(effort.close, upper - attained) / 2))
    return replace(best, upper=upper, attained=attained, question=where, boxes=boxes), at


def _searched(asked: Compared, given: Objective, boxes: int, *, stop: float = np.inf, slack: float) -> _Found:
    """Return the partition of a search that ends when both bounds are close, or on one side of ``stop``."""
    search, settled, popped = _Search(asked, given), -np.inf, 0
    todo, best = [(-search.upper(0), 0)], search.descent(0)
    enough = stop if np.isfinite(stop) else -np.inf
    while todo and len(search.nodes) + 2 <= boxes and -todo[0][0] > max(best[0] + slack, enough) and best[0] <= stop:
        top, at = heapq.heappop(todo)
        popped += 1
        children = search.split(at)
        if not children or popped % 16 == 0 or popped & (popped - 1) == 0:
            best = max(best, search.descent(at if not children else children[0]), key=lambda found: found[0])
        settled = max(settled, -top) if not children else settled
        for child in children:
            heapq.heappush(todo, (-search.upper(child), child))
    if todo and popped:
        best = max(best, search.descent(todo[0][1]), key=lambda found: found[0])
    upper = max(settled, -todo[0][0] if todo else -np.inf)
    return _Found(*search.preorder(), upper, best[0], search.question(best[1]), len(search.nodes))


class _Search:
    """A growing partition, in cells: between two neighbouring ends of leaves nothing changes.

    A cell is known by its place among the ends of its feature, and those of all features are slots of one table.
    """

    def __init__(self, asked: Compared, given: Objective) -> None:
        tree, low, high = asked.twins.tree[given.rows], asked.twins.low[given.rows], asked.twins.high[given.rows]
        edges = np.flatnonzero(np.diff(tree, prepend=-1))
        top, least = (f.reduceat(given.value, edges) if len(edges) else edges for f in (np.maximum, np.minimum))
        live = ~np.repeat(top == least, np.diff(np.append(edges, len(tree))))  # trees alike everywhere need no cut
        self.base, self.spread = float(top[top == least].sum()) + given.shift, (top - least)[top > least]
        self.tree, self.value = np.unique(tree[live], return_inverse=True)[1], given.value[live]
        low, high, self.box, self.cast = low[live], high[live], asked.box, bool(asked.case.settings.get("cast"))
        self.ends = [np.unique(h[h < last]) for h, last in zip(high.T, asked.box[1], strict=True)]
        self.features = np.flatnonzero([len(e) for e in self.ends])
        ends = [self.ends[f] for f in self.features]
        self.low = np.array([np.searchsorted(e, low[:, f]) for e, f in zip(ends, self.features, strict=True)])
        self.high = np.array([np.searchsorted(e, high[:, f]) for e, f in zip(ends, self.features, strict=True)])
        self.low, self.high = (v.reshape(len(ends), len(self.value)).astype(np.int32) for v in (self.low, self.high))
        last = np.array([len(e) for e in ends], dtype=np.int32)
        self.apart = 2.0 * float(np.abs(self.value).max(initial=0.0)) + 1.0
        self.first = np.append(0, np.cumsum(last + 1))
        self.slot_feature = np.repeat(np.arange(len(last)), last + 1)
        self.slot_cell = np.arange(self.first[-1]) - self.first[:-1][self.slot_feature]
        # pairs of each feature by tree, then by where they begin, and by where they end, the last first
        self.begin, self.end = self._table(self.low, 1), self._table(self.high, -1)
        self.boxes = [(np.zeros_like(last), last, np.arange(len(self.value), dtype=np.int32))]
        self.nodes: list[tuple[int, float, int, int]] = [(-1, 0.0, -1, -1)]

    def _table(self, place: Whole, sign: int) -> Table:
        """Return each pair's place and rank, and by rank its slot, its feature and tree, and what it adds; all flat.

        What it adds is lifted above all of the tree before, such that one running maximum serves all trees.
        """
        rank, order = np.empty(place.shape, dtype=np.int32), np.empty(place.shape, dtype=np.int64)
        for f, row in enumerate(place):
            order[f] = np.lexsort((sign * row, self.tree))
            rank[f, order[f]] = np.arange(len(row)) + f * len(row)
        feature = np.arange(len(place))[:, None]
        group = self.tree[order] + feature * len(self.spread)
        slot = np.take_along_axis(place, order, axis=1) + self.first[:-1, None]
        lifted = self.value[order] + group * self.apart
        return place.ravel(), rank.ravel(), slot.ravel(), group.ravel(), lifted.ravel()

    def upper(self, at: int) -> float:
        """Return the sum of every tree's largest pair in the box of a node."""
        near = self.boxes[at][2]
        if not len(near):
            return self.base
        return self.base + float(np.maximum.reduceat(self.value[near], self._starts(self.tree[near])).sum())

    @staticmethod
    def _starts(tree: Index) -> Index:
        return np.append(0, (tree[1:] != tree[:-1]).nonzero()[0] + 1)

    def split(self, at: int) -> list[int]:
        """Cut the box of a node where it pays most, and return its two sides; none where nothing changes in it."""
        a, b, near = self.boxes[at]
        f, c = self._cut(a, b, near)
        if f < 0:
            return []
        left, right = b.copy(), a.copy()
        left[f], right[f] = c, c + 1
        first = len(self.nodes)
        self.nodes[at] = (int(self.features[f]), float(self.ends[self.features[f]][c]), first, first + 1)
        self.nodes += [(-1, 0.0, -1, -1)] * 2
        self.boxes += [(a, left, near[self.low[f, near] <= c]), (right, b, near[self.high[f, near] > c])]
        self.boxes[at] = (*self.boxes[at][:2], near[:0])
        return [first, first + 1]

    def _cut(self, a: Whole, b: Whole, near: Whole) -> tuple[int, int]:
        """Return (feature, cell) after which to cut; -1 where every tree has one pair left.

        A tree's largest pair among those that begin up to a cell grows with the cell: what it still lacks of the
        largest of all is the left side's loss, added up from the right; likewise from the other end.
        """
        if len(near) == len(self.spread):
            return -1, 0
        rows = np.flatnonzero(b > a)
        flat = rows[:, None] * len(self.value) + near
        starts = self._starts(self.tree[near])
        left = self._losses(self.begin, flat, near, starts, self.begin[0][flat] > a[rows, None])
        right = self._losses(self.end, flat, near, starts, self.end[0][flat] < b[rows, None])
        behind, before = np.append(np.cumsum(left[::-1])[::-1], 0.0), np.append(0.0, np.cumsum(right))
        left = behind[1:] - behind[self.first[1:]][self.slot_feature]
        right = before[1:] - before[self.first[:-1]][self.slot_feature]
        inside = (self.slot_cell >= a[self.slot_feature]) & (self.slot_cell < b[self.slot_feature])
        gain = np.where(inside, 20 * np.minimum(left, right) + left + right, -np.inf)
        c = int(gain.argmax())
        return (int(self.slot_feature[c]), int(self.slot_cell[c])) if inside[c] else (-1, 0)

    def _losses(self, table: Table, flat: Index, near: Whole, starts: Index, moves: NDArray[np.bool_]) -> Float:
        """Return, by slot, by how much trees' largest pairs grow there, over pairs that do not reach the box's end."""
        _, rank, slot, group, lifted = table
        value = self.value[near]
        fixed = np.maximum.reduceat(np.where(moves, -np.inf, value), starts, axis=1)
        f, j = moves.nonzero()
        larger = value[j] > fixed[f, self.tree[near[j]]]
        f, j = f[larger], j[larger]
        if not len(f):
            return np.zeros(len(self.slot_cell))
        place = np.sort(rank[flat[f, j]])
        own, top = group[place], np.maximum.accumulate(lifted[place])
        grown = np.empty(len(top))
        grown[1:], first = top[1:] - top[:-1], self._starts(own)
        # what a tree's first pair adds, it adds to those that reach the end
        row = np.searchsorted(flat[:, 0] // len(self.value), own[first] // len(self.spread))
        grown[first] = top[first] - own[first] * self.apart - fixed[row, own[first] % len(self.spread)]
        return np.asarray(np.bincount(slot[place], weights=grown, minlength=len(self.slot_cell)))

    def descent(self, at: int) -> tuple[float, Whole]:
        """Return the sum at a cell reached by taking each tree's best pair that still meets the box, and the cell."""
        a, b, near = self.boxes[at]
        low, high, value, tree = (
            self.low[:, near].T.copy(),
            self.high[:, near].T.copy(),
            self.value[near],
            self.tree[near],
        )
        edges, total = np.append(self._starts(tree), len(tree)), self.base
        for t in np.argsort(-self.spread, kind="stable").tolist():
            mine = slice(edges[t], edges[t + 1])
            fits = ((low[mine] <= b) & (high[mine] >= a)).all(axis=1)
            best = edges[t] + int(np.where(fits, value[mine], -np.inf).argmax())
            total += float(value[best])
            a, b = np.maximum(a, low[best]), np.minimum(b, high[best])
        return total, a

    def question(self, cell: Whole) -> Float:
        """Return the largest question of a cell."""
        high, largest = self.box[1], float(np.finfo(np.float32 if self.cast else np.float64).max)
        made = np.where(np.isfinite(high), high, np.maximum(self.box[0], 0.0))
        for f, c in zip(self.features.tolist(), cell.tolist(), strict=True):
            ends = self.ends[f]
            if c < len(ends):
                made[f] = ends[c]
            elif not np.isfinite(high[f]):
                further = min(ends[-1] + max(1.0, abs(ends[-1])), largest)
                made[f] = further if further > ends[-1] else np.inf
        return np.asarray(made)

    def preorder(self) -> tuple[Index, Float]:
        """Return the partition as the kernel reads it."""
        todo, feature, cut = [0], list[int](), list[float]()
        while todo:
            f, c, left, right = self.nodes[todo.pop()]
            feature.append(f)
            cut.append(c)
            todo += [right, left] if f >= 0 else []
        return np.array(feature, dtype=np.int64), np.array(cut)
