"""Growing trees whose randomness belongs to records and places, and seeing who would have grown another tree.

Every draw is a keyed hash: a record's weight in a tree of the tree and the record itself, a node's features and
thresholds of the tree and the path to it. So without a record all other draws stay what they are.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float64]
Index = NDArray[np.int64]
Bool = NDArray[np.bool_]
Hash = NDArray[np.uint64]

#: Poisson(1): shares of weight at most 0, 1, 2, …
_POISSON = np.cumsum(np.exp(-1.0) / np.cumprod(np.append(1.0, np.arange(1.0, 17.0))))
#: entries of the largest temporary table
_TABLE = 4_000_000
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
    """

    X: Float
    y: Index
    own: Hash
    K: int
    key: Hash
    features: int
    thresholds: int
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
        # by node, class and name: below the roots only the node is another one
        order = np.argsort(_short(g), kind="stable") if first else np.lexsort((rules.own[row], rules.y[row], g))
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
    """All nodes of one depth: entries (node, record, weight), ascending by node and class."""

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
        if not len(todo):
            return feature, cut
        d = rules.X.shape[1]
        drawn = np.argsort(
            mixed(
                rules.key,
                self.tree[todo, None].astype(np.uint64),
                self.path[todo, None],
                1,
                np.arange(d, dtype=np.uint64)[None],
            ),
            axis=1,
        )
        sample, source = self._sample(todo)
        pending = np.ones(len(todo), dtype=bool)  # nodes without a split so far
        quiet = self.alive & ~self.changed  # records without which there is none so far either
        for start in range(0, d, rules.features):
            some = np.flatnonzero(pending)
            if not len(some):
                break
            step = max(1, _TABLE // max(1, rules.features * (2 * rules.thresholds + 1)))
            at = np.full(G, -1)
            at[todo[some]] = np.arange(len(some))
            entries = np.flatnonzero(at[self.g] >= 0)
            for part in self._parts(entries, step):
                nodes = np.unique(at[self.g[part]])
                found = self._round(
                    part,
                    todo[some[nodes]],
                    drawn[some[nodes], start : start + rules.features],
                    sample[some[nodes]],
                    source,
                    quiet,
                )
                ok = found[0] >= 0
                which = todo[some[nodes[ok]]]
                feature[which], cut[which] = found[0][ok], found[1][ok]
            pending[some] = feature[todo[some]] < 0
        return feature, cut

    def _parts(self, entries: Index, step: int) -> list[Index]:
        """Return entries in runs of about ``step`` that break between nodes only."""
        node = self.g[entries]
        begins = np.flatnonzero(np.diff(node, prepend=-1))
        keep = [0]
        for b in begins.tolist():
            if b - keep[-1] >= step:
                keep.append(b)
        return np.split(entries, keep[1:])

    def _sample(self, todo: Index) -> tuple[Index, Index]:
        """Return the records whose values make thresholds, (T, k + 2) entries or -1, and each entry's place there.

        Those with the smallest hashes; the last stands in for whoever of the others is missing.
        """
        rules, k = self.rules, self.rules.thresholds
        at = np.full(len(self.tree), -1)
        at[todo] = np.arange(len(todo))
        entries = np.flatnonzero(at[self.g] >= 0)
        node = self.g[entries]
        draw = mixed(rules.key, self.tree[node].astype(np.uint64), self.path[node], 2, rules.own[self.row[entries]])
        order = np.argsort(draw)  # who ties has one name, so the same features and label
        order = order[np.argsort(_short(node[order]), kind="stable")]
        entries, node = entries[order], node[order]
        begins = np.flatnonzero(np.diff(node, prepend=-1))
        place = np.arange(len(node)) - np.repeat(begins, np.diff(np.append(begins, len(node))))
        inside = place <= k + 1
        sample = np.full((len(todo), k + 2), -1)
        sample[at[node[inside]], place[inside]] = entries[inside]
        source = np.full(len(self.g), k + 2)
        source[entries[inside]] = place[inside]
        return sample, source

    def _round(  # noqa: PLR0917  the columns of one round
        self, part: Index, nodes: Index, features: Index, sample: Index, source: Index, quiet: Bool
    ) -> tuple[Index, Float]:
        """Return the best (feature, cut) of every node among its features of this round, -1 where there is none.

        Nodes are tried without each record in ``quiet``: those that would have another split then are ``changed``, and
        what is settled leaves ``quiet``.
        """
        rules, K = self.rules, self.rules.K
        N, m = features.shape
        one, other, skipped = _slots(rules.thresholds, without=bool(quiet[part].any()))
        at = np.searchsorted(nodes, self.g[part])
        seen = rules.X[self.row[np.maximum(sample, 0)][:, None, :], features[:, :, None]]  # (N, m, k + 2)
        cuts = seen[:, :, one] / 2 + seen[:, :, other] / 2
        there = np.broadcast_to(((sample[:, one] >= 0) & (sample[:, other] >= 0))[:, None, :], cuts.shape)
        cuts, there = cuts.reshape(N, -1), there.reshape(N, -1)
        values = rules.X[self.row[part][:, None], features[at]]
        below = (values[:, :, None] <= cuts[at].reshape(len(part), m, -1)).reshape(len(part), -1)  # (E, m slots)
        y, w = self.y[part], self.weight[part]
        segment = at * K + y
        begins = np.flatnonzero(np.diff(segment, prepend=-1))
        left = np.zeros((N * K, cuts.shape[1]), dtype=np.int64)
        left[segment[begins]] = np.add.reduceat(np.multiply(below, w[:, None], dtype=np.int32), begins, axis=0)
        left = left.reshape(N, K, -1)
        right = self.counts[nodes][:, :, None] - left
        sums = left.sum(axis=1), right.sum(axis=1)
        squares = (left**2).sum(axis=1), (right**2).sum(axis=1)
        usual = np.tile((skipped < 0) & (other <= rules.thresholds), m)
        score = _score(sums, squares, rules.min_leaf, there & usual)
        best = score.argmax(axis=1)
        every = np.arange(N)
        valid = score[every, best] >= 0
        feature = np.where(valid, features[every, best // len(one)], -1)
        cut = np.where(valid, cuts[every, best], 0.0)
        self._without(
            part, at, source, quiet, (below, left, right, sums, squares, there), (features, cuts, feature, cut)
        )
        return feature, cut

    def _without(  # noqa: PLR0917  ditto
        self,
        part: Index,
        at: Index,
        source: Index,
        quiet: Bool,
        tables: tuple[Any, ...],
        chosen: tuple[Any, ...],
    ) -> None:
        """Try the nodes without each record that is still ``quiet``."""
        mine = np.flatnonzero(quiet[part])
        if not len(mine):
            return
        below, left, right, sums, squares, there = tables
        features, cuts, feature, cut = chosen
        node = at[mine]
        inside, e = below[mine], part[mine]
        y, w = self.y[e], self.weight[e][:, None]
        own_left, own_right = left[node, y], right[node, y]
        n_left, n_right = sums[0][node] - np.where(inside, w, 0), sums[1][node] - np.where(inside, 0, w)
        q_left = squares[0][node] - np.where(inside, 2 * w * own_left - w**2, 0)
        q_right = squares[1][node] - np.where(inside, 0, 2 * w * own_right - w**2)
        k, place = self.rules.thresholds, source[e][:, None]
        one, other, skipped = (np.tile(s, features.shape[1]) for s in _slots(k, without=True))
        # a pair without the record itself; one around it only where it stood between; the last only to make up for it
        allowed = there[node] & (one != place) & (other != place)
        allowed &= np.where(skipped >= 0, skipped == place, (other <= k) | (place <= k))
        score = _score((n_left, n_right), (q_left, q_right), self.rules.min_leaf, allowed)
        best = score.argmax(axis=1)
        every = np.arange(len(mine))
        valid = score[every, best] >= 0
        same = (features[node, best // (len(one) // features.shape[1])] == feature[node]) & (
            cuts[node, best] == cut[node]
        )
        self.changed[e] |= np.where(valid, ~same, feature[node] >= 0)
        quiet[e[valid | (feature[node] >= 0)]] = False


def _short(number: Index) -> NDArray[Any]:
    """Return whole numbers from 0 on in few bits where they fit: those are sorted by their digits, far quicker."""
    return number.astype(np.uint16) if number.max(initial=0) < 2**16 else number


@cache
def _slots(k: int, *, without: bool) -> tuple[Index, Index, Index]:
    """Return, for every threshold that a node may try on a feature, the places of its two records and who is skipped.

    Not ``without`` anybody, the first k pairs of neighbours.
    Neighbours in the order of their hashes, and what would be neighbours without the one between, ascending: so the
    thresholds without a record come in the order in which a node that never saw it would try them.
    """
    pairs = [(p, p + 1, -1) for p in range(k + without)] + [(p, p + 2, p + 1) for p in range(k * without)]
    return tuple(np.array(c) for c in zip(*sorted(pairs), strict=True))  # type: ignore[return-value]  # a pair of arrays, one an end


def _score(sums: tuple[Index, Index], squares: tuple[Index, Index], least: int, allowed: Bool) -> Float:
    """Return sum L^2 / n_L + sum R^2 / n_R, largest where the weighted Gini impurity is smallest; -1 where no split."""
    fine = allowed & (sums[0] >= max(1, least)) & (sums[1] >= max(1, least))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(fine, squares[0] / sums[0] + squares[1] / sums[1], -1.0)
