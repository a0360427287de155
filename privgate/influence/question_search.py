"""A search for the question that tells most about a person, beyond asking about the person's own records.

Every question becomes a row of the pool, as a candidate that nobody trains on, so any recipe can be asked. A round
trains each person's model once and asks it everything; the next round asks around the best answer so far. A change at
a question that was really asked raises ``dtp_lower``; its absence proves nothing.
"""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from privgate.arrays import Float, Index
from privgate.run import refit
from privgate.run.run import Run
from privgate.statistics import leakage
from privgate.subject.containers import make_like, stack, take
from privgate.subject.domain import Domain
from privgate.subject.subject import Subject
from privgate.theorems import catalogue, two_models
from privgate.theorems.closed_form import RefitRequest, Seeds
from privgate.theorems.hypotheses import dense
from privgate.training.fleet import Fleet

#: domains of at most so many questions are asked completely
EXHAUSTIVE = 4_096
#: people searched in one check; a search trains each of them a few times more
UNITS = 10
#: paired seeds of a search: it seeks a lower limit, which more hardly sharpen
SEEDS = 20
#: rounds of training, others' records in the first, questions a person in later ones
ROUNDS, RECORDS, QUERIES = 3, 200, 256


def count_trainings(run: Run) -> int:
    """Return how many trainings the search takes at most; none where a theorem limits every answer.

    Of regressors nothing is searched, and models are read.
    """
    if catalogue.applicable(run.subject)[0]:
        return 0
    if run.subject.task == "regression":
        return 0 if two_models.refusal(run.subject) or run.n_units > two_models.MOST else run.n_units + 1
    rounds = ROUNDS if run.subject.data.effective_domain is not None else 1
    return rounds * (min(UNITS, run.n_units) + 1) * len(run.seeds[:SEEDS])


def raise_lower(run: Run, units: Index, pdtp: Float, lower: Float, upper: Float, *, seeds: Seeds) -> Float:
    """Return ``lower`` raised where a search knows a question that tells more.

    It takes the ``UNITS`` people of largest PDTP whom no limit decides; arrays (U,), nats. It approves nobody.
    """
    limit = max(run.thresholds, default=1.0)
    undecided = (lower <= limit) & (upper > limit) & np.isfinite(lower)
    undecided &= not run.subject.release.alone  # the search compares exact numbers, which nobody gets there
    chosen = np.flatnonzero(undecided)
    chosen = np.sort(chosen[np.argsort(-pdtp[chosen], kind="stable")[:UNITS]])
    if len(chosen) == 0:
        return lower
    best = search(run.subject, units[chosen], run.fleet, run.generator("indirect queries"), seeds=seeds[:SEEDS])
    raised = lower.copy()
    raised[chosen] = np.maximum(lower[chosen], best.lower)
    return raised


def search(
    subject: Subject,
    units: Index,
    fleet: Fleet,
    rng: Generator,
    *,
    seeds: Seeds = (None,),
    effort: tuple[int, int, int] = (ROUNDS, RECORDS, QUERIES),
) -> "BestQuestions":
    """Return the most telling question about each of ``units``, inside the subject's domain.

    Without a domain of numbers only records of the pool are asked about. Changes of log-probability are averaged over
    paired ``seeds``, as in ``Retrained``; what is reported is the lower confidence limit.
    """
    domain, (rounds, records, queries) = subject.data.effective_domain, effort
    domain = domain if domain is None or domain.is_table else None  # columns of text: records of the pool are asked
    best = BestQuestions(subject, np.sort(np.asarray(units, dtype=np.int64)), fleet, seeds)
    X, kinds, complete = _choose_first(best, domain, records, rng)
    best.ask(X, kinds, [np.arange(len(kinds))] * len(best.units))
    if domain is not None and best.numbers is not None and not complete:
        for _ in range(rounds - 1):
            best.ask_around(domain, queries, rng)
    return best


class BestQuestions:
    """The best question about each person so far.

    ``lower`` (U,) is the largest label change at a question that was really asked, nats; infinite where a person's
    model fails elsewhere than at their own records. ``kinds`` (U,) says how that question was come by: "own", "record",
    "domain", "between", "around". ``rows`` holds the question itself by position, where records are numbers.
    """

    def __init__(self, subject: Subject, units: Index, fleet: Fleet, seeds: Seeds) -> None:
        self.subject, self.units, self.fleet, self.seeds = subject, units, fleet, seeds
        self.lower, self.kinds = np.zeros(len(units)), np.full(len(units), "own", dtype=object)
        self.numbers = dense(subject.data.X)
        first = subject.data.units.first[units]
        self.rows: dict[int, Float] = {} if self.numbers is None else dict(enumerate(self.numbers[first]))
        #: direction of ascent of each person, by the answers of the last round
        self.slopes: dict[int, Float] = {}

    def ask_around(self, domain: Domain, count: int, rng: Generator) -> None:
        """Ask around the best question about each person, where records are numbers."""
        data, numbers = self.subject.data, np.asarray(self.numbers)
        near = [
            choose_around(self.rows[k], numbers[data.units[int(u)]], domain, count, rng, uphill=self.slopes.get(k))
            for k, u in enumerate(self.units)
        ]
        edges = np.cumsum([0, *(len(v) for v in near)])
        rows = [np.arange(a, b) for a, b in itertools.pairwise(edges)]
        self.ask(make_like(np.concatenate(near), data.X), np.full(int(edges[-1]), "around", dtype=object), rows)

    def ask(self, X: Any, kinds: NDArray[Any], rows: Sequence[Index]) -> None:
        """Ask about each person's own records and their ``rows`` of ``X``, and keep what tells most."""
        data = self.subject.data
        larger = replace(data, candidates=(X, np.full(len(kinds), data.y[0])), domain=data.domain)
        subject = self.subject.with_data(larger)
        mine = [np.concatenate([data.units[int(u)], data.n + rows[k]]) for k, u in enumerate(self.units)]
        queries = np.repeat(np.arange(len(mine)), [len(m) for m in mine]), np.concatenate(mine)
        refits = refit.leave_out(RefitRequest(subject, self.units, self.seeds, self.fleet, queries))
        pool, live = subject.data.pool()[0], ~refits.lost[refits.row_unit]
        change = leakage.label_changes(refits.log_with[:, live], refits.log_without[:, live])
        estimate = leakage.mean_changes(change, n_tests=max(1, int(live.sum())))
        error = 2 * np.nan_to_num(refits.error, nan=np.inf)[refits.row_unit]  # both models may be off
        value = np.full(len(refits.row_unit), np.inf)  # of people without a model: they cannot be left out at all
        value[live] = np.maximum(estimate.low - error[live], 0.0)
        for k in range(len(self.units)):
            at = np.flatnonzero(refits.row_unit == k)
            top, points = int(value[at].argmax()), dense(take(pool, refits.row_query[at]))
            if points is not None:
                self.slopes[k] = estimate_slope(points, value[at])
            if value[at][top] > self.lower[k]:
                self.lower[k], row = value[at][top], int(refits.row_query[at[top]])
                self.kinds[k] = "own" if row < data.n else str(kinds[row - data.n])
                if points is not None:
                    self.rows[k] = points[top]


# Which questions to ask next: others' records and the domain first, then around the best so far.


def _choose_first(
    best: BestQuestions, domain: Domain | None, records: int, rng: Generator
) -> tuple[Any, NDArray[Any], bool]:
    """Return (questions, how each was come by, whether the domain is asked completely) of the first round."""
    subject, numbers, X = best.subject, best.numbers, best.subject.data.X
    own = np.concatenate([subject.data.units[int(u)] for u in best.units])
    count = min(subject.data.n, records)
    others = take(X, np.sort(rng.choice(subject.data.n, size=count, replace=False)).astype(np.int64))
    if numbers is None or domain is None:
        return others, np.full(count, "record", dtype=object), False
    if domain.categories is not None and np.prod(np.array(domain.categories, dtype=np.float64)) <= EXHAUSTIVE:
        grid = np.indices(domain.categories).reshape(len(domain.categories), -1).T.astype(np.float64)
        return make_like(grid, X), np.full(len(grid), "domain", dtype=object), True
    low, high, whole = _sides(domain)
    ends = np.where(rng.random((count, numbers.shape[1])) < 0.5, low, high)
    # between people searched for and anybody else, towards the ends of the domain
    pairs = numbers[rng.choice(own, size=count)], numbers[rng.integers(len(numbers), size=count)]
    t = rng.random((count, 1))
    between = t * pairs[0] + (1 - t) * pairs[1]
    if whole:
        between = np.where(rng.random(between.shape) < t, pairs[0], pairs[1])
    kinds = np.repeat(["record", "domain", "between"], count).astype(object)
    return stack(others, make_like(np.concatenate([ends, between]), X)), kinds, False


def choose_around(
    best: Float, own: Float, domain: Domain, count: int, rng: Generator, *, uphill: Float | None = None
) -> Float:
    """Return up to ``count`` questions around ``best``, inside the domain, shape (Q, d).

    Categories: every change of one feature, then random changes of several. Boxes: one feature moved to either end, to
    the person's own value or by a random step, points between the best question and the person's records, steps of
    several lengths ``uphill`` (ascent by estimated gradient), and random steps of everything.
    """
    d = len(best)
    low, high, whole = _sides(domain)
    parts: list[Float] = []
    for j in rng.permutation(d)[: max(1, count // (2 if whole else 8))]:
        values = (
            np.setdiff1d(np.arange(low[j], high[j] + 1), best[j])
            if whole
            else np.array([low[j], high[j], own[0, j], best[j] + rng.normal() * (high[j] - low[j]) / 10])
        )
        parts.append(np.repeat(best[None], len(values), axis=0))
        parts[-1][:, j] = values
    if not whole:
        if uphill is not None and np.abs(uphill).max(initial=0.0) > 0:
            length = np.geomspace(0.01, 2.0, 12)[:, None] * (high - low)
            parts += [best + length * uphill / np.abs(uphill).max(), best + length * np.sign(uphill)]
        t = rng.random((max(1, count // 8), 1)) * 1.5
        parts.append(best + t * (own[rng.integers(len(own), size=len(t))] - best))
    rest = max(1, count - sum(len(m) for m in parts))
    random = low + (high - low) * rng.random((rest, d))
    random = np.floor(random + rng.random((rest, d))) if whole else random
    # few features at a time: a change of everything forgets what made the best question good
    swap = rng.random((rest, d)) < np.minimum(1.0, rng.integers(1, 4, (rest, 1)) / d)
    step = best + (random - best) * (1.0 if whole else rng.random((rest, 1)))
    rows = np.clip(np.concatenate([*parts, np.where(swap, step, best)])[:count], low, high)
    return np.asarray(np.floor(rows + 0.5) if whole else rows)


def estimate_slope(points: Float, value: Float) -> Float:
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


def _sides(domain: Domain) -> tuple[Float, Float, bool]:
    """Return (low, high, whole numbers only) of each feature."""
    if domain.categories is not None:
        return np.zeros(len(domain.categories)), np.array(domain.categories, dtype=np.float64) - 1, True
    low, high = np.array(domain.box, dtype=np.float64).T
    return low, high, False
