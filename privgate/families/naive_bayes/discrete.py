"""Naive Bayes over categories: the best bound for every unit that effort allows.

Cheap bounds go to all units at once. What they leave open is searched where it matters: units whose limit is
undecided, the unit with the largest value, then the rest while the budget lasts.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.families.certificate import EXACT, Certified, attained
from privgate.families.naive_bayes import count_rounding
from privgate.families.naive_bayes.category_counts import Counts
from privgate.families.naive_bayes.one_record import agreement, cheap
from privgate.families.over_all_queries import rounding
from privgate.families.over_all_queries.applies import Members
from privgate.families.over_all_queries.separable import Tables, changes, root_bound, search

Float = NDArray[np.float64]
Index = NDArray[np.int64]

#: domains of at most so many queries are simply enumerated
_ENUMERABLE = 20_000
#: so many different units are told their own worst question
_ASKED = 100
#: and so many of them, the largest first, if that costs a search
_SEARCHED = 10
#: one search node of two classes costs about as much as so many enumerated queries
_NODE = 500


@dataclass(frozen=True, slots=True)
class SearchEffort:
    """How much searching a certificate may do; counted, not timed, so that two runs agree.

    Parameters
    ----------
    tidy : int
        Enumerated queries over all units that decide nothing; with 0 nothing but the maximum is tightened.
    decide : int
        The same over all units that do.
    unit : int
        Search nodes of one unit with two classes; fewer with more, whose nodes cost more.
    """

    tidy: int = 20_000_000
    decide: int = 100_000_000
    unit: int = 4_000

    def nodes(self, n_classes: int) -> int:
        """Return the search nodes of one unit."""
        return max(100, self.unit * 4 // n_classes**2)


def certify(
    counts: Counts,
    members: Members,
    *,
    limit: float | None = None,
    effort: SearchEffort | None = None,
    assumptions: tuple[str, ...] = (),
) -> Certified:
    """Return what naive Bayes over categories can be proved to tell about each of U units.

    Parameters
    ----------
    counts : Counts
    members : tuple of int64 arrays, or int64 array of shape (U,)
        Records of each unit; one array where every unit is a single record.
    limit : float, optional
        Policy limit, nats: units on both sides of it are searched first.
    effort : Effort, optional
    assumptions : tuple of str
        What the caller checked.
    """
    units, inverse = _distinct(counts, members)
    searching, effort = effort is None, effort or SearchEffort()
    refiner = _Refiner(counts, units, *_first_bounds(counts, units, maximum_only=effort.tidy == 0), effort)
    refiner.run(limit)
    lower, upper = rounding.widened(refiner.lower, refiner.upper, count_rounding.of_changes(counts, units))
    upper = rounding.held(upper, counts.spread)
    lower, upper = lower[inverse], upper[inverse]
    detail: dict[str, Any] = {"distinct_units": len(units), "searched_units": refiner.searched}
    if len(members):
        worst = int(np.lexsort((-lower, -upper))[0])
        query = refiner.query(int(inverse[worst]))
        detail["worst"] = {"position": worst, "query": None if query is None else query.tolist()}
    questions = refiner.questions()[inverse] if len(units) <= _ASKED and searching else None
    return Certified(upper, lower, attained(lower, upper), assumptions, detail, questions)


def _distinct(counts: Counts, members: Members) -> tuple[list[Index], Index]:
    """Return one representative of each kind of unit, and which kind every unit is: equal records leak equally."""
    record = counts.records
    if isinstance(members, np.ndarray):
        _, first, inverse = np.unique(record[members], return_index=True, return_inverse=True)
        return [members[k : k + 1] for k in first], inverse
    kinds: dict[tuple[int, ...], int] = {}
    units: list[Index] = []
    inverse = np.empty(len(members), dtype=np.int64)
    for u, rows in enumerate(members):
        key = tuple(np.sort(record[rows]).tolist())
        if key not in kinds:
            kinds[key] = len(units)
            units.append(rows)
        inverse[u] = kinds[key]
    return units, inverse


def _first_bounds(counts: Counts, units: list[Index], *, maximum_only: bool) -> tuple[Float, Float]:
    """Return (lower, upper) of every unit without any search; both infinite where a unit's absence is undefined."""
    lower, upper = np.zeros(len(units)), np.zeros(len(units))
    single = np.array([len(rows) == 1 for rows in units], dtype=bool)
    rows = np.concatenate([np.zeros(0, dtype=np.int64), *(units[k] for k in np.flatnonzero(single))])
    bad = np.zeros(len(units), dtype=bool)
    bad[single] = counts.undefined_alone(rows)
    bad[~single] = [counts.undefined(units[k]) for k in np.flatnonzero(~single)]
    lower[bad] = upper[bad] = np.inf
    rows, single = rows[~bad[single]], single & ~bad
    if single.any():
        found = cheap(counts, rows, maximum_only=maximum_only) if counts.alpha > 0 else _unsmoothed(counts, rows)
        lower[single], upper[single] = found
    for k in np.flatnonzero(~single & ~bad):
        lower[k], upper[k] = _several(counts, units[k])
    return lower, upper


def _unsmoothed(counts: Counts, rows: Index) -> tuple[Float, Float]:
    """Return bounds without smoothing (docs/mathematics.md, section 3.1, a = 0).

    A value that only this record has in its class makes its own label impossible without it: infinite at the record
    itself. Otherwise bound (A) holds, if no query is impossible under every class.
    """
    a = agreement(counts, rows)
    alone = np.isinf(a.high)
    upper = np.where(alone | (not counts.never_zero.any()), np.inf, a.odds)
    return np.where(alone, np.inf, 0.0), upper


def _several(counts: Counts, rows: Index) -> tuple[float, float]:
    tables = counts.tables(rows)
    if counts.alpha == 0:
        table, _ = counts.without(rows)
        if ((counts.table > 0) & (table == 0))[:, counts.allowed].any():
            return 0.0, np.inf
        if not counts.never_zero.any():
            return 0.0, np.inf
    return 0.0, root_bound(tables)


class _Refiner:
    """Bounds of distinct units, and the searches that tighten them."""

    def __init__(self, counts: Counts, units: list[Index], lower: Float, upper: Float, effort: SearchEffort) -> None:
        self.counts, self.units, self.effort = counts, units, effort
        self.lower, self.upper = lower, upper
        self.searched = 0

    def run(self, limit: float | None) -> None:
        if self.counts.alpha == 0:
            return
        self._spend(self._undecided(limit), self.effort.decide)
        self._spend(self._largest(), self.effort.decide)
        self._spend(iter(np.argsort(-self._gap(), kind="stable").tolist()), self.effort.tidy)

    def _gap(self) -> Float:
        with np.errstate(invalid="ignore"):
            return np.nan_to_num(self.upper - self.lower, nan=0.0, posinf=0.0)

    def _undecided(self, limit: float | None) -> Iterator[int]:
        if limit is not None:
            yield from np.flatnonzero((self.lower <= limit) & (limit < self.upper)).tolist()

    def _largest(self) -> Iterator[int]:
        """Yield units that may hold the maximum, largest bound first, until it is known."""
        for k in np.argsort(-self.upper).tolist():
            if self.upper[k] <= self.lower.max() + EXACT:
                return
            yield k

    def _spend(self, units: Iterator[int], budget: int) -> None:
        for k in units:
            if budget <= 0:
                return
            if np.isfinite(self.upper[k]) and self.upper[k] - self.lower[k] > EXACT:
                budget -= self._search(int(k))

    def _search(self, k: int) -> int:
        self.searched += 1
        tables = self.counts.tables(self.units[k])
        if tables.queries <= _ENUMERABLE:
            value = float(enumerate_queries(tables).max())
            self.lower[k] = self.upper[k] = value
            return int(tables.queries)
        K = self.counts.n_classes
        lower, upper, _, nodes = search(tables, lower=float(self.lower[k]), budget=self.effort.nodes(K))
        self.lower[k], self.upper[k] = lower, max(lower, min(upper, float(self.upper[k])))
        return _NODE * nodes * K**2 // 4

    def questions(self) -> Float:
        """Return where each unit's lower bound is attained, shape (U, m); NaN where a search would have to find it."""
        found = np.full((len(self.units), len(self.counts.sizes)), np.nan)
        for rank, k in enumerate(np.argsort(-self.upper, kind="stable").tolist()):
            if rank < _SEARCHED or self.counts.queries <= _ENUMERABLE:
                query = self.query(k)
                found[k] = np.nan if query is None else query
        return found

    def query(self, k: int) -> Index | None:
        """Return the codes of a query that attains the lower bound, or None where it is infinite."""
        if not np.isfinite(self.lower[k]) or self.counts.alpha == 0:
            return None
        tables = self.counts.tables(self.units[k])
        if tables.queries <= _ENUMERABLE:
            column = np.array(np.unravel_index(int(enumerate_queries(tables).argmax()), tables.shape))
        else:
            budget = self.effort.nodes(self.counts.n_classes)
            found = search(tables, lower=float(self.lower[k]) - EXACT, budget=budget)[2]
            if found is None:
                return None
            column = found
        values = [np.flatnonzero(self.counts.allowed & (self.counts.feature_of == j)) for j in range(len(column))]
        return np.array([v[c] - s for v, c, s in zip(values, column, self.counts.starts, strict=True)], dtype=np.int64)


def enumerate_queries(tables: Tables) -> Float:
    """Return the largest label change at every query, in row-major order of the features' columns."""
    K = len(tables.bias)
    s, r = tables.bias[:, None], tables.bias_without[:, None]
    for f, g in zip(tables.features, tables.features_without, strict=True):
        s = (s[:, :, None] + f[:, None, :]).reshape(K, -1)
        r = (r[:, :, None] + g[:, None, :]).reshape(K, -1)
    return changes(s.T, r.T)
