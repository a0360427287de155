"""Waivers: dated exceptions up to a ceiling; one that does not apply is reported, never silently dropped."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date
from typing import Any

from privgate.evidence import Measurement
from privgate.policy.document import WARNING_DAYS, Waiver
from privgate.policy.rules.base import Rule
from privgate.verdict import Finding, Outcome


@dataclass(frozen=True, slots=True)
class Waived:
    """What became of one waiver.

    Parameters
    ----------
    key, rule : str
        Its name in reports, and the rule's id.
    state : str
        ``applied``, ``not needed``, ``above ceiling``, ``expired``, ``not yet``, ``other model``.
    text : str
        The same as a sentence.
    waiver : Waiver
        As the policy states it.
    days_left : int
        Until its end; negative once it is over.
    ends_soon : bool
        It applies and ends within 14 days.
    """

    key: str
    rule: str
    state: str
    text: str
    waiver: Waiver
    days_left: int
    ends_soon: bool = False

    @property
    def expires(self) -> date:
        """Last day."""
        return self.waiver.expires

    def payload(self) -> dict[str, Any]:
        """Return JSON values for the report: people, dates, ceiling, and what became of it."""
        w = self.waiver
        soon = f", ends in {self.days_left} days" if self.ends_soon else ""
        return {
            "rule": self.rule,
            "status": f"{self.state}{soon}",
            "reason": w.reason,
            "requester": w.requester,
            "approver": w.approver,
            "expires": w.expires.isoformat(),
            "ceiling": w.ceiling,
        }


def apply(
    waiver: Waiver,
    rule: Rule,
    finding: Finding,
    measurement: Measurement,
    *,
    subject: Mapping[str, Any],
    today: date,
    facts: Mapping[str, Any],
) -> tuple[Finding, Waived]:
    """Return the finding as the waiver leaves it, and what became of the waiver.

    A finding is waived if the rule would pass with the ceiling for a limit; it then counts as warned.
    """
    state, why = _state(waiver, subject, today)
    if state == "applied":
        if finding.outcome.releases:
            state, why = "not needed", "the rule does not block without it"
        elif everything := rule.with_limit(waiver.ceiling).vacuous(facts):
            state, why = "above ceiling", f"a ceiling of {waiver.ceiling:g} would waive everything: {everything}"
        elif rule.with_limit(waiver.ceiling).judge(measurement).outcome is not Outcome.PASSED:
            state, why = "above ceiling", f"it ends at {waiver.ceiling:g}, and the measurement is not within that"
    days = (waiver.expires - today).days
    soon = state == "applied" and days <= WARNING_DAYS
    result = Waived(waiver.key, waiver.rule, state, f"{state}: {why}", waiver, days, soon)
    if state == "applied":
        ending = f"; ends in {days} days" if soon else ""
        text = (
            f"waived up to {waiver.ceiling:g} until {waiver.expires}: {waiver.reason} "
            f"(asked by {waiver.requester}, approved by {waiver.approver}{ending})"
        )
        finding = replace(finding, outcome=Outcome.WARNED, waiver=text)
    elif state in {"expired", "above ceiling", "not yet"} and not finding.outcome.releases:
        finding = replace(finding, message=f"{finding.message}; a waiver does not apply ({state}: {why})")
    return finding, result


def _state(waiver: Waiver, subject: Mapping[str, Any], today: date) -> tuple[str, str]:
    """Return whether a waiver is in force for a subject on a day, and why not."""
    digests = subject.get("digests") or {}
    if subject.get("name") != waiver.model or digests.get("model") != waiver.version:
        return "other model", f"it is for {waiver.model} {waiver.version[:19]}…"
    if today > waiver.expires:
        return "expired", f"it ended on {waiver.expires}"
    if today < waiver.granted:
        return "not yet", f"it begins on {waiver.granted}"
    return "applied", f"until {waiver.expires}"
