"""Indirect queries: looking for the question that tells most about a unit, beyond asking about the unit itself."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from privgate.arrays import Float, Index
from privgate.evidence import IndirectQueries
from privgate.run import refit
from privgate.run.run import Run
from privgate.statistics import leakage
from privgate.subject.containers import stack, take
from privgate.subject.domain import Domain
from privgate.subject.subject import Subject
from privgate.theorems import catalogue
from privgate.theorems.closed_form import Asked
from privgate.theorems.retrained import Retrained, Seeds
from privgate.training.fleet import Fleet

# Which questions to ask next about a unit: others' records and the domain first, then around the best so far.

#: domains of at most so many queries are asked completely
EXHAUSTIVE = 4_096


def first(
    subject: Subject, domain: Domain | None, units: Index, records: int, rng: Generator
) -> tuple[Any, NDArray[Any], bool]:
    """Return (queries, how each was come by, whether the domain is asked completely) of the first round."""
    X, numbers = subject.data.X, table(subject.data.X)
    own = np.concatenate([subject.data.units[int(u)] for u in units])
    count = min(subject.data.n, records)
    others = take(X, np.sort(rng.choice(subject.data.n, size=count, replace=False)).astype(np.int64))
    if numbers is None or domain is None:
        return others, np.full(count, "record", dtype=object), False
    if domain.categories is not None and np.prod(np.array(domain.categories, dtype=np.float64)) <= EXHAUSTIVE:
        grid = np.indices(domain.categories).reshape(len(domain.categories), -1).T.astype(np.float64)
        return (
            as_container(_inside(grid, domain), X),
            np.full(len(_inside(grid, domain)), "domain", dtype=object),
            True,
        )
    low, high, whole = _sides(domain, numbers.shape[1], numbers[0])
    ends = np.where(rng.random((count, numbers.shape[1])) < 0.5, low, high)
    # between units asked about and anybody else, towards the ends of the domain
    pairs = numbers[rng.choice(own, size=count)], numbers[rng.integers(len(numbers), size=count)]
    t = rng.random((count, 1))
    between = t * pairs[0] + (1 - t) * pairs[1]
    if whole:
        between = np.where(rng.random(between.shape) < t, pairs[0], pairs[1])
    parts = [_inside(v, domain) for v in (ends, between)]
    kinds = np.repeat(["record", "domain", "between"], [count, len(parts[0]), len(parts[1])]).astype(object)
    return stack(others, as_container(np.concatenate(parts), X)), kinds, False


def slope(points: Float, value: Float) -> Float:
    """Return the direction in which the change grows, shape (d,): least squares around the best point.

    Nearby answers count most, so that for differentiable models this is their gradient, without asking how they work.
    """
    good = np.isfinite(value)
    if good.sum() < 3:
        return np.zeros(points.shape[1])
    points, value = points[good], value[good]
    offset = points - points[int(value.argmax())]
    spread = np.maximum(np.abs(offset).max(axis=0), 1e-12)
    distance = (np.abs(offset) / spread).sum(axis=1)
    weight = 1.0 / (1e-2 + distance / max(float(distance.max()), 1e-12))
    A, b = (offset / spread) * weight[:, None], (value - value.max()) * weight
    return np.asarray(np.linalg.solve(A.T @ A + 1e-6 * np.eye(A.shape[1]), A.T @ b))


def neighbours(
    best: Float, own: Float, domain: Domain, count: int, rng: Generator, *, uphill: Float | None = None
) -> Float:
    """Return up to ``count`` queries around ``best``, inside the domain, shape (Q, d).

    Categories: every change of one feature, then random changes of several. Boxes: one feature moved to either end, to
    the unit's own value or by a random step, points between the best query and the unit's records, steps of several
    lengths ``uphill`` (ascent by estimated gradient), and random steps of everything.
    """
    d = len(best)
    low, high, whole = _sides(domain, d, best)
    made: list[Float] = []
    if whole:
        for j in rng.permutation(d)[: max(1, count // 2)]:
            values = np.arange(low[j], high[j] + 1)
            values = values[values != best[j]]
            rows = np.repeat(best[None], len(values), axis=0)
            rows[:, j] = values
            made.append(rows)
    else:
        for j in rng.permutation(d)[: max(1, count // 8)]:
            rows = np.repeat(best[None], 4, axis=0)
            rows[:, j] = low[j], high[j], own[0, j], best[j] + rng.normal() * (high[j] - low[j]) / 10
            made.append(rows)
        if uphill is not None and np.abs(uphill).max(initial=0.0) > 0:
            length = np.geomspace(0.01, 2.0, 12)[:, None]
            made.append(best + length * (high - low) * uphill / np.abs(uphill).max())
            made.append(best + length * (high - low) * np.sign(uphill))
        t = rng.random((max(1, count // 8), 1)) * 1.5
        made.append(best + t * (own[rng.integers(len(own), size=len(t))] - best))
    rest = max(1, count - sum(len(m) for m in made))
    random = low + (high - low) * rng.random((rest, d))
    random = np.floor(random + rng.random((rest, d))) if whole else random
    # few features at a time: a change of everything forgets what made the best query good
    swap = rng.random((rest, d)) < np.minimum(1.0, rng.integers(1, 4, (rest, 1)) / d)
    step = best + (random - best) * (1.0 if whole else rng.random((rest, 1)))
    made.append(np.where(swap, step, best))
    rows = np.clip(np.concatenate(made)[:count], low, high)
    return _inside(np.floor(rows + 0.5) if whole else rows, domain)


def _sides(domain: Domain, d: int, like: Float) -> tuple[Float, Float, bool]:
    """Return (low, high, whole numbers only) of each feature."""
    if domain.categories is not None:
        return np.zeros(d), np.array(domain.categories, dtype=np.float64) - 1, True
    if domain.box is not None:
        low, high = np.array(domain.box, dtype=np.float64).T
        return low, high, False
    top = domain.max_length if domain.max_length is not None else domain.norm
    return np.zeros(d), np.full(d, float(top or 0.0)), bool((like == np.floor(like)).all()) and domain.norm is None


def _inside(rows: Float, domain: Domain) -> Float:
    """Return the rows shrunk into a declared length or norm."""
    for limit, size in ((domain.max_length, rows.sum(axis=1)), (domain.norm, np.sqrt((rows**2).sum(axis=1)))):
        if limit is not None:
            factor = np.minimum(1.0, limit / np.maximum(size, 1e-300))[:, None]
            rows = np.where(factor < 1, rows * factor, rows)
            if limit == domain.max_length:
                rows = np.where(factor < 1, np.floor(rows), rows)
    return rows


def table(X: Any) -> Float | None:
    """Return a dense numeric table, or None where queries cannot be made up."""
    if hasattr(X, "toarray"):
        X = X.toarray()
    if not hasattr(X, "shape") or len(X.shape) != 2:
        return None
    array = np.asarray(X)
    return array.astype(np.float64) if array.dtype.kind in "biuf" else None


def as_container(rows: Float, like: Any) -> Any:
    """Return rows in the kind of container, and of the types, that the recipe was given."""
    if type(like).__module__.startswith("pandas"):
        import pandas as pd

        return pd.DataFrame(rows, columns=like.columns).astype(like.dtypes.to_dict())
    if hasattr(like, "tocsr"):
        return type(like)(rows.astype(like.dtype))
    return rows.astype(np.asarray(like).dtype)


# Indirect queries: looking for the question that tells most about a unit, beyond asking about the unit itself.
#
# Every question becomes a row of the pool, as a candidate that nobody trains on, so any recipe can be asked. A round
# trains each unit's model once and asks it everything at once; the next round asks around the best answer so far. What
# is found is a change at a real query: it raises ``dtp_lower``, and its absence proves nothing.


@dataclass(frozen=True, slots=True)
class QueryEffort:
    """What a search may cost.

    Parameters
    ----------
    rounds : int
        Trainings of each unit; the first asks about other records, the others around the best query so far.
    records : int
        Other people's records asked about in the first round.
    queries : int
        Questions about a unit in each later round.
    """

    rounds: int = 3
    records: int = 200
    queries: int = 256


@dataclass(frozen=True, eq=False)
class FoundQueries:
    """What a search found.

    Parameters
    ----------
    units : int64 array of shape (U,)
    lower : float64 array of shape (U,)
        Largest label change at a query that was really asked, nats; infinite where a unit's model failed at none of its
        own records but at another query.
    queries : sequence of U rows
        The query of each, as a row of ``X``.
    kinds : object array of shape (U,) of str
        How it was come by: "own", "record", "domain", "between", "around".
    asked : int
        Queries asked in all.
    """

    units: Index
    lower: Float
    queries: Any
    kinds: NDArray[Any]
    asked: int


def search(
    subject: Subject,
    units: Index,
    fleet: Fleet,
    rng: Generator,
    *,
    seeds: tuple[int | None, ...] = (None,),
    effort: QueryEffort | None = None,
    domain: Domain | None = None,
) -> FoundQueries:
    """Return the most telling query found for each of ``units``.

    Parameters
    ----------
    subject : Subject
    units : int64 array of shape (U,)
        Positions in ``subject.data.units``, each once.
    rng : Generator
    seeds : tuple
        Paired seeds, as in ``Retrained``; changes of log-probability are averaged over them, and what is reported is
        the lower confidence limit.
    effort : Effort, optional
    domain : Domain, optional
        Where to ask; the subject's own if absent. Without any, only records of the pool are asked about.
    """
    effort = effort or QueryEffort()
    units = np.sort(np.asarray(units, dtype=np.int64))
    domain = domain or subject.data.effective_domain
    domain = domain if domain is None or domain.is_table else None  # columns of text: records of the pool are asked
    state = _State(subject, units, fleet, seeds)
    X, kinds, complete = first(subject, domain, units, effort.records, rng)
    state.ask(X, kinds, complete=complete)
    numbers = table(subject.data.X)
    for _ in range(effort.rounds - 1 if numbers is not None and domain is not None else 0):
        if numbers is None or domain is None or state.complete:
            break
        state.ask_around(numbers, domain, effort.queries, rng)
    return FoundQueries(units, state.lower, state.queries, state.kinds, state.asked)


class _State:
    """The best query of each unit so far."""

    def __init__(self, subject: Subject, units: Index, fleet: Fleet, seeds: tuple[int | None, ...]) -> None:
        self.subject, self.units, self.fleet, self.seeds = subject, units, fleet, seeds
        self.lower = np.zeros(len(units))
        self.kinds = np.full(len(units), "own", dtype=object)
        first = subject.data.units.first[units]
        self.queries = take(subject.data.X, first)
        self.asked = 0
        self.complete = False
        #: direction of ascent of each unit, from what the last round was told
        self.slopes: dict[int, Float] = {}

    def ask(self, X: Any, kinds: NDArray[Any], *, complete: bool) -> None:
        """Ask about every row of ``X`` for every unit, and about each unit's own records."""
        everyone = np.arange(len(kinds))
        self._ask(X, kinds, [everyone] * len(self.units))
        self.complete = complete

    def ask_around(self, numbers: Float, domain: Domain, count: int, rng: Generator) -> None:
        """Ask around the best query of each unit."""
        near, best = [], np.asarray(table(self.queries), dtype=np.float64)
        for k, u in enumerate(self.units):
            own = numbers[self.subject.data.units[int(u)]]
            near.append(neighbours(best[k], own, domain, count, rng, uphill=self.slopes.get(k)))
        edges = np.cumsum([0, *(len(v) for v in near)])
        kinds = np.full(int(edges[-1]), "around", dtype=object)
        rows = [np.arange(a, b) for a, b in itertools.pairwise(edges)]
        self._ask(as_container(np.concatenate(near), self.subject.data.X), kinds, rows)

    def _ask(self, X: Any, kinds: NDArray[Any], rows: Sequence[Index]) -> None:
        data = self.subject.data
        asked = replace(data, candidates=(X, np.full(len(kinds), data.y[0])), domain=data.domain)
        subject = self.subject.with_data(asked)
        mine = [np.concatenate([data.units[int(u)], data.n + rows[k]]) for k, u in enumerate(self.units)]
        row_unit = np.repeat(np.arange(len(mine)), [len(m) for m in mine])
        pool_rows = np.concatenate(mine)
        asked_for = (row_unit, pool_rows)
        put = Asked(subject, self.units, self.seeds, self.fleet, asked_for)
        found = refit.leave_out(put)
        self.asked += len(pool_rows)
        value, pool = per_query(found), subject.data.pool()[0]
        for k in range(len(self.units)):
            at = np.flatnonzero(found.row_unit == k)
            top = at[int(value[at].argmax())]
            points = table(take(pool, found.row_query[at]))
            if points is not None:
                self.slopes[k] = slope(points, value[at])
            if value[top] > self.lower[k]:
                self.lower[k] = value[top]
                row = int(found.row_query[top])
                self.kinds[k] = "own" if row < data.n else str(kinds[row - data.n])
                self.queries = _with_row(self.queries, k, pool, row)


def per_query(found: Retrained) -> Float:
    """Return the largest label change at each row, shape (R,), nats: what is certain after error and seeds.

    Rows of units without a model are infinite: the unit cannot be left out at all.
    """
    live = ~found.lost[found.row_unit]
    change = leakage.label_changes(found.log_with[:, live], found.log_without[:, live])
    estimate = leakage.mean_changes(change, n_tests=max(1, int(live.sum())))
    error = 2 * np.nan_to_num(found.error, nan=np.inf)[found.row_unit]  # both models may be off
    value = np.full(len(found.row_unit), np.inf)
    value[live] = np.maximum(estimate.low - error[live], 0.0)
    return value


def _with_row(rows: Any, k: int, source: Any, row: int) -> Any:
    """Return ``rows`` with entry ``k`` replaced by one row of another container of the same kind."""
    order = np.arange(len(rows) if not hasattr(rows, "shape") else rows.shape[0])
    order[k] = len(order)
    return take(stack(rows, take(source, np.array([row], dtype=np.int64))), order)


# Which units are asked indirect questions: those whose DTP is not decided by a certificate, riskiest first.

#: units searched in one check; a search trains each of them a few times more
UNITS = 10
#: paired seeds of a search: what is found is a lower limit, which more hardly sharpen
SEEDS = 20


def trainings(run: Run) -> int:
    """Return how many trainings the search takes at most; none where a theorem bounds every answer."""
    if catalogue.applicable(run.subject)[0]:
        return 0
    rounds = QueryEffort().rounds if run.subject.data.effective_domain is not None else 1
    return rounds * (min(UNITS, run.n_units) + 1) * len(run.seeds[:SEEDS])


def raised(
    run: Run, units: Index, pdtp: Float, lower: Float, upper: Float, *, seeds: Seeds
) -> tuple[Float, IndirectQueries]:
    """Return ``lower`` raised where a search found a question that tells more, and what the search was.

    Parameters
    ----------
    run : Run
    units : int64 array of shape (U,)
        Positions in ``subject.data.units``.
    pdtp, lower, upper : float64 arrays of shape (U,)
        Nats; a unit is open if no certificate bounds it, or the policy's limit lies between its catalogue.

    Notes
    -----
    The search ranks open units by PDTP and takes ``UNITS`` of them. What it does not find proves nothing, so it never
    lowers a bound; ``upper`` alone approves.
    """
    limit = max(run.thresholds, default=1.0)
    open_ = (lower <= limit) & (upper > limit) & np.isfinite(lower)
    open_ &= not run.subject.release.alone  # the search compares exact numbers, which nobody gets there
    chosen = np.flatnonzero(open_)
    chosen = np.sort(chosen[np.argsort(-pdtp[chosen], kind="stable")[:UNITS]])
    if len(chosen) == 0:
        return lower, IndirectQueries(open_units=int(open_.sum()), searched=0)
    rng = run.generator("indirect queries")
    found = search(run.subject, units[chosen], run.fleet, rng, seeds=seeds[:SEEDS])
    better = found.lower > lower[chosen]
    out = lower.copy()
    out[chosen] = np.maximum(lower[chosen], found.lower)
    best = int(np.argmax(found.lower))
    told = IndirectQueries(
        open_units=int(open_.sum()),
        searched=len(chosen),
        raised=int(better.sum()),
        queries=int(found.asked),
        best=str(found.kinds[best]),
    )
    return out, told
