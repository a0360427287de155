"""A search for the question that tells most about a person, beyond asking about the person's own records.

Every question becomes a row of the pool, as a candidate that nobody trains on, so any recipe can be asked. A change at
a question that was really asked raises ``dtp_lower``; its absence proves nothing.
"""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.random import Generator

from privgate.arrays import Float, Index
from privgate.kernel.scores import largest
from privgate.run import refit
from privgate.run.run import Run
from privgate.statistics import leakage
from privgate.subject.containers import length, make_like, stack, take
from privgate.subject.subject import Subject
from privgate.theorems import catalogue
from privgate.theorems.closed_form import RefitRequest, Seeds
from privgate.theorems.hypotheses import dense
from privgate.training.fleet import Fleet

#: domains of at most so many questions are asked completely
EXHAUSTIVE = 4_096
#: people searched in one check; a search trains each of them once more
UNITS = 10
#: paired seeds of a search: it seeks a lower limit, which more hardly sharpen
SEEDS = 20
#: questions of each kind
RECORDS = 200


def count_trainings(run: Run) -> int:
    """Return how many trainings the search takes at most; none where a theorem limits every answer."""
    if catalogue.applicable(run.subject)[0]:
        return 0
    return (min(UNITS, run.n_units) + 1) * len(run.seeds[:SEEDS])


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
    raised[chosen] = np.maximum(lower[chosen], best)
    return raised


def search(subject: Subject, units: Index, fleet: Fleet, rng: Generator, *, seeds: Seeds = (None,)) -> Float:
    """Return the largest change at a question about each of ``units``, ascending, that was asked; (U,), nats.

    Changes of log-probability are averaged over paired ``seeds``, as in ``Retrained``; what is reported is the lower
    confidence limit. Infinite where a person's model fails.
    """
    data, X = subject.data, _choose_questions(subject, units, rng)
    count = length(X)
    larger = subject.with_data(replace(data, candidates=(X, np.full(count, data.y[0])), domain=data.domain))
    rows = [np.concatenate([data.units[int(u)], data.n + np.arange(count)]) for u in units]
    queries = np.repeat(np.arange(len(rows)), [len(own) for own in rows]), np.concatenate(rows)
    refits = refit.leave_out(RefitRequest(larger, units, seeds, fleet, queries))
    live = ~refits.lost[refits.row_unit]
    change = leakage.label_changes(refits.log_with[:, live], refits.log_without[:, live])
    estimate = leakage.mean_changes(change, n_tests=max(1, int(live.sum())))
    error = 2 * np.nan_to_num(refits.error, nan=np.inf)[refits.row_unit]  # both models may be off
    value = np.full(len(refits.row_unit), np.inf)  # of people without a model: they cannot be left out at all
    value[live] = np.maximum(estimate.low - error[live], 0.0)
    return largest(refits.row_unit, len(units), value)


def _choose_questions(subject: Subject, units: Index, rng: Generator) -> Any:
    """Return others' records; of a domain of numbers all of it, or its corners and points between people, too."""
    data, domain, numbers = subject.data, subject.data.effective_domain, dense(subject.data.X)
    count = min(data.n, RECORDS)
    others = take(data.X, np.sort(rng.choice(data.n, size=count, replace=False)).astype(np.int64))
    if numbers is None or domain is None or not domain.is_table:
        return others
    sides, whole = domain.box, domain.categories is not None
    if domain.categories is not None:
        if np.prod(np.array(domain.categories, dtype=np.float64)) <= EXHAUSTIVE:
            grid = np.indices(domain.categories).reshape(len(domain.categories), -1).T.astype(np.float64)
            return make_like(grid, data.X)
        sides = tuple((0.0, v - 1.0) for v in domain.categories)
    low, high = np.array(sides, dtype=np.float64).T
    ends = np.where(rng.random((count, numbers.shape[1])) < 0.5, low, high)
    # between people searched for and anybody else, towards the ends of the domain
    own = np.concatenate([data.units[int(u)] for u in units])
    pairs = numbers[rng.choice(own, size=count)], numbers[rng.integers(len(numbers), size=count)]
    t = rng.random((count, 1))
    between = t * pairs[0] + (1 - t) * pairs[1]
    if whole:
        between = np.where(rng.random(between.shape) < t, pairs[0], pairs[1])
    return stack(others, make_like(np.concatenate([ends, between]), data.X))
