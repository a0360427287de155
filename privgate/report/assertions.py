"""One assertion a finding: who, asked what, threshold, value, how sure, outcome, consequence.

Page one, table, terminal, JUnit and notebooks show these same words.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from privgate.evidence import BehindClaim, Measurement, figures
from privgate.evidence.verdict import Finding, Outcome
from privgate.policy.rules import about
from privgate.report.report_schema import ReportDocument, RuleChange, RuleFigures
from privgate.report.sentences import known, say
from privgate.report.text import plain, prose
from privgate.report.words import capital, is_condition, preconditions, rules


@dataclass(frozen=True, slots=True)
class Assertion:
    """What a report says of one finding."""

    #: its numbers and the whole assertion as a sentence, which whoever judged made: of how many, how sure
    finding: Finding
    #: what was asked; where several rules ask the same, with what tells them apart
    asked: str
    #: what is allowed, and what was measured with its interval
    threshold: str
    value: str
    #: how it ended, in a word or two
    result: str
    #: what it means for a person; its own message where there is no figure
    consequence: str

    @property
    def outcome(self) -> Outcome:
        """How it ended."""
        return self.finding.outcome

    @property
    def condition(self) -> bool:
        """Whether it is something that must hold before any figure counts."""
        return is_condition(self.finding)

    @property
    def measured(self) -> bool:
        """Whether there is a figure that decides something: an audit that could contradict nothing has none."""
        idle = _audit(self.finding) and self.outcome is Outcome.INCONCLUSIVE
        return not self.condition and not idle and self.value != say("not_measured")

    @property
    def sentence(self) -> str:
        """All of it in a line, as whoever judged said it, and by which waiver it counts otherwise."""
        return prose(self.finding.message) + (f" ({prose(self.finding.waiver)})" if self.finding.waiver else "")


def of(doc: ReportDocument) -> list[Assertion]:
    """Return one a finding: what must hold first, then rules, each worst first."""
    held = preconditions(doc)
    told = [Assertion(f, title(f), "", "", say(f"result.{f.outcome}"), capital(prose(f.message))) for f in held]
    return [*told, *of_rules(rules(doc), doc.evidence.measurements)]


def of_rules(findings: Iterable[Finding], measurements: Iterable[Measurement]) -> list[Assertion]:
    """Return one a rule's finding."""
    told, found = {m.request.key: m for m in measurements}, list(findings)
    named = _titles(found, {key: dict(m.request.options) for key, m in told.items()})
    return [_of_rule(f, named[f.rule], told.get(f.request)) for f in found]


def _of_rule(f: Finding, asked: str, m: Measurement | None) -> Assertion:
    value = interval(f, unit(f), f.direction)
    if _audit(f) and not math.isnan(f.low):  # it shows a leak, and never that there is no more
        value = say("at_least", figure=figures.figure(f.low, unit(f), against=f.limit))
    quiet = value == say("not_measured") or (_audit(f) and f.outcome is Outcome.INCONCLUSIVE)
    behind = BehindClaim.of(m.behind if m else None)
    delta = behind.audit.delta if behind.audit else behind.delta
    delta = m.request.option("delta", delta) if m else delta
    named = delta and unit(f) == "epsilon" and not math.isnan(f.limit)
    at = say("at_delta", delta=figures.number(delta)) if named else ""
    told = capital(prose(f.message if quiet else f.meaning or f.message))
    return Assertion(f, asked, limit(f) + at, value, say(f"result.{f.outcome}"), told)


def _audit(f: Finding) -> bool:
    """Whether a finding is what attacks prove of a claim: a lower limit."""
    return about(f.metric).shows_leaks_only and about(f.metric).written_as == "epsilon"


def unit(finding: Finding | RuleChange) -> str:
    """Return the unit to show: epsilon is in nats, but a factor of an answer's probability is not what it limits."""
    metric = about(finding.metric)
    asked = finding.request if isinstance(finding, Finding) else ""
    share = "fraction" if "share_above" in asked or "of=share" in asked else metric.unit
    return metric.written_as or plain(finding.unit, 20) or share


def interval(found: Finding | RuleFigures, unit: str, direction: str) -> str:
    """Return a figure with its interval beside its limit."""
    return figures.interval(found.value, found.low, found.high, limit=found.limit, unit=unit, direction=direction)


def limit(finding: Finding | RuleChange) -> str:
    """Return the limit in words."""
    return figures.threshold(finding.limit, unit=unit(finding), direction=finding.direction)


def condition(name: str) -> str:
    """Return a precondition's name in words."""
    for start, key in (("certificate_", "certificate"), ("suite:", "suite"), ("recheck_", "recheck")):
        if name.startswith(start):
            what = name.removeprefix(start)
            return say(f"condition.{key}", name=plain(what if key == "suite" else what.replace("_", " "), 60))
    return capital(known(f"condition.{name}") or plain(name.replace("_", " "), 60))


def title(finding: Finding | RuleChange) -> str:
    """Return a finding's plain name."""
    if finding.rule.startswith("precondition:"):
        return condition(finding.rule.removeprefix("precondition:"))
    return capital(plain(finding.title or finding.rule, 120) or say("rule.unnamed"))


#: options of a request that may tell two rules of one metric apart
_APART = ("scope", "attack", "aggregate", "q", "threshold", "at_fpr", "prior", "delta", "rho", "confidence", "loss")


def _titles(findings: Iterable[Finding], asked: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Return rule -> title; where several rules share one, what tells them apart stands behind it."""
    by_title: dict[tuple[str, bool], list[Finding]] = {}
    for f in findings:  # what was not asked takes no name from what was
        by_title.setdefault((title(f), f.outcome is Outcome.NOT_NEEDED), []).append(f)
    made: dict[str, str] = {}
    for (shared, _), found in by_title.items():
        options = [asked.get(f.request, {}) for f in found]
        apart = next((o for o in _APART if len({str(given.get(o)) for given in options}) == len(found)), "")
        for f, value in zip(found, [given.get(apart) for given in options], strict=True):
            other = say("scope.other", option=apart.replace("_", " "), value=plain(value, 30))
            said = (known(f"scope.{value}") or other) if apart else plain(f.rule, 40)
            made[f.rule] = shared if len(found) == 1 else f"{shared}, {said}"
    return made
