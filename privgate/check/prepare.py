"""A run that knows what a policy asks, what its rules mean for this model, and what can never be concluded of it."""

from collections.abc import Mapping
from typing import Any

from privgate.check import asked
from privgate.errors import SubjectError, UsageError
from privgate.families import bound as bounds
from privgate.families.least_squares import not_over_domain
from privgate.influence import modes
from privgate.policy import Policy
from privgate.run.needs import Need
from privgate.run.run import Budget, Run
from privgate.subject.subject import Subject
from privgate.training.fleet import Fleet


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
    needs = frozenset(need for rule in policy.rules for need in rule.about.needs)
    metrics = frozenset(rule.about.name for rule in policy.rules)
    thresholds = asked.unit_limits(policy)
    run = Run(
        subject, fleet, limits or Budget(), thresholds=thresholds, asked=needs, metrics=metrics, suites=policy.suites
    )
    run.breaks, run.sample, run.by_theorem = asked.breaks(policy), asked.sample(policy), asked.by_theorem(policy)
    run.up_to = asked.up_to(policy)
    known = dict(known or facts(subject, attacked=Need.SHADOWS in needs))
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


def facts(subject: Subject, *, attacked: bool = True) -> dict[str, Any]:
    """Return what is known about a subject before anything is trained, for ``Rule.cannot_conclude``."""
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
        "why_no_sensitivity_bound": not_over_domain(subject) if subject.task == "regression" else "",
    }
