"""Growing trees whose randomness belongs to records and places, and seeing who would have grown another tree.

Every draw is a keyed hash: a record's weight in a tree of the tree and the record itself, a node's features of the tree
and the path to it. So without a record all other draws stay what they are.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.arrays import Bool, Float, Index
from privgate.models import splitting
from privgate.models.splitting import Hash

#: Poisson(1): shares of weight at most 0, 1, 2, …
_POISSON = np.cumsum(np.exp(-1.0) / np.cumprod(np.append(1.0, np.arange(1.0, 17.0))))
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def mixed(*parts: Hash | int) -> Hash:
    """Return one hash of numbers that broadcast, in their order (splitmix64)."""
    made = np.zeros(1, dtype=np.uint64)
    with np.errstate(over="ignore"):
        for part in parts:
            made = (made ^ np.asarray(part, dtype=np.uint64)) + _GOLDEN
            made = (made ^ (made >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            made = (made ^ (made >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            made = made ^ (made >> np.uint64(31))
    return made


def names(X: Float, codes: Index) -> Hash:
    """Return what names each record, shape (n,): its own features and label, by value, and nothing else."""
    made = mixed(codes.astype(np.uint64), X.shape[1])
    for column in (X + 0.0).T:  # -0 and 0 are one number
        made = mixed(made, np.ascontiguousarray(column).view(np.uint64))
    return made


def weights(key: Hash, tree: int, own: Hash) -> Index:
    """Return how often a tree counts each record, shape (n,): Poisson(1) from its own hash."""
    uniform = (mixed(key, tree, own) >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return np.searchsorted(_POISSON, uniform, side="right").astype(np.int64)


@dataclass(frozen=True, eq=False)
class Rules:
    """What every tree of a forest shares.

    Parameters
    ----------
    X : float64 array of shape (n, d)
    y : int64 array of shape (n,)
    own : uint64 array of shape (n,)
        What names each record.
    values : Values
        Of X.
    """

    X: Float
    y: Index
    own: Hash
    values: splitting.Values
    K: int
    key: Hash
    features: int
    max_depth: int
    min_split: int
    min_leaf: int


@dataclass(frozen=True, eq=False)
class Start:
    """Where growing starts: the node of a tree at a path, and the records that reach it, each with its weight."""

    tree: int
    path: int
    depth: int
    rows: Index
    weight: Index


@dataclass(eq=False)
class Grown:
    """Trees, all nodes in one table; start s has its first node at ``roots[s]``.

    Parameters
    ----------
    feature : int64 array of shape (N,)
        -1 at a leaf.
    cut : float64 array of shape (N,)
        A number of at most this goes left.
    left, right : int64 arrays of shape (N,)
    counts : int64 array of shape (N, K)
        Weights of the classes; of leaves only.
    tree, path, depth : arrays of shape (N,)
    same, other : (start, row, node), int64 arrays of equal length
        Where records end without whom the same tree grows, and the first node that is another one without a record.
    held : mapping node -> (rows, weights)
        What reaches the nodes in ``other``.
    """

    feature: Index
    cut: Float
    left: Index
    right: Index
    counts: Index
    roots: Index
    tree: Index
    path: NDArray[np.uint64]
    depth: Index
    same: tuple[Index, Index, Index] = field(default_factory=lambda: (np.zeros(0, dtype=np.int64),) * 3)
    other: tuple[Index, Index, Index] = field(default_factory=lambda: (np.zeros(0, dtype=np.int64),) * 3)
    held: dict[int, tuple[Index, Index]] = field(default_factory=dict)

    def leaves(self, X: Float, starts: Index) -> Index:
        """Return the leaf that each question reaches from each start, shape (n, S)."""
        node = np.repeat(self.roots[starts][None], len(X), axis=0)
        row = np.arange(len(X))[:, None]
        while (inner := self.feature[node] >= 0).any():
            left = X[row, np.maximum(self.feature[node], 0)] <= self.cut[node]
            node = np.where(inner, np.where(left, self.left[node], self.right[node]), node)
        return node


def grow(rules: Rules, starts: Sequence[Start], *, without: Bool | None = None) -> Grown:
    """Return the trees from every start, level by level, all at once.

    Parameters
    ----------
    without : bool array of shape (n,), optional
        Records for which to find the first node that would be another one without it.
    """
    S, K = len(starts), rules.K
    columns: list[list[NDArray[Any]]] = [[] for _ in range(8)]
    node_start = np.arange(S)
    tree = np.array([s.tree for s in starts], dtype=np.int64)
    path = np.array([s.path for s in starts], dtype=np.uint64)
    depth = np.array([s.depth for s in starts], dtype=np.int64)
    g = np.repeat(np.arange(S), [len(s.rows) for s in starts])
    row = np.concatenate([s.rows for s in starts]) if S else np.zeros(0, dtype=np.int64)
    weight = np.concatenate([s.weight for s in starts]) if S else np.zeros(0, dtype=np.int64)
    alive = np.zeros(len(row), dtype=bool) if without is None else without[row]
    same: list[tuple[Index, Index, Index]] = []
    other: list[tuple[Index, Index, Index]] = []
    held: dict[int, tuple[Index, Index]] = {}
    first = 0
    while len(tree):
        G = len(tree)
        order = np.argsort(_short(g), kind="stable")
        g, row, weight, alive = g[order], row[order], weight[order], alive[order]
        level = _Level(rules, g, row, weight, alive, tree, path, depth)
        feature, cut = level.splits()
        ids = first + np.arange(G)
        leaf = feature < 0
        if without is not None:
            gone = level.changed & alive
            for k in np.unique(g[gone]).tolist():
                mine = slice(*np.searchsorted(g, [k, k + 1]))
                held[int(ids[k])] = row[mine], weight[mine]
            other.append((node_start[g[gone]], row[gone], ids[g[gone]]))
            alive &= ~gone
            ends = alive & leaf[g]
            same.append((node_start[g[ends]], row[ends], ids[g[ends]]))
        inner = np.flatnonzero(~leaf)
        place = np.cumsum(~leaf) - 1
        child = first + G + 2 * place
        for column, values in zip(
            columns,
            (feature, cut, np.where(leaf, 0, child), np.where(leaf, 0, child + 1), level.counts, tree, path, depth),
            strict=True,
        ):
            column.append(values)
        on = ~leaf[g]
        right = rules.X[row[on], feature[g[on]]] > cut[g[on]]
        g, row, weight, alive = 2 * place[g[on]] + right, row[on], weight[on], alive[on]
        first += G
        node_start = np.repeat(node_start[inner], 2)
        tree, depth = np.repeat(tree[inner], 2), np.repeat(depth[inner], 2) + 1
        path = 2 * np.repeat(path[inner], 2) + np.tile(np.array([0, 1], dtype=np.uint64), len(inner))
    table: list[Any] = [np.concatenate(c) if c else np.zeros((0, K) if i == 4 else 0) for i, c in enumerate(columns)]
    feature, cut, left, right, counts, *where = table
    made = Grown(feature, cut, left, right, counts, np.arange(S), where[0], where[1], where[2])
    if without is not None:
        made.same, made.other = (tuple(np.concatenate(p) for p in zip(*part, strict=True)) for part in (same, other))  # type: ignore[assignment]  # a tuple of as many arrays as the annotation says
        made.held = held
    return made


class _Level:
    """All nodes of one depth: entries (node, record, weight), ascending by node."""

    def __init__(  # noqa: PLR0917  parallel columns
        self, rules: Rules, g: Index, row: Index, weight: Index, alive: Bool, tree: Index, path: Hash, depth: Index
    ) -> None:
        self.rules, self.g, self.row, self.weight, self.alive = rules, g, row, weight, alive
        self.tree, self.path = tree, path
        G, K = len(tree), rules.K
        self.y = rules.y[row]
        self.counts = np.bincount(g * K + self.y, weight, G * K).reshape(G, K).astype(np.int64)
        total = self.counts.sum(axis=1)
        self.terminal = (depth >= rules.max_depth) | self._ends(total, (self.counts > 0).sum(axis=1))
        self.changed = np.zeros(len(row), dtype=bool)
        if alive.any():
            kinds = (self.counts > 0).sum(axis=1)[g] - (self.counts[g, self.y] == weight)
            self.changed = alive & ~self.terminal[g] & self._ends(total[g] - weight, kinds)

    def _ends(self, total: Index, kinds: Index) -> Bool:
        return np.asarray((total < max(self.rules.min_split, 2 * self.rules.min_leaf)) | (kinds < 2))

    def splits(self) -> tuple[Index, Float]:
        """Return (feature, cut) of every node, feature -1 at leaves; ``changed`` says which records change theirs."""
        rules, G = self.rules, len(self.tree)
        feature, cut = np.full(G, -1), np.zeros(G)
        todo = np.flatnonzero(~self.terminal)
        drawn = self._drawn(todo)
        for start in range(0, rules.X.shape[1], rules.features):
            if not len(todo):
                break
            at = np.full(G, -1)
            at[todo] = np.arange(len(todo))
            for part in self._parts(np.flatnonzero(at[self.g] >= 0)):
                of = at[self.g[part]]
                nodes = slice(int(of[0]), int(of[-1]) + 1)
                found = self._round(part, of - of[0], todo[nodes], drawn[nodes, start : start + rules.features])
                feature[todo[nodes]], cut[todo[nodes]] = found
            # where there is no split so far there is none without any of the records either
            pending = feature[todo] < 0
            todo, drawn = todo[pending], drawn[pending]
        self.changed &= (feature >= 0)[self.g]  # a leaf is one without any of its records
        return feature, cut

    def _drawn(self, todo: Index) -> Index:
        """Return the features in the order in which each node draws them, shape (T, d)."""
        place = self.tree[todo, None].astype(np.uint64), self.path[todo, None]
        return np.argsort(
            mixed(self.rules.key, *place, 1, np.arange(self.rules.X.shape[1], dtype=np.uint64)[None]), axis=1
        )

    def _parts(self, entries: Index) -> list[Index]:
        """Return entries in runs that break between nodes only and need tables of about ``splitting.TABLE``."""
        step = splitting.TABLE // (self.rules.features * (self.rules.K + 16)) + 1
        node = self.g[entries]
        keep = [0]
        for b in np.flatnonzero(np.diff(node, prepend=-1)).tolist():
            if b - keep[-1] >= step:
                keep.append(b)
        return np.split(entries, keep[1:])

    def _round(self, part: Index, at: Index, nodes: Index, features: Index) -> tuple[Index, Float]:
        """Return the best (feature, cut) of every node among its features of this round, -1 where there is none."""
        values = self.rules.values
        code = values.code[self.row[part][:, None], features[at]]
        entries = splitting.Entries(at, self.y[part], self.weight[part], code)
        cells = splitting.Cells.of(entries, self.counts[nodes], self.rules.min_leaf)
        best = cells.best(len(nodes))
        valid = best >= 0
        mine = np.flatnonzero((self.alive & ~self.changed)[part] & valid[at])
        if len(mine):
            gone = splitting.moved(cells, best, entries.only(mine))
            self.changed[part[mine[gone]]] = True
        cut = np.where(valid, values.between(cells.code[best], cells.code[best + valid]), 0.0)
        return np.where(valid, features[np.arange(len(nodes)), cells.slot[best]], -1), cut


def _short(number: Index) -> NDArray[Any]:
    """Return whole numbers from 0 on in few bits where they fit: those are sorted by their digits, far quicker."""
    return number.astype(np.uint16) if number.max(initial=0) < 2**16 else number
