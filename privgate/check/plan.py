"""What a check trains, as each rule says, and how long that takes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from privgate.check.beforehand import check_untrained, choose_seeds, count_trainings, stopping
from privgate.check.prepare import asked_of, facts, misfit, prepare
from privgate.controls import depends, reproduces
from privgate.errors import MeasurementError
from privgate.evidence import TrainingPlan
from privgate.influence import left_out, question_search
from privgate.policy import Policy
from privgate.policy.problems import shipped
from privgate.run.needs import Need
from privgate.run.run import Budget, Run
from privgate.subject.subject import Subject
from privgate.training.budget import time_training
from privgate.training.fleet import Fleet
from privgate.vocabulary import span


def _audit(run: Run) -> int:
    from privgate.claims.audit import AuditEffort

    return AuditEffort().trainings if run.subject.recipe.dp is not None else 0


def _reruns(run: Run) -> int:
    from privgate.claims.observe import RERUNS, is_known

    return 0 if run.subject.recipe.dp is None or is_known(run.subject, run.fleet) else RERUNS


#: what a rule needs that is trained -> (what it is called, how many trainings)
TRAINED: Mapping[Need, tuple[str, Callable[[Run], int]]] = {
    Need.SHADOWS: ("shadow models on random halves of the pool", lambda run: run.limits.shadow_models),
    Need.LEAVE_ONE_OUT: ("without single people", left_out.count_trainings),
    Need.EVERY_QUERY: ("questions that tell more", question_search.count_trainings),
    Need.RERUNS: ("reruns that are watched", _reruns),
    Need.AUDIT: ("audit of the claim", _audit),
}


def make(run: Run, policy: Policy, *, each: float = 0.0) -> tuple[TrainingPlan, list[str]]:
    """Return what all rules train, beside the controls, as numbers and as sentences.

    What two rules ask for is trained once. ``each`` are the seconds of one training; 0 where none was timed.
    """
    wanted = {need: [r.name for r in policy.rules if need in r.about.needs] for need in TRAINED}
    needed = {need: TRAINED[need][1](run) for need, names in wanted.items() if names}
    said = [
        f"{TRAINED[need][0]}: at most {count} trainings (rules: {', '.join(dict.fromkeys(wanted[need]))})"
        for need, count in needed.items()
    ]
    said += [
        f"rule {r.name} names a sample; how many people are drawn is planned by its share instead"
        for r in policy.rules
        if getattr(r, "sample", None)
    ]
    if Need.LEAVE_ONE_OUT in needed:
        said += left_out.list_hints(run)
    total = sum(needed.values())
    planned = TrainingPlan(
        retrains=total,
        leave_one_out=needed.get(Need.LEAVE_ONE_OUT, 0),
        shadows=needed.get(Need.SHADOWS, 0),
        seconds=total * each / run.fleet.workers,
    )
    return planned, said


@dataclass(frozen=True, slots=True)
class Costs:
    """What a check would cost."""

    #: all together, controls included, at most
    trainings: int
    #: of all trainings, on these workers
    seconds: float
    #: all of it in sentences
    said: list[str]
    #: why the check ends before it leaves anybody out; empty where it goes on
    ends: str = ""


def costs(policy: Policy, subject: Subject, *, fleet: Fleet, limits: Budget) -> Costs:
    """Return what a check would cost, what it can never conclude, and which shipped policies could.

    What a check does before it leaves anybody out is done, because it may end there; a few trainings show how long one
    takes. All are remembered.
    """
    known = facts(subject)
    run = prepare(policy, subject, fleet=fleet, limits=limits, known=known)
    policy_asked = asked_of(policy, subject, run.theorems)
    findings, stopped = check_untrained(run, policy_asked)
    if not stopped:
        findings.append(reproduces.check_reproduces(subject, fleet))
        stopped = stopping(findings)
    said = [*run.cannot_conclude, *(f"{p.name}: {p.message}" for p in findings if p.outcome != "passed")]
    if stopped:
        ends = f"the check ends before it leaves anybody out: {stopped[0].message}"
        return Costs(fleet.calls, 0.0, [*said, f"in all: at most {fleet.calls} trainings"], ends)
    run = choose_seeds(run, glance=True)
    each = _time(run)
    planned, rules = make(run, policy_asked, each=each)
    control_count = count_trainings(run)
    total = control_count + planned.retrains
    seconds = total * each / fleet.workers
    said += rules
    said.append(f"controls: {control_count} trainings (the recipe reproduces the model; it depends on its data; seeds)")
    said.append(f"in all: at most {total} trainings of {span(each)}, {span(seconds)} (workers: {fleet.workers})")
    return Costs(total, seconds, [*said, *_alternatives(run, known, each)])


def _time(run: Run) -> float:
    people, units = depends.draw_people(run.subject), run.subject.data.units
    fits = [reproduces.plan_training(run.subject, left_out=units[person]) for person in people]
    try:
        return time_training(run.subject, fits or [reproduces.plan_training(run.subject)], run.fleet)
    except MeasurementError:
        return 0.0


def _alternatives(run: Run, known: Mapping[str, Any], each: float) -> list[str]:
    """Return which shipped policies could approve this subject, and what each trains at most beside the controls."""
    said = []
    for name in shipped():
        if misfit(policy := Policy.load(name), run.subject):
            continue
        other = prepare(policy, run.subject, fleet=run.fleet, limits=run.limits, known=known)
        binding = {r.name for r in policy.rules if r.binding}
        if any(why.partition(": ")[0] in binding for why in other.cannot_conclude):
            continue
        other = replace(other, seeds=run.seeds, seed_control=run.seed_control)
        planned, _ = make(other, asked_of(policy, run.subject, other.theorems), each=each)
        said.append(
            f"{name} could approve this model: at most {planned.retrains} trainings beside the controls, "
            f"{span(planned.seconds)} (workers: {run.fleet.workers})"
        )
    return said or ["no shipped policy could approve this model as it is"]
