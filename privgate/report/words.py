"""Plain words: the decision in a sentence, the glossary, and what a report never claims."""

import math
from collections.abc import Mapping

from privgate.evidence import AttackResult
from privgate.policy.rules import about
from privgate.report.schema import ReportDocument, RuleChange, RuleFigures
from privgate.report.text import fold, number, percent, plain
from privgate.verdict import Finding, Outcome

RESULT: Mapping[str, str] = {
    Outcome.PASSED: "Met",
    Outcome.WARNED: "Warning",
    Outcome.INCONCLUSIVE: "Not decided",
    Outcome.FAILED: "Broken",
}

NOT_SHOWN: tuple[str, ...] = (
    "An attack that finds little is evidence against that attack at the sample size named, not against every attack.",
    "A theorem or a privacy bound holds under its conditions only; they are listed beside it.",
    "Other models trained on the same data, logs of the service and the data store itself were not examined.",
    "The report does not replace legal advice or an impact assessment. It is evidence to be used in one.",
)


def no_attack_limited(doc: ReportDocument) -> str:
    """Return that influence alone was limited, which stops no attack; empty where an enforced rule limits attacks."""
    if not any(about(f.metric).per_unit for f in doc.findings):
        return ""
    if any(about(f.metric).limits_attacks and f.mode != "warn" for f in doc.findings):
        return ""
    warmth = doc.subject.release.temperature
    declared = (
        "" if warmth == 1 else f" Dividing scores by the declared temperature {number(warmth)} stops none either."
    )
    where = "regression-1-attacks" if doc.subject.task == "regression" else "dtp-1-attacks"
    return f"A limit on influence stops no attack, and no rule here limits attacks; {where} does.{declared}"


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
    if doc.observed:
        return f"observed only, nothing enforced (the rules would say: {_bare(doc)})"
    return _bare(doc)


def _bare(doc: ReportDocument) -> str:
    if doc.outcome is Outcome.FAILED:
        return "blocked"
    if doc.outcome is Outcome.INCONCLUSIVE:
        return "blocked: screened, not certified" if mode(doc) == "screen" else "blocked: not enough evidence"
    scope = " for direct queries only" if direct_only(doc) else ""
    if doc.outcome is Outcome.WARNED:
        waived = any(f.waiver for f in doc.findings)
        return f"approved{scope}, {'under a waiver' if waived else 'with warnings'}"
    return f"approved{scope}"


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
        return "not measured"
    if unit == "nats":
        return f"{fold(x)} ({_nats(x, against)})" if math.isfinite(x) else "unlimited"
    if unit == "epsilon":
        return f"epsilon {number(x, against=against)}"
    many = {"people": "person", "records": "record"}.get(unit, unit) if x == 1 else unit
    return _short(x, unit, against) + (f" {many}" if unit not in ("", "fraction") else "")


def unit(finding: Finding | RuleChange) -> str:
    """Return the unit to show: epsilon is in nats, but a factor of an answer's probability is not what it limits."""
    return about(finding.metric).written_as or plain(finding.unit, 20)


def _nats(x: float, against: float = math.nan) -> str:
    return f"{number(x, against=against)} nat{'' if x == 1 else 's'}"


def measured(finding: Finding) -> str:
    """Return what was measured with its interval, in one phrase."""
    return interval(finding, unit(finding), finding.direction)


def interval(figures: Finding | RuleFigures, unit: str, direction: str) -> str:
    """Return a figure with its interval beside a limit, in one phrase."""
    value, low, high, limit = figures.value, figures.low, figures.high, figures.limit
    if math.isnan(low) or math.isnan(high):
        return "not measured" if math.isnan(value) else f"about {figure(value, unit)}, no interval"
    if low == high or number(low, against=limit) == number(high, against=limit):
        # certain within rounding: the end nearer to breaking the limit is the one to show
        low = low if direction == "min" else high
        if math.isinf(low):
            return "unlimited"
        told = figure(low, unit, against=limit)
        # an interval of estimates that only looks like one number is none
        return f"{told[:-1]}, exact)" if unit == "nats" and math.isclose(value, low, rel_tol=1e-3) else told
    if math.isinf(high):
        return (
            "no limit known"
            if math.isinf(low) or low == 0
            else (f"at least {figure(low, unit, against=limit)}, no upper limit known")
        )
    if math.isinf(low):
        return f"at most {figure(high, unit, against=limit)}"
    if unit == "nats":
        # changes are never below 0: the lower end of an interval that reaches it says nothing
        factors = f"up to {fold(high)}" if low <= 0 else f"{fold(low).removesuffix('-fold')}- to {fold(high)}"
        return f"{factors} ({number(low, against=limit)} to {_nats(high, limit)})"
    words = "" if unit in ("", "fraction", "epsilon") else f" {unit}"
    before = "epsilon " if unit == "epsilon" else ""
    return f"{before}{_short(low, unit, limit)} to {_short(high, unit, limit)}{words}"


def _short(x: float, unit: str, against: float) -> str:
    if unit != "fraction":
        return number(x, against=against)
    return percent(x) if x == against or percent(x) != percent(against) else percent(x, 8)


def limit(finding: Finding | RuleChange) -> str:
    """Return the limit in words: "at most 2.72-fold (1 nat)"."""
    if math.isnan(finding.limit):
        return "none"
    word = "at least" if finding.direction == "min" else "at most"
    return f"{word} {figure(finding.limit, unit(finding))}"


#: what EDPB Opinion 28/2024 expects structured testing to cover, in our words
ATTACK_KINDS = (
    "membership inference",
    "attribute inference",
    "model inversion",
    "reconstruction",
    "training-data extraction",
)


def attacks(doc: ReportDocument) -> tuple[AttackResult, ...]:
    """Return all attacks that were tried."""
    return doc.evidence.membership.attacks if doc.evidence.membership else ()


def kinds_tested(doc: ReportDocument) -> set[str]:
    """Return the kinds of attack that really ran; leave-one-out figures are no attack."""
    inferred = {"attribute inference", "model inversion"} if doc.evidence.attributes else set()
    return {a.kind for a in attacks(doc) if a.figures} | inferred


#: names of preconditions, in words
_CONDITIONS: Mapping[str, str] = {
    "reproduces": "The recipe reproduces the registered model",
    "depends_on_data": "The recipe depends on its data",
    "recorded_seed": "The noise cannot be regenerated",
    "environment": "Same environment as recorded",
    "digests": "Files are those that were named",
    "labels": "Labels are usable",
    "targets": "Targets are numbers",
    "task": "Labels are labels",
    "class_of_one": "No label belongs to one person only",
    "duplicates": "No two people have equal records",
    "near_duplicates": "No two people have almost equal records",
    "several_records": "Each person has one record, or is named",
    "overlap": "People to compare with are not in the data",
    "near_overlap": "People to compare with are not almost in the data",
    "same_population": "People to compare with are like those in the data",
    "served": "MLflow serves what is declared",
    "min_rows": "Enough records",
    "mode": "People were measured, not only ranked",
    "dp_claim": "The privacy claim agrees with what was seen",
    "dp_sampling": "Batches are drawn as the claim says",
    "dp_parameters": "Noise and clipping are as the claim says",
    "dp_doubt": "Nothing about the claim is in doubt",
    "dp_hazard": "Nothing is known to defeat the claim",
}


def condition(name: str) -> str:
    """Return a precondition's name in words."""
    if name.startswith("certificate_"):
        theorem = plain(name.removeprefix("certificate_").replace("_", " "), 40)
        return f"Real models keep within the certificate ({theorem})"
    if name.startswith("suite:"):
        return f"Expectations of {plain(name.removeprefix('suite:'), 60)} are met"
    if name.startswith("recheck_"):
        return f"Fast engine agrees with retraining ({plain(name.removeprefix('recheck_').replace('_', ' '), 40)})"
    return capital(_CONDITIONS.get(name) or plain(name.replace("_", " "), 60))


def title(finding: Finding | RuleChange) -> str:
    """Return a finding's plain name."""
    if finding.rule.startswith("precondition:"):
        return condition(finding.rule.removeprefix("precondition:"))
    return capital(plain(finding.title or finding.rule, 80) or "unnamed rule")


#: option of a request -> what tells two rules of one metric apart
_SCOPES = {"model": "all people together", "class": "the worst label", "group": "the worst group",
           "record": "single records"}  # fmt: skip
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
                _SCOPES.get(str(value), f"{apart.replace('_', ' ')} {plain(value, 30)}") if apart else plain(f.rule, 40)
            )
            made[f.rule] = shared if len(found) == 1 else f"{shared}, {said}"
    return made


def capital(text: str) -> str:
    """Return a text with its first letter as a capital."""
    return text[:1].upper() + text[1:]
