"""Classification trees without each record, exactly; tied splits are handed on.

Only a record's own path in its own tree matters, and records whose paths begin alike share the nodes on them. All nodes
of a depth are split together (``tree_splits``).
"""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from privgate.arrays import Float, Index
from privgate.families import designs
from privgate.families.closed_form import VANISHED, spread
from privgate.families.designs import vanishing
from privgate.families.engine import Asked, Cost, LibraryEngine
from privgate.families.refit import full
from privgate.families.retrained import Retrained, Seeds, Status
from privgate.families.trees.tree_splits import SLACK, Growth, Nodes, Splits, nodes_of, promising, runs
from privgate.statistics.leakage import largest_change
from privgate.subject.subject import Subject

#: scikit-learn draws no threshold between neighbouring values closer than this, added in single precision
SAME_VALUE = np.float32(1e-7)
#: splits whose scores differ by less, relatively, may be equal, and scikit-learn then chooses at random
TIE = 1e-11
#: nodes of one depth in which a record is followed where its best splits tie
BRANCHES = 32
PLAIN = {
    "criterion": "gini",
    "splitter": "best",
    "max_features": None,
    "max_leaf_nodes": None,
    "min_weight_fraction_leaf": 0.0,
    "min_impurity_decrease": 0.0,
    "class_weight": None,
    "ccp_alpha": 0.0,
    "monotonic_cst": None,
}


class Followed(NamedTuple):
    """Records and the nodes in which they are followed; a record may be followed in several."""

    member: Index  # (U,)
    node: Index  # (U,)

    def only(self, kept: NDArray[np.bool_]) -> "Followed":
        """Return some of them."""
        return Followed(self.member[kept], self.node[kept])


class _Choice(NamedTuple):
    """Best splits of followed records; where splits tie a record has several."""

    at: Index  # position among those followed
    feature: Index
    bound: Index
    goes_left: NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Falls:
    """What each record's own tree says about it.

    Parameters
    ----------
    counts : float64 array of shape (n, K)
        Class counts of the leaf, for records asked about and not tied.
    tied : bool array of shape (n,)
        Whether equal splits of the record's path lead it to leaves of different shares of classes.
    low, high : float64 array of shape (n, K)
        Least and largest share of each class in the leaves that a record may come to.
    lost : bool array of shape (n,)
        Whether it may come to other leaves as well: it was in too many nodes, or a share may be 0 and more than 0.
    nodes : int
        Nodes looked at.
    """

    counts: Float
    tied: NDArray[np.bool_]
    low: Float
    high: Float
    lost: NDArray[np.bool_]
    nodes: int = 0

    @classmethod
    def none(cls, n: int, K: int) -> "Falls":
        """Return what is known of n records before any is followed."""
        no = np.zeros(n, dtype=bool)
        return cls(np.zeros((n, K)), no, np.ones((n, K)), np.zeros((n, K)), no.copy())

    def reach(self, member: Index, counts: Float) -> None:
        """Note the leaf of each member; one that comes to leaves of different shares is tied."""
        shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
        np.minimum.at(self.low, member, shares)
        np.maximum.at(self.high, member, shares)
        self.lost[member[((self.low[member] == 0) & (self.high[member] > 0)).any(axis=1)]] = True
        new = self.counts[member].sum(axis=1) == 0
        self.counts[member[new]] = counts[new]  # of several leaves at once one is noted, all are compared with it
        noted = self.counts[member]
        other = noted * counts.sum(axis=1, keepdims=True) != counts * noted.sum(axis=1, keepdims=True)
        self.tied[member[other.any(axis=1)]] = True


def falls(growth: Growth, records: Index) -> Falls:
    """Return the leaf counts of each record in the tree grown without it (Gini, best splits, all features)."""
    n = len(growth.y)
    found, looked_at, depth = Falls.none(n, growth.K), 0, 0
    nodes = nodes_of(growth, np.arange(n), np.array([0, n]))
    followed = Followed(np.asarray(records, dtype=np.int64), np.zeros(len(records), dtype=np.int64))
    while len(followed.member):
        looked_at += len(nodes.counts)
        left, size = _without(growth, nodes, followed), nodes.size[followed.node] - 1
        leaf = ((left > 0).sum(axis=1) <= 1) | (size < max(growth.min_split, 2 * growth.min_leaf))
        leaf |= depth >= growth.max_depth
        found.reach(followed.member[leaf], left[leaf])
        nodes, followed = _next(growth, nodes, followed.only(~leaf & ~found.lost[followed.member]), found)
        many = np.bincount(followed.member, minlength=n) > BRANCHES
        found.tied[many] = found.lost[many] = True
        depth += 1
    return replace(found, nodes=looked_at)


def _without(growth: Growth, nodes: Nodes, followed: Followed) -> Float:
    """Return the class counts of each member's node without it, shape (U, K)."""
    left = nodes.counts[followed.node]
    left[np.arange(len(left)), growth.y[followed.member]] -= 1
    return left


def _next(growth: Growth, nodes: Nodes, followed: Followed, found: Falls) -> tuple[Nodes, Followed]:
    """Return the nodes one step down, and who is followed there; note the leaves of those who have no split left."""
    live, node = np.unique(followed.node, return_inverse=True)
    nodes = nodes.only(live)
    order = np.argsort(node, kind="stable")
    member, node = followed.member[order], node[order]
    children = _Children(growth)
    for part in runs(np.maximum(nodes.size, growth.K) * len(growth.codes)):
        begin, end = np.searchsorted(node, [part[0], part[-1] + 1])
        here, own = nodes.only(part), Followed(member[begin:end], node[begin:end] - part[0])
        choice = _choices(growth, promising(growth, here), own, len(part))
        final = np.ones(end - begin, dtype=bool)
        final[choice.at] = False
        leaf = own.only(final)
        found.reach(leaf.member, _without(growth, here, leaf))
        children.grow(here, own, choice)
    return children.made()


def _choices(growth: Growth, splits: Splits, followed: Followed, N: int) -> _Choice:
    """Return the best splits of each record without it."""
    member, node = followed
    pair, own = np.unique(node * growth.K + growth.y[member], return_inverse=True)
    pair_node, label = np.divmod(pair, growth.K)
    first = np.searchsorted(splits.node, np.arange(N + 1))
    size = np.diff(first)[pair_node]
    split, of = spread(first[pair_node], size), np.repeat(np.arange(len(pair)), size)
    left, right = splits.without(split, label[of], growth.min_leaf)
    better = np.maximum(left, right)
    kept = (better > 0) & (better >= _largest(np.minimum(left, right), size)[of] * (1 - SLACK))
    split, left, right = split[kept], left[kept], right[kept]
    size = np.bincount(of[kept], minlength=len(pair))
    first = np.cumsum(size) - size
    made = []
    for some in runs(size[own]):
        entry = spread(first[own[some]], size[own[some]])
        at, s = np.repeat(some, size[own[some]]), split[entry]
        goes_left = growth.codes[splits.feature[s], member[at]] <= splits.bound[s]
        value = np.where(goes_left, left[entry], right[entry])
        best = np.repeat(_largest(value, size[own[some]]), size[own[some]])
        chosen = (value > 0) & (value >= best * (1 - TIE))
        at, s = at[chosen], s[chosen]
        made.append((at, splits.feature[s], *_thresholded(growth, splits, s, member[at], goes_left[chosen])))
    return _Choice(*(np.concatenate(a) for a in zip(*made, strict=True)))


def _largest(value: Float, size: Index) -> Float:
    """Return the largest value of each run, 0 where there is none above; ``size`` (R,) adds up to ``len(value)``."""
    out = np.zeros(len(size))
    filled = size > 0
    if filled.any():
        out[filled] = np.maximum.reduceat(value, (np.cumsum(size) - size)[filled])
    return np.maximum(out, 0.0)


def _thresholded(
    growth: Growth, splits: Splits, split: Index, member: Index, goes_left: NDArray[np.bool_]
) -> tuple[Index, NDArray[np.bool_]]:
    """Return (bound, goes left) by the midpoint between the values next to the split without the member.

    It differs only for a member that alone has the value next to the split: the midpoint may then be on its other side.
    """
    bound, goes_left = splits.bound[split], goes_left.copy()
    around, feature = splits.around[split], splits.feature[split]
    # a member on the left is at place 1, one on the right at place 2; the next one on its side is at place 0 or 3
    for place, below, above, outer in ((1, 0, 2, 0), (2, 1, 3, 3)):
        k = np.flatnonzero((around[:, place] == member) & (around[:, outer] >= 0))
        k = k[growth.codes[feature[k], around[k, outer]] != growth.codes[feature[k], member[k]]]
        low = growth.X[around[k, below], feature[k]].astype(np.float64)
        high = growth.X[around[k, above], feature[k]].astype(np.float64)
        goes_left[k] = growth.X[member[k], feature[k]] <= low / 2.0 + high / 2.0
        # a bound that puts the member on that side
        bound[k] = growth.codes[feature[k], member[k]].astype(np.int64) - ~goes_left[k]
    return bound, goes_left


class _Children:
    """Collects the nodes of the next depth; equal sets of records are one node."""

    def __init__(self, growth: Growth) -> None:
        self.growth = growth
        self.place: dict[bytes, int] = {}
        self.rows: list[Index] = []
        self.followed: list[Followed] = []

    def grow(self, nodes: Nodes, followed: Followed, choice: _Choice) -> None:
        """Add what records followed in some nodes chose."""
        codes, (d, n) = self.growth.codes, self.growth.codes.shape
        key = ((followed.node[choice.at] * d + choice.feature) * n + choice.bound) * 2 + choice.goes_left
        key, child = np.unique(key, return_inverse=True)
        rest, left = np.divmod(key, 2)
        rest, bound = np.divmod(rest, n)
        parent, feature = np.divmod(rest, d)
        place = np.empty(len(key), dtype=np.int64)
        for some in runs(nodes.size[parent]):
            size = nodes.size[parent[some]]
            rows, of = nodes.rows[spread(nodes.start[parent[some]], size)], np.repeat(some, size)
            inside = (codes[feature[of], rows] <= bound[of]) == left[of]
            ends = np.cumsum(np.bincount(of[inside] - some[0], minlength=len(some)))
            for k, own in zip(some, np.split(rows[inside], ends[:-1]), strict=True):
                place[k] = self.place.setdefault(own.tobytes(), len(self.rows))
                if place[k] == len(self.rows):
                    self.rows.append(own)
        self.followed.append(Followed(followed.member[choice.at], place[child]))

    def made(self) -> tuple[Nodes, Followed]:
        """Return the nodes, and each (record, node) once."""
        none = np.zeros(0, dtype=np.int64)
        start = np.append(0, np.cumsum([len(r) for r in self.rows])).astype(np.int64)
        n = len(self.growth.y)
        pair = np.unique(np.concatenate([none, *(f.node * n + f.member for f in self.followed)]))
        node, member = np.divmod(pair, n)
        return nodes_of(self.growth, np.concatenate([none, *self.rows]), start), Followed(member, node)


class DecisionTree(LibraryEngine):
    """Leave-one-out for ``DecisionTreeClassifier`` (CART: Gini, best splits of all features); exact without ties.

    Every record is followed down the tree grown without it; nodes are shared. Where its best splits
    tie, it is followed down each of them, because scikit-learn breaks ties by a shuffle of the features that a removal
    changes. A record whose branches end in different answers, all of them below the policy's limits, is answered up to
    an ``error`` that holds for every seed; any other one is handed on. The tree with every record is the
    library's own, one a seed. Answers each record at its own features only. O(n d log n) a level.
    """

    name = "decision_tree"
    library = "DecisionTreeClassifier"
    version = 4
    hands_on = "splits tie on their way"
    single_records = True
    limited = True

    def unfit(self, estimator: Any, subject: Subject) -> str:
        """Return which parameters are not covered; empty if all are."""
        for name, value in PLAIN.items():
            if getattr(estimator, name, value) != value:
                return f"{name} is not {value!r}"
        whole = all(isinstance(v, int) for v in (estimator.min_samples_split, estimator.min_samples_leaf))
        return "" if whole else "min_samples_split or min_samples_leaf is a share of the records"

    def cost(self, subject: Subject, units: Index, seeds: Seeds, *, mode: str = "all") -> Cost:
        """Return the cost of about ten levels of sorting."""
        n, d = subject.data.n, int(subject.data.X.shape[1])
        return Cost(0, 2e-7 * n * d * np.log2(max(n, 2)) + 1e-3 * len(units), 40 * n * d)

    def answers(self, asked: Asked) -> tuple[Retrained, Index]:
        """Return the records without tied splits; ties, people with several records and other queries are handed on."""
        subject, units, members = asked.subject, asked.units, asked.subject.data.units
        single = np.array([len(members[u]) == 1 for u in units], dtype=bool)
        record = np.array([members[u][0] for u in units], dtype=np.int64)
        row_unit, row_query = asked.queries or (np.arange(len(units)), record)
        if asked.queries is not None:
            single[row_unit[row_query != record[row_unit]]] = False
        growth = growth_of(subject)
        single &= ~growth.squeezed[record]
        found = falls(growth, record[single])
        kept = single & (~found.tied[record] | (~found.lost[record] if asked.limits else False))
        place = np.cumsum(kept) - 1
        rows = kept[row_unit]
        at = row_query[rows]
        made = self._made(asked, found, units[kept], (place[row_unit[rows]], at))
        # whoever reads an error takes both models to be off by it
        sure = (made.error == 0) | (_pdtp(made) + 2 * made.error <= min(asked.limits, default=-np.inf))
        return made.select(sure), np.sort(np.concatenate([units[~kept], made.units[~sure]]))

    def drawn(self, subject: Subject) -> Index:
        """Return the units without whom the library draws between splits that tell them apart: the seed decides."""
        units = subject.data.units
        alone = np.flatnonzero(np.diff(units.bounds) == 1)
        record = units.first[alone]
        growth = growth_of(subject)
        fine = ~growth.squeezed[record]
        return alone[fine][falls(growth, record[fine]).tied[record[fine]]]

    def _made(self, asked: Asked, found: Falls, units: Index, rows: tuple[Index, Index]) -> Retrained:
        subject, seeds, row_query = asked.subject, asked.seeds, rows[1]
        counts = found.counts[row_query]
        with np.errstate(divide="ignore", invalid="ignore"):
            without = np.log(counts) - np.log(counts.sum(axis=1, keepdims=True))
            # ties of the tree on everybody are broken by the seed, though those on a record's own path may be gone
            with_ = full(subject, seeds, asked.fleet)[:, row_query]
        both = np.repeat(without[None], len(seeds), axis=0)
        gone = {int(k): VANISHED for k in np.flatnonzero(vanishing(subject, units))}
        error = np.zeros(len(units))
        tied = np.flatnonzero(found.tied[row_query])
        here = row_query[tied]
        with np.errstate(divide="ignore", invalid="ignore"):  # a share that is 0 in every leaf is 0 in this one
            ends = [np.abs(np.log(side[here]) - without[tied]) for side in (found.low, found.high)]
        error[rows[0][tied]] = np.nan_to_num(np.maximum(*ends), nan=0.0).max(axis=1, initial=0.0) * (1 + 1e-9)
        error[list(gone)] = 0.0
        status = np.where(error > 0, Status.CONVERGED, Status.EXACT).astype(object)
        return Retrained.of(self.name, units, seeds, rows, with_, both, status=status, error=error, undefined=gone)


def _pdtp(made: Retrained) -> Float:
    """Return the largest change of each unit at its own queries, under any seed, shape (U,)."""
    worst = np.zeros(len(made.units))
    for with_, without in zip(made.log_with, made.log_without, strict=True):
        np.maximum.at(worst, made.row_unit, largest_change(with_, without))
    return worst


def growth_of(subject: Subject) -> Growth:
    """Return the tree's training data in the precision in which scikit-learn splits it."""
    estimator: Any = subject.recipe.library_estimator
    X = designs.matrix(subject)[: subject.data.n].astype(np.float32)
    # 16 bits are sorted by radix
    codes = np.empty(X.T.shape, dtype=np.uint16 if len(X) < 2**16 else np.int64)
    reach, squeezed = dict[int, Index](), np.zeros(len(X), dtype=bool)
    for j in range(X.shape[1]):
        values, codes[j] = np.unique(X[:, j], return_inverse=True)
        close = values[1:] <= values[:-1] + SAME_VALUE
        if close.any():
            reach[j] = np.searchsorted(values, values + SAME_VALUE, side="right") - 1
            squeezed |= (np.append(close, False) & np.append(False, close))[codes[j]]
    far = codes.copy() if reach else codes
    for j, highest in reach.items():
        far[j] = highest[codes[j]]
    return Growth(
        X=X,
        codes=codes,
        far=far,
        squeezed=squeezed,
        y=subject.label_codes,
        K=len(subject.classes),
        max_depth=np.iinfo(np.int32).max if estimator.max_depth is None else int(estimator.max_depth),
        min_split=int(max(estimator.min_samples_split, 2 * estimator.min_samples_leaf)),
        min_leaf=int(estimator.min_samples_leaf),
    )


ENGINE = DecisionTree()
