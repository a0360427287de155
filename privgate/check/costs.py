"""What a check would cost, controls included, and which shipped policies could approve the model."""

import contextlib
import time
from dataclasses import dataclass, replace

from privgate.check import beforehand, gate
from privgate.check import check_plan as planning
from privgate.check.prepare import facts, misfit, prepare
from privgate.controls import depends, reproduces
from privgate.controls.seeds import COMPARED
from privgate.errors import MeasurementError
from privgate.evidence import TrainingPlan
from privgate.membership import attack_measures, board
from privgate.policy import Policy
from privgate.policy.judging import conditions
from privgate.policy.problems import shipped
from privgate.run.needs import Need
from privgate.run.run import Budget, Run
from privgate.statistics.roc import LOOKS as ROUNDS
from privgate.subject.subject import Subject
from privgate.training import plan
from privgate.training import plan as spans
from privgate.training.fit import Fit
from privgate.training.fleet import Fleet

# What a check takes beside trainings and engines: processes that start, a model that is opened, attacks that learn.
#
# Measured where the plan does the same anyway (the first worker starts, a few people are left out), constants where
# not.

#: trainings that are timed, of those that the controls make; none where one takes this long, seconds
TIMED, LONG = 3, 10.0
#: seconds until a first worker answers, where everything that would show it is remembered
START = 1.5
#: a command has its libraries and its subject, and in the end writes its report: seconds, 4 to 6 measured
COMMAND = 5.0
#: all looks of attacks in seconds of the first one, and seconds of the attacks that train models of their own; where no
#: rule names a level, seconds in all and for each label
LOOKED, LATER, ATTACKS, LABELS = 3.0, 4.0, 5.5, 0.6


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
    run = beforehand.choose_seeds(run, glance=True)
    whole = [reproduces.train_all(run.subject, repeat=r) for r in range(depends.ALIKE)]
    people = [depends.without(run.subject, person) for person in depends.draw_people(run.subject)]
    people += whole[len(people) - TIMED :]  # the controls make them anyway
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


@dataclass(frozen=True)
class Begun:
    """What a check's own first steps have shown.

    Parameters
    ----------
    seconds : float
        Of everything beside trainings, engines and theorems, as far as a check that goes on needs it.
    said : list of str
        What is not as it should be.
    ends : str
        Why nothing more is trained; empty where the check goes on.
    broken : bool
        Whether attacks with a few shadow models break a rule for certain.
    """

    seconds: float
    said: list[str]
    ends: str = ""
    broken: bool = False


def begun(run: Run, policy: Policy, paces: Paces) -> Begun:
    """Take the first steps of a check: files, data, the stored model, the recipe twice, attacks with few models.

    Nothing is trained for it where one training takes long.
    """
    taken, began, before, more = paces.start, time.monotonic(), run.fleet.calls, False
    found, stopped = gate.unopened(run, policy.asked_of(conditions(gate.identity(run))))
    if not stopped:
        known = beforehand.untrained(run, policy)
        found, stopped = [*found, *known], beforehand.beforehand(known)
    if not stopped and (quick := paces.each <= LONG):
        found.append(reproduces.reproduces(run.subject, run.fleet))
        stopped = beforehand.stopping(found)
    taken += COMMAND * bool(run.subject.uri)
    taken += max(0.0, time.monotonic() - began - (run.fleet.calls - before) * paces.each)
    said, ends, broken = [f"{p.name}: {p.message}" for p in found if p.outcome != "passed"], "", False
    if stopped:
        ends = f"the check ends before it leaves anybody out: {stopped[0].message}"
    elif run.attacked and quick:
        began, before = time.monotonic(), run.fleet.calls
        with contextlib.suppress(MeasurementError):  # without candidates no attack runs
            looks = attack_measures.looked(run, most=min(ROUNDS))
            ran = {r: v for r, v in looks.items() if not isinstance(v[-1], MeasurementError)}
            broken = run.attack_breaks({r: attack_measures.over_looks(v) for r, v in ran.items()})
            grows = len(run.once(board.run).signals.shadow) == min(ROUNDS)
            more = grows and not broken
        trained = (run.fleet.calls - before) * paces.each / run.fleet.workers
        first = max(0.0, time.monotonic() - began - trained)
        taken += first * LOOKED + LATER if more else first
    elif Need.SHADOWS in run.asked:
        taken += ATTACKS + LABELS * len(run.subject.classes)
    return Begun(taken, said, ends, broken)


def trainings_beside(run: Run) -> int:
    """Return how many trainings the controls make, the comparison with the stored model at other questions included."""
    elsewhere = (
        run.subject.model is not None and len(reproduces.ask_beyond(run.subject, signable=run.fleet.signable)[1]) > 0
    )
    return beforehand.count_trainings(run) + int(elsewhere)


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
    ends : str
        Why nothing more is trained; empty where the check goes on.
    """

    planned: TrainingPlan
    each: float
    trainings: int
    seconds: float
    said: list[str]
    ends: str = ""


def costs(policy: Policy, subject: Subject, *, fleet: Fleet, limits: Budget) -> Costs:
    """Return what a check would cost, what it can never conclude, and which shipped policies could.

    Two trainings are compared to see whether the seed matters and a few are timed; all are remembered. What a check
    does before it leaves anybody out is done, because it may end there.
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
    first, each, workers = begun(run, policy, paces), paces.each, fleet.workers
    before = [*run.cannot_conclude, seen.note if seen else "", *first.said]
    if first.ends:
        total = f"in all: at most 2 trainings, {spans.span(first.seconds + 2 * each)}"
        return Costs(TrainingPlan(retrains=0), each, 2, first.seconds, [*before, first.ends, total], first.ends)
    planned, said = planning.make(run, closely=True, each=each, broken=first.broken)
    made = trainings_beside(run)
    text = f"controls: {made} trainings (the recipe reproduces the model; it depends on its data; seeds)"
    text += f", {COMPARED} more at other seeds if no attack is too strong" * beforehand.compares_last(run)
    seconds = planned.seconds + first.seconds + made * each / workers
    trainings = made + planned.retrains
    total = (
        f"in all: about {trainings} trainings, {spans.span(seconds)} on {workers} workers, "
        f"{spans.span(seconds + trainings * each * (1 - 1 / workers))} on one; {spans.span(first.seconds)} "
        "of it go to starting them, the file, the data, opening the stored model and attacks"
    )
    fitting = [name for name in shipped() if not misfit(Policy.load(name), subject)]
    if first.broken:  # another model may pass, and takes more
        fitting = [name for name in fitting if name != policy.name]
        planned = planned.model_copy(update={"retrains": planning.trainings(run)})
    others = planning.alternatives(run, planned, judge, fitting)
    return Costs(planned, each, trainings, seconds, [*before, text, *said, total, *others])
