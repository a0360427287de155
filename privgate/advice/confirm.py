"""Confirming: a whole check of a few finalists, with randomness that the search has never seen, at a shared level.

Each finalist is one more try to pass by chance. Rules with a confidence get a share of what may go wrong (Bonferroni),
and no further finalist is checked once one stands. Limits over seeds or over a sample have a level that no policy
names: with these there is one try. What is exact or proven needs no level.
"""

import math
from collections.abc import Callable, Sequence

from privgate.advice import probe as probing
from privgate.advice.change import changed
from privgate.advice.point import Point, front
from privgate.check import gate
from privgate.errors import PrivgateError
from privgate.policy import Policy
from privgate.policy.rules.base import Rule
from privgate.policy.rules.dp_epsilon_lower_bound import DpEpsilonLowerBound
from privgate.run.run import Budget
from privgate.subject.subject import Subject
from privgate.training.fleet import Fleet
from privgate.verdict import Verdict

#: candidates that a whole check looks at again at most
FINALISTS = 3


def finalists(points: Sequence[Point], policy: Policy) -> list[Point]:
    """Return which candidates that pass a whole check looks at, the most useful first."""
    good = [p for p in points if p.number > 0 and p.passes and not p.change.games]
    shown = front(good)[::-1]  # the most useful first
    ranked = sorted(shown or good, key=lambda p: -p.useful if not math.isnan(p.useful) else math.inf)
    if rests_on_levels(policy) and len(ranked) > FINALISTS:
        # halving ends close to the limit, where other randomness decides: the others have room to spare
        ranked = [ranked[i * (len(ranked) - 1) // (FINALISTS - 1)] for i in range(FINALISTS)]
    return ranked[:FINALISTS]


def confirm(
    chosen: Sequence[Point],
    policy: Policy,
    subject: Subject,
    *,
    fleet: Fleet,
    limits: Budget,
    tell: Callable[[str], None],
) -> tuple[list[Point], list[str]]:
    """Return the finalists that were checked, with what came out, and why others were not.

    Parameters
    ----------
    chosen : sequence of Point
        The one to try first first.
    policy, subject
        Of the search.
    fleet, limits
        Of each check.
    tell : callable
        Is told one sentence a check.
    """
    found, left = list[Point](), list[str]()
    shared = rests_on_levels(policy)
    judge = stricter(policy, len(chosen))
    for k, point in enumerate(chosen):
        try:
            checked = gate.evaluate(judge, changed(subject, point.change), fleet=fleet, limits=limits)
        except PrivgateError as exc:
            left.append(f"{point.change.says}: not confirmed: {exc}")
            continue
        found.append(_confirmed(point, checked))
        tell(f"  checked again, {checked.outcome.value}: {point.change.says}")
        once = _one_try(policy, checked)
        if (once or (shared and checked.outcome.releases)) and k + 1 < len(chosen):
            why = "its level allows one try" if once else "one stands, and checking more would be trying again"
            left.append(f"{len(chosen) - k - 1} more that pass in the search were not checked: {why}")
            break
    return found, left


def stricter(policy: Policy, tries: int) -> Policy:
    """Return the policy whose limits err with a share of their probability, so that all tries together keep it."""
    if tries < 2:
        return policy
    return policy.model_copy(update={"rules": tuple(_stricter(rule, tries) for rule in policy.rules)})


def _stricter(rule: Rule, tries: int) -> Rule:
    if not _has_level(rule):
        return rule
    level: float = getattr(rule, "confidence")  # noqa: B009  a key of some rules; which, their fields say
    return rule.model_copy(update={"confidence": 1 - (1 - level) / tries})


def rests_on_levels(policy: Policy) -> bool:
    """Return whether a rule may be passed by chance, with a confidence that it names."""
    return any(_has_level(rule) for rule in policy.rules)


def _has_level(rule: Rule) -> bool:
    """Return whether passing rests on a confidence that the rule names; an audit's is that of blocking."""
    return "confidence" in type(rule).model_fields and not isinstance(rule, DpEpsilonLowerBound)


def _one_try(policy: Policy, checked: Verdict) -> bool:
    """Return whether an enforced rule was judged by limits whose level nobody can share; an audit only ever blocks."""
    measured = checked.evidence.measurements
    rules = [r for r in policy.rules if r.mode == "enforce" and not _has_level(r) and not r.about.shows_leaks_only]
    return any(m.kind == "confidence" for r in rules if (m := measured.get(r.request())) is not None)


def _confirmed(point: Point, checked: Verdict) -> Point:
    risk = probing.of(checked.findings)
    same = next((probing.unsafe(f) for f in checked.findings if f.rule == point.rule), math.nan)
    why = point.why if checked.outcome.releases else risk.why
    return point.model_copy(update={"confirmed": checked.outcome.value, "confirmed_value": same, "why": why})
