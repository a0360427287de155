"""Plain words: the decision in a sentence, the glossary, and what a report never claims."""

import math
from collections.abc import Mapping
from typing import Any

from privgate.report.text import fold, number, percent, real

Doc = Mapping[str, Any]

#: worst first, as the rule table shows them
ORDER = ("failed", "inconclusive", "warned", "passed")

RESULT: Mapping[str, str] = {
    "passed": "Met",
    "warned": "Warning",
    "inconclusive": "Not decided",
    "failed": "Broken",
}

GLOSSARY: tuple[tuple[str, str], ...] = (
    ("Membership inference", "Guessing whether one person's record was used in training."),
    ("Attack accuracy", "How often such guesses are right; 50 % is what tossing a coin achieves."),
    (
        "True-positive rate at 0.1 % false positives",
        "How many people in the data are found when 1 in 1,000 accusations of people outside it is wrong.",
    ),
    (
        "PDTP",
        (
            "Pointwise differential training privacy: how much the model's answer for a record changes if that record is "
            "left out of training. Speaks of direct queries only."
        ),
    ),
    ("DTP", "Differential training privacy: the same, over any question that may be asked of the model."),
    (
        "nats",
        (
            "The unit of PDTP, DTP and epsilon. 0 means no change, 1 means that some answer's probability changes at most "
            "2.7-fold, 2 means 7.4-fold."
        ),
    ),
    ("Noise floor", "Change seen between trainings with no record removed. Smaller changes cannot be told apart."),
    ("Epsilon", "Upper limit on how much one record can shift the odds, for training with differential privacy."),
    (
        "Certificate",
        "An upper limit that follows from a mathematical theorem whose conditions were checked on this model and data.",
    ),
    ("Deletion capacity", "How many records can be erased on request before a full retraining is due."),
    ("Interval", "The range in which the true figure lies, with certainty or at the confidence stated."),
    ("Inconclusive", "Not enough evidence to decide, so treated as not passed."),
    (
        "Keyed hash",
        (
            "A code in place of a person's or record's name. Only the holder of the key, the controller, can find the "
            "record again."
        ),
    ),
    ("Waiver", "A dated exception to one rule, with a reason, a ceiling, and an approver other than the requester."),
)

NOT_SHOWN: tuple[str, ...] = (
    "An attack that finds little is evidence against that attack at the sample size named, not against every attack.",
    "A theorem or a privacy bound holds under its conditions only; they are listed beside it.",
    "Other models trained on the same data, logs of the service and the data store itself were not examined.",
    "The report does not replace legal advice or an impact assessment. It is evidence to be used in one.",
)


def direct_only(doc: Doc) -> bool:
    """Whether the approval rests on direct queries alone: a ``pdtp`` rule was met and no ``dtp`` rule was."""
    met = [f.get("metric") for f in doc.get("findings", ()) if f.get("outcome") == "passed"]
    judged = [f.get("metric") for f in doc.get("findings", ())]
    return "pdtp" in judged and "dtp" not in met


def level(doc: Doc) -> str:
    """Return the DTP level that was reached, such as ``"DTP-1"``; empty unless a ``dtp`` rule passed and all hold."""
    limits = [
        real(f.get("limit"))
        for f in doc.get("findings", ())
        if f.get("metric") == "dtp" and f.get("outcome") == "passed" and not f.get("waiver")
    ]
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
        return "blocked: not enough evidence"
    scope = " for direct queries only" if direct_only(doc) else ""
    if outcome == "warned":
        waived = any(f.get("waiver") for f in doc.get("findings", ()))
        return f"approved{scope}, {'under a waiver' if waived else 'with warnings'}"
    return f"approved{scope}"


def rules(doc: Doc) -> list[Mapping[str, Any]]:
    """Return the findings of rules, worst first, otherwise in the policy's order."""
    found = [f for f in doc.get("findings", ()) if not str(f.get("rule", "")).startswith("precondition:")]
    return sorted(found, key=_badness)


def preconditions(doc: Doc) -> list[Mapping[str, Any]]:
    """Return the findings of preconditions, worst first."""
    found = [f for f in doc.get("findings", ()) if str(f.get("rule", "")).startswith("precondition:")]
    return sorted(found, key=_badness)


def _badness(finding: Mapping[str, Any]) -> int:
    outcome = finding.get("outcome")
    return ORDER.index(outcome) if outcome in ORDER else 0


def figure(value: Any, unit: str, *, against: float = math.nan) -> str:
    """Return a number with its unit; nats also as a factor, fractions as percentages."""
    x = real(value)
    if math.isnan(x):
        return "not measured"
    if unit == "nats":
        return "unlimited" if math.isinf(x) else f"{number(x, against=against)} nats ({fold(x)})"
    if unit == "fraction":
        return percent(x) if percent(x) != percent(against) or x == against else percent(x, 8)
    return f"{number(x, against=against)} {unit}".strip()


def measured(finding: Mapping[str, Any]) -> str:
    """Return what was measured with its interval, in one phrase."""
    unit = str(finding.get("unit", ""))
    value, low, high, limit = (real(finding.get(k)) for k in ("value", "low", "high", "limit"))
    if math.isnan(low) or math.isnan(high):
        return "not measured" if math.isnan(value) else f"about {figure(value, unit)}, no interval"
    if low == high:
        return figure(low, unit, against=limit)
    if math.isinf(high) and math.isinf(low):
        return "no limit known"
    if math.isinf(high):
        return f"at least {figure(low, unit, against=limit)}; no upper limit known"
    if math.isinf(low):
        return f"at most {figure(high, unit, against=limit)}"
    bounds = f"{_short(low, unit, limit)} to {_short(high, unit, limit)}"
    return f"{bounds} nats" if unit == "nats" else (bounds if unit == "fraction" else f"{bounds} {unit}".strip())


def _short(x: float, unit: str, against: float) -> str:
    return figure(x, unit, against=against) if unit == "fraction" else number(x, against=against)


def limit(finding: Mapping[str, Any]) -> str:
    """Return the limit in words: "at most 1 nats (2.72-fold)"."""
    if math.isnan(real(finding.get("limit"))):
        return "none"
    word = "at least" if finding.get("direction") == "min" else "at most"
    return f"{word} {figure(finding.get('limit'), str(finding.get('unit', '')))}"


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
    detail = (doc.get("evidence") or {}).get("detail") or {}
    attacks = [a for a in detail.get("attacks") or () if isinstance(a, Mapping) and not a.get("problem")]
    return {str(a.get("kind", "membership inference")) for a in attacks}
