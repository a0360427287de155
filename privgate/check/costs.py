"""What a check would cost, controls included, and which shipped policies could approve the model."""

import time
from dataclasses import dataclass, replace

from privgate.check import check_plan as planning
from privgate.check.prepare import facts, misfit, prepare
from privgate.errors import MeasurementError
from privgate.evidence import TrainingPlan
from privgate.families import answering as families
from privgate.policy import Policy
from privgate.policy.problems import shipped
from privgate.run import changed, controls, recipe_controls, reproduction
from privgate.run.coins import LOOKS
from privgate.run.needs import Need
from privgate.run.recipe_controls import IF_UNCLEAR
from privgate.run.run import Budget, Run
from privgate.subject.subject import Subject
from privgate.training import plan
from privgate.training import plan as spans
from privgate.training.fit import Fit
from privgate.training.fleet import Fleet

# What a check takes beside trainings and engines: processes that start, a model that is opened, attacks that learn.
#
# Measured where the plan does the same anyway (the first worker starts, a few people are left out), constants where
# not.

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
    run : Run
        With its seeds chosen.
    start : float
        Seconds until a worker has started and loaded what it trains with.
    each : float
        Seconds of one training among others, the way to the worker and back included; 0 where it is not known.
    """

    run: Run
    start: float
    each: float


def timed(run: Run) -> Paces:
    """Choose the run's seeds by a glance, and time a few trainings; a first one imports libraries and is no measure."""
    before, began = run.fleet.calls, time.monotonic()
    run = controls.choose_seeds(run, glance=True)
    people = [changed.without(run.subject, u) for u in changed.people(run.subject)[:TIMED]]
    whole = [changed.full(run.subject, repeat=r) for r in range(recipe_controls.ALIKE)]
    if run.fleet.calls == before and run.fleet.missing(run.subject, people):  # no seed was compared, no worker started
        run.fleet.fits(run.subject, whole[: 1 + _known(run, whole)][-1:], label="timing a few retrains")
    waited, first = time.monotonic() - began, run.fleet.calls - before
    alone = plan.remembered_seconds(run.subject, whole, run.fleet)
    each = _each(run, people, warm=first > 0) if people and alone <= LONG else alone
    return Paces(run, max(0.0, waited - first * each) if first else START, each)


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


def seconds_beside(run: Run, start: float) -> float:
    """Return seconds of everything beside trainings, engines and theorems."""
    found = start
    if run.subject.model is not None:
        found += OPENING * start + TIMES * AGAIN
    if Need.SHADOWS in run.asked:
        found += SELF_TESTS + ATTACKS + LABELS * len(run.subject.classes)
    return found


def trainings_beside(run: Run) -> int:
    """Return how many trainings the controls make, the comparison with the stored model at other questions included."""
    elsewhere = (
        run.subject.model is not None and len(reproduction.asked(run.subject, signable=run.fleet.signable)[1]) > 0
    )
    return controls.trainings(run) + int(elsewhere)


@dataclass(frozen=True, slots=True)
class Costs:
    """What a check would cost.

    Parameters
    ----------
    planned : TrainingPlan
        Beside the controls.
    each : float
        Seconds of one training; 0 where none was timed.
    trainings : int
        All together, controls included.
    seconds : float
        Of everything, controls included, on these workers.
    said : list of str
        All of it in sentences.
    """

    planned: TrainingPlan
    each: float
    trainings: int
    seconds: float
    said: list[str]


def costs(policy: Policy, subject: Subject, *, fleet: Fleet, limits: Budget) -> Costs:
    """Return what a check would cost, what it can never conclude, and which shipped policies could.

    Two trainings are compared to see whether the seed matters and a few are timed; all are remembered.
    """

    def judge(name: str) -> tuple[Run, tuple[str, ...]]:
        other = Policy.load(name)
        made = prepare(other, subject, fleet=fleet, limits=replace(limits, mode="all"), known=known)
        binding = {r.name for r in other.rules if r.binding}
        never = [why for name, _, why in (w.partition(": ") for w in made.cannot_conclude) if name in binding]
        return made, tuple(never)

    known = facts(subject)
    paces = timed(prepare(policy, subject, fleet=fleet, limits=limits, known=known))
    run, seen = paces.run, paces.run.seed_control
    families.understood(run.subject, run.fleet)
    families.look(run.subject, run.fleet)
    planned, said = planning.make(run, closely=True, each=paces.each)
    first = trainings_beside(run)
    before = f"controls: {first} trainings (the recipe reproduces the model; it depends on its data; seeds)"
    before += f", up to {IF_UNCLEAR} more where single records seem ignored" * (not run.attacks_alone)
    before += f", {LOOKS[0]} more at other seeds if no attack is too strong" * controls.compares_last(run)
    each, other = paces.each, seconds_beside(run, paces.start)
    seconds = planned.seconds + other + first * each / fleet.workers
    trainings = first + planned.retrains
    total = (
        f"in all: about {trainings} trainings, {spans.span(seconds)} on {fleet.workers} workers; {spans.span(other)} "
        "of it go to starting them, opening the stored model and attacks"
    )
    fitting = [name for name in shipped() if not misfit(Policy.load(name), subject)]
    others = planning.alternatives(run, planned, judge, fitting)
    return Costs(
        planned,
        each,
        trainings,
        seconds,
        [*run.cannot_conclude, seen.note if seen else "", before, *said, total, *others],
    )
