"""Two ensembles of trees, with and without each person: no question is answered farther apart than a limit.

Claim.  Both ensembles are constant on boxes. Between the two, no accepted question changes any label's log-probability
by more than ``high``.

Certificate.  For each person and each objective below a partition: a binary tree of cuts of the accepted box. It may be
any; whoever searched for it is not believed. For means also a ratio for each objective.

Why it is enough.  Every question lies in one of the partition's boxes. In a box, each tree of the one ensemble and its
twin of the other together add at most the largest sum of two leaves that meet there and each other. The sum over trees
bounds the objective in the box, the largest box bounds it everywhere. A bad partition gives a large number.

Objectives (docs/mathematics.md, section 13).  Scores s and s' of the two models, C classes:

- logistic: ``s - s'`` and ``s' - s`` times the link's scale: the change of the log-odds bounds every label's; and ``s``
  and ``s'``, from whose size on a released probability loses its digits;
- softmax: ``(s_a - s'_a) - (s_b - s'_b)`` for each ordered pair of classes: Lemma 0;
- mean of distributions with a floor, alpha = floor x trees, for each label and both directions: where
  ``sum p - r sum q + alpha (1 - r) <= E`` everywhere, the ratio is at most ``r + E / alpha``, or for negative E
  ``r + E / (trees + alpha)``; any r > 0 serves.

Axioms.  The arrays are the library's trees: a question goes left where, as the library holds it, it is at most the
cut: infinity does so at an infinite cut and at no finite one; sums are computed in double or, ``single``, in single
precision, in any order (``rounding``); of two probabilities the library computes one and releases 1 - p
(``_of_logistic``). Questions may be rounded to single precision before they are compared where ``cast`` says so;
rounding is monotone, so that the box reaches to its rounded ends. ``whole``: every question is a vector of whole
numbers, which rounding leaves whole, so that a cut says what the whole number below it does.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from privgate.kernel.assertion import Case, Float, Index, Limits, Refused, every
from privgate.kernel.rounding import EPS, of_logarithm, up

#: unit roundoff of single precision
SINGLE = 2.0**-24
#: scores from which on a logistic function's small side is not held in full, in double and in single precision
DEEPEST = {False: 700.0, True: 80.0}
#: questions on the way to a leaf; more are a circle
_DEEPEST = 10_000
#: pairs of leaves of all trees together; a person with more is not limited
MOST = 1_000_000


@dataclass(frozen=True, eq=False)
class Ensembles:
    """All models of a case, the one with everybody first.

    ``feature`` (N,) is -1 at a leaf; ``left`` and ``right`` (N,) are nodes; ``value`` (N, V); ``tree`` (T + 1,) says
    where each tree's nodes begin, its root first, ``model`` (M + 1,) where each model's trees begin; ``group`` (T,)
    which score a tree adds to; ``base`` (M, G) what scores begin with.
    """

    feature: Index
    cut: Float
    left: Index
    right: Index
    value: Float
    tree: Index
    model: Index
    group: Index
    base: Float

    @classmethod
    def of(cls, case: Case) -> "Ensembles":
        """Return the ensembles of a case, every array looked at."""
        of_nodes = {k: case.array(k, 1, "i") for k in ("feature", "left", "right", "tree", "model", "group")}
        cut = case.array("cut", 1)
        cut = np.floor(cut) if case.setting("whole", bool, default=False) else cut
        made = cls(cut=cut, value=case.array("value", 2), base=case.array("base", 2), **of_nodes)
        n, trees = len(made.feature), len(made.tree) - 1
        inner = made.feature >= 0
        starts = (made.tree, n), (made.model, trees)
        every(
            (all(len(a) == n for a in (made.cut, made.left, made.right, made.value)), "nodes differ in number"),
            (all(len(s) > 1 and s[0] == 0 and s[-1] == m and (np.diff(s) > 0).all() for s, m in starts), "no trees"),
            (len(made.group) == trees and len(made.base) == len(made.model) - 1, "trees or models differ in number"),
            (bool(np.isfinite(made.value).all()), "a number is not finite"),
            (bool(np.isfinite(made.base).all()), "a base score is not finite"),
        )
        for child in (made.left, made.right):
            every((bool(((child >= 0) & (child < n))[inner].all()), "a node's child is not there"))
        every((bool((made.group >= 0).all() and (made.group < max(1, made.base.shape[1])).all()), "a group is unknown"))
        return made

    def leaves(self, model: int, box: Float) -> tuple[Float, Float, Index, Index]:
        """Return the least and largest question (L, d) of each leaf of a model, its tree's number, and its node."""
        roots = self.tree[self.model[model] : self.model[model + 1]]
        node, tree = roots.copy(), np.arange(len(roots))
        low, high = (np.repeat(side[None], len(roots), axis=0) for side in box)
        done: list[tuple[Float, Float, Index, Index]] = []
        for _ in range(_DEEPEST):
            if not len(node):
                break
            leaf = self.feature[node] < 0
            done.append((low[leaf], high[leaf], tree[leaf], node[leaf]))
            low, high, tree, node = low[~leaf], high[~leaf], tree[~leaf], node[~leaf]
            f, c, row = self.feature[node], self.cut[node], np.arange(len(node))
            every((not len(f) or int(f.max()) < box.shape[1], "a tree asks about a feature that no question has"))
            left, right = high.copy(), low.copy()
            left[row, f] = np.minimum(high[row, f], c)
            right[row, f] = np.maximum(low[row, f], np.nextafter(c, np.inf))
            goes = np.concatenate([low[row, f] <= c, high[row, f] > c])
            low, high = np.concatenate([low, right])[goes], np.concatenate([left, high])[goes]
            tree = np.tile(tree, 2)[goes]
            node = np.concatenate([self.left[node], self.right[node]])[goes]
            every((len(node) <= MOST, "a model has too many leaves"))
        else:
            raise Refused("a tree is a circle, or too deep")
        low, high, tree, node = (np.concatenate(part) for part in zip(*done, strict=True))
        order = np.argsort(tree, kind="stable")
        return low[order], high[order], tree[order], node[order]


@dataclass(frozen=True, eq=False)
class Twins:
    """Where leaves of each tree and of its twin meet: least and largest question (J, d), tree (J,), and both nodes."""

    low: Float
    high: Float
    tree: Index
    one: Index
    other: Index

    @classmethod
    def of(cls, one: tuple[Float, Float, Index, Index], other: tuple[Float, Float, Index, Index]) -> "Twins":
        """Return where leaves of trees of the same number meet, from what ``leaves`` says of two models."""
        parts, pairs = list[tuple[Any, ...]](), 0
        for t in range(1 + max(int(side[2].max()) for side in (one, other))):
            (a, b), (c, d) = (np.searchsorted(side[2], [t, t + 1]) for side in (one, other))
            if a == b or c == d:  # only one of them has this tree
                low, high, _, node = (v[a:b] if a < b else w[c:d] for v, w in zip(one, other, strict=True))
                none = np.full(len(node), -1)
                parts.append((low, high, none + 1 + t, *((node, none) if a < b else (none, node))))
                continue
            pairs += (b - a) * (d - c)
            every((pairs <= 16 * MOST, "the trees have too many pairs of leaves"))
            low = np.maximum(one[0][a:b, None], other[0][None, c:d])
            high = np.minimum(one[1][a:b, None], other[1][None, c:d])
            i, j = np.nonzero((low <= high).all(axis=2))
            parts.append((low[i, j], high[i, j], np.full(len(i), t), one[3][a:b][i], other[3][c:d][j]))
        every((sum(len(p[2]) for p in parts) <= MOST, "the trees have too many pairs of leaves"))
        return cls(*(np.concatenate(part) for part in zip(*parts, strict=True)))


@dataclass(frozen=True, eq=False)
class Objective:
    """What is bounded over all questions: the sum over trees of the value of a pair of leaves (R,), and a shift."""

    rows: Index
    value: Float
    shift: float


def bound(case: Case) -> Limits:
    """Return limits of every person; low is 0, since no model was asked."""
    every((case.asked == "any", "cells bound all questions; ask real models about single ones"))
    all_, box = Ensembles.of(case), box_of(case)
    people, objectives, whole = len(all_.model) - 2, _objectives(case, all_), all_.leaves(0, box)
    starts, cuts = case.array("partition_start", 1, "i"), (case.array("partition", 1, "i"), case.array("cuts", 1))
    every(
        (people > 0 and len(starts) == people * objectives + 1, "people, objectives and partitions differ in number"),
        (case.setting("base_off", float, 0.0) >= 0, "'base_off' is negative"),
    )
    every(
        (bool((np.diff(starts) > 0).all() and starts[0] == 0), "a partition is empty"),
        (len(cuts[0]) == len(cuts[1]) == starts[-1], "partitions and cuts differ in number"),
    )
    ratios = case.array("ratio", 2) if case.setting("link", str) == "mean" else np.ones((people, objectives))
    every(
        (ratios.shape == (people, objectives) and bool(((ratios > 0) & (ratios < np.inf)).all()), "ratios are missing")
    )
    high = np.full(people, np.inf)
    for person in range(people):
        edges = starts[person * objectives : (person + 1) * objectives + 1].tolist()
        try:
            asked = Compared.of(case, all_, person, box, whole)
            parts = [(cuts[0][a:b], cuts[1][a:b]) for a, b in pairwise(edges)]
            ends = [_largest(asked, o, p) for o, p in zip(asked.objectives(ratios[person]), parts, strict=True)]
            high[person] = asked.nats(ends, ratios[person])
        except Refused:
            continue
    return Limits(np.zeros(people), high)


def _objectives(case: Case, all_: Ensembles) -> int:
    """Return how many numbers are bounded for each person."""
    link, classes = case.setting("link", str), all_.base.shape[1]
    every(
        (link in ("logistic", "softmax", "mean") and case.setting("scale", float, 1.0) > 0, "the link is unknown"),
        (link == "mean" or all_.value.shape[1] == 1, "scores have one value a leaf"),
        (link != "logistic" or classes == 1, "a logistic link has one score"),
        (link != "softmax" or classes > 1, "a softmax has several scores"),
    )
    if link != "mean":
        return 4 if link == "logistic" else int(classes * (classes - 1))
    sums = all_.value.sum(axis=1)
    every(
        (case.setting("floor", float) > 0, "without a floor one label may be impossible"),
        (bool((all_.value >= 0).all() and (sums <= 1 + 1e-6).all()), "a leaf is no distribution"),
    )
    return 2 * int(all_.value.shape[1])


def box_of(case: Case) -> Float:
    """Return the least and the largest accepted question, as the trees see them, shape (2, d)."""
    box = case.array("box", 2)
    every((box.shape[0] == 2 and box.shape[1] > 0 and bool((box[0] <= box[1]).all()), "the box is empty"))
    if case.setting("cast", bool, default=False):  # an end may be asked for as it is, too
        near = box.astype(np.float32).astype(np.float64)
        box = np.array([np.minimum(box[0], near[0]), np.maximum(box[1], near[1])])
    return box


@dataclass(frozen=True, eq=False)
class Compared:
    """Two models, with and without one person: what is bounded, and what follows of its bounds.

    ``one`` and ``other`` (J, V): what the leaves of each pair add, 0 where a model has no such tree; ``group`` (J,):
    to which score; ``base`` (2, G): what scores begin with; ``trees`` of the larger model.
    """

    case: Case
    box: Float
    twins: Twins
    one: Float
    other: Float
    group: Index
    base: Float
    trees: int

    @classmethod
    def of(cls, case: Case, all_: Ensembles, person: int, box: Float, whole: Any) -> "Compared":
        """Return everybody's model, whose leaves are ``whole``, beside the one without a person."""
        one, other = (all_.group[all_.model[k] : all_.model[k + 1]] for k in (0, person + 1))
        common = min(len(one), len(other))
        every(
            (case.setting("link", str) != "mean" or len(one) == len(other), "means of different numbers of trees"),
            (bool((one[:common] == other[:common]).all()), "twins add to different scores"),
        )
        twins = Twins.of(whole, all_.leaves(person + 1, box))
        a, b = (np.where(n[:, None] >= 0, all_.value[n], 0.0) for n in (twins.one, twins.other))
        longer, base = max(one, other, key=len), all_.base[[0, person + 1]]
        return cls(case, box, twins, a, b, longer[twins.tree], base, len(longer))

    def objectives(self, ratios: Float) -> list[Objective]:
        """Return what is bounded, in the order of the partitions; ``ratios`` are for means only."""
        every_, classes = np.arange(len(self.group)), self.base.shape[1]
        if self.case.setting("link", str) == "mean":
            return [self._ratio(k, float(r)) for k, r in enumerate(ratios)]
        if classes == 1:
            scores = zip((self.one, self.other), self.base[:, 0].tolist(), strict=True)
            ends = [Objective(every_, v[:, 0], b + 4 * EPS * abs(b)) for v, b in scores]
            return [self._change(every_, 0, -1, 1.0), self._change(every_, 0, -1, -1.0), *ends]
        pairs = [(g, h) for g in range(classes) for h in range(classes) if g != h]
        return [self._change(np.flatnonzero((self.group == g) | (self.group == h)), g, h, 1.0) for g, h in pairs]

    def _change(self, rows: Index, g: int, h: int, sign: float) -> Objective:
        """Return how much more score g changes than score h, or than 0 where h is -1."""
        a, b, base = self.one[rows, 0], self.other[rows, 0], self.base
        signed = sign * np.where(self.group[rows] == g, 1.0, -1.0) * (a - b) + 2 * EPS * (np.abs(a) + np.abs(b))
        shift = sign * (base[0, g] - base[1, g] - (base[0, h] - base[1, h] if h >= 0 else 0.0))
        return Objective(rows, signed, float(shift + 8 * EPS * np.abs(base).sum()))

    def _ratio(self, k: int, r: float) -> Objective:
        alpha = self.case.setting("floor", float) * self.trees
        p, q = (v[:, k // 2] for v in (self.one, self.other)[:: 1 if k % 2 == 0 else -1])
        gain = p - r * q + 4 * EPS * (p + r * q)
        return Objective(np.arange(len(gain)), gain, alpha * (1 - r) + 8 * EPS * alpha * (1 + r))

    def nats(self, ends: list[float], ratios: Float) -> float:
        """Return the limit that follows of bounds of all objectives, rounding included."""
        if self.case.setting("link", str) == "mean":
            labels = self.one.shape[1]
            found = [self.logarithm(r, end) for r, end in zip(ratios.tolist(), ends, strict=True)]
            return max(found) + 2 * float(of_logarithm(16 * EPS * (self.trees + labels + 8)))
        two = self.base.shape[1] == 1
        worst = max(0.0, *(ends[:2] if two else ends))
        rounding = sum(self.rounding(k, ends[2 + k] if two else 0.0) for k in (0, 1))
        return float(up(np.array(self.case.setting("scale", float, 1.0) * worst))) + rounding

    def logarithm(self, r: float, excess: float) -> float:
        """Return the largest logarithm of a ratio of means whose excess over r is bounded; nats."""
        alpha = self.case.setting("floor", float) * self.trees
        ratio = r + (excess / alpha if excess > 0 else excess / (self.trees * (1 + 1e-6) + alpha))
        return float(np.log(max(ratio, 1.0))) + 16 * EPS

    def rounding(self, k: int, highest: float) -> float:
        """Return how far what a model releases is from exact sums, nats; ``highest`` bounds a logistic link's score."""
        single, scale = self.case.setting("single", bool, default=False), self.case.setting("scale", float, 1.0)
        unit, value, base = SINGLE if single else EPS, (self.one, self.other)[k][:, 0], self.base[k]
        tops, lows, off = np.zeros(len(base)), np.zeros(len(base)), 0.0
        for g, start in enumerate(base.tolist()):
            mine = np.flatnonzero(self.group == g)
            edges = np.flatnonzero(np.diff(self.twins.tree[mine], prepend=-1))
            top, low = (f.reduceat(value[mine], edges) if len(mine) else np.zeros(1) for f in (np.maximum, np.minimum))
            size = abs(start) + float(np.maximum(np.abs(top), np.abs(low)).sum())
            tops[g], lows[g] = start + top.sum() + 1e-9 * size, start + low.sum() - 1e-9 * size
            off = max(off, 2 * (len(edges) + 4) * unit * size)
        off = scale * (off + float(self.case.setting("base_off", float, 0.0)))
        if len(base) == 1:
            return float(_of_logistic(unit, scale * float(lows[0]), scale * highest, single=single) + off)
        spread = float(tops.max() - lows.min())
        if spread > DEEPEST[single]:
            return np.inf
        return float(of_logarithm(8 * unit * (len(base) + 8 + spread)) + 2 * off)


def _of_logistic(unit: float, lowest: float, highest: float, *, single: bool) -> float:
    """Return how far released log-probabilities are from those of exact scores between these; nats.

    The second probability errs by a few roundings of itself. The first is released as 1 - p, whose relative error is
    that of p times ``e^score``: it is 0 above a score of 16.6 in single and 36.7 in double precision.
    """
    if -lowest > DEEPEST[single] or highest > DEEPEST[single]:
        return np.inf
    share = 8 * unit * (1 + np.exp(highest)) + 8 * unit * (1 + abs(lowest))
    return float(of_logarithm(share))


def _largest(asked: Compared, given: Objective, part: tuple[Index, Float]) -> float:
    """Return an upper bound of an objective over the whole box."""
    tree, value = asked.twins.tree[given.rows], given.value
    edges = np.flatnonzero(np.diff(tree, prepend=-1))
    top = np.maximum.reduceat(value, edges) if len(edges) else np.zeros(0)
    alike = top == (np.minimum.reduceat(value, edges) if len(edges) else top)  # such a tree adds the same in every box
    live = ~np.repeat(alike, np.diff(np.append(edges, len(tree))))
    rows, tree, value, worst, size = given.rows[live], tree[live], value[live], -np.inf, float(np.abs(top).sum())
    for near in _boxes(asked.twins.low[rows].T.copy(), asked.twins.high[rows].T.copy(), asked.box, part):
        own = tree[near]
        starts = np.flatnonzero(np.diff(own, prepend=-1))
        every((len(starts) == len(top) - alike.sum(), "a tree's leaves leave a question out"))
        best = np.maximum.reduceat(value[near], starts) if len(near) else np.zeros(1)
        size, worst = max(size, float(np.abs(best).sum())), max(worst, float(best.sum()))
    every((math.isfinite(size + given.shift) and worst > -np.inf, "sums are not finite"))
    worst += float(top[alike].sum()) + given.shift
    return worst + 2 * (len(edges) + 4) * EPS * (2 * size + abs(given.shift))


def _boxes(low: Float, high: Float, box: Float, part: tuple[Index, Float]) -> Iterator[Index]:
    """Yield, of each box of a partition in preorder, the pairs of leaves that meet it; ``low`` and ``high`` (d, J)."""
    features, cuts = part[0].tolist(), part[1].tolist()
    todo, at = [(box[0].tolist(), box[1].tolist(), np.arange(low.shape[1]))], 0
    while todo:
        a, b, near = todo.pop()
        if at >= len(features):
            raise Refused("a partition ends before its boxes do")
        f, c, at = features[at], cuts[at], at + 1
        if f < 0:
            if all(x <= y for x, y in zip(a, b, strict=True)):
                yield near
            continue
        if f >= len(a):
            raise Refused("a partition cuts a feature that no question has")
        right, left = a.copy(), b.copy()
        right[f], left[f] = max(a[f], math.nextafter(c, math.inf)), min(b[f], c)
        todo.append((right, b, near[high[f][near] >= right[f]]))  # taken after the left side
        todo.append((a, left, near[low[f][near] <= left[f]]))
    if at != len(features):
        raise Refused("a partition goes on behind its boxes")
