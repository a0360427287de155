"""How long one training takes, and which people a budget leaves."""

import statistics
from collections.abc import Sequence

import numpy as np

from privgate import digest
from privgate.arrays import Index
from privgate.errors import MeasurementError, UsageError
from privgate.subject.subject import Subject
from privgate.training.fit import Fit
from privgate.training.fleet import Fleet
from privgate.training.ledger import digest_code

#: calls that are timed; they are remembered, so nothing is wasted
TIMED = 3


def time_training(subject: Subject, fits: Sequence[Fit], fleet: Fleet) -> float:
    """Return the usual seconds of one of these calls in a worker; ``MeasurementError``: none succeeded.

    A worker's first training imports its libraries, ten seconds for torch: of two times the smaller one is the usual.
    """
    answers = fleet.fits(subject, fits, label="timing a few retrains")
    if all(a.problem for a in answers):
        raise MeasurementError(f"none of {len(fits)} timed retrains succeeded: {answers[0].problem}")
    return statistics.median_low([a.seconds for a in answers if not a.problem])


def order(subject: Subject, fleet: Fleet) -> Index:
    """Return everybody in the order in which they are drawn: a function of the ledger's key, data and code alone.

    Who trained the model must not choose them: data can be varied until their digest spares somebody.
    """
    drawn = digest.generator(fleet.ledger.drawn(b"people", digest_code(subject)).hex(), digits=64)
    return drawn.permutation(len(subject.data.units)).astype(np.int64)


def count_affordable(
    subject: Subject,
    fleet: Fleet,
    seeds: tuple[int | None, ...],
    *,
    max_retrains: int | None = None,
    budget_seconds: float | None = None,
) -> int:
    """Return how many people a budget lets be left out, everybody without one.

    ``max_retrains`` are calls of the training function; all ``seeds`` of a person count. ``budget_seconds`` of wall
    time become calls by a timed sample. ``UsageError``: the budget does not reach for one person.
    """
    affordable = len(subject.data.units)
    if max_retrains is not None:
        affordable = min(affordable, max_retrains // len(seeds))
    if budget_seconds is not None:
        rows = (subject.data.units[u] for u in order(subject, fleet)[:TIMED])
        each = time_training(subject, [Fit(seeds[0], r, left_out=r) for r in rows], fleet)
        affordable = min(affordable, int(budget_seconds * fleet.workers / (max(each, 1e-6) * len(seeds))))
    if affordable < 1:
        raise UsageError("the budget does not reach for a single person; raise --budget")
    return affordable
