"""What was judged, for what, on which data, by whom and where: the facts of page one."""

from typing import Any

from privgate.policy.rules import about
from privgate.report import artifact, words
from privgate.report.facts import SubjectFacts
from privgate.report.schema import ReportDocument
from privgate.report.sentences import say
from privgate.report.text import moment, number, percent, plain


def released(form: str) -> str:
    """Return what a release hands out, in words."""
    return say(f"release.{form}")


def facts(doc: ReportDocument) -> list[tuple[str, str]]:
    """Return what was judged, by whom, until when; what nobody stated says so."""
    s, p, c = doc.subject, doc.policy, doc.context
    items = [
        ("fact.data", _data(doc)),
        ("fact.source", plain(c.data_source, 120) or say("not_stated")),
        ("fact.purpose", plain(c.purpose, 200) or say("not_stated")),
        ("fact.owner", plain(c.owner, 80) or say("not_stated")),
        ("fact.checked_by", _checked_by(doc)),
        ("fact.judged", say("answers", release=released(s.release.form), file=artifact.judged(doc))),
        ("fact.model", short(s.digests.get("model") or s.digests.get("recipe"))),
        ("fact.policy", f"{plain(p.name, 40)}{f' {plain(p.version, 20)}' if p.version else ''}, {short(p.digest)}"),
        ("fact.level", _level(doc)),
        ("fact.decided", moment(doc.decided_at) or say("undated")),
        ("fact.valid", moment(doc.expires) or say("no_statement")),
        ("fact.signed", say("unsigned")),
        ("fact.measured", say(f"mode.{words.mode(doc)}") if words.mode(doc) != "all" else ""),
    ]
    return [(say(k), v) for k, v in items if v]


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
    told = (plain(doc.context.data_name, 60), counts(doc.subject), short(doc.subject.digests.get("data")))
    return ", ".join(t for t in told if t)


def _checked_by(doc: ReportDocument) -> str:
    who, where = plain(doc.context.run_by, 60) or say("not_stated"), plain(doc.context.run_on, 80)
    box = plain(doc.evidence.run.isolation, 60)
    apart = say("not_apart") if box in ("", "none") else say("apart", box=box)
    return say("ran.where" if where else "ran", who=who, where=where, apart=apart)


def _level(doc: ReportDocument) -> str:
    asked = any(about(f.metric).per_unit and f.unit == "nats" for f in words.rules(doc))
    return plain(doc.level, 20) or (say("level.none") if asked else "")
