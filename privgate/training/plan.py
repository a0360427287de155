"""What retraining will cost, before it starts, and which units a smaller budget leaves."""

import itertools
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from privgate.arrays import Index
from privgate.errors import MeasurementError, UsageError
from privgate.evidence.telling import sampled
from privgate.subject.subject import Subject
from privgate.training import context
from privgate.training.fit import Fit
from privgate.training.fleet import Fleet

#: calls that are timed; they are remembered, so nothing is wasted
TIMED = 3


@dataclass(frozen=True)
class Plan:
    """The cost of a set of calls.

    Parameters
    ----------
    fits : int
        Different calls asked for.
    remembered : int
        How many of them need no training.
    seconds_each : float
        Median time of one call in a worker, from a timed sample; 0 if nothing is left to train.
    workers : int
        Calls that run at the same time.
    memory_bytes : int
        Peak of all workers together; 0 where it cannot be known.
    """

    fits: int
    remembered: int
    seconds_each: float
    workers: int
    memory_bytes: int

    @property
    def missing(self) -> int:
        """Calls that have to be made."""
        return self.fits - self.remembered

    @property
    def training_seconds(self) -> float:
        """Estimate over all workers, by the clock of each."""
        return self.missing * self.seconds_each

    @property
    def wall_seconds(self) -> float:
        """Estimate with all workers busy."""
        return self.training_seconds / self.workers

    @property
    def sentence(self) -> str:
        """One line for people."""
        if not self.missing:
            return f"{self.fits} retrains, all remembered: nothing to train"
        memory = f", {self.memory_bytes / 2**30:.2g} GiB of memory" if self.memory_bytes else ""
        all_of_it, wall = span(self.training_seconds), span(self.wall_seconds)
        return (
            f"{self.fits} retrains, {self.remembered} remembered; {self.missing} x {span(self.seconds_each)} = "
            f"{all_of_it} of training, about {wall} (workers: {self.workers}){memory}"
        )


@dataclass(frozen=True)
class Selection:
    """Which units a budget leaves, and what can no longer be claimed.

    Parameters
    ----------
    units : int64 array
        Positions in ``TrainingData.units``, ascending.
    population : int
        Units there are.
    lost : str
        What can no longer be claimed, one sentence; empty if all units are kept.
    """

    units: Index
    population: int
    lost: str


def estimate(subject: Subject, fits: Sequence[Fit], fleet: Fleet, *, recalled: bool = False, each: float = 0.0) -> Plan:
    """Return what ``fits`` would cost now; times a few of them in a worker.

    ``recalled``: what is remembered of enough of them is believed, so that asking again trains nothing. ``each``:
    seconds of one that were measured already, and are believed.

    Raises
    ------
    MeasurementError
        None of the timed calls succeeded.
    """
    keys = fleet.keys(subject, fits)
    different = dict(zip(keys, fits, strict=True))
    known = fleet.ledger.find(list(different))
    missing = fleet.untrained(subject, list(different.values()))
    if not missing:
        return Plan(len(different), len(different), 0.0, fleet.workers, 0)
    if each:
        done = len(different) - len(missing)
        return Plan(len(different), done, each, fleet.workers, fleet.workers * fleet.pool.peak_memory())
    if recalled and len(different) - len(missing) >= TIMED:
        kept = [f for f, k in zip(different.values(), known, strict=True) if k]
        each = remembered_seconds(subject, kept, fleet)
        return Plan(len(different), len(kept), each, fleet.workers, fleet.workers * fleet.pool.peak_memory())
    sample = _to_time(subject, list(different.values()), missing, fleet)
    answers = fleet.fits(subject, sample, label="timing a few retrains")
    each = remembered_seconds(subject, sample, fleet)
    if not each:
        raise MeasurementError(f"none of {len(sample)} timed retrains succeeded: {answers[0].problem}")
    done = len(different) - len(missing) + sum(any(c is m for m in missing) for c in sample)
    return Plan(len(different), done, each, fleet.workers, fleet.workers * fleet.pool.peak_memory())


def _to_time(subject: Subject, calls: Sequence[Fit], missing: Sequence[Fit], fleet: Fleet) -> list[Fit]:
    """Return a few of the calls that train: always the same ones, so that the next policy finds them remembered."""
    todo = {id(call) for call in missing}
    order = subject.generator("timed").permutation(len(calls))
    drawn = (calls[i] for i in order if id(calls[i]) in todo or remembered_seconds(subject, [calls[i]], fleet))
    return list(itertools.islice(drawn, TIMED))


def remembered_seconds(subject: Subject, fits: Sequence[Fit], fleet: Fleet) -> float:
    """Return the lower median of the times of those of the calls that were trained; 0 where none is remembered.

    A worker's first training imports its libraries, ten seconds for torch: of two times the smaller one is the usual.
    """
    bodies = fleet.ledger.read(fleet.keys(subject, fits))
    found = [context.decode(body) for body in bodies if body is not None]
    times = [seconds for answer, seconds in found if not answer.problem and seconds > 0]
    return statistics.median_low(times) if times else 0.0


def leave_out_fits(subject: Subject, units: Index, seeds: tuple[int | None, ...]) -> list[Fit]:
    """Return the calls that leave each unit out once a seed, as the refit engine makes them."""
    members = subject.data.units
    return [
        Fit(seed, members[u], left_out=members[u], repeat=s if seed is None else 0)
        for s, seed in enumerate(seeds)
        for u in units
    ]


def order(subject: Subject, fleet: Fleet) -> Index:
    """Return everybody in the order in which they are drawn: the ledger's secret makes it."""
    rng = fleet.drawn(subject, "units")
    return rng.permutation(len(subject.data.units)).astype(np.int64)


def select(
    subject: Subject,
    fleet: Fleet,
    seeds: tuple[int | None, ...],
    *,
    max_retrains: int | None = None,
    budget_seconds: float | None = None,
    sample: int | None = None,
) -> Selection:
    """Return the units that a budget allows, drawn uniformly without replacement, fixed before anything is looked at.

    Who trained the model must not choose them: recipes and data can be varied until their digest spares somebody, so
    the ledger's secret draws them, always the same ones for a subject. A larger budget keeps every unit of a smaller
    one, so what is remembered is used again.

    Parameters
    ----------
    subject, fleet, seeds
        What is measured, where, with which paired seeds.
    max_retrains : int, optional
        Calls of the training function for units left out; all seeds of a unit count.
    budget_seconds : float, optional
        Wall time, turned into calls from a timed sample.
    sample : int, optional
        Units that are enough.

    Raises
    ------
    UsageError
        The budget does not reach for one unit.

    References
    ----------
    docs/mathematics.md, section 9.1: below full coverage nothing can be said about the maximum.
    """
    n, drawn = len(subject.data.units), order(subject, fleet)
    affordable = n if sample is None else sample
    if max_retrains is not None:
        affordable = min(affordable, max_retrains // len(seeds))
    if budget_seconds is not None:
        cost = estimate(subject, leave_out_fits(subject, drawn[: 4 * TIMED], seeds), fleet)
        each = max(cost.seconds_each, 1e-6) * len(seeds)
        affordable = min(affordable, int(budget_seconds * fleet.workers / each))
    if affordable < 1:
        raise UsageError("the budget does not reach for a single person; raise --budget or --max-retrains")
    if affordable >= n:
        return Selection(np.arange(n, dtype=np.int64), n, "")
    lost = (
        f"{sampled(affordable, n)}, drawn at random before looking: without a certificate they tell the share "
        "above a limit, and nothing of the largest risk"
    )
    return Selection(np.sort(drawn[:affordable]), n, lost)


def span(seconds: float) -> str:
    """Return a time in the unit that people would use."""
    for size, word in ((86400.0, "days"), (3600.0, "h"), (60.0, "min"), (1.0, "s")):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {word}"
    return f"{seconds:.2g} s"
