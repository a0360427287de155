"""What a check trains, as each rule says, and how long that takes; one training alone is made to say so."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from privgate.check import beforehand
from privgate.check.prepare import asked_of, attacked, facts, misfit, prepare
from privgate.controls.reproduces import plan_training
from privgate.errors import MeasurementError
from privgate.evidence import Count, TrainingPlan
from privgate.evidence.figures import percent
from privgate.influence import left_out, question_search
from privgate.membership import attack_measures
from privgate.policy import Policy
from privgate.policy.problems import shipped
from privgate.policy.rules.attacks import MembershipRule
from privgate.run import pool
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


#: what a rule needs that is trained -> (what it is called, how many trainings, how many to the first approval)
TRAINED: Mapping[Need, tuple[str, Callable[[Run], int], Callable[[Run], int]]] = {
    Need.SHADOWS: (
        "shadow models on random halves of the trials",
        lambda run: run.limits.shadow_models,
        attack_measures.count_approving,
    ),
    Need.LEAVE_ONE_OUT: ("without single people", left_out.count_trainings, partial(left_out.count_trainings, look=0)),
    Need.EVERY_QUERY: ("questions that tell more", question_search.count_trainings, question_search.count_trainings),
    Need.RERUNS: ("reruns that are watched", _reruns, _reruns),
    Need.AUDIT: ("audit of the claim", _audit, _audit),
}


def make(run: Run, policy: Policy) -> tuple[TrainingPlan, int, list[str]]:
    """Return what all rules train at most, beside the controls; to the first approval; and sentences.

    What two rules ask for is trained once.
    """
    wanted = {need: [r.name for r in policy.rules if need in r.about.needs] for need in TRAINED}
    needed = {need: (TRAINED[need][1](run), TRAINED[need][2](run)) for need, names in wanted.items() if names}
    said = []
    for need, (most, first) in needed.items():
        count = f"at most {most} trainings" if first >= most else f"{first} trainings, at most {most}"
        said.append(f"{TRAINED[need][0]}: {count} (rules: {', '.join(dict.fromkeys(wanted[need]))})")
    said += [
        f"rule {r.name} names a sample; how many people are drawn is planned by its share instead"
        for r in policy.rules
        if getattr(r, "sample", None)
    ]
    if Need.LEAVE_ONE_OUT in needed:
        said += left_out.list_hints(run)
    total = sum(most for most, _ in needed.values())
    planned = TrainingPlan(
        retrains=total,
        leave_one_out=needed.get(Need.LEAVE_ONE_OUT, (0,))[0],
        shadows=needed.get(Need.SHADOWS, (0,))[0],
    )
    return planned, sum(min(pair) for pair in needed.values()), said


@dataclass(frozen=True, slots=True)
class Costs:
    """What a check would cost, as far as that is known before it."""

    #: all together, controls included, where the first looks that may approve do
    trainings: int
    #: at most
    most: int
    #: of ``trainings``, on these workers
    seconds: float
    #: all of it in sentences
    said: list[str]
    #: where the first look of attacks refuses; 0 where nothing looks so early
    early: int = 0
    #: why the check trains nothing, or cannot; empty where it goes on
    ends: str = ""


def costs(policy: Policy, subject: Subject, *, fleet: Fleet, limits: Budget) -> Costs:
    """Return what a check would cost, what it can never conclude, and which shipped policies could.

    What a check looks at before it trains is looked at, because it may end there; one training is timed. Whether the
    recipe makes the model, and whether it draws, only trainings show: it is counted as if it did both.
    """
    known = facts(subject)
    run = prepare(policy, subject, fleet=fleet, limits=limits, known=known)
    policy_asked = asked_of(policy, subject, run.theorems)
    findings, stopped = beforehand.check_untrained(run, policy_asked)
    said = [*run.cannot_conclude, *(f"{p.name}: {p.message}" for p in findings if p.outcome != "passed")]
    if ended := beforehand.stop_attacks(run, stopped):
        ends = f"the check ends before it trains: {ended[0].message}"
        return Costs(0, 0, 0.0, [*said, "in all: no training"], ends=ends)
    try:
        each = time_training(run.subject, [plan_training(run.subject)], fleet)
    except MeasurementError as exc:
        return Costs(1, 1, 0.0, [*said, str(exc), "in all: 1 training"], ends=str(exc))
    if stopped:  # attacks alone are measured
        on_attacks = tuple(r for r in policy_asked.rules if r.request() in run.attacked)
        policy_asked = policy_asked.model_copy(update={"rules": on_attacks})
    run = beforehand.foresee_seeds(run)
    planned, first, rules = make(run, policy_asked)
    controls, early = beforehand.count_trainings(run), beforehand.count_first_look(run)
    likely, most = controls + first, controls + planned.retrains
    said += [*describe_candidates(run, policy_asked), *rules]
    said.append(f"controls: at most {controls} trainings (the recipe makes the model; it depends on its data; seeds)")
    if early and any(r.mode == "enforce" and not r.either for r in policy_asked.rules if r.request() in run.attacked):
        said.append(f"if attacks refuse at their first look: {early} trainings, {span(early * each / fleet.workers)}")
    in_all = f"{likely} trainings if the first looks approve, at most {most}"
    seconds = likely * each / fleet.workers
    said.append(f"in all: {in_all}; of {span(each)} each, imports included, {span(seconds)} (workers: {fleet.workers})")
    return Costs(likely, most, seconds, [*said, _alternatives(run, known)], early)


def describe_candidates(run: Run, policy: Policy) -> Iterator[str]:
    """Yield how many candidates are usable, what each rule on attacks can show with them, and how many it needs."""
    data = run.subject.data
    rules = [r for r in policy.rules if isinstance(r, MembershipRule) and r.request() in run.attacked]
    if not rules or data.candidates is None or not (given := data.pool_size - data.n):
        return
    usable = int(pool.built(data, partial(run.fleet.compute, run.subject)).trial[data.n :].sum())
    yield f"{Count(usable, given)} of {given} candidates are usable"
    for rule in rules:
        if (high := attack_measures.limit_guess(run, rule.request())) is None:
            continue
        text = f"{rule.name}: an attack that guesses is shown to reach at most {percent(high)}"
        yield f"{text}; {percent(rule.limit)} is allowed{rule.bring_more(given, high)}"


def foresee(subject: Subject) -> Iterator[str]:
    """Yield for whoever logs a model what its candidates can show by ``release-1``; nothing where there are none."""
    policy = asked_of(Policy.load("release-1"), subject, ())
    if subject.data.candidates is not None and len(subject.data.candidates[1]):
        with Fleet(1, "none") as idle:
            run = Run(subject, idle, attacked=attacked(policy))
            yield f"by {policy.name}: {beforehand.too_few(policy, run) or '; '.join(describe_candidates(run, policy))}"


def _alternatives(run: Run, known: Mapping[str, Any]) -> str:
    able, size = [], {name: known[name] for name in ("n_units", "n_records")}
    for policy in map(Policy.load, shipped()):
        if not (misfit(policy, run.subject) or policy.powerless(size)):
            other = prepare(policy, run.subject, fleet=run.fleet, limits=run.limits, known=known)
            binding = {r.name for r in policy.rules if r.binding}
            if not any(why.partition(": ")[0] in binding for why in other.cannot_conclude):
                able.append(policy.name)
    return f"policies that could approve this model: {', '.join(able) or 'none that is shipped'}"
