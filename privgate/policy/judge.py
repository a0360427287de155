"""Judging: evidence in, findings out; pure."""

from dataclasses import replace
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING

from privgate.evidence import Evidence, Measurement, Precondition
from privgate.rules.base import Rule
from privgate.verdict import Finding, Outcome

if TYPE_CHECKING:
    from privgate.policy.policy import Policy


def findings(policy: "Policy", evidence: Evidence, *, today: date | None = None) -> tuple[Finding, ...]:
    """Return one finding a precondition, then one a rule; nothing can go missing."""
    day = today or datetime.now(UTC).date()
    del day
    before = [_precondition(p) for p in evidence.preconditions]
    return tuple(before + [_judged(policy, rule, evidence) for rule in policy.rules])


def _precondition(found: Precondition) -> Finding:
    try:
        outcome = Outcome(found.outcome)
    except ValueError:
        outcome = Outcome.INCONCLUSIVE
    return Finding(f"precondition:{found.name}", found.name.replace("_", " "), outcome, found.message)


def _judged(policy: "Policy", rule: Rule, evidence: Evidence) -> Finding:
    request = rule.request()
    measurement = evidence.measurements.get(request)
    if measurement is None:
        measurement = Measurement(request, problem=f"{request.key} was not measured")
    return replace(rule.judge(measurement), line=policy.lines.get(rule.name, 0))
