"""A run that knows what a policy asks of this model, what must hold first, and what can never be concluded."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from privgate.claims import accounting
from privgate.errors import MeasurementError, SubjectError, UsageError
from privgate.evidence import Count, Measurement, Precondition, Request
from privgate.evidence.telling import SMALL_CELL
from privgate.families import bound as bounds
from privgate.families import of_data
from privgate.families.engine import DRAWN
from privgate.families.least_squares import not_over_domain
from privgate.influence import modes
from privgate.policy import Policy
from privgate.policy.judging import conditions
from privgate.policy.rules.attacks import MembershipRule
from privgate.policy.rules.leave_one_out import LeaveOneOutRule
from privgate.policy.rules.rule_base import Rule
from privgate.run import controls, pool, refusals, serving
from privgate.run.data_checks import preconditions as data_preconditions
from privgate.run.data_checks import who
from privgate.run.needs import Need
from privgate.run.run import TRIALS, Budget, Run
from privgate.statistics.roc import APPROVING
from privgate.subject.subject import Subject
from privgate.training.fleet import Fleet
from privgate.verdict import Outcome

# What the rules of a policy ask of a run: limits on people, whom to draw, and what ends the work early.


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
    rules = [r for r in rules if not _answered_otherwise(r, policy.rules)]
    # two rules may ask the same: the stricter one is broken first
    rules.sort(key=lambda r: r.limit, reverse=True)
    return {r.request(): (r.name, partial(_broken, r)) for r in rules}


def _answered_otherwise(rule: Rule, rules: Iterable[Rule]) -> bool:
    """Return whether another rule may be enough for a question although this one is broken.

    PDTP is at most DTP: whoever breaks a limit on it breaks the same limit over all questions.
    """
    others = [r for r in rules if rule.either and r.either == rule.either and r is not rule]
    harder = (
        r for r in others if rule.about.direct_only and r.about.over_all_queries and _limit_on_people(r) <= _least(rule)
    )
    return len(others) > len(list(harder))


def _least(rule: Rule) -> float:
    """Return nats that somebody exceeds where a rule on people is broken."""
    threshold = rule.request().option("threshold")
    return float(rule.limit if threshold is None else threshold)


def _allowed(rule: Rule) -> float:
    """Return the share of people who may be above a rule's limit."""
    asked = rule.request()
    how = asked.option("aggregate", "max")
    if how == "quantile":
        return round(1.0 - float(asked.option("q")), 9)
    return float(rule.limit) if how == "share_above" else 0.0


def _limit_on_people(rule: Rule) -> float:
    """Return nats that nobody may exceed; infinite where a rule lets some people be above."""
    return rule.limit if rule.request().option("aggregate", "max") == "max" else math.inf


def _broken(rule: Rule, measurement: Measurement) -> bool:
    return rule.judge(measurement).outcome is Outcome.FAILED


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


def attacked(policy: Policy) -> dict[Request, tuple[str, Callable[[Measurement], str]]]:
    """Return the figures that rules on attacks limit which name a level, and whether a measurement settles these rules.

    A rule is "broken" where that alone blocks: enforced, no other answers for it, and beyond its waivers as well.
    It is settled where its limit and the ceilings of its waivers are all decided; a rule that warns is, like others.
    """
    named = [r for r in policy.rules if isinstance(r, MembershipRule) and r.level]

    def outcomes(rule: Rule, found: Measurement) -> set[Outcome]:
        limits = (rule.limit, *(w.ceiling for w in policy.waivers if w.rule == rule.name))
        strict = rule.model_copy(update={"mode": "enforce"})
        return {strict.with_limit(limit).judge(found).outcome for limit in limits}

    def settled(request: Request, found: Measurement) -> str:
        mine = [(r.mode == "enforce" and not r.either, outcomes(r, found)) for r in named if r.request() == request]
        if any(blocks and all_ == {Outcome.FAILED} for blocks, all_ in mine):
            return "broken"
        return "settled" if all(all_ <= {Outcome.PASSED, Outcome.FAILED} for _, all_ in mine) else ""

    return {r.request(): (r.about.figure, partial(settled, r.request())) for r in named}


def without_level(policy: Policy) -> bool:
    """Return whether a rule on attacks names no level, and so wants all shadow models before anything is judged."""
    return any(isinstance(r, MembershipRule) and not r.level for r in policy.rules)


def _too_few(rule: Rule, limits: Budget) -> str:
    """Return that a budget has fewer shadow models than an approval at a level wants; empty if it has enough."""
    level, least = isinstance(rule, MembershipRule) and rule.level, min(APPROVING)
    said = f"an approval at a level wants {least} shadow models: --shadow-models {least}"
    return said if level and limits.shadow_models < least else ""


def _or_everybody(wanted: int | None, people: int) -> int | None:
    """Return the size of a sample; everybody where so few would be left that their number may not be told."""
    return people if wanted is not None and people - SMALL_CELL < wanted < people else wanted


def drawn(policy: Policy) -> int:
    """Return how many random people, none of whom exceeds, show what every rule asks of a share of all; at least 59."""
    shares = (r.unseen for r in policy.rules if isinstance(r, LeaveOneOutRule))
    return max([DRAWN, *shares])


def by_theorem(policy: Policy) -> bool:
    """Return whether limits on people are all that rules ask of leave-one-out, and nobody wants them all measured."""
    rules = [r for r in policy.rules if Need.LEAVE_ONE_OUT in r.about.needs]
    audit = policy.audit
    enough = audit.min_coverage == 0 and audit.min_units <= modes.SAMPLE and audit.min_seeds <= modes.SEEDS
    return enough and all(r.about.per_unit and Need.EVERYBODY not in r.about.needs for r in rules)


# A run that knows what a policy asks, what its rules mean for this model, and what can never be concluded of it.


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
    if subject.data.domain is not None and (bounds.applicable(subject)[0] or not not_over_domain(subject)):
        subject = refusals.looked(subject, fleet)
    theorems = _of_everybody(subject) if any("theorem" in r.when for r in policy.rules) else ()
    policy = policy.asked_of(conditions(described(subject, theorems)))
    needs = frozenset(need for rule in policy.rules for need in rule.about.needs)
    run = Run(
        subject,
        fleet,
        limits or Budget(),
        breaks=breaks(policy),
        thresholds=unit_limits(policy),
        people=tuple(
            sorted({(_least(r), _allowed(r)) for r in policy.rules if r.about.per_unit and r.mode == "enforce"})
        ),
        sample=_or_everybody(sample(policy), len(subject.data.units)),
        up_to=_or_everybody(up_to(policy), len(subject.data.units)),
        by_theorem=by_theorem(policy),
        trials=max(TRIALS, policy.audit.min_candidates),
        drawn=drawn(policy),
        asked=needs,
        suites=policy.suites,
        theorems=theorems,
        attacked=attacked(policy),
        at_once=without_level(policy),
        beside=any(rule.request().option("over") == "beside" for rule in policy.rules),
    )
    known = dict(known or facts(subject, attacked=Need.SHADOWS in needs))
    never = {rule.name: rule.cannot_conclude(known) for rule in policy.rules}
    refused = {
        r.name: never[r.name] or modes.refusal(run, r.request(), r.about.needs) or _too_few(r, run.limits)
        for r in policy.rules
    }
    open_ = {r.either for r in policy.rules if not refused[r.name]}  # another rule may be enough
    shut = [r for r in policy.rules if refused[r.name] and not (r.either and r.either in open_)]
    told = [f"{r.name}: {refused[r.name]}" for r in shut]
    return replace(run, cannot_conclude=(*modes.never(run), *told))


def _of_everybody(subject: Subject) -> tuple[str, ...]:
    """Return the theorems that bound every answer about everybody without a training, and are confirmed of data."""
    return tuple(c.name for c in bounds.applicable(subject)[0] if c.name in of_data.ALL)


def described(subject: Subject, theorems: tuple[str, ...]) -> dict[str, Any]:
    """Return what evidence says of a subject, as far as it decides which rules are asked."""
    return {"task": subject.task, "recipe": subject.recipe.payload, "theorems": list(theorems)}


def misfit(policy: Policy, subject: Subject) -> str:
    """Return which rule that must pass means nothing for what the model answers with; empty if all mean something."""
    asked = policy.asked_of(conditions(described(subject, ()))).rules
    wrong = [r.name for r in asked if r.binding and subject.answers not in r.about.answers]
    if not wrong:
        return ""
    fits = "regression-1" if subject.task == "regression" else "dtp-1 or pdtp-1"
    return (
        f"policy {policy.name!r} enforces {wrong[0]!r}, which means nothing for a model that answers with "
        f"{subject.answers}; judge it by {fits}"
    )


def facts(subject: Subject, *, attacked: bool = True) -> dict[str, Any]:
    """Return what is known about a subject before anything is trained, for ``Rule.cannot_conclude``."""
    theorems, notes = bounds.applicable(subject, attacked=attacked)
    candidates = subject.data.candidates
    return {
        "certificates": [c.name for c in theorems],
        "why_no_certificate": ([subject.beyond] if subject.beyond else bounds.reasons(notes))
        or [bounds.no_theorem(subject)],
        "n_units": len(subject.data.units),
        "candidates": 0 if candidates is None else len(candidates[1]),
        "dp": subject.recipe.payload["dp"] is not None,
        "probabilities": subject.release.form != "label",
        "sensitive": len(subject.data.sensitive),
        "why_no_sensitivity_bound": (subject.beyond or not_over_domain(subject))
        if subject.task == "regression"
        else "",
    }


# What must hold before anything is measured: the data's own checks, the policy's, and the controls of the recipe.

#: preconditions without which no number about the model counts
STOPPERS = (
    "task",
    "keys",
    "provenance",
    "served",
    "reproduces",
    "depends_on_data",
    "remembers_nothing",
    "recorded_seed",
)


def untrained(run: Run, policy: Policy) -> list[Precondition]:
    """Return findings on the data and on what is stored, for which nothing is trained."""
    subject = run.subject
    found = list(subject.detail.get("preconditions", ()))
    found += data_preconditions(subject.data)
    if subject.uri:
        found.append(who(subject.data))
    found += policy.check_data(subject.data)
    found += controls.static(subject)
    if not run.limits.full and (why := too_few(policy, run)):
        found.append(Precondition("people", "inconclusive", f"{why}; --full measures it all the same"))
    if Need.CLAIM in run.asked and subject.recipe.payload["dp"] is not None and not accounting.has_accountant():
        found.append(Precondition("dp_extra", "inconclusive", accounting.EXTRA))
    if not any(p.outcome == "failed" for p in found):
        found += serving.preconditions(subject, run.fleet)
    return found


def too_few(policy: Policy, run: Run) -> str:
    """Return why the people at hand can never decide a rule that must pass, whatever is trained; empty if they can."""
    data, people = run.subject.data, policy.audit.min_candidates
    asked = policy.asked_of(conditions(described(run.subject, run.theorems))).rules
    for rule in (r for r in asked if r.binding and not r.either):
        if rule.about.per_unit and len(data.units) < policy.audit.min_units:
            return f"the policy wants {policy.audit.min_units} people, and the data hold {len(data.units)}: give more"
        if Need.SHADOWS not in rule.about.needs:
            continue
        try:
            made = pool.built(data)
        except MeasurementError as exc:
            return str(exc)
        if made.twins is not None and made.twins.too_many:
            return made.refusal
        least, usable = max(pool.LEAST, people, getattr(rule, "least", 0)), int(made.trial[data.n :].sum())
        if usable < least:
            some = Count(usable, data.pool_size - data.n)
            return f"rule {rule.name!r} needs {least} candidates, and {some} are usable: give more"
    return ""


def checked(
    run: Run, policy: Policy, tell: Callable[[str], None]
) -> tuple[Run, list[Precondition], list[Precondition]]:
    """Return the run that knows what controls found, what was found, and what of it ends the run.

    What of the data will stand in the verdict is told before anything is trained. Where it leaves no approval, nothing
    is: neither a control nor a measurement takes it back.
    """
    found = untrained(run, policy)
    for p in found:
        if p.outcome != "passed":
            tell(f"{p.name}: {p.message}")
    if not (stopped := beforehand(found)):
        run, more = controls.trained(run)
        found, stopped = [*found, *more], stopping(more)
    (near, far), ways = run.registered_apart, serving.apart(found)
    return replace(run, registered_apart=(near + ways, far + ways)), found, stopped


def beforehand(found: Iterable[Precondition]) -> list[Precondition]:
    """Return what of the findings that need no training keeps any training from leading to an approval."""
    return [p for p in found if p.outcome in ("failed", "inconclusive")]


def stopping(found: Iterable[Precondition]) -> list[Precondition]:
    """Return those after which nothing is planned or measured."""
    return [p for p in beforehand(found) if p.name in STOPPERS]
