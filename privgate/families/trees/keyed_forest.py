"""Keyed forests without each record, exactly: only trees that count it, and in these only what is another one then."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np

from privgate.arrays import Float, Index
from privgate.families import designs
from privgate.families.closed_form import VANISHED
from privgate.families.designs import vanishing
from privgate.families.engine import Asked, Cost, Engine
from privgate.families.retrained import Retrained, Seeds
from privgate.families.trees import refits
from privgate.families.trees.ensemble import Ensemble
from privgate.models import KeyedForest, growing
from privgate.models.growing import Grown, Rules, Start
from privgate.models.keyed_forest import answers, leaf_shares
from privgate.subject import estimators
from privgate.subject.subject import Subject

#: records x trees that are grown or asked about at once
BATCH = 400_000
#: leaves and nodes of all units' differences that are kept for a theorem
MOST = 50_000_000


def declared(subject: Subject) -> KeyedForest | None:
    """Return the recipe's ``KeyedForest``, else None."""
    estimator = subject.recipe.library_estimator
    return estimator if type(estimator) is KeyedForest else None


@dataclass(frozen=True, eq=False)
class Patched:
    """An ensemble that differs from another in a few leaves and below a few nodes.

    Parameters
    ----------
    base : Ensemble
    leaves : int64 array of shape (L,)
    values : float64 array of shape (L, K)
        Their distributions.
    below : tuple of (node, Ensemble)
        Nodes of ``base`` and the tree of one that stands there instead.
    """

    base: Ensemble
    leaves: Index
    values: Float
    below: tuple[tuple[int, Ensemble], ...] = ()

    def expanded(self) -> Ensemble:
        """Return all of it."""
        base, value = self.base, self.base.value.copy()
        value[self.leaves] = self.values
        parts = [base, *(e for _, e in self.below)]
        columns = {n: np.concatenate([getattr(p, n) for p in parts]) for n in ("feature", "cut", "left", "right")}
        value = np.concatenate([value, *(e.value for _, e in self.below)])
        offset = len(base.feature)
        for node, part in self.below:
            here = slice(offset, offset + len(part.feature))
            columns["left"][here] += offset
            columns["right"][here] += offset
            root = offset + int(part.start[0])
            for table in columns.values():
                table[node] = table[root]
            value[node] = value[root]
            offset += len(part.feature)
        feature, cut, left, right = columns.values()
        return replace(base, value=value, feature=feature, cut=cut, left=left, right=right)


@dataclass(eq=False)
class _Part:
    """Some trees of the forest on everybody, and what each record is to them."""

    grown: Grown
    first: int  # of its trees
    offset: int  # of its nodes among all
    shares: Float = field(init=False)

    def __post_init__(self) -> None:
        self.shares = leaf_shares(self.grown.counts)


class KeyedForestEngine(Engine):
    """Leaves out one record of a ``KeyedForest``: bit for bit the trees that are grown without it.

    While the forest is grown once more, every node is tried without every record that it holds. A record that changes
    no split leaves its leaf's shares; elsewhere the subtree below the first other split is grown again.
    """

    name = "keyed_forest"
    version = 2
    single_records = True
    trains = True  # deep trees are grown again below what a person moves: work ends with the first broken rule
    hands_on = "the verdict was decided without them"

    def supports(self, subject: Subject) -> str:
        """Return why the recipe or data are not covered; empty if they are."""
        if declared(subject) is None:
            return "the recipe is not privgate.models.KeyedForest released by predict_proba"
        return designs.design_refusal(subject)

    def cost(self, subject: Subject, units: Index, seeds: Seeds, *, mode: str = "all") -> Cost:
        """Return the cost of growing the forest a few times, and a few small trees a unit."""
        made = declared(subject)
        trees = made.n_estimators if made else 1
        each = 2e-6 * trees * subject.data.n * np.log2(max(subject.data.n, 2)) + 3e-4 * trees * len(units)
        return Cost(0, len(seeds) * each, 400 * BATCH)

    def answers(self, asked: Asked) -> tuple[Retrained, Index]:
        """Return every single record's models; people with several records are handed on."""
        subject, members = asked.subject, asked.subject.data.units
        single = np.array([len(members[u]) == 1 for u in asked.units], dtype=bool)
        row_unit, row_query = asked.rows
        place = np.cumsum(single) - 1
        rows = single[row_unit]
        units, pairs = asked.units[single], (place[row_unit[rows]], row_query[rows])
        record = np.array([members[u][0] for u in units], dtype=np.int64)
        forests = [_Forest(subject, seed, record) for seed in asked.seeds]
        keep = asked.changes and sum(f.size for f in forests) * max(1, len(units)) < MOST
        found = [f.without(record, pairs, keep=keep) for f in forests]
        trees = np.empty((len(forests), len(units)), dtype=object)
        for s, (_, _, patches) in enumerate(found):
            trees[s] = patches if keep else None
        with_ = np.empty_like(trees)
        for s, f in enumerate(forests):
            with_[s] = f.ensemble
        with np.errstate(divide="ignore"):
            logs = np.log(np.stack([f[0] for f in found])), np.log(np.stack([f[1] for f in found]))
        made = Retrained.of(
            self.name,
            units,
            asked.seeds,
            pairs,
            *logs,
            undefined={int(k): VANISHED for k in np.flatnonzero(vanishing(subject, units))},
            changes={refits.WITH: with_, refits.WITHOUT: trees} if keep else {},
        )
        return made, asked.units[~single]


#: leaves, their distributions, and (node, tree) that stands there instead
Patch = tuple[Index, Float, list[tuple[int, Ensemble]]]


class _Forest:
    """The forest of one seed, and what it is without single records."""

    def __init__(self, subject: Subject, seed: int | None, record: Index) -> None:
        made = declared(subject)
        assert made is not None  # noqa: S101  supports() said so
        self.model = estimators.set_seed(made, seed)
        self.pool = designs.matrix(subject).astype(np.float64)
        n = subject.data.n
        without = np.zeros(n, dtype=bool)
        without[record] = True
        self.rules: Rules = self.model.rules(self.pool[:n], subject.label_codes, len(subject.classes))
        step, self.parts, offset = max(1, BATCH // n), list[_Part](), 0
        for b in range(0, self.model.n_estimators, step):
            trees = range(b, min(b + step, self.model.n_estimators))
            grown = growing.grow(self.rules, self.model.starts(self.rules, trees), without=without)
            self.parts.append(_Part(grown, b, offset))
            offset += len(grown.feature)
        self.ensemble = _ensemble([p.grown for p in self.parts], self.model.floor)

    @property
    def size(self) -> int:
        """Leaves that a record may change, about: one a tree, and what lies below a split that it moves."""
        return 2 * int(self.model.n_estimators) + len(self.ensemble.feature) // 100

    def without(
        self, record: Index, pairs: tuple[Index, Index], *, keep: bool
    ) -> tuple[Float, Float, list[Patched] | None]:
        """Return probabilities with and without each record at the pairs (unit, query), and the ensembles if wanted.

        Parameters
        ----------
        record : int64 array of shape (U,)
        pairs : (position in ``record``, pool row) arrays of shape (R,), ascending by the first
        """
        every, at = np.unique(pairs[1], return_inverse=True)
        work = _Work.of(self.rules, record, pairs, at, keep=keep)
        total = np.zeros((len(every), self.rules.K))
        for part in self.parts:
            leaf = part.grown.leaves(self.pool[every], np.arange(len(part.grown.roots)))  # (queries, trees)
            total += part.shares[leaf].sum(axis=1)
            self._in_leaves(part, work, leaf)
            self._below(part, work, leaf)
        B, floor = self.model.n_estimators, self.model.floor
        patches = [self._patched(p) for p in work.patches] if keep else None
        return answers(total, B, floor)[at], answers(total[at] + work.change, B, floor), patches

    def _in_leaves(self, part: _Part, work: "_Work", leaf: Index) -> None:
        """Take records off the leaves in which they change nothing else."""
        start, row, node = (c[work.mine(part.grown.same[1])] for c in part.grown.same)
        counts = part.grown.counts[node].copy()
        counts[np.arange(len(row)), self.rules.y[row]] -= self._weights(part, start, row)
        shares = leaf_shares(counts)
        for k, some in _runs(work.unit_of[row]):
            rows = slice(work.begins[k], work.begins[k + 1])
            hit = (leaf[work.at[rows]][:, start[some]] == node[some])[:, :, None]  # (queries, trees, 1)
            work.change[rows] += np.where(hit, shares[some] - part.shares[node[some]], 0.0).sum(axis=1)
            if work.keep:
                work.patches[k].append((node[some] + part.offset, shares[some], []))

    def _weights(self, part: _Part, start: Index, row: Index) -> Index:
        made = np.zeros(len(row), dtype=np.int64)
        for s in np.unique(start).tolist():
            mine = start == s
            made[mine] = growing.weights(self.rules.key, part.first + s, self.rules.own[row[mine]])
        return made

    def _below(self, part: _Part, work: "_Work", leaf: Index) -> None:
        """Grow again what is below the first node that is another one without a record."""
        grown, nothing = part.grown, (np.zeros(0, dtype=np.int64), np.zeros((0, self.rules.K)))
        start, row, node = (c[work.mine(part.grown.other[1])] for c in part.grown.other)
        for some in _batches(np.array([len(grown.held[int(v)][0]) for v in node], dtype=np.int64)):
            again = growing.grow(self.rules, [self._start(grown, int(node[j]), int(row[j])) for j in some])
            shares = leaf_shares(again.counts)
            single = _split(again, shares) if work.keep else []
            for j, (s, r, v) in enumerate(zip(start[some], row[some], node[some].tolist(), strict=True)):
                k = int(work.unit_of[r])
                rows = np.arange(work.begins[k], work.begins[k + 1])
                was = leaf[work.at[rows], s]
                down = (grown.depth[was] - grown.depth[v]).astype(np.int64)
                hit = (down >= 0) & (grown.path[was] >> np.maximum(down, 0).astype(np.uint64) == grown.path[v])
                if hit.any():
                    new = again.leaves(self.pool[work.query[rows[hit]]], np.array([j]))[:, 0]
                    work.change[rows[hit]] += shares[new] - part.shares[was[hit]]
                if work.keep:
                    work.patches[k].append((*nothing, [(v + part.offset, single[j])]))

    def _start(self, grown: Grown, node: int, row: int) -> Start:
        rows, weight = grown.held[node]
        others = rows != row
        return Start(int(grown.tree[node]), int(grown.path[node]), int(grown.depth[node]), rows[others], weight[others])

    def _patched(self, found: list[Patch]) -> Patched:
        if not found:
            return Patched(self.ensemble, np.zeros(0, dtype=np.int64), np.zeros((0, self.rules.K)))
        leaves, values, below = zip(*found, strict=True)
        return Patched(
            self.ensemble, np.concatenate(leaves), np.concatenate(values), tuple(b for some in below for b in some)
        )


@dataclass(frozen=True, eq=False)
class _Work:
    """Which records are left out, who asks what, and what came of it so far."""

    unit_of: Index  # of each record; -1 for whoever is not asked about
    begins: Index  # of each unit's pairs
    at: Index  # of each pair's query among those asked
    query: Index
    change: Float  # of each pair's sum of leaf shares
    patches: list[list[Patch]]
    keep: bool

    @classmethod
    def of(cls, rules: Rules, record: Index, pairs: tuple[Index, Index], at: Index, *, keep: bool) -> "_Work":
        unit_of = np.full(len(rules.X), -1)
        unit_of[record] = np.arange(len(record))
        begins = np.searchsorted(pairs[0], np.arange(len(record) + 1))
        change = np.zeros((len(at), rules.K))
        return cls(unit_of, begins, at, pairs[1], change, [[] for _ in record], keep)

    def mine(self, row: Index) -> Index:
        """Return the places of records that are asked about, by unit."""
        here = np.flatnonzero(self.unit_of[row] >= 0)
        return here[np.argsort(self.unit_of[row[here]], kind="stable")]


def _runs(key: Index) -> Iterator[tuple[int, slice]]:
    """Yield (key, places) of every run of equal keys."""
    edges = np.flatnonzero(np.diff(key, prepend=-1))
    for a, b in zip(edges.tolist(), [*edges[1:].tolist(), len(key)], strict=False):
        yield int(key[a]), slice(a, b)


def _batches(size: Index) -> Iterator[Index]:
    """Yield places in runs of about ``BATCH`` in size."""
    if len(size):
        edges = np.flatnonzero(np.diff(np.cumsum(size) // BATCH)) + 1
        yield from np.split(np.arange(len(size)), edges)


def _ensemble(parts: Sequence[Grown], floor: float) -> Ensemble:
    """Return trees as arrays, those of all parts one after the other."""
    offset = np.append(0, np.cumsum([len(p.feature) for p in parts]))
    shift = [np.where(p.feature >= 0, o, 0) for p, o in zip(parts, offset, strict=False)]
    roots = [p.roots + o for p, o in zip(parts, offset, strict=False)]
    trees = sum(len(p.roots) for p in parts)
    return Ensemble(
        link="mean",
        start=np.append(np.concatenate(roots), offset[-1]).astype(np.int32),
        feature=np.concatenate([p.feature for p in parts]).astype(np.int32),
        cut=np.concatenate([p.cut for p in parts]),
        left=np.concatenate([p.left + s for p, s in zip(parts, shift, strict=True)]).astype(np.int32),
        right=np.concatenate([p.right + s for p, s in zip(parts, shift, strict=True)]).astype(np.int32),
        value=leaf_shares(np.concatenate([p.counts for p in parts])),
        group=np.zeros(trees, dtype=np.int32),
        base=np.zeros(0),
        floor=float(floor),
    )


def _split(grown: Grown, shares: Float) -> list[Ensemble]:
    """Return every start's tree by itself."""
    owner = np.full(len(grown.feature), -1)
    owner[grown.roots] = np.arange(len(grown.roots))
    front = grown.roots
    while len(front):
        front = front[grown.feature[front] >= 0]
        for child in (grown.left[front], grown.right[front]):
            owner[child] = owner[front]
        front = np.concatenate([grown.left[front], grown.right[front]])
    order = np.argsort(owner, kind="stable")
    made, place = [], np.empty(len(owner), dtype=np.int64)
    edges = np.searchsorted(owner[order], np.arange(len(grown.roots) + 1))
    place[order] = np.arange(len(owner)) - edges[owner[order]]
    for a, b in pairwise(edges.tolist()):
        mine = order[a:b]
        inner = grown.feature[mine] >= 0
        made.append(
            Ensemble(
                link="mean",
                start=np.array([0, b - a], dtype=np.int32),
                feature=grown.feature[mine].astype(np.int32),
                cut=grown.cut[mine],
                left=np.where(inner, place[grown.left[mine]], 0).astype(np.int32),
                right=np.where(inner, place[grown.right[mine]], 0).astype(np.int32),
                value=shares[mine],
                group=np.zeros(1, dtype=np.int32),
                base=np.zeros(0),
            )
        )
    return made


ENGINE = KeyedForestEngine()
