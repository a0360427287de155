"""Two ensembles of trees, with and without each person: no question is answered farther apart than a limit.

Claim.  Both ensembles are constant on boxes. Between the two, no accepted question changes any label's log-probability
by more than ``high``.

Certificate.  For each person and each objective below a partition: a binary tree of cuts of the accepted box. It may be
any; whoever searched for it is not believed. For means also a ratio for each objective.

Why it is enough.  Every question lies in one of the partition's boxes. In a box, each tree of the one ensemble and its
twin of the other together add at most the largest sum of two leaves that meet there and each other. The sum over trees
bounds the objective in the box, the largest box bounds it everywhere. A bad partition gives a large number.

Objectives (docs/mathematics.md, section 13).  Scores s and s' of the two models, C classes:

- logistic: ``s - s'`` and ``s' - s`` times the link's scale: the change of the log-odds bounds every label's;
- softmax: ``(s_a - s'_a) - (s_b - s'_b)`` for each ordered pair of classes: Lemma 0;
- mean of distributions with a floor, alpha = floor x trees, for each label and both directions: where
  ``sum p - r sum q + alpha (1 - r) <= E`` everywhere, the ratio is at most ``r + E / alpha``, or for negative E
  ``r + E / (trees + alpha)``; any r > 0 serves.

Axioms.  The arrays are the library's trees: a question goes left where, as the library holds it, it is at most the
cut; sums are computed in double or, ``single``, in single precision, in any order (``_of_scores``); of two
probabilities the library computes one and releases 1 - p (``_of_logistic``). Questions are rounded to single precision
before they are compared where ``cast`` says so; rounding is monotone, so that the box's ends are rounded.
"""

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
        whole = {k: case.array(k, 1, "i") for k in ("feature", "left", "right", "tree", "model", "group")}
        made = cls(cut=case.array("cut", 1), value=case.array("value", 2), base=case.array("base", 2), **whole)
        n, trees = len(made.feature), len(made.tree) - 1
        inner = made.feature >= 0
        starts = (made.tree, n), (made.model, trees)
        every(
            (all(len(a) == n for a in (made.cut, made.left, made.right, made.value)), "nodes differ in number"),
            (all(len(s) > 1 and s[0] == 0 and s[-1] == m and (np.diff(s) > 0).all() for s, m in starts), "no trees"),
            (len(made.group) == trees and len(made.base) == len(made.model) - 1, "trees or models differ in number"),
            (bool(np.isfinite(made.cut[inner]).all() and np.isfinite(made.value).all()), "a number is not finite"),
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


def bound(case: Case) -> Limits:
    """Return limits of every person; low is 0, since no model was asked."""
    every((case.asked == "any", "cells bound all questions; ask real models about single ones"))
    all_, box = Ensembles.of(case), box_of(case)
    link, scale = case.setting("link", str), case.setting("scale", float, 1.0)
    every((link in ("logistic", "softmax", "mean") and scale > 0, "the link is unknown"))
    starts, cuts = case.array("partition_start", 1, "i"), (case.array("partition", 1, "i"), case.array("cuts", 1))
    n_objectives = {"logistic": 2, "softmax": all_.base.shape[1] * (all_.base.shape[1] - 1)}
    people, objectives = len(all_.model) - 2, n_objectives.get(link, 2 * all_.value.shape[1])
    every(
        (people > 0 and len(starts) == people * objectives + 1, "people, objectives and partitions differ in number"),
        (bool((np.diff(starts) > 0).all() and starts[0] == 0), "a partition is empty"),
        (len(cuts[0]) == len(cuts[1]) == starts[-1], "partitions and cuts differ in number"),
        (link == "mean" or all_.value.shape[1] == 1, "scores have one value a leaf"),
        (link != "logistic" or all_.base.shape[1] == 1, "a logistic link has one score"),
    )
    high, whole = np.full(people, np.inf), all_.leaves(0, box)
    for person in range(people):
        edges = starts[person * objectives : (person + 1) * objectives + 1]
        parts = [(cuts[0][a:b], cuts[1][a:b]) for a, b in pairwise(edges.tolist())]
        try:
            asked = _Person(case, all_, person, twins_of(all_, person, whole, box, averages=link == "mean"), box, parts)
            high[person] = _means(asked) if link == "mean" else _scores(asked)
        except Refused:
            continue
    return Limits(np.zeros(people), high)


@dataclass(frozen=True, eq=False)
class _Person:
    """What is looked at for one person."""

    case: Case
    all_: Ensembles
    number: int
    twins: Twins
    box: Float
    parts: list[tuple[Index, Float]]


def box_of(case: Case) -> Float:
    """Return the least and the largest accepted question, as the trees see them, shape (2, d)."""
    box = case.array("box", 2)
    every((box.shape[0] == 2 and box.shape[1] > 0 and bool((box[0] <= box[1]).all()), "the box is empty"))
    if case.setting("cast", bool, default=False):
        box = box.astype(np.float32).astype(np.float64)
    return box


def twins_of(all_: Ensembles, person: int, whole: Any, box: Float, *, averages: bool) -> Twins:
    """Return where the leaves of everybody's model, ``whole``, meet those of the model without a person."""
    one, other = (all_.group[all_.model[k] : all_.model[k + 1]] for k in (0, person + 1))
    common = min(len(one), len(other))
    every(
        (not averages or len(one) == len(other), "means of different numbers of trees"),
        (bool((one[:common] == other[:common]).all()), "twins add to different scores"),
    )
    return Twins.of(whole, all_.leaves(person + 1, box))


def value_of(all_: Ensembles, nodes: Index, column: int = 0) -> Float:
    """Return what leaves add, 0 where a model has no such tree."""
    return np.where(nodes >= 0, all_.value[nodes, column], 0.0)


def scores_of(all_: Ensembles, twins: Twins) -> Index:
    """Return which score each pair of leaves adds to."""
    tree = np.searchsorted(all_.tree, np.where(twins.one >= 0, twins.one, twins.other), side="right") - 1
    return all_.group[tree]


def _scores(asked: _Person) -> float:
    """Return the limit of a logistic link or a softmax, rounding included; nats."""
    case, all_, twins = asked.case, asked.all_, asked.twins
    group, scale = scores_of(all_, twins), case.setting("scale", float, 1.0)
    a, b = value_of(all_, twins.one), value_of(all_, twins.other)
    base, G = all_.base[[0, asked.number + 1]], all_.base.shape[1]
    pairs = [(0, -1), (0, -1)] if G == 1 else [(g, h) for g in range(G) for h in range(G) if g != h]
    worst = 0.0
    for k, ((g, h), part) in enumerate(zip(pairs, asked.parts, strict=True)):
        mine = np.flatnonzero((group == g) | (group == h))
        sign = -1.0 if G == 1 and k == 1 else 1.0
        signed = sign * np.where(group[mine] == g, 1.0, -1.0) * (a[mine] - b[mine])
        signed = signed + 2 * EPS * (np.abs(a[mine]) + np.abs(b[mine]))
        shift = sign * (base[0, g] - base[1, g] - (base[0, h] - base[1, h] if h >= 0 else 0.0))
        spare = 8 * EPS * float(np.abs(base).sum())
        worst = max(worst, _largest(twins, mine, signed, asked.box, part) + shift + spare)
    rounding = sum(_rounding(case, base[k], v, twins, group) for k, v in ((0, a), (1, b)))
    return float(up(np.array(scale * worst))) + rounding


def _largest(twins: Twins, rows: Index, value: Float, box: Float, part: tuple[Index, Float]) -> float:
    """Return an upper bound of the sum over trees of the value where a question is, over the whole box."""
    worst = -np.inf
    for near in _boxes(twins.low[rows], twins.high[rows], box, part):
        tree = twins.tree[rows[near]]
        starts = np.flatnonzero(np.diff(tree, prepend=-1))
        top = np.maximum.reduceat(value[near], starts)
        worst = max(worst, float(top.sum() + 2 * len(top) * EPS * np.abs(top).sum()))
    return worst


def _boxes(low: Float, high: Float, box: Float, part: tuple[Index, Float]) -> Iterator[Index]:
    """Yield, of each box of a partition in preorder, the pairs of leaves that meet it."""
    feature, cut = part
    todo, at = [(box[0], box[1], np.arange(len(low)))], 0
    while todo:
        a, b, near = todo.pop()
        if at >= len(feature):
            raise Refused("a partition ends before its boxes do")
        f, c, at = int(feature[at]), float(cut[at]), at + 1
        if f < 0:
            if (a <= b).all():
                yield near
            continue
        if f >= len(a):
            raise Refused("a partition cuts a feature that no question has")
        right, left = _put(a, f, max(float(a[f]), float(np.nextafter(c, np.inf)))), _put(b, f, min(float(b[f]), c))
        todo.append((right, b, near[high[near, f] >= right[f]]))  # taken after the left side
        todo.append((a, left, near[low[near, f] <= left[f]]))
    if at != len(feature):
        raise Refused("a partition goes on behind its boxes")


def _put(side: Float, feature: int, number: float) -> Float:
    made = side.copy()
    made[feature] = number
    return made


def _means(asked: _Person) -> float:
    """Return the limit of means of distributions with a floor, rounding included; nats."""
    case, all_, twins = asked.case, asked.all_, asked.twins
    labels, trees = all_.value.shape[1], int(all_.model[1] - all_.model[0])
    alpha, ratios = case.setting("floor", float) * trees, case.array("ratio", 2)
    every(
        (alpha > 0, "without a floor one label may be impossible"),
        (ratios.shape == (len(all_.model) - 2, 2 * labels) and bool((ratios > 0).all()), "ratios are missing"),
        (bool((all_.value >= 0).all() and (all_.value.sum(axis=1) <= 1 + 1e-6).all()), "a leaf is no distribution"),
    )
    worst = 0.0
    for k, part in enumerate(asked.parts):
        p, q = (value_of(all_, n, k // 2) for n in (twins.one, twins.other)[:: 1 if k % 2 == 0 else -1])
        r = float(ratios[asked.number, k])
        gain = p - r * q + 4 * EPS * (p + r * q)
        excess = _largest(twins, np.arange(len(gain)), gain, asked.box, part) + alpha * (1 - r)
        excess += 8 * EPS * alpha * (1 + r)
        ratio = r + (excess / alpha if excess > 0 else excess / (trees * (1 + 1e-6) + alpha))
        worst = max(worst, float(np.log(max(ratio, 1.0))) + 16 * EPS)
    return worst + 2 * float(of_logarithm(16 * EPS * (trees + labels + 8)))


def _rounding(case: Case, base: Float, value: Float, twins: Twins, group: Index) -> float:
    """Return how far the released log-probabilities of one ensemble are from those of exact sums; nats."""
    single, scale, G = case.setting("single", bool, default=False), case.setting("scale", float, 1.0), len(base)
    unit = SINGLE if single else EPS
    lowest, highest, off = np.zeros(G), np.zeros(G), 0.0
    for g in range(G):
        mine = np.flatnonzero(group == g)
        starts = np.flatnonzero(np.diff(twins.tree[mine], prepend=-1))
        top = np.maximum.reduceat(value[mine], starts) if len(mine) else np.zeros(1)
        low = np.minimum.reduceat(value[mine], starts) if len(mine) else np.zeros(1)
        size = abs(float(base[g])) + float(np.maximum(np.abs(top), np.abs(low)).sum())
        highest[g], lowest[g] = float(base[g]) + top.sum() + 1e-9 * size, float(base[g]) + low.sum() - 1e-9 * size
        off = max(off, 2 * (len(starts) + 4) * unit * size)
    off = scale * (off + case.setting("base_off", float, 0.0))
    if G == 1:
        return float(_of_logistic(unit, scale * float(lowest[0]), scale * float(highest[0]), single=single) + off)
    spread = float(highest.max() - lowest.min())
    if spread > DEEPEST[single]:
        return np.inf
    return float(of_logarithm(8 * unit * (G + 8 + spread)) + 2 * off)


def _of_logistic(unit: float, lowest: float, highest: float, *, single: bool) -> float:
    """Return how far released log-probabilities are from those of exact scores between these; nats.

    The second probability errs by a few roundings of itself. The first is released as 1 - p, whose relative error is
    that of p times ``e^score``: it is 0 above a score of 16.6 in single and 36.7 in double precision.
    """
    if -lowest > DEEPEST[single] or highest > DEEPEST[single]:
        return np.inf
    share = 8 * unit * (1 + np.exp(highest)) + 8 * unit * (1 + abs(lowest))
    return float(of_logarithm(share))
