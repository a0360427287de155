"""What a check would cost, controls included, and which shipped policies could approve the model."""

from dataclasses import dataclass, replace

from privgate import families
from privgate.check import beside
from privgate.check import plan as planning
from privgate.check.prepare import facts, misfit, prepare
from privgate.evidence import TrainingPlan
from privgate.policy import Policy
from privgate.policy.locate import shipped
from privgate.run.recipe_controls import IF_UNCLEAR
from privgate.run.run import Budget, Run
from privgate.subject.subject import Subject
from privgate.training import plan as spans
from privgate.training.fleet import Fleet


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
        never = [why for r in other.rules if r.binding and (why := r.cannot_conclude(known))]
        return made, tuple(never)

    known = facts(subject)
    run = prepare(policy, subject, fleet=fleet, limits=limits, known=known)
    paces = beside.timed(run)
    families.understood(run.subject, run.fleet)
    planned, said = planning.make(run, closely=True, each=paces.each)
    first = beside.trainings(run)
    before = (
        f"controls: {first} trainings (the recipe reproduces the model; it depends on its data; seeds), up to "
        f"{IF_UNCLEAR} more where single records seem ignored"
    )
    each, other = paces.each, beside.seconds(run, paces.start)
    seconds = planned.seconds + other + first * each / fleet.workers
    trainings = first + planned.retrains
    total = (
        f"in all: about {trainings} trainings, {spans.span(seconds)} on {fleet.workers} workers; {spans.span(other)} "
        "of it go to starting them, opening the stored model and attacks"
    )
    fitting = [name for name in shipped() if not misfit(Policy.load(name), subject)]
    others = planning.alternatives(run, planned, judge, fitting)
    return Costs(planned, each, trainings, seconds, [*run.cannot_conclude, paces.note, before, *said, total, *others])
