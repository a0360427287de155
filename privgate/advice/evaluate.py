"""A check whose refusal names the way out: the route of the gate, then what would pass, and what both would cost."""

import contextlib
import math
import shlex
from collections.abc import Callable
from dataclasses import replace
from os import PathLike
from pathlib import Path

import numpy as np

from privgate.advice import candidates
from privgate.advice import point as usefulness
from privgate.advice import probe as probing
from privgate.advice.advice_search import BUDGET, HALVINGS, Search, cheap, named
from privgate.advice.point import Point
from privgate.check import beforehand as preconditions
from privgate.check import check_plan as planning
from privgate.check import gate
from privgate.check.costs import costs
from privgate.check.prepare import prepare, unit_limits
from privgate.errors import MeasurementError, PrivgateError, UsageError
from privgate.evidence import Count, NextStep, Removals, StepMeasured, TrainingPlan
from privgate.evidence.figures import figure
from privgate.influence import modes
from privgate.policy import Policy
from privgate.policy.judging import conditions
from privgate.policy.rules.rule_base import step_before_advice
from privgate.run.needs import Need
from privgate.run.run import Budget, Run
from privgate.subject.subject import Subject
from privgate.training import plan
from privgate.training.fleet import Fleet
from privgate.verdict import Finding, Outcome, Verdict

# What a refusal says of the way out: steps measured at once where nothing need be trained, and the time for the rest.
#
# What is measured here is decided by what engines say that they cost, never by the clock: the same check says the
# same. It is the search's own beginning, with its randomness: `privgate advise` finds it remembered.

#: steps that are named
NAMED = 3


def steps(
    policy: Policy, subject: Subject, verdict: Verdict, *, fleet: Fleet, limits: Budget
) -> tuple[tuple[NextStep, ...], Removals | None]:
    """Return what would make a refused model pass, the measured steps first and the most useful of them first.

    Beside them is what leaving out the riskiest people does, where that costs next to nothing. Nothing is returned
    where the model is released, where a control or a condition stopped the run, and where something else comes first
    that no change of the model mends: then the findings say what to do.
    """
    ended = {m.stopped_by for m in verdict.evidence.measurements.values()} - {"", gate.ATTACKED}
    first = ended or step_before_advice(verdict.findings)
    if verdict.outcome.releases or first or preconditions.stopping(verdict.evidence.preconditions):
        return (), None
    search = Search(policy, subject, fleet, limits, seconds=math.inf)
    run = prepare(policy, subject, fleet=fleet, limits=limits)
    now = search.pointed(candidates.NOTHING, probing.of(verdict))
    search.points.append(now)
    search.at_once(run)
    path = None
    if cheap(run, candidates.NOTHING, times=candidates.MOST_REMOVED):
        asked = unit_limits(policy.asked_of(conditions(gate.identity(run))))
        # the path alone: a check has tried too little to say that nothing but leaving people out is left
        if (found := candidates.removals(subject, asked)) is not None:
            best, gone = candidates.fewest(found, min(asked)), tuple(found.upper)
            path = Removals(meaning=found.meaning, path=gone, limit=min(asked), best=best, stopped=found.stopped)
    told = []
    if passing := sorted(search.passing, key=lambda p: -p.useful):
        with contextlib.suppress(PrivgateError):
            now = now.model_copy(update=usefulness.cross_validated(subject, fleet, search.measure).told())
        told = [_told(point, now, search.measure, verdict) for point in passing[:NAMED]]
    if (missing := _everybody(policy, verdict, run)) is not None:
        told.append(missing)
    if not candidates.most(subject, policy, halvings=HALVINGS):
        return tuple(told), path
    each = planning.seconds_each(run)
    tried = len(search.points) - 1
    check, file = verdict.evidence.run.plan, limits.file_withheld
    return (*told, planned(policy, subject, check, each, fleet.workers, tried=tried, file_withheld=file)), path


def planned(
    policy: Policy,
    subject: Subject,
    check: TrainingPlan | None,
    each: float,
    workers: int,
    *,
    tried: int = 0,
    file_withheld: bool = False,
) -> NextStep:
    """Return what ``privgate advise`` would try, and how long that takes at most by what a check takes.

    Parameters
    ----------
    check : TrainingPlan, optional
        Of one check, beside its controls, which a search leaves out.
    each : float
        Seconds of one training; 0 where it is not known.
    workers : int
    tried : int
        Changes that were measured already.
    file_withheld : bool
        The check was told that nobody who may ask gets the model's file.
    """
    count = candidates.most(subject, policy, halvings=HALVINGS)
    trainings = 0 if check is None else check.retrains
    seconds = 0.0 if check is None else max(check.seconds, trainings * each / workers)
    alone = seconds + usefulness.FOLDS * each / workers
    whole = min(count * alone, BUDGET)
    before = f"{tried} {'change was' if tried == 1 else 'changes were'} measured here; " if tried else ""
    command = ["privgate", "advise", subject.uri or "URI", "--policy", named(policy)]
    command += ["--file-not-downloadable"] * file_withheld
    return NextStep(
        action=f"search for the cheapest change that is approved: `{shlex.join(command)}`",
        effect=f"{before}up to {count} are measured by the same rules, each with its cross-validated usefulness",
        cost=f"at most {count} x {trainings + usefulness.FOLDS} trainings, {plan.span(whole)} (workers: {workers}): "
        f"{plan.span(alone)} for one that is approved, less where it is refused early, and --budget ends it",
    )


def _told(point: Point, now: Point, measure: str, verdict: Verdict) -> NextStep:
    judged = {f.rule: f for f in verdict.findings}
    point, now = (_coarse(p, judged.get(p.rule), verdict) for p in (point, now))
    named, useful = judged[point.rule].title if point.rule in judged else point.rule, ""
    if not (math.isnan(point.useful) or math.isnan(now.useful)):
        useful = f"; cross-validated {measure} {now.useful:.4f} becomes {point.useful:.4f}"
    before = f"{figure(now.value, now.unit)} becomes " if now.rule == point.rule else ""
    risk = f"{before}{figure(point.value, point.unit)} where {figure(point.limit, point.unit)} is allowed"
    return NextStep(
        action=point.change.says,
        effect=f"{named}: {risk}{useful}; a check of the changed model decides",
        cost="one training",
        measured=StepMeasured(
            measure=measure,
            useful=point.useful,
            useful_now=now.useful,
            of_limit=point.of_limit,
            of_limit_now=now.of_limit,
        ),
    )


def _coarse(point: Point, finding: Finding | None, verdict: Verdict) -> Point:
    """Return a point whose number tells no small count of people: what it says is read by many."""
    if finding is None or not math.isfinite(point.value):
        return point
    value = verdict.said(replace(finding, value=point.value, low=point.value, high=point.value)).value
    of_limit = point.of_limit if value == point.value else value / point.limit if point.limit else math.inf
    return point.model_copy(update={"value": value, "of_limit": of_limit})


def _everybody(policy: Policy, verdict: Verdict, run: Run) -> NextStep | None:
    """Return that people were not looked at, where that leaves the verdict open."""
    about = verdict.evidence.influence
    coverage = None if about is None else about.coverage
    if coverage is None or coverage.n_units <= coverage.n_measured or coverage.decided_by:
        return None  # nothing that is seen of others takes a violation back
    asking = {r.name for r in policy.rules if Need.LEAVE_ONE_OUT in r.about.needs}
    if not any(f.outcome is Outcome.INCONCLUSIVE and f.rule in asking for f in verdict.findings):
        return None  # it is open for another reason
    if coverage.claim.startswith(modes.CLAIM):
        return None  # everybody is limited
    missing, mode, trace = coverage.n_units - coverage.n_measured, verdict.evidence.run.mode, verdict.evidence.run.trace
    screened = mode is not None and mode.used == "screen"
    try:
        seeds = (None,) if trace is None else trace.seeds
        fits = plan.leave_out_fits(run.subject, np.arange(run.n_units, dtype=np.int64), seeds)
        cost = plan.estimate(run.subject, fits, run.fleet).sentence
    except MeasurementError as exc:
        cost = f"unknown: {exc}"
    return NextStep(
        action=f"measure everybody: {'--mode all' if screened else 'no --budget and no --max-retrains'}",
        effect=f"{Count(missing, coverage.n_units)} people more are looked at, and no sample speaks for others",
        cost=cost,
    )


def costs_of_both(policy: Policy, subject: Subject, *, fleet: Fleet, limits: Budget) -> list[str]:
    """Return what a check would cost in sentences, and what ``privgate advise`` would take if the check blocks."""
    found = costs(policy, subject, fleet=fleet, limits=limits)
    if found.ends:
        return found.said
    search = planned(policy, subject, found.planned, found.each, fleet.workers, file_withheld=limits.file_withheld)
    return [*found.said, f"if it refuses: {search.action}: {search.effect}; {search.cost}"]


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
    """Judge ``subject`` by every rule of ``policy``, and name what would make it pass where it does not.

    Parameters
    ----------
    policy : Policy, str or path
        A policy, the name of a shipped one, or its file.
    subject : Subject
        ``Subject.load("models:/name/version")`` or ``Subject.local(recipe, data)``.
    fleet : Fleet, optional
        Where retraining runs and is remembered; worker processes on this machine if absent.
    limits : Budget, optional
        What the run may cost.
    observe : bool
        The operator's setting: the verdict is recorded, nothing is approved by it.
    nonce : str
        Whoever asked for this check; its signer refuses the report of any other.
    announce : callable, optional
        Is told in sentences what can never be concluded, and what the work will cost, before it starts.

    Returns
    -------
    Verdict
        A failed policy is a verdict, never an exception.
    """
    if not isinstance(subject, Subject):
        raise UsageError(
            f"evaluate judges a Subject, not a {type(subject).__name__}; "
            "pass Subject.local(recipe, data) or Subject.load('models:/name/version')"
        )
    policy = (
        policy if isinstance(policy, Policy) else Policy.load(Path(policy) if isinstance(policy, PathLike) else policy)
    )
    with contextlib.ExitStack() as own:
        fleet, limits = fleet or own.enter_context(Fleet()), limits or Budget()
        verdict = gate.evaluate(
            policy, subject, fleet=fleet, limits=limits, observe=observe, nonce=nonce, announce=announce
        )
        found, path = steps(policy, subject, verdict, fleet=fleet, limits=limits)
    if not found:
        return verdict
    run = verdict.evidence.run.model_copy(update={"next_steps": found, "removals": path})
    detail = {**verdict.detail, "next_steps": [step.payload() for step in found]}
    return replace(verdict, evidence=replace(verdict.evidence, run=run), detail=detail)
