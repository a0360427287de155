"""The route of one run: policy, preconditions, plan, retrain, measure, judge."""

import contextlib
import datetime as dt
import os
import platform
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

from privgate import families
from privgate.artifact import measure as artifact
from privgate.attributes import measure as inferred
from privgate.check import beside, questions
from privgate.check import plan as planning
from privgate.collusion import measure as collusion
from privgate.errors import MeasurementError, SubjectError, UsageError
from privgate.evidence import (
    AgainstPdtp,
    AttackResult,
    ClaimsPart,
    Evidence,
    Measurement,
    Precondition,
    Request,
    RunPart,
    RunTrace,
    SeedControl,
    TrainingPlan,
)
from privgate.families.least_squares import over_domain
from privgate.influence import deciding, leave_one_out, modes, per_unit, proven, sensitivity
from privgate.influence import part as influence
from privgate.membership import board as boards
from privgate.membership import told
from privgate.membership.robust import measure as robust
from privgate.policy import Policy
from privgate.policy.locate import shipped
from privgate.policy.rules import METRICS
from privgate.policy.rules.base import Rule
from privgate.run import controls, serving
from privgate.run.needs import Need
from privgate.run.preconditions import preconditions as data_preconditions
from privgate.run.recipe_controls import IF_UNCLEAR
from privgate.run.run import Budget, Run
from privgate.subject.subject import Subject
from privgate.training import isolation
from privgate.training import plan as spans
from privgate.training.fleet import Fleet
from privgate.verdict import Outcome, Verdict
from privgate.version import __version__

#: preconditions without which no number about the model counts
STOPPERS = ("task", "served", "reproduces", "depends_on_data", "recorded_seed")


def evaluate(
    policy: Policy | str | PathLike[str],
    subject: Subject,
    *,
    fleet: Fleet | None = None,
    limits: Budget | None = None,
    observe: bool = False,
    nonce: str = "",
    announce: Callable[[str], None] | None = None,
) -> Verdict:
    """Judge ``subject`` by every rule of ``policy``, in the policy's order; ``privgate.evaluate`` adds the way out.

    Parameters are those of ``privgate.evaluate``.

    Returns
    -------
    Verdict
        A failed policy is a verdict, never an exception.
    """
    policy = (
        policy if isinstance(policy, Policy) else Policy.load(Path(policy) if isinstance(policy, PathLike) else policy)
    )
    with contextlib.ExitStack() as own:
        run = prepare(policy, subject, fleet=fleet or own.enter_context(Fleet()), limits=limits)
        run.nonce = nonce
        evidence = collect(run, policy, announce or (lambda _: None))
    return judged(policy, evidence, observe=observe)


def collect(run: Run, policy: Policy, tell: Callable[[str], None]) -> Evidence:
    """Return everything that the policy's rules need to know; nothing is judged here."""
    if run.fleet.isolation == isolation.NONE:
        why = isolation.why(run.fleet.isolate, cluster=run.fleet.cluster is not None)
        tell(f"isolation none: training code runs as you and can read what you can ({why})")
    elif run.fleet.isolation_of(run.subject).endswith(isolation.NETWORKED):
        tell("the recipe declares that training needs the network: its code reaches whatever this host reaches")
    for why in run.cannot_conclude:
        tell(why)
    if artifact.asked(run):
        tell(artifact.told(run.once(artifact.walked)))
    checked = check_preconditions(run, policy)
    stopped = [p for p in checked if p.name in STOPPERS and stops(p)]
    requests = dict.fromkeys(rule.request() for rule in policy.rules)
    planned = None
    if not stopped:
        if Need.LEAVE_ONE_OUT in run.asked:
            run.preconditions.extend(families.understood(run.subject, run.fleet))
        planned, said = planning.make(run)
        for sentence in said:
            tell(sentence)
    measurements = {request: _measure(run, request, stopped) for request in requests}
    attacks = told.part(run, against_pdtp(run))
    made = next((t for t in (per_unit.table, sensitivity.table) if run.made(t)), None)
    records = {} if made is None else dict(run.once(made))
    about_attributes = inferred.part(run)
    about_influence = influence.part(run)
    about_claims = _claims(run, () if attacks is None else attacks.attacks)
    deciding.left_out_again(run)
    checked += controls.remembered(run)  # last: everything that trains has trained
    return Evidence(
        subject=identity(run.subject),
        preconditions=(*checked, *run.preconditions, *leave_one_out.ranked_only(run)),
        measurements=measurements,
        records=records,
        run=RunPart(
            mode=modes.told(run),
            cannot_conclude=run.cannot_conclude,
            plan=planned,
            single_median=run.single_median,
            seeds=_seeds(run),
            trace=trace(run),
            isolation=run.fleet.isolation_of(run.subject),
            remembered=run.fleet.freshness.told(signable=run.fleet.signable),
            nonce=run.nonce,
        ),
        influence=about_influence,
        membership=attacks,
        claims=about_claims,
        attributes=about_attributes,
        artifact=run.once(artifact.walked) if artifact.asked(run) else None,
        robust=robust.part(run),
        collusion=collusion.part(run),
    )


def _seeds(run: Run) -> SeedControl | None:
    """Return what the controls say of seeds, and how many were used in the end."""
    found = run.seed_control
    return found.model_copy(update={"paired": len(run.seeds)}) if found is not None and found.dependent else found


def against_pdtp(run: Run) -> AgainstPdtp | None:
    """Return attacks set against PDTP, where both were measured and everybody closely."""
    if run.once(modes.used) != "all" or not run.made(boards.run) or not run.made(per_unit.table):
        return None
    from privgate.membership import rotation

    return rotation.against_pdtp(run.once(boards.run), run.once(per_unit.table))


def _claims(run: Run, attacks: Iterable[AttackResult]) -> ClaimsPart | None:
    if run.subject.recipe.payload["dp"] is None:
        return None
    from privgate.privacy_claims import measure

    return measure.part(run, attacks)


def judged(policy: Policy, evidence: Evidence, *, observe: bool) -> Verdict:
    """Return the verdict on evidence, decided now: nothing is measured, and an approval says until when it holds."""
    now = dt.datetime.now(dt.UTC)
    judged = policy.judge(evidence, today=now.date())
    verdict = Verdict(policy=named(policy), findings=judged.findings, evidence=evidence, observed=observe)
    detail: dict[str, Any] = {
        "decided_at": now.isoformat(timespec="seconds"),
        "waivers": [w.payload() for w in judged.waivers],
    }
    if not verdict.outcome.releases:
        detail["next_steps"] = [step.payload() for step in evidence.run.next_steps]
    if verdict.approved:
        last = dt.datetime.combine(judged.expires, dt.time(23, 59, 59), dt.UTC)
        detail["expires"] = last.isoformat(timespec="seconds")
    return replace(verdict, detail=detail)


def prepare(
    policy: Policy, subject: Subject, *, fleet: Fleet, limits: Budget | None, known: Mapping[str, Any] | None = None
) -> Run:
    """Return a run that knows what the policy asks for and what it can never conclude for this model.

    ``known`` are the subject's ``facts`` where several policies are compared.
    """
    if subject.uri and (why := policy.refusal(subject.name)):
        raise UsageError(why)
    if why := policy.powerless(policy.facts(len(subject.data.units))):
        raise UsageError(why)
    if why := subject.recipe.refusal:
        raise SubjectError(why)
    if why := misfit(policy, subject):
        raise UsageError(why)
    thresholds = unit_limits(policy)
    asked = frozenset(need for rule in policy.rules for need in rule.about.needs)
    run = Run(subject, fleet, limits or Budget(), thresholds=thresholds, asked=asked, suites=policy.suites)
    run.breaks, run.sample, run.by_theorem = breaks(policy), sample(policy), by_theorem(policy)
    run.up_to = up_to(policy)
    known = dict(known or facts(subject, attacked=Need.SHADOWS in asked))
    never = [f"{rule.name}: {why}" for rule in policy.rules if (why := rule.cannot_conclude(known))]
    refused = ((rule.name, modes.refusal(run, rule.request(), rule.about.needs)) for rule in policy.rules)
    never += [f"{name}: {why}" for name, why in refused if why]
    run.cannot_conclude = (*modes.never(run), *never)
    return run


def misfit(policy: Policy, subject: Subject) -> str:
    """Return which rule that must pass means nothing for what the model answers with; empty if all mean something."""
    wrong = [r.name for r in policy.rules if r.binding and subject.answers not in r.about.answers]
    if not wrong:
        return ""
    fits = "regression-1" if subject.task == "regression" else "dtp-1 or pdtp-1"
    return (
        f"policy {policy.name!r} enforces {wrong[0]!r}, which means nothing for a model that answers with "
        f"{subject.answers}; judge it by {fits}"
    )


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


def plan(policy: Policy, subject: Subject, *, fleet: Fleet, limits: Budget) -> list[str]:
    """Return ``costs`` in sentences."""
    return costs(policy, subject, fleet=fleet, limits=limits).said


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


def named(policy: Policy) -> dict[str, Any]:
    """Return the policy's name, digest and resolved text for the report."""
    return {
        "name": policy.name,
        "version": policy.version,
        "digest": policy.digest,
        "path": str(policy.path.name),
        "source": policy.resolved,
    }


def unit_limits(policy: Policy) -> tuple[float, ...]:
    """Return the limits, in nats, that rules set on single units: where engines and certificates look closer."""
    limits = set()
    for rule in policy.rules:
        if rule.about.per_unit:
            threshold = rule.request().option("threshold")
            limits.add(float(rule.limit if threshold is None else threshold))
    return tuple(sorted(limits))


def breaks(policy: Policy) -> dict[Request, tuple[str, Callable[[Measurement], bool]]]:
    """Return the rules on units that block once they are broken: enforced ones that no waiver may excuse."""
    waived = {w.rule for w in policy.waivers}
    rules = [r for r in policy.rules if r.about.per_unit and r.mode == "enforce" and r.name not in waived]
    # two rules may ask the same: the stricter one is broken first
    rules.sort(key=lambda r: r.limit, reverse=True)
    return {r.request(): (r.name, partial(_broken, r)) for r in rules}


def sample(policy: Policy) -> int | None:
    """Return how many random units are enough for every rule on leave-one-out; None where one needs everybody."""
    rules = [r for r in policy.rules if Need.LEAVE_ONE_OUT in r.about.needs]
    asked = [r.request().option("sample") for r in rules]
    return None if not asked or None in asked else max(asked)


def up_to(policy: Policy) -> int | None:
    """Return to how many random units the sample may grow; None where it does not, or rules draw differently."""
    rules = [r.request() for r in policy.rules if Need.LEAVE_ONE_OUT in r.about.needs]
    drawn = {(r.option("sample"), r.option("up_to")) for r in rules}
    return drawn.pop()[1] if len(drawn) == 1 else None


def by_theorem(policy: Policy) -> bool:
    """Return whether limits on people are all that rules ask of leave-one-out, and nobody wants them all measured."""
    rules = [r for r in policy.rules if Need.LEAVE_ONE_OUT in r.about.needs]
    audit = policy.audit
    enough = audit.min_coverage == 0 and audit.min_units <= proven.SAMPLE and audit.min_seeds <= proven.SEEDS
    return enough and all(r.about.per_unit and Need.EVERYBODY not in r.about.needs for r in rules)


def _broken(rule: Rule, measurement: Measurement) -> bool:
    return rule.judge(measurement).outcome is Outcome.FAILED


def facts(subject: Subject, *, attacked: bool = True) -> dict[str, Any]:
    """Return what is known about a subject before anything is trained, for ``Rule.cannot_conclude``."""
    from privgate.families import bound as bounds

    theorems, notes = bounds.applicable(subject, attacked=attacked)
    candidates = subject.data.candidates
    return {
        "certificates": [c.name for c in theorems],
        "why_no_certificate": bounds.reasons(notes) or [bounds.no_theorem(subject)],
        "n_units": len(subject.data.units),
        "candidates": 0 if candidates is None else len(candidates[1]),
        "dp": subject.recipe.payload["dp"] is not None,
        "probabilities": subject.release.form != "label",
        "sensitive": len(subject.data.sensitive),
        "why_no_sensitivity_bound": over_domain.refusal(subject) if subject.task == "regression" else "",
    }


def check_preconditions(run: Run, policy: Policy) -> list[Precondition]:
    """Return data checks, then the controls: cheap ones first, training last, and no training after a failure."""
    subject = run.subject
    found = list(subject.detail.get("preconditions", ()))
    found += data_preconditions(subject.data)
    found += policy.check_data(subject.data)
    found += controls.static(subject)
    if not any(p.outcome == "failed" for p in found):
        found += serving.preconditions(subject, run.fleet)
    if not any(stops(p) for p in found):
        found += controls.trained(run)
    ways = serving.apart(found)
    run.registered_apart = (run.registered_apart[0] + ways, run.registered_apart[1] + ways)
    return found


def stops(precondition: Precondition) -> bool:
    """Return whether no training can change the verdict any more for the better."""
    doubted = precondition.name in STOPPERS and precondition.outcome == "inconclusive"
    return precondition.outcome == "failed" or doubted


def _measure(run: Run, request: Request, stopped: list[Precondition]) -> Measurement:
    """Return the measurement; one that could not be taken says why and never passes."""
    if Need.CLAIM in METRICS[request.metric].needs and run.subject.recipe.payload["dp"] is None:
        problem = (
            "the recipe claims no differential privacy; state it with Recipe(fit, dp=Claim(...)), or judge by a policy "
            "without this rule"
        )
        return Measurement(request, problem=problem, applicable=False)
    if stopped:
        why = f"not measured, because {stopped[0].message}"
        return Measurement(request, problem=why, stopped_by=stopped[0].name)
    try:
        return questions.measure(run, request)
    except MeasurementError as exc:
        return Measurement(request, problem=str(exc))


def identity(subject: Subject) -> Mapping[str, Any]:
    """Return the subject's words and digests for the report."""
    data = subject.data
    return {
        "name": subject.name,
        "version": subject.version,
        "uri": subject.uri,
        "digests": dict(subject.digests),
        "n_records": data.n,
        "n_units": len(data.units),
        "n_classes": len(subject.classes) if subject.task == "classification" else 0,
        **({} if subject.task == "classification" else {"task": subject.task}),
        "n_candidates": 0 if data.candidates is None else len(data.candidates[1]),
        "release": subject.release.payload(),
        "domain": None if data.effective_domain is None else data.effective_domain.payload(),
        "recipe": dict(subject.recipe.payload),
        "detail": {k: v for k, v in subject.detail.items() if k != "preconditions"},
    }


def trace(run: Run) -> RunTrace:
    """Return what a reader needs to run this again."""
    import numpy as np
    import sklearn

    return RunTrace(
        versions={
            "privgate": __version__,
            "python": platform.python_version(),
            "numpy": np.__version__,
            "scikit-learn": sklearn.__version__,
        },
        system=f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        command=" ".join(["privgate", *sys.argv[1:]]) if "privgate" in sys.argv[0] else "",
        seeds=run.seeds,
        training_calls=run.fleet.calls,
        digests=dict(run.subject.digests),
    )
