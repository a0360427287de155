"""Plain words: the decision in a sentence, what was judged, and what a report never claims."""

import math
from typing import Any

from privgate.evidence import (
    AttackResult,
)
from privgate.evidence.figures import number, percent
from privgate.policy.rules import about
from privgate.report.report_schema import ReportDocument, SubjectFacts
from privgate.report.sentences import say
from privgate.report.text import moment, plain
from privgate.run.needs import Need
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


#: what the policy says of a file that nobody can get
WITHHELD = "not downloadable"


def judged(doc: ReportDocument) -> str:
    """Return what of the file was judged, the end of a sentence about the answers."""
    ruled = [about(f.metric) for f in doc.findings if Need.LOOKED in about(f.metric).needs]
    for who, stated in (("policy", doc.policy.source.get("file")), ("operator", doc.subject.file)):
        if stated == WITHHELD:
            return say("file.withheld", who=say(f"file.{who}"))
    if not ruled:
        looked = any(f.rule == "precondition:file" for f in doc.findings)
        return say("file.looked" if looked else "file.not_judged")
    part = doc.evidence.artifact
    if part is None or part.problem:
        return say("file.unread")
    return say("file.judged" if part.judged == "file" else "file.would_be")


def released(s: SubjectFacts) -> str:
    """Return what a release hands out, in words; a regressor has no labels."""
    if s.task == "regression":
        return say("release.noisy" if s.release.noise else "release.numbers")
    if s.release.floor:
        return say("release.alone" if s.release.alone else "release.floor", floor=number(min(s.release.floor)))
    return say(f"release.{s.release.form}")


def facts(doc: ReportDocument) -> list[tuple[str, str]]:
    """Return what was judged, by whom, until when; what nobody stated says so."""
    s, p, c = doc.subject, doc.policy, doc.context
    items = [
        ("fact.data", _data(doc)),
        ("fact.source", plain(c.data_source, 120) or say("not_stated")),
        ("fact.purpose", plain(c.purpose, 200) or say("not_stated")),
        ("fact.owner", plain(c.owner, 80) or say("not_stated")),
        ("fact.checked_by", _checked_by(doc)),
        ("fact.judged", say("answers", release=released(s), file=judged(doc))),
        ("fact.model", short(s.digests.get("model") or s.digests.get("recipe"))),
        ("fact.policy", f"{plain(p.name, 40)}{f' {plain(p.version, 20)}' if p.version else ''}, {short(p.digest)}"),
        ("fact.level", _level(doc)),
        ("fact.size", _size(doc)),
        ("fact.decided", moment(doc.decided_at) or say("undated")),
        ("fact.valid", moment(doc.expires) or say("no_statement")),
    ]
    return [(say(k), v) for k, v in items if v]


def _size(doc: ReportDocument) -> str:
    """Return whether a claim of differential privacy takes the number of records as public; empty without one."""
    claim = doc.subject.recipe and doc.subject.recipe.dp
    if not claim or doc.evidence.claims is None:
        return ""
    asked = [m.request.option("adjacency") for m in doc.evidence.measurements]
    if "replace_one" in (claim.adjacency, *asked):
        return say("size.public")
    return say("size.not_looked_at")


def accuracy(doc: ReportDocument) -> str:
    """Return how well the model does its work, beside what it gives away."""
    c = doc.context
    if c.accuracy is not None and c.accuracy_n:
        return say("accuracy.told", share=percent(c.accuracy), people=number(c.accuracy_n))
    if c.accuracy_between is not None and c.accuracy_n:
        low, high = c.accuracy_between
        span = say("span", low=percent(low), high=percent(high))
        return say("accuracy.told", share=span, people=number(c.accuracy_n))
    return say("accuracy.none" if doc.subject.n_candidates else "accuracy.nobody")


def counts(s: SubjectFacts) -> str:
    """Return how many records and people the training data hold."""
    if not s.n_records:
        return ""
    key = "records" if s.n_units in (0, s.n_records) else "records.people"
    return say(key, records=number(s.n_records), people=number(s.n_units))


def short(digest: Any) -> str:
    """Return the first 16 hexadecimal digits of a digest, enough to compare by eye; all of them are in the trace."""
    text = plain(digest, 80)
    head, _, tail = text.partition(":")
    return f"{head} {tail[:16]}" if tail else text


def _data(doc: ReportDocument) -> str:
    subject = doc.subject
    told = (plain(doc.context.data_name, 60), counts(subject), _people(subject), short(subject.digests.get("data")))
    return ", ".join(t for t in told if t)


def _people(subject: SubjectFacts) -> str:
    """Return what was declared about whose the records are, and by whom."""
    declared, by = (plain(subject.people.get(key, ""), 60) for key in ("declared", "by"))
    if not declared:
        return "" if subject.n_units < subject.n_records else say("people.undeclared")
    return say("people.declared", declared=declared, by=by or say("not_stated"))


def _checked_by(doc: ReportDocument) -> str:
    who, where = plain(doc.context.run_by, 60) or say("not_stated"), plain(doc.context.run_on, 80)
    box = plain(doc.evidence.run.isolation, 60)
    apart = say("not_apart") if box in ("", "none") else say("apart", box=box)
    return say("ran.where" if where else "ran", who=who, where=where, apart=apart)


def _level(doc: ReportDocument) -> str:
    asked = any(about(f.metric).per_unit and f.unit == "nats" for f in rules(doc))
    return plain(doc.level, 20) or (say("level.none") if asked else "")
