"""Plain words: the decision in a sentence, what was judged, and what a report never claims."""

import math
from collections.abc import Iterator
from typing import Any

from privgate.evidence import AttackResult
from privgate.evidence.figures import figure, number, percent, percent_at_most
from privgate.evidence.measurement import BehindInfluence
from privgate.evidence.verdict import Finding, Outcome
from privgate.outcome import Decision
from privgate.policy.judging import find_scope, met_for_everybody
from privgate.policy.rules import about
from privgate.report.blocks import Block, Facts, List, Section, Text
from privgate.report.report_schema import ReportDocument, SubjectFacts
from privgate.report.sentences import say
from privgate.report.text import moment, plain
from privgate.run.needs import Need

#: what a report never shows, whatever it finds
_NOT_SHOWN = ("limits.attack", "limits.theorem", "limits.others", "limits.legal")


def particulars(doc: ReportDocument) -> list[Section]:
    """Return what page one has no room for: what was judged, warnings and waivers, and what no report shows."""
    names = ("precondition:near_overlap", "precondition:same_population")
    unfit = [f for f in preconditions(doc) if f.rule in names and f.outcome is not Outcome.PASSED]
    limits = [f"{capital(plain(f.message, 400)).rstrip('.')}." for f in unfit]
    stated = {} if doc.subject.recipe is None else doc.subject.recipe.public
    public = "; ".join(f"{plain(name, 40)} ({plain(origin, 120)})" for name, origin in stated.items())
    limits += [say("limits.public", names=public)] if public else []
    limits += filter(None, [no_attack_limited(doc)])
    judged: list[Block] = [
        Facts(facts(doc)),
        Text(accuracy(doc)),
        *(Text(said) for said in dict.fromkeys(_hedges(doc))),
    ]
    return [
        Section("judged", say("judged"), judged),
        Section("limits", say("not_shown"), [List([*limits, *map(say, _NOT_SHOWN)])]),
    ]


def _hedges(doc: ReportDocument) -> Iterator[str]:
    """Yield of which people and trainings the figures of influence do not speak."""
    for m in doc.evidence.measurements:
        b = BehindInfluence.of(m.behind)
        if b.beyond and math.isfinite(m.high):
            yield say("sure.beyond", share=percent_at_most(b.beyond), level=number(100 * (m.confidence or 0)))
        if b.own_coins and b.followed and m.unit != "fraction" and m.low < m.value < math.inf:
            yield say("sure.own_above", figure=figure(m.value, m.unit))
        elif b.own_coins:
            yield say("sure.own_coins")
        if b.paired_seeds:
            yield say("sure.seeds", count=b.paired_seeds)
        if b.not_computed:
            yield say("sure.stopped")


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


def decide(doc: ReportDocument) -> Decision:
    """Return the decision that a document holds: every surface prints it."""
    return Decision.of(doc.findings, scope=find_scope(doc.findings), observed=doc.observed)


def level(doc: ReportDocument) -> str:
    """Return the DTP level that was reached, such as ``"DTP-1"``; empty unless a ``dtp`` rule passed and all hold."""
    limits = [f.limit for f in met_for_everybody(doc.findings)]
    if not doc.approved or not limits or math.isnan(min(limits)):
        return ""
    return f"DTP-{number(min(limits))}"


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


def size_is_public(doc: ReportDocument) -> bool:
    """Return whether a claim of differential privacy takes the number of records as public."""
    if doc.subject.recipe is None or doc.subject.recipe.dp is None or doc.evidence.claims is None:
        return False
    asked = [m.request.option("adjacency") for m in doc.evidence.measurements]
    return "replace_one" in (doc.subject.recipe.dp.adjacency, *asked)


def _size(doc: ReportDocument) -> str:
    claimed = doc.subject.recipe and doc.subject.recipe.dp and doc.evidence.claims is not None
    return say("size.public" if size_is_public(doc) else "size.not_looked_at") if claimed else ""


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
