"""Indirect queries: looking for the question that tells most about a unit, beyond asking about the unit itself.

Every question becomes a row of the pool, as a candidate that nobody trains on, so any recipe can be asked.
A round trains each unit's model once and asks it everything at once; the next round asks around the best answer so far.
What is found is a change at a real query: it raises ``dtp_lower``, and its absence proves nothing.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from privgate import families
from privgate.families.retrained import Retrained, Status
from privgate.influence.neighbours import as_container, first, neighbours, slope, table
from privgate.statistics import leakage, paired
from privgate.subject.containers import stack, take
from privgate.subject.domain import Domain
from privgate.subject.subject import Subject
from privgate.training.fleet import Fleet

Float = NDArray[np.float64]
Index = NDArray[np.int64]


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
    fleet : Fleet
        Trains, and re-checks what closed forms say.
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
        first = np.array([subject.data.units[int(u)][0] for u in units], dtype=np.int64)
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
        found = families.answer(
            subject, self.units, self.seeds, self.fleet, queries=asked_for, elsewhere=True
        ).retrained
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
    lost = np.array([s in (Status.FAILED, Status.UNDEFINED) for s in found.status], dtype=bool)
    live = ~lost[found.row_unit]
    change = leakage.label_changes(found.log_with[:, live], found.log_without[:, live])
    estimate = paired.mean_changes(change, n_tests=max(1, int(live.sum())))
    error = 2 * np.nan_to_num(found.error, nan=np.inf)[found.row_unit]  # both models may be off
    value = np.full(len(found.row_unit), np.inf)
    value[live] = np.maximum(estimate.low - error[live], 0.0)
    screened = np.array([s == Status.SCREENED for s in found.status], dtype=bool)
    return np.where(screened[found.row_unit], 0.0, value)


def _with_row(rows: Any, k: int, source: Any, row: int) -> Any:
    """Return ``rows`` with entry ``k`` replaced by one row of another container of the same kind."""
    order = np.arange(len(rows) if not hasattr(rows, "shape") else rows.shape[0])
    order[k] = len(order)
    return take(stack(rows, take(source, np.array([row], dtype=np.int64))), order)
