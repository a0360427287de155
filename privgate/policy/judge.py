"""Judging: evidence in, findings out; pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Any, Protocol

from privgate.evidence import Evidence, Measurement, Precondition
from privgate.policy import waive
from privgate.policy.document import Audit, Waiver
from privgate.policy.rules.base import Rule
from privgate.policy.rules.leave_one_out import LeaveOneOutRule
from privgate.policy.rules.membership import MembershipRule
from privgate.policy.rules.table import Table
from privgate.verdict import Finding, Outcome, worst


class Judging(Protocol):
    """What judging reads of a policy."""

    @property
    def rules(self) -> Sequence[Rule]:
        """In the policy's order."""
        ...

    @property
    def waivers(self) -> Sequence[Waiver]:
        """What is excused."""
        ...

    @property
    def audit(self) -> Audit:
        """The least effort."""
        ...

    @property
    def lines(self) -> Mapping[str, int]:
        """Where each rule stands in its file."""
        ...

    def facts(self, n_units: int) -> Mapping[str, Any]:
        """Return what is known of the subject for rules that cannot fail."""
        ...

    def powerless(self, facts: Mapping[str, Any]) -> str:
        """Return why nothing that is enforced can fail; empty if something can."""
        ...


@dataclass(frozen=True)
class Judged:
    """Findings, and what became of every waiver of the policy."""

    findings: tuple[Finding, ...]
    waivers: tuple[waive.Waived, ...]


def judge(policy: Judging, evidence: Evidence, today: date) -> Judged:
    """Return one finding a precondition, then one a rule; nothing can go missing."""
    findings = [_precondition(p) for p in evidence.preconditions]
    waivers: list[waive.Waived] = []
    facts = policy.facts(int(evidence.subject.get("n_units") or 0))
    powerless = policy.powerless(facts)
    for rule in policy.rules:
        measurement = _measurement(rule, evidence)
        finding = _weighed(rule.judge(measurement), rule, facts, powerless)
        for waiver in policy.waivers:
            if waiver.rule == rule.name:
                finding, became = waive.apply(
                    waiver, rule, finding, measurement, subject=evidence.subject, today=today, facts=facts
                )
                waivers.append(became)
        # after the waivers: they excuse a number, not too little effort behind it
        finding = _enough(policy, rule, finding, measurement, evidence)
        findings.append(replace(finding, line=policy.lines.get(rule.name, 0)))
    return Judged(tuple(findings), tuple(waivers))


def _weighed(finding: Finding, rule: Rule, facts: Mapping[str, Any], powerless: str) -> Finding:
    """Return the finding, a warning at best where nothing could have broken the rule, and said before its numbers.

    Where that holds for everything that is enforced nothing was shown at all, which is inconclusive.
    """
    why = rule.vacuous(facts)
    if not why:
        return finding
    least = Outcome.INCONCLUSIVE if powerless and rule.mode == "enforce" else Outcome.WARNED
    return replace(
        finding,
        outcome=worst((finding.outcome, least)),
        message=f"this rule cannot fail: {why}; {finding.message}",
        meaning=f"Cannot fail: {why}. {finding.meaning}".rstrip(),
        advice=finding.advice
        or "set a limit that a measurement can break; `privgate policy lint` names those that cannot",
    )


def _precondition(found: Precondition) -> Finding:
    try:
        outcome = Outcome(found.outcome)
    except ValueError:  # a word we do not know is doubt
        outcome = Outcome.INCONCLUSIVE
    title = found.name.replace("_", " ")
    return Finding(f"precondition:{found.name}", title[:1].upper() + title[1:], outcome, found.message)


def _measurement(rule: Rule, evidence: Evidence) -> Measurement:
    request = rule.request()
    found = evidence.measurements.get(request)
    return found if found is not None else Measurement(request, problem=f"{request.key} was not measured")


def _enough(policy: Judging, rule: Rule, finding: Finding, measurement: Measurement, evidence: Evidence) -> Finding:
    """Return the finding, inconclusive where it would release on less effort than the policy's minimum."""
    missing = measurement.problem or measurement.detail.get("applicable") is False
    if missing or not finding.outcome.releases:
        return finding
    short = shortfall(policy.audit, rule, measurement, evidence)
    return rule.finding(Outcome.INCONCLUSIVE, f"{short}: inconclusive", measurement) if short else finding


def shortfall(audit: Audit, rule: Rule, measurement: Measurement, evidence: Evidence) -> str:
    """Return in which way less was done than the policy's audit minimum; empty if enough was done."""
    ran = str(evidence.detail.get("isolation") or "none")
    if audit.min_isolation != "none" and ran.partition(" ")[0] != audit.min_isolation:
        return f"training code ran with isolation {ran}, the policy wants {audit.min_isolation}"
    if isinstance(rule, LeaveOneOutRule):
        covered = measurement.n / measurement.population if measurement.population else 0.0
        if measurement.n < audit.min_units:
            return f"{measurement.n} units were measured, the policy wants {audit.min_units}"
        if covered < audit.min_coverage:
            return f"{covered:.1%} of the units were measured, the policy wants {audit.min_coverage:.1%}"
    if isinstance(rule, LeaveOneOutRule | Table):
        seeds = _seeds(evidence.detail)
        if audit.min_seeds > 1 and seeds < audit.min_seeds:
            return f"{seeds:g} paired seeds were used, the policy wants {audit.min_seeds}"
    if isinstance(rule, MembershipRule):
        shadows = measurement.detail.get("shadow_models", 0)
        if audit.min_shadow_models > 1 and shadows < audit.min_shadow_models:
            return f"{shadows} shadow models stand behind this, the policy wants {audit.min_shadow_models}"
        # those that serve as trials, where the measurement says so: not copies of members, not unknown labels
        people = measurement.detail.get("candidates", evidence.subject.get("n_candidates", 0))
        if audit.min_candidates > 1 and people < audit.min_candidates:
            return f"{people} candidates stand behind this, the policy wants {audit.min_candidates}"
    return ""


def _seeds(detail: Mapping[str, Any]) -> float:
    """Return the number of paired seeds, or of those compared where training was seen not to depend on its seed.

    Evidence that does not say how many were compared rests on one pair.
    """
    seeds = detail.get("seeds") or {}
    if seeds.get("dependent") is False:
        return float(seeds.get("compared", 2))
    return float(len((detail.get("trace") or {}).get("seeds") or ()))
