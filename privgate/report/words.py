"""Plain words: the decision in a sentence, the glossary, and what a report never claims."""

import math
from collections.abc import Mapping
from typing import Any

from privgate.report import reading
from privgate.report.reading import Doc
from privgate.report.text import fold, number, percent, plain, real

#: worst first, as the rule table shows them
ORDER = ("failed", "inconclusive", "warned", "passed")

RESULT: Mapping[str, str] = {
    "passed": "Met",
    "warned": "Warning",
    "inconclusive": "Not decided",
    "failed": "Broken",
}

NOT_SHOWN: tuple[str, ...] = (
    "An attack that finds little is evidence against that attack at the sample size named, not against every attack.",
    "A theorem or a privacy bound holds under its conditions only; they are listed beside it.",
    "Other models trained on the same data, logs of the service and the data store itself were not examined.",
    "The report does not replace legal advice or an impact assessment. It is evidence to be used in one.",
)


#: what DTP rules say nothing about
_ATTACK_METRICS = ("attack_accuracy", "attack_advantage", "attack_tpr", "dp_epsilon", "dp_attack_accuracy_bound")


def no_attack_limited(doc: Doc) -> str:
    """Return that influence alone was limited, which stops no attack; empty where an enforced rule limits attacks."""
    found = reading.findings(doc)
    if not any(f.get("metric") in ("dtp", "pdtp") for f in found):
        return ""
    if any(f.get("metric") in _ATTACK_METRICS and f.get("mode") != "warn" for f in found):
        return ""
    warmth = real(reading.mapping(reading.subject(doc).get("release")).get("temperature", 1.0))
    declared = (
        "" if warmth == 1 else f" Dividing scores by the declared temperature {number(warmth)} stops none either."
    )
    return f"A limit on influence stops no attack, and no rule here limits attacks; dtp-1-attacks does.{declared}"


def direct_only(doc: Doc) -> bool:
    """Whether an approval speaks of direct queries only: a ``pdtp`` rule was judged, no ``dtp`` rule on all met."""
    return any(f.get("metric") == "pdtp" for f in reading.findings(doc)) and not _met_for_all(doc)


def _met_for_all(doc: Doc) -> list[Mapping[str, Any]]:
    """Return the met ``dtp`` rules that limit every unit; a quantile or a share leaves some people out."""
    return [
        f
        for f in reading.findings(doc)
        if f.get("metric") == "dtp"
        and f.get("outcome") == "passed"
        and f.get("unit") == "nats"
        and not f.get("waiver")
        and "quantile" not in str(f.get("request"))
        and "share" not in str(f.get("request"))
    ]


def level(doc: Doc) -> str:
    """Return the DTP level that was reached, such as ``"DTP-1"``; empty unless a ``dtp`` rule passed and all hold."""
    limits = [real(f.get("limit")) for f in _met_for_all(doc)]
    if not doc.get("approved") or not limits or math.isnan(min(limits)):
        return ""
    return f"DTP-{number(min(limits))}"


def decision(doc: Doc) -> str:
    """Return the decision in a few words, lower case, such as "approved" or "blocked"."""
    outcome = doc.get("outcome")
    if doc.get("observed"):
        return f"observed only, nothing enforced (the rules would say: {_bare(doc)})"
    if outcome not in ORDER:
        return "blocked: this report names no known outcome"
    return _bare(doc)


def _bare(doc: Doc) -> str:
    outcome = doc.get("outcome")
    if outcome == "failed":
        return "blocked"
    if outcome == "inconclusive":
        screened = reading.mapping(reading.detail(doc).get("mode")).get("used") == "screen"
        return "blocked: screened, not certified" if screened else "blocked: not enough evidence"
    scope = " for direct queries only" if direct_only(doc) else ""
    if outcome == "warned":
        waived = any(f.get("waiver") for f in reading.findings(doc))
        return f"approved{scope}, {'under a waiver' if waived else 'with warnings'}"
    return f"approved{scope}"


def rules(doc: Doc) -> list[Mapping[str, Any]]:
    """Return the findings of rules, worst first, otherwise in the policy's order."""
    found = [f for f in reading.findings(doc) if not str(f.get("rule", "")).startswith("precondition:")]
    return sorted(found, key=badness)


def preconditions(doc: Doc) -> list[Mapping[str, Any]]:
    """Return the findings of preconditions, worst first."""
    found = [f for f in reading.findings(doc) if str(f.get("rule", "")).startswith("precondition:")]
    return sorted(found, key=badness)


def badness(finding: Mapping[str, Any]) -> int:
    """Return the place in ``ORDER``; an outcome nobody knows is the worst."""
    outcome = finding.get("outcome")
    return ORDER.index(outcome) if outcome in ORDER else 0


def figure(value: Any, unit: str, *, against: float = math.nan) -> str:
    """Return a number with its unit; nats as a factor first, fractions as percentages.

    Examples
    --------
    >>> figure(1.0, "nats"), figure(0.5, "fraction"), figure(12, "records")
    ('2.72-fold (1 nat)', '50 %', '12 records')
    """
    x = real(value)
    if math.isnan(x):
        return "not measured"
    if unit == "nats":
        return f"{fold(x)} ({_nats(x, against)})" if math.isfinite(x) else "unlimited"
    if unit == "epsilon":
        return f"epsilon {number(x, against=against)}"
    return _short(x, unit, against) + (f" {unit}" if unit not in ("", "fraction") else "")


def _unit(finding: Mapping[str, Any]) -> str:
    """Return the unit to show: epsilon is in nats, but a factor of an answer's probability is not what it limits."""
    return "epsilon" if str(finding.get("metric", "")).startswith("dp_epsilon") else plain(finding.get("unit"), 20)


def _nats(x: float, against: float = math.nan) -> str:
    return f"{number(x, against=against)} nat{'' if x == 1 else 's'}"


def measured(finding: Mapping[str, Any]) -> str:
    """Return what was measured with its interval, in one phrase."""
    unit = _unit(finding)
    value, low, high, limit = (real(finding.get(k)) for k in ("value", "low", "high", "limit"))
    if math.isnan(low) or math.isnan(high):
        return "not measured" if math.isnan(value) else f"about {figure(value, unit)}, no interval"
    if low == high or number(low, against=limit) == number(high, against=limit):
        # certain within rounding: the end nearer to breaking the limit is the one to show
        low = low if finding.get("direction") == "min" else high
        return "unlimited" if math.isinf(low) else figure(low, unit, against=limit)
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


def limit(finding: Mapping[str, Any]) -> str:
    """Return the limit in words: "at most 2.72-fold (1 nat)"."""
    if math.isnan(real(finding.get("limit"))):
        return "none"
    word = "at least" if finding.get("direction") == "min" else "at most"
    return f"{word} {figure(finding.get('limit'), _unit(finding))}"


#: what EDPB Opinion 28/2024 expects structured testing to cover, in our words
ATTACK_KINDS = (
    "membership inference",
    "attribute inference",
    "model inversion",
    "reconstruction",
    "training-data extraction",
)


def kinds_tested(doc: Doc) -> set[str]:
    """Return the kinds of attack that really ran; leave-one-out figures are no attack."""
    attacks = [a for a in reading.rows(reading.detail(doc).get("attacks")) if not a.get("problem")]
    return {str(a.get("kind") or "membership inference") for a in attacks}


#: names of preconditions, in words
_CONDITIONS: Mapping[str, str] = {
    "reproduces": "The recipe reproduces the registered model",
    "depends_on_data": "The recipe depends on its data",
    "recorded_seed": "The noise cannot be regenerated",
    "environment": "Same environment as recorded",
    "digests": "Files are those that were named",
    "labels": "Labels are usable",
    "class_of_one": "No label belongs to one person only",
    "duplicates": "No two people have equal records",
    "near_duplicates": "No two people have almost equal records",
    "several_records": "Each person has one record, or is named",
    "overlap": "People to compare with are not in the data",
    "min_rows": "Enough records",
    "mode": "People were measured, not only ranked",
    "dp_claim": "The privacy claim agrees with what was seen",
    "dp_sampling": "Batches are drawn as the claim says",
    "dp_parameters": "Noise and clipping are as the claim says",
    "dp_doubt": "Nothing about the claim is in doubt",
    "dp_hazard": "Nothing is known to defeat the claim",
}


def condition(name: Any) -> str:
    """Return a precondition's name in words."""
    raw = str(name or "")
    if raw.startswith("certificate_"):
        return (
            f"Real models keep within the certificate ({plain(raw.removeprefix('certificate_').replace('_', ' '), 40)})"
        )
    if raw.startswith("recheck_"):
        return f"Fast engine agrees with retraining ({plain(raw.removeprefix('recheck_').replace('_', ' '), 40)})"
    told = _CONDITIONS.get(raw) or plain(raw.replace("_", " "), 60)
    return told[:1].upper() + told[1:]


def title(finding: Mapping[str, Any]) -> str:
    """Return a finding's plain name."""
    rule = str(finding.get("rule") or "")
    if rule.startswith("precondition:"):
        return condition(rule.removeprefix("precondition:"))
    told = plain(finding.get("title") or rule, 80) or "unnamed rule"
    return told[:1].upper() + told[1:]
