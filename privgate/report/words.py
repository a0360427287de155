"""Plain words: the decision in a sentence, the glossary, and what a report never claims."""

import math

from privgate.evidence import AttackResult
from privgate.evidence.figures import number
from privgate.policy.rules import about
from privgate.report.report_schema import ReportDocument
from privgate.report.sentences import say
from privgate.verdict import Finding, Outcome

#: what a report never shows, whatever it finds
_NOT_SHOWN = ("limits.attack", "limits.theorem", "limits.others", "limits.legal")


def not_shown() -> list[str]:
    """Return what no report shows, whatever it finds."""
    return [say(key) for key in _NOT_SHOWN]


def no_attack_limited(doc: ReportDocument) -> str:
    """Return that influence alone was limited, which stops no attack; empty where an enforced rule limits attacks."""
    if not any(about(f.metric).per_unit for f in asked(doc)):
        return ""
    if any(about(f.metric).limits_attacks and f.mode != "warn" for f in asked(doc)):
        return ""
    warmth = doc.subject.release.temperature
    where = "regression-1-attacks" if doc.subject.task == "regression" else "dtp-1-attacks"
    declared = "" if warmth == 1 else " " + say("limits.temperature", temperature=number(warmth))
    return say("limits.no_attack", policy=where) + declared


def direct_only(doc: ReportDocument) -> str:
    """Return of what questions alone an approval speaks, "direct" or "beside"; empty where it says more.

    A ``pdtp`` rule was judged, and no ``dtp`` rule on all was met.
    """
    direct = [f for f in asked(doc) if about(f.metric).direct_only and "over=domain" not in f.request]
    if not direct or _met_for_all(doc):
        return ""
    return "beside" if all("over=beside" in f.request for f in direct) else "direct"


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
    """Return the decision in a few words, lower case, such as "approved" or "refused"."""
    return say("decision.observed", decision=_bare(doc)) if doc.observed else _bare(doc)


def _bare(doc: ReportDocument) -> str:
    if doc.outcome is Outcome.FAILED:
        return say("decision.refused")
    if doc.outcome is Outcome.INCONCLUSIVE:
        return say("decision.undecided")
    approved = say(f"decision.{direct_only(doc) or 'approved'}")
    if doc.outcome is Outcome.WARNED:
        waived = any(f.waiver for f in doc.findings)
        return say("decision.waived" if waived else "decision.warned", approved=approved)
    return approved


def rules(doc: ReportDocument) -> list[Finding]:
    """Return the findings of rules, worst first, otherwise in the policy's order."""
    return sorted((f for f in doc.findings if not is_condition(f)), key=badness)


def asked(doc: ReportDocument) -> list[Finding]:
    """Return the findings of rules that were asked of this model, and that no other rule answered for."""
    return [f for f in rules(doc) if f.outcome is not Outcome.NOT_NEEDED]


def preconditions(doc: ReportDocument) -> list[Finding]:
    """Return the findings of preconditions, worst first."""
    return sorted((f for f in doc.findings if is_condition(f)), key=badness)


def is_condition(finding: Finding) -> bool:
    """Whether this is a precondition's finding, not a rule's."""
    return finding.rule.startswith("precondition:")


def badness(finding: Finding) -> int:
    """Return 0 for the worst outcome, larger for better ones."""
    return -finding.outcome.rank


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


def capital(text: str) -> str:
    """Return a text with its first letter as a capital; a name of code stays as it is written."""
    named = "_" in text.split(" ", 1)[0] or text.startswith("privgate ")
    return text if named else text[:1].upper() + text[1:]
