"""Two given ensembles: how far some answer can be apart at any question, by a search over their common cells."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from privgate.families.trees import cells, library_rounding, search
from privgate.families.trees.cells import Leaves
from privgate.families.trees.ensemble import Ensemble, Float, Index

#: leaves of all trees together, beyond which a pair stays open: of sums, where most cancel, and of means
MOST_LEAVES = {False: 1_000_000, True: 40_000}
#: boxes looked at for the largest score, where the sum of every tree's largest leaf says too little
SCORES = 256
#: ratios tried until the bounds of one meet
TRIES = 8


@dataclass(frozen=True, eq=False)
class Apart:
    """What is known of the largest change of a label's log-probability.

    Parameters
    ----------
    upper : float
        Nats; no question changes any label's log-probability by more, the libraries' rounding included.
    attained : float
        A change of scores, or of the logarithm of a label's exact probability, at ``question``; nats.
    question : float64 array of shape (d,)
    nodes : int
        Boxes looked at.
    """

    upper: float
    attained: float
    question: Float
    nodes: int


class Pair:
    """The ensemble with a person and the one without.

    Parameters
    ----------
    one, other : Ensemble
        Of the same link, floor and labels.
    low, high, whole
        As ``cells.reach_of`` returns them.
    """

    def __init__(self, one: Ensemble, other: Ensemble, low: Float, high: Float, *, whole: bool) -> None:
        same = (one.link, one.floor, one.scale, len(one.base), one.value.shape[1])
        if same != (other.link, other.floor, other.scale, len(other.base), other.value.shape[1]):
            raise ValueError("the ensembles do not answer about the same labels in the same way")
        if one.link == "mean" and one.trees != other.trees:
            raise ValueError(f"means of {one.trees} and of {other.trees} trees")
        self.one, self.other = one, other
        trees = max(one.trees, other.trees)
        self._long = one.padded(trees), other.padded(trees)
        self.grid, self._codes = cells.grid_of(self._long, low, high, whole=whole)

    @cached_property
    def leaves(self) -> Leaves:
        """Where leaves of both meet."""
        return cells.joint(*self._long, (self._codes[0], self._codes[1]), self.grid.last)

    def apart(self, *, nodes: int, limit: float | None = None, settle: bool = False) -> Apart:
        """Return bounds of the largest change.

        Parameters
        ----------
        nodes : int
            Boxes looked at in each search.
        limit : float, optional
            Nats: what a search for a ratio compares with.
        settle : bool
            Whether a search ends as soon as it is known on which side of ``limit`` it ends.
        """
        if len(self.leaves.tree) > MOST_LEAVES[self.one.link == "mean"]:
            return Apart(np.inf, 0.0, np.full(len(self.grid.high), np.nan), 0)
        if self.one.link == "mean":
            return self._ratios(nodes, 1.0 if limit is None else limit, settle=settle)
        rounding = self._rounding
        if not np.isfinite(rounding):
            nodes, settle = min(nodes, SCORES), False
        stop = (limit - rounding) / self.one.scale if settle and limit is not None else np.inf
        upper, attained, cell, seen = 0.0, 0.0, np.zeros(len(self.grid.high), dtype=np.int64), 0
        for given, shift in self._differences():
            found = search.maximise(given, nodes=nodes, stop=stop - shift, slack=1e-3 / self.one.scale)
            upper, seen = max(upper, found.upper + shift), seen + found.nodes
            if found.attained + shift > attained:
                attained, cell = found.attained + shift, found.cell
            if attained > stop:
                upper = np.inf  # what was not searched is not bounded
                break
        scale = self.one.scale
        return Apart(upper * scale + rounding, attained * scale, self.grid.question(cell), seen)

    # -- sums through a link ------------------------------------------------------------------------------------------

    @cached_property
    def _values(self) -> Float:
        a, b = self._long
        return np.asarray(a.value[self.leaves.one, 0] - b.value[self.leaves.other, 0])

    def _differences(self) -> Iterator[tuple[search.Problem, float]]:
        """Yield, for each score or pair of scores and each sign, the leaves' differences and what the bases add.

        Leaf values are doubles or single-precision numbers: their difference errs by a rounding, which is added.
        """
        a, b = self._long
        group, G = a.group[self.leaves.tree], len(a.base)
        base, values = a.base - b.base, self._values
        spare = 4 * library_rounding.U64 * (np.abs(a.base).sum() + np.abs(b.base).sum())
        off = 2 * library_rounding.U64 * (np.abs(a.value[self.leaves.one, 0]) + np.abs(b.value[self.leaves.other, 0]))
        for g in range(G):
            for h in range(g + 1, G) if G > 1 else (-1,):
                mine = (group == g) | (group == h)
                signed = np.where(group[mine] == g, values[mine], -values[mine])
                shift = float(base[g] - (base[h] if h >= 0 else 0.0))
                for sign in (1.0, -1.0):
                    yield self._problem(sign * signed + off[mine], mine), sign * shift + float(spare)

    def _problem(self, value: Float, mine: Index | slice) -> search.Problem:
        leaves = self.leaves
        return search.problem(leaves.tree[mine], leaves.low[mine], leaves.high[mine], value, self.grid.last)

    @cached_property
    def _rounding(self) -> float:
        """What the library's arithmetic adds to a change, nats, over both models."""
        return sum(self._rounding_of(k) for k in (0, 1))

    def _rounding_of(self, k: int) -> float:
        ensemble = self._long[k]
        if ensemble.link == "softmax":
            ranges = [self._range(k, g, search_it=False) for g in range(len(ensemble.base))]
            return library_rounding.of_softmax(ensemble, max(r[1] for r in ranges) - min(r[0] for r in ranges))
        low, high = (ensemble.scale * v for v in self._range(k, 0, search_it=False))
        error = library_rounding.of_logistic(ensemble, low, high)
        if error > 1e-3:
            low, high = (ensemble.scale * v for v in self._range(k, 0, search_it=True))
            error = library_rounding.of_logistic(ensemble, low, high)
        return error

    def _range(self, k: int, g: int, *, search_it: bool) -> tuple[float, float]:
        """Return between which numbers a score of one ensemble lies."""
        ensemble = self._long[k]
        mine = ensemble.group[self.leaves.tree] == g
        value = ensemble.value[(self.leaves.one, self.leaves.other)[k], 0][mine]
        tree = self.leaves.tree[mine]
        ends = []
        for sign in (1.0, -1.0):
            if search_it:
                top = search.maximise(self._problem(sign * value, mine), nodes=SCORES, slack=0.1).upper
            else:
                top = float(np.maximum.reduceat(sign * value, np.flatnonzero(np.diff(tree, prepend=-1))).sum())
            ends.append(sign * top + float(ensemble.base[g]))
        return ends[1], ends[0]

    # -- means of distributions ---------------------------------------------------------------------------------------

    def _ratios(self, nodes: int, limit: float, *, settle: bool) -> Apart:
        """Return bounds of the largest ``|ln (mean P + floor) - ln (mean P' + floor)|`` over labels and questions."""
        a, b = self._long
        P, Q = a.value[self.leaves.one], b.value[self.leaves.other]
        rounding = library_rounding.of_mean(a) + library_rounding.of_mean(b)
        worst, attained, where, seen = 0.0, 0.0, np.zeros(len(self.grid.high), dtype=np.int64), 0
        for label in range(P.shape[1]):
            for p, q in ((P[:, label], Q[:, label]), (Q[:, label], P[:, label])):
                upper, reached, cell, looked = self._ratio(p, q, nodes, max(limit - 2 * rounding, 0.0), settle=settle)
                worst, seen = max(worst, upper), seen + looked
                if reached > attained:
                    attained, where = reached, cell
        return Apart(worst + rounding, attained, self.grid.question(where), seen)

    def _ratio(self, p: Float, q: Float, nodes: int, limit: float, *, settle: bool) -> tuple[float, float, Index, int]:
        """Return (upper, attained, cell, boxes) of the logarithm of the largest ratio of two sums of leaves.

        Where ``sum p - r sum q + alpha (1 - r) <= U`` at every question, the ratio is at most
        ``r + U / (sum q + alpha)``, whose denominator lies between alpha and T + alpha. Tried at the limit, then next
        to what was attained there.
        """
        T = self.one.trees
        alpha = self.one.floor * T
        slack = max(1e-9, 1e-3 * alpha)
        upper, attained, seen, cell = np.inf, 0.0, 0, np.zeros(len(self.grid.high), dtype=np.int64)
        ratio = float(np.exp(limit))
        for _ in range(1 if settle else TRIES):
            stop = alpha * (ratio - 1) if settle else np.inf
            gain = p - ratio * q
            given = self._problem(gain + 4 * library_rounding.U64 * (p + ratio * q), slice(None))
            found = search.maximise(given, nodes=nodes, slack=slack, stop=stop)
            seen += found.nodes
            excess = found.upper + alpha * (1 - ratio)
            bound = ratio + (excess / alpha if excess > 0 else excess / (T + alpha))
            upper = min(upper, float(np.log(max(bound, 1.0))) + 8 * library_rounding.U64)
            here = self._at(found.cell)
            reached = float(np.log((p[here].sum() + alpha) / (q[here].sum() + alpha)))
            stuck = reached <= attained and excess > 0
            if reached > attained:
                attained, cell = reached, found.cell
            if stuck or upper - attained < 1e-3:
                break
            ratio = float(np.exp(attained + min(5e-4, (upper - attained) / 2)))
        return upper, attained, cell, seen

    def _at(self, cell: Index) -> Index:
        leaves = self.leaves
        return np.flatnonzero(((leaves.low <= cell) & (leaves.high >= cell)).all(axis=1))
