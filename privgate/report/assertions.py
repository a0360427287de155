"""One assertion a finding: who, asked what, threshold, value, how sure, outcome, consequence.

Page one, table, terminal, model card, bill of materials, annexes, JUnit and notebooks show these same words.
"""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from privgate.evidence import Measurement
from privgate.policy.rules import about
from privgate.report.report_schema import ReportDocument, RuleChange, RuleFigures
from privgate.report.sentences import SENTENCES, say
from privgate.report.text import factor, fold, number, percent, plain, prose
from privgate.report.words import capital, is_condition, preconditions, rules
from privgate.verdict import Finding, Outcome

_KINDS = {"exact": "exact", "bound": "bound by proof", "confidence": "estimate", "point": "point estimate"}

_MORE = re.compile(r": (?:passed|warned|inconclusive|failed)(\W.*)$")


@dataclass(frozen=True, slots=True)
class Assertion:
    """What a report says of one finding.

    Parameters
    ----------
    finding : Finding
        Its numbers and its own sentence.
    asked : str
        What was asked; where several rules ask the same, with what tells them apart.
    who : str
        Of how many the figure speaks, and how many there are.
    where : str
        The person (as a keyed hash), label or attack that the figure belongs to; empty if to none.
    threshold, value : str
        What is allowed, and what was measured with its interval.
    sure : str
        How certain the figure is.
    result : str
        How it ended, in a word or two.
    consequence : str
        What it means for a person; its own message where there is no figure.
    """

    finding: Finding
    asked: str
    who: str
    where: str
    threshold: str
    value: str
    sure: str
    result: str
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
        """Whether there is a figure."""
        return not self.condition and self.value != say("not_measured")

    @property
    def figures(self) -> str:
        """Value, limit and result in a line; without a figure the finding's own message, whole."""
        if not self.measured or math.isnan(self.finding.limit):
            return prose(self.finding.message)
        # what a rule adds behind its figures: why a waiver does not apply, of whom nothing is known
        more = _MORE.search(self.finding.message)
        waived = f" ({prose(self.finding.waiver)})" if self.finding.waiver else prose(more[1]) if more else ""
        behind = f" {waived.strip()}" if waived.startswith((" ", "(")) else waived
        return say("terminal.told", measured=self.value, whose=f" ({self.where})" if self.where else "",
                   limit=self.threshold, result=self.result.lower(), waived=behind)  # fmt: skip


def of(doc: ReportDocument) -> list[Assertion]:
    """Return one a finding: what must hold first, then rules, each worst first."""
    return [*map(_of_condition, preconditions(doc)), *of_rules(rules(doc), doc.evidence.measurements)]


def of_rules(findings: Iterable[Finding], measurements: Iterable[Measurement]) -> list[Assertion]:
    """Return one a rule's finding."""
    told, found = {m.request.key: m for m in measurements}, list(findings)
    named = _titles(found, {key: dict(m.request.options) for key, m in told.items()})
    return [_of_rule(f, named[f.rule], told.get(f.request)) for f in found]


def _of_condition(f: Finding) -> Assertion:
    return Assertion(f, title(f), "", "", "", "", "", result(f.outcome), capital(prose(f.message)))


def _of_rule(f: Finding, asked: str, m: Measurement | None) -> Assertion:
    value = interval(f, unit(f), f.direction)
    quiet = value == say("not_measured")
    return Assertion(
        finding=f,
        asked=asked,
        who=f"{number(m.n)} of {number(m.population)}" if m and m.population else "",
        where=plain(m.where, 60) if m and not quiet else "",
        threshold=limit(f),
        value=value,
        sure=sure(m) if m else "",
        result=result(f.outcome),
        consequence=capital(prose(f.message if quiet else f.meaning or f.message)),
    )


def sure(m: Measurement) -> str:
    """Return how certain a figure is."""
    if m.problem:
        return say("not_measured")
    certain = f"{number(100 * m.confidence)} % confidence" if m.confidence else "certain"
    return _KINDS[m.kind] if m.kind == "point" else f"{_KINDS[m.kind]}, {certain}"


def result(outcome: str) -> str:
    """Return how a rule ended, in a word or two."""
    return say(f"result.{Outcome(outcome)}")


def figure(x: float, unit: str, *, against: float = math.nan) -> str:
    """Return a number with its unit; nats as a factor first, fractions as percentages.

    Examples
    --------
    >>> figure(1.0, "nats"), figure(0.5, "fraction"), figure(12, "records")
    ('2.72-fold (1 nat)', '50 %', '12 records')
    """
    if math.isnan(x):
        return say("not_measured")
    if unit == "nats":
        return f"{fold(x)} ({_nats(x, against)})" if math.isfinite(x) else say("unlimited")
    if unit == "epsilon":
        return f"epsilon {number(x, against=against)}"
    many = {"people": "person", "records": "record"}.get(unit, unit) if x == 1 else unit
    return _short(x, unit, against) + (f" {many}" if unit not in ("", "fraction") else "")


def unit(finding: Finding | RuleChange) -> str:
    """Return the unit to show: epsilon is in nats, but a factor of an answer's probability is not what it limits."""
    return about(finding.metric).written_as or plain(finding.unit, 20)


def _nats(x: float, against: float = math.nan) -> str:
    return say("nats.one") if x == 1 else say("nats", count=number(x, against=against))


def interval(figures: Finding | RuleFigures, unit: str, direction: str) -> str:
    """Return a figure with its interval beside a limit, in one phrase."""
    value, low, high, limit = figures.value, figures.low, figures.high, figures.limit
    if math.isnan(low) or math.isnan(high):
        return say("not_measured") if math.isnan(value) else say("point", figure=figure(value, unit))
    if low == high or number(low, against=limit) == number(high, against=limit):
        # certain within rounding: the end nearer to breaking the limit is the one to show
        low = low if direction == "min" else high
        if math.isinf(low):
            return say("unlimited")
        # an interval of estimates that only looks like one number is none
        if unit == "nats" and math.isclose(value, low, rel_tol=1e-3):
            return say("exact", fold=fold(low), nats=_nats(low, limit))
        return figure(low, unit, against=limit)
    if math.isinf(high):
        return (
            say("no_limit")
            if math.isinf(low) or low == 0
            else say("at_least.open", figure=figure(low, unit, against=limit))
        )
    if math.isinf(low):
        return say("at_most", figure=figure(high, unit, against=limit))
    if unit == "nats":
        # changes are never below 0: the lower end of an interval that reaches it says nothing
        up_to = low <= 0
        factors = say("fold.up_to" if up_to else "fold.span", low=factor(low), high=fold(high))
        return f"{factors} ({say('span', low=number(low, against=limit), high=_nats(high, limit))})"
    words = "" if unit in ("", "fraction", "epsilon") else f" {unit}"
    before = "epsilon " if unit == "epsilon" else ""
    return f"{before}{say('span', low=_short(low, unit, limit), high=_short(high, unit, limit))}{words}"


def _short(x: float, unit: str, against: float) -> str:
    if unit != "fraction":
        return number(x, against=against)
    return percent(x) if x == against or percent(x) != percent(against) else percent(x, 8)


def limit(finding: Finding | RuleChange) -> str:
    """Return the limit in words: "at most 2.72-fold (1 nat)"."""
    if math.isnan(finding.limit):
        return say("limit.none")
    return say("at_least" if finding.direction == "min" else "at_most", figure=figure(finding.limit, unit(finding)))


def condition(name: str) -> str:
    """Return a precondition's name in words."""
    if name.startswith("certificate_"):
        theorem = plain(name.removeprefix("certificate_").replace("_", " "), 40)
        return say("condition.certificate", name=theorem)
    if name.startswith("suite:"):
        return say("condition.suite", name=plain(name.removeprefix("suite:"), 60))
    if name.startswith("recheck_"):
        return say("condition.recheck", name=plain(name.removeprefix("recheck_").replace("_", " "), 40))
    return capital(SENTENCES.get(f"condition.{name}") or plain(name.replace("_", " "), 60))


def title(finding: Finding | RuleChange) -> str:
    """Return a finding's plain name."""
    if finding.rule.startswith("precondition:"):
        return condition(finding.rule.removeprefix("precondition:"))
    return capital(plain(finding.title or finding.rule, 80) or say("rule.unnamed"))


#: options of a request that may tell two rules of one metric apart
_APART = ("scope", "attack", "aggregate", "q", "threshold", "at_fpr", "prior", "delta", "rho", "confidence", "loss")


def _titles(findings: Iterable[Finding], asked: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Return rule -> title; where several rules share one, what tells them apart stands behind it."""
    by_title: dict[str, list[Finding]] = {}
    for f in findings:
        by_title.setdefault(title(f), []).append(f)
    made: dict[str, str] = {}
    for shared, found in by_title.items():
        options = [asked.get(f.request, {}) for f in found]
        apart = next((o for o in _APART if len({str(given.get(o)) for given in options}) == len(found)), "")
        for f, given in zip(found, options, strict=True):
            value = given.get(apart)
            said = (
                SENTENCES.get(f"scope.{value}")
                or say("scope.other", option=apart.replace("_", " "), value=plain(value, 30))
                if apart
                else plain(f.rule, 40)
            )
            made[f.rule] = shared if len(found) == 1 else f"{shared}, {said}"
    return made
