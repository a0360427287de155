"""One assertion a finding, in the words of page one, table, terminal, JUnit and notebooks alike."""

import math
from collections.abc import Iterable
from typing import NamedTuple

from privgate.evidence import BehindClaim, Measurement, figures
from privgate.evidence.verdict import Finding, Outcome
from privgate.policy.rules import about
from privgate.report.schema import ReportDocument, RuleChange, RuleFigures, is_condition
from privgate.report.text import capital, known, plain, prose, say


class Assertion(NamedTuple):
    """What a report says of one finding, whose message is the whole assertion as a sentence."""

    finding: Finding
    #: what was asked; where several rules ask the same, with what tells them apart
    title: str
    #: what is allowed, and what was measured with its interval
    threshold: str = ""
    value: str = ""

    @property
    def result(self) -> str:
        """How it ended, in a word or two."""
        return say(f"result.{self.finding.outcome}")

    @property
    def outcome(self) -> Outcome:
        """How it ended."""
        return self.finding.outcome

    @property
    def condition(self) -> bool:
        """Whether it is something that must hold before any figure counts."""
        return is_condition(self.finding)

    @property
    def named(self) -> str:
        """What was asked, in a sentence that names conditions beside rules."""
        return say("row.title", title=self.title) if self.condition else self.title

    @property
    def measured(self) -> bool:
        """Whether there is a figure that decides something: an audit that could contradict nothing has none."""
        idle = _audit(self.finding) and self.outcome is Outcome.INCONCLUSIVE
        return not self.condition and not idle and self.value != figures.NOT_MEASURED

    @property
    def sentence(self) -> str:
        """All of it in a line, as the rule said it, and by which waiver it counts otherwise."""
        return prose(self.finding.message) + (f" ({prose(self.finding.waiver)})" if self.finding.waiver else "")


def list_assertions(doc: ReportDocument) -> list[Assertion]:
    """Return one a finding: what must hold first, then rules, each worst first."""
    return [*(Assertion(f, title(f)) for f in doc.conditions), *of_rules(doc.rules, doc.evidence.measurements)]


def of_rules(findings: Iterable[Finding], measurements: Iterable[Measurement]) -> list[Assertion]:
    """Return one a rule's finding."""
    measured, rules = {m.request.key: m for m in measurements}, list(findings)
    # what was not asked takes no name from what was
    titles = [(title(f), f.outcome is Outcome.NOT_NEEDED) for f in rules]
    assertions = []
    for f, mine in zip(rules, titles, strict=True):
        same = [other for other, its in zip(rules, titles, strict=True) if its == mine]
        m = measured.get(f.request)
        options = [dict(measured[o.request].request.options) if o.request in measured else {} for o in same]
        apart = next((o for o in _APART if len({str(given.get(o)) for given in options}) == len(same)), "")
        value = dict(m.request.options).get(apart) if m else None
        other = say("scope.other", option=apart.replace("_", " "), value=plain(value, 30))
        said = (known(f"scope.{value}") or other) if apart else plain(f.rule, 40)
        assertions.append(Assertion(f, mine[0] if len(same) == 1 else f"{mine[0]}, {said}", *_figures(f, m)))
    return assertions


#: options of a request that may tell two rules of one metric apart
_APART = ("scope", "attack", "aggregate", "q", "threshold", "at_fpr", "prior", "delta", "rho", "confidence", "loss")


def _figures(f: Finding, m: Measurement | None) -> tuple[str, str]:
    value = interval(f, shown_unit(f), f.direction)
    if _audit(f) and not math.isnan(f.low):  # it shows a leak, and never that there is no more
        value = f"at least {figures.figure(f.low, shown_unit(f), against=f.limit)}"
    behind = BehindClaim.read(m.behind if m else None)
    delta = behind.audit.delta if behind.audit else behind.delta
    delta = m.request.option("delta", delta) if m else delta
    named = delta and shown_unit(f) == "epsilon" and not math.isnan(f.limit)
    return limit(f) + (say("at_delta", delta=figures.number(delta)) if named else ""), value


def _audit(f: Finding) -> bool:
    """Whether a finding is what attacks prove of a claim: a lower limit."""
    return about(f.metric).shows_leaks_only and about(f.metric).written_as == "epsilon"


def shown_unit(finding: Finding | RuleChange) -> str:
    """Return the unit to show: epsilon is in nats, but a factor of an answer's probability is not what it limits."""
    metric = about(finding.metric)
    share = "fraction" if isinstance(finding, Finding) and "share" in finding.suffix else metric.unit
    return metric.written_as or plain(finding.unit, 20) or share


def interval(judged: Finding | RuleFigures, unit_name: str, direction: str) -> str:
    """Return a figure with its interval beside its limit."""
    return figures.interval(
        judged.value, judged.low, judged.high, limit=judged.limit, unit_name=unit_name, direction=direction
    )


def limit(finding: Finding | RuleChange) -> str:
    """Return the limit in words."""
    return figures.threshold(finding.limit, unit_name=shown_unit(finding), direction=finding.direction)


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
