"""A run that knows what a policy asks of this model, and what can never be concluded of it."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from privgate.controls import served
from privgate.errors import SubjectError, UsageError
from privgate.evidence import Measurement, Request
from privgate.evidence.verdict import Outcome
from privgate.influence.left_out import SEEDS
from privgate.policy import Policy
from privgate.policy.document_shape import WITHHELD
from privgate.policy.judging import conditions
from privgate.policy.rules.attacks import MembershipRule
from privgate.policy.rules.people import LeaveOneOutRule
from privgate.policy.rules.rule_base import Rule
from privgate.run.near_questions import CHECKED
from privgate.run.needs import Need
from privgate.run.run import TRIALS, Budget, Run
from privgate.statistics.roc import APPROVING
from privgate.subject.subject import Subject
from privgate.theorems import catalogue
from privgate.theorems.least_squares import not_over_domain
from privgate.training.fleet import Fleet


def breaks(policy: Policy) -> dict[Request, tuple[str, Callable[[Measurement], bool]]]:
    """Return the rules on units that block once they are broken: enforced ones that no waiver may excuse."""
    waived = {w.rule for w in policy.waivers}
    rules = [r for r in _on_people(policy) if r.mode == "enforce" and r.name not in waived]
    rules = [r for r in rules if not _answered_otherwise(r, policy.rules)]
    rules.sort(key=lambda r: r.limit, reverse=True)  # two may ask the same: the stricter one is broken first

    def is_broken(measurement: Measurement, *, rule: Rule) -> bool:
        return rule.judge(measurement).outcome is Outcome.FAILED

    return {r.request(): (r.name, partial(is_broken, rule=r)) for r in rules}


def _on_people(policy: Policy) -> list[LeaveOneOutRule]:
    return [r for r in policy.rules if isinstance(r, LeaveOneOutRule)]


def _answered_otherwise(rule: LeaveOneOutRule, rules: Iterable[Rule]) -> bool:
    """Return whether another rule may be enough for a question although this one is broken.

    PDTP is at most DTP: what breaks a limit on it breaks the same limit over all questions.
    """
    others = (r for r in rules if rule.either and r.either == rule.either and r is not rule)
    direct = rule.about.direct_only
    return not all(
        direct and isinstance(r, LeaveOneOutRule) and r.about.over_all_queries and not r.spares
        and r.judged_at <= rule.judged_at
        for r in others
    )  # fmt: skip


def attacked(policy: Policy) -> dict[Request, tuple[str, Callable[[Measurement], str]]]:
    """Return the figures that rules on attacks limit which name a level, and whether a measurement settles these rules.

    A rule is "broken" where that alone blocks: enforced, no other answers for it, and beyond its waivers as well.
    It is settled where its limit and the ceilings of its waivers are all decided; a rule that warns is, like others.
    """
    named = [r for r in policy.rules if isinstance(r, MembershipRule) and r.level]

    def outcomes(rule: Rule, measurement: Measurement) -> set[Outcome]:
        limits = (rule.limit, *(w.ceiling for w in policy.waivers if w.rule == rule.name))
        strict = rule.model_copy(update={"mode": "enforce"})
        return {strict.with_limit(limit).judge(measurement).outcome for limit in limits}

    def settled(request: Request, measurement: Measurement) -> str:
        mine = [
            (r.mode == "enforce" and not r.either, outcomes(r, measurement)) for r in named if r.request() == request
        ]
        if any(blocks and all_ == {Outcome.FAILED} for blocks, all_ in mine):
            return "broken"
        return "settled" if all(all_ <= {Outcome.PASSED, Outcome.FAILED} for _, all_ in mine) else ""

    return {r.request(): (r.about.figure, partial(settled, r.request())) for r in named}


def by_theorem(policy: Policy) -> bool:
    """Return whether limits on people are all that rules ask of leave-one-out, and no option has them all measured."""
    rules = [r for r in policy.rules if Need.LEAVE_ONE_OUT in r.about.needs]
    audit = policy.audit
    enough = audit.min_coverage == 0 and audit.min_units <= CHECKED and audit.min_seeds <= SEEDS
    return enough and all(r.about.per_unit for r in rules)


def find_share(policy: Policy) -> float | None:
    """Return the share of people that may be above every limit on them; None where a rule needs everybody.

    Of rules that answer one question one is enough: the one that lets most be above.
    """
    shares = dict[str, float]()
    for rule in (r for r in policy.rules if Need.LEAVE_ONE_OUT in r.about.needs):
        question = rule.either or rule.name
        shares[question] = max(shares.get(question, 0.0), rule.spares if isinstance(rule, LeaveOneOutRule) else 0.0)
    least = min(shares.values(), default=0.0)
    return least if least > 0 and policy.audit.min_coverage == 0 else None


def prepare(
    policy: Policy, subject: Subject, *, fleet: Fleet, limits: Budget | None, known: Mapping[str, Any] | None = None
) -> Run:
    """Return a run that knows what the policy asks for and what it can never conclude for this model."""
    if why := policy.powerless({"n_units": len(subject.data.units), "n_records": subject.data.n}):
        raise UsageError(why)
    if why := subject.recipe.refusal:
        raise SubjectError(why)
    if why := misfit(policy, subject):
        raise UsageError(why)
    if subject.release.floor:  # that nobody gets the file is the operator's word, never the recipe's
        stated = policy.file == WITHHELD or (limits is not None and limits.file_withheld)
        subject = replace(subject, release=replace(subject.release, alone=stated))
    if subject.data.domain is not None and (catalogue.applicable(subject)[0] or not not_over_domain(subject)):
        subject = served.check_domain(subject, fleet)
    theorems: tuple[str, ...] = ()
    if any("theorem" in r.when for r in policy.rules):  # those that bound everybody without a training
        theorems = tuple(c.name for c in catalogue.applicable(subject)[0] if c.name in catalogue.THEOREMS)
    policy = asked_of(policy, subject, theorems)
    needs = frozenset(need for rule in policy.rules for need in rule.about.needs)
    people = _on_people(policy)
    run = Run(
        subject,
        fleet,
        limits or Budget(),
        seeds=(subject.recipe.seed,),  # until the controls choose more; attacks are on the model at this one
        breaks=breaks(policy),
        thresholds=tuple(sorted({r.judged_at for r in people})),
        people=tuple(sorted({(r.judged_at, r.spares) for r in people if r.mode == "enforce"})),
        share=find_share(policy),
        by_theorem=by_theorem(policy),
        trials=max(TRIALS, policy.audit.min_candidates),
        needs=needs,
        theorems=theorems,
        attacked=attacked(policy),
        at_once=any(isinstance(r, MembershipRule) and not r.level for r in policy.rules),
        near_questions=any(rule.request().option("over") == "beside" for rule in policy.rules),
    )
    known = dict(known or facts(subject))
    few = f"an approval at a level wants {min(APPROVING)} shadow models" * (run.limits.shadow_models < min(APPROVING))
    at_level = {r.name for r in policy.rules if isinstance(r, MembershipRule) and r.level}
    refused = {r.name: r.cannot_conclude(known) or few * (r.name in at_level) for r in policy.rules}
    open_ = {r.either for r in policy.rules if not refused[r.name]}  # another rule may be enough
    shut = [r for r in policy.rules if refused[r.name] and not (r.either and r.either in open_)]
    reasons = [f"{r.name}: {refused[r.name]}" for r in shut]
    return replace(run, cannot_conclude=tuple(reasons))


def asked_of(policy: Policy, subject: Subject, theorems: tuple[str, ...]) -> Policy:
    """Return the policy with those rules alone that are asked of a subject which these theorems bound."""
    facts = {"task": subject.task, "recipe": subject.recipe.payload, "theorems": list(theorems)}
    return policy.asked_of(conditions(facts))


def misfit(policy: Policy, subject: Subject) -> str:
    """Return which rule that must pass means nothing for what the model answers with; empty if all mean something."""
    wrong = [
        r.name for r in asked_of(policy, subject, ()).rules if r.binding and subject.answers not in r.about.answers
    ]
    if not wrong:
        return ""
    fits = "regression-1" if subject.task == "regression" else "dtp-1 or pdtp-1"
    return (
        f"policy {policy.name!r} enforces {wrong[0]!r}, which means nothing for a model that answers with "
        f"{subject.answers}; judge it by {fits}"
    )


def facts(subject: Subject) -> dict[str, Any]:
    """Return what is known about a subject before anything is trained, for ``Rule.cannot_conclude``."""
    theorems, notes = catalogue.applicable(subject)
    candidates = subject.data.candidates
    return {
        "certificates": [c.name for c in theorems],
        "why_no_certificate": ([subject.beyond] if subject.beyond else catalogue.reasons(notes))
        or [catalogue.no_theorem(subject)],
        "n_units": len(subject.data.units),
        "n_records": subject.data.n,
        "candidates": 0 if candidates is None else len(candidates[1]),
        "dp": subject.recipe.payload["dp"] is not None,
        "probabilities": subject.release.form != "label",
        "sensitive": len(subject.data.sensitive),
        "why_no_sensitivity_bound": (subject.beyond or not_over_domain(subject))
        if subject.task == "regression"
        else "",
    }
