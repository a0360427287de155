"""Plain words: the decision in a sentence, the glossary, and what a report never claims."""

import math

from privgate.evidence import AttackResult
from privgate.policy.rules import about
from privgate.report.report_schema import ReportDocument, RuleChange, RuleFigures
from privgate.report.sentences import SENTENCES, say
from privgate.report.text import factor, fold, number, percent, plain
from privgate.verdict import Finding, Outcome

#: what a report never shows, whatever it finds
_NOT_SHOWN = ("limits.attack", "limits.theorem", "limits.others", "limits.legal")


def result(outcome: str) -> str:
    """Return how a rule ended, in a word or two."""
    return say(f"result.{Outcome(outcome)}")


def not_shown() -> list[str]:
    """Return what no report shows, whatever it finds."""
    return [say(key) for key in _NOT_SHOWN]


def no_attack_limited(doc: ReportDocument) -> str:
    """Return that influence alone was limited, which stops no attack; empty where an enforced rule limits attacks."""
    if not any(about(f.metric).per_unit for f in doc.findings):
        return ""
    if any(about(f.metric).limits_attacks and f.mode != "warn" for f in doc.findings):
        return ""
    warmth = doc.subject.release.temperature
    where = "regression-1-attacks" if doc.subject.task == "regression" else "dtp-1-attacks"
    declared = "" if warmth == 1 else " " + say("limits.temperature", temperature=number(warmth))
    return say("limits.no_attack", policy=where) + declared


def direct_only(doc: ReportDocument) -> bool:
    """Whether an approval speaks of direct queries only: a ``pdtp`` rule was judged, no ``dtp`` rule on all met."""
    direct = (f for f in doc.findings if about(f.metric).direct_only and "over=domain" not in f.request)
    return any(direct) and not _met_for_all(doc)


def _met_for_all(doc: ReportDocument) -> list[Finding]:
    """Return the met ``dtp`` rules that limit every unit; a quantile or a share leaves some people out."""
    return [
        f
        for f in doc.findings
        if about(f.metric).over_all_queries
        and f.outcome is Outcome.PASSED
        and f.unit == "nats"
        and not f.waiver
        and "quantile" not in f.request
        and "share" not in f.request
    ]


def level(doc: ReportDocument) -> str:
    """Return the DTP level that was reached, such as ``"DTP-1"``; empty unless a ``dtp`` rule passed and all hold."""
    limits = [f.limit for f in _met_for_all(doc)]
    if not doc.approved or not limits or math.isnan(min(limits)):
        return ""
    return f"DTP-{number(min(limits))}"


def decision(doc: ReportDocument) -> str:
    """Return the decision in a few words, lower case, such as "approved" or "blocked"."""
    return say("decision.observed", decision=_bare(doc)) if doc.observed else _bare(doc)


def _bare(doc: ReportDocument) -> str:
    if doc.outcome is Outcome.FAILED:
        return say("decision.blocked")
    if doc.outcome is Outcome.INCONCLUSIVE:
        return say("decision.screened" if mode(doc) == "screen" else "decision.open")
    approved = say("decision.direct" if direct_only(doc) else "decision.approved")
    if doc.outcome is Outcome.WARNED:
        waived = any(f.waiver for f in doc.findings)
        return say("decision.waived" if waived else "decision.warned", approved=approved)
    return approved


def mode(doc: ReportDocument) -> str:
    """Return how closely leave-one-out answered: all, max or screen."""
    return doc.evidence.run.mode.used if doc.evidence.run.mode else "all"


def rules(doc: ReportDocument) -> list[Finding]:
    """Return the findings of rules, worst first, otherwise in the policy's order."""
    return sorted((f for f in doc.findings if not is_condition(f)), key=badness)


def preconditions(doc: ReportDocument) -> list[Finding]:
    """Return the findings of preconditions, worst first."""
    return sorted((f for f in doc.findings if is_condition(f)), key=badness)


def is_condition(finding: Finding) -> bool:
    """Whether this is a precondition's finding, not a rule's."""
    return finding.rule.startswith("precondition:")


def badness(finding: Finding) -> int:
    """Return 0 for the worst outcome, larger for better ones."""
    return -finding.outcome.rank


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


def measured(finding: Finding) -> str:
    """Return what was measured with its interval, in one phrase."""
    return interval(finding, unit(finding), finding.direction)


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


#: what EDPB Opinion 28/2024 expects structured testing to cover, in our words
ATTACK_KINDS = (
    "membership inference",
    "attribute inference",
    "model inversion",
    "reconstruction",
    "training-data extraction",
)


def kind(name: str) -> str:
    """Return a kind of attack in words."""
    return say(f"kind.{name}")


def attacks(doc: ReportDocument) -> tuple[AttackResult, ...]:
    """Return all attacks that were tried."""
    return doc.evidence.membership.attacks if doc.evidence.membership else ()


def kinds_tested(doc: ReportDocument) -> set[str]:
    """Return the kinds of attack that really ran; leave-one-out figures are no attack."""
    inferred = {"attribute inference", "model inversion"} if doc.evidence.attributes else set()
    return {a.kind for a in attacks(doc) if a.figures} | inferred


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


def titles(doc: ReportDocument) -> dict[str, str]:
    """Return rule -> title; where several rules share one, what tells them apart stands in brackets."""
    asked = {m.request.key: dict(m.request.options) for m in doc.evidence.measurements}
    by_title: dict[str, list[Finding]] = {}
    for f in rules(doc):
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


def capital(text: str) -> str:
    """Return a text with its first letter as a capital."""
    return text[:1].upper() + text[1:]
