"""What a check takes beside trainings and engines: processes that start, a model that is opened, attacks that learn.

Measured where the plan does the same anyway (the first worker starts, a few people are left out), constants where not.
"""

import time
from dataclasses import dataclass

from privgate.errors import MeasurementError
from privgate.run import beyond, changed, controls, recipe_controls
from privgate.run.needs import Need
from privgate.run.run import Run
from privgate.training import plan
from privgate.training.fit import Fit

#: people without whom a training is timed, as the controls train without them; none where one takes this long, seconds
TIMED, LONG = 3, 10.0
#: seconds until a first worker answers, where everything that would show it is remembered
START = 1.5
#: a stored model is opened by MLflow's own code, in a box of its own: so many times what a worker takes to start, 1.4
#: to 3.7 measured; and again, in the same box, for each set of records: so many seconds, and so often
OPENING, AGAIN, TIMES = 2.5, 0.2, 3
#: the self-tests of all attacks on synthetic models, and what attacks train for this model: in all, and for each label
SELF_TESTS, ATTACKS, LABELS = 3.0, 2.5, 0.6


@dataclass(frozen=True)
class Paces:
    """What was timed before anything is planned.

    Parameters
    ----------
    note : str
        What comparing two seeds has shown.
    start : float
        Seconds until a worker has started and loaded what it trains with.
    each : float
        Seconds of one training among others, the way to the worker and back included; 0 where it is not known.
    """

    note: str
    start: float
    each: float


def timed(run: Run) -> Paces:
    """Choose the run's seeds by a glance, and time a few trainings; a first one imports libraries and is no measure."""
    before, began = run.fleet.calls, time.monotonic()
    note = controls.choose_seeds(run, glance=True).note
    people = [changed.without(run.subject, u) for u in changed.people(run.subject)[:TIMED]]
    whole = [changed.full(run.subject, repeat=r) for r in range(recipe_controls.ALIKE)]
    if run.fleet.calls == before and run.fleet.missing(run.subject, people):  # no seed was compared, no worker started
        run.fleet.fits(run.subject, whole[: 1 + _known(run, whole)][-1:], label="timing a few retrains")
    waited, first = time.monotonic() - began, run.fleet.calls - before
    alone = plan.remembered_seconds(run.subject, whole, run.fleet)
    each = _each(run, people, warm=first > 0) if people and alone <= LONG else alone
    return Paces(note, max(0.0, waited - first * each) if first else START, each)


def _known(run: Run, whole: list[Fit]) -> int:
    """Return how many of the trainings on everybody are remembered."""
    return len(whole) - run.fleet.missing(run.subject, whole)


def _each(run: Run, people: list[Fit], *, warm: bool) -> float:
    """Return seconds of one of these trainings; by the worker's own clock where the wait is also for a worker."""
    missing, began = run.fleet.missing(run.subject, people), time.monotonic()
    try:
        answers = run.fleet.fits(run.subject, people, label="timing a few retrains")
    except MeasurementError:
        return 0.0
    if all(a.problem for a in answers):
        return 0.0
    if warm and run.fleet.workers == 1 and missing == len(people):  # of several workers the others start now
        return (time.monotonic() - began) / missing
    return plan.remembered_seconds(run.subject, people, run.fleet)


def seconds(run: Run, start: float) -> float:
    """Return seconds of everything beside trainings, engines and theorems."""
    found = start
    if run.subject.model is not None:
        found += OPENING * start + TIMES * AGAIN
    if Need.SHADOWS in run.asked:
        found += SELF_TESTS + ATTACKS + LABELS * len(run.subject.classes)
    return found


def trainings(run: Run) -> int:
    """Return how many trainings the controls make, the comparison with the stored model at other questions included."""
    elsewhere = run.subject.model is not None and len(beyond.asked(run.subject, signable=run.fleet.signable)[1]) > 0
    return controls.trainings(run) + int(elsewhere)
