"""What was judged, for what, on which data, by whom and where: the facts of page one."""

from typing import Any

from privgate.policy.rules import about
from privgate.report import artifact, words
from privgate.report.schema import ReportDocument, SubjectFacts
from privgate.report.text import moment, number, percent, plain

#: what a release hands out, in words
RELEASED = {
    "probabilities": "exact probabilities of every label",
    "rounded": "probabilities rounded to a step",
    "binned": "probabilities in bins",
    "top_k": "the most probable labels only",
    "label": "the most probable label only",
}


def facts(doc: ReportDocument) -> list[tuple[str, str]]:
    """Return what was judged, by whom, until when; what nobody stated says so."""
    s, p, c = doc.subject, doc.policy, doc.context
    items = [
        ("Data set", _data(doc)),
        ("Data source", plain(c.data_source, 120) or "not stated"),
        ("Purpose", plain(c.purpose, 200) or "not stated"),
        ("Owner", plain(c.owner, 80) or "not stated"),
        ("Checked by", _checked_by(doc)),
        ("What was judged", f"its answers ({RELEASED[s.release.form]}), {artifact.judged(doc)}"),
        ("Model digest", short(s.digests.get("model") or s.digests.get("recipe"))),
        ("Policy", f"{plain(p.name, 40)}{f' {plain(p.version, 20)}' if p.version else ''}, {short(p.digest)}"),
        ("DTP level", _level(doc)),
        ("Decided", moment(doc.decided_at) or "date not recorded"),
        ("Valid until", moment(doc.expires) or "no statement signed yet"),
        ("Signed by", "not signed: a signature is a separate step"),
        ("Measured", {"max": "the exact maximum only", "screen": "screened, not certified"}.get(words.mode(doc), "")),
    ]
    return [(k, v) for k, v in items if v]


def accuracy(doc: ReportDocument) -> str:
    """Return how well the model does its work, beside what it gives away."""
    c = doc.context
    if c.accuracy is not None and c.accuracy_n:
        return f"The model is right about {percent(c.accuracy)} of {number(c.accuracy_n)} people outside its data."
    why = "" if doc.subject.n_candidates else ": no people outside the data are known"
    return f"How often the model is right was not measured{why}."


def counts(s: SubjectFacts) -> str:
    """Return how many records and people the training data hold."""
    if not s.n_records:
        return ""
    people = f" of {number(s.n_units)} people or units" if s.n_units not in (0, s.n_records) else ""
    return f"{number(s.n_records)} records{people}"


def short(digest: Any) -> str:
    """Return the first 12 hexadecimal digits of a digest; all of them are in the trace."""
    text = plain(digest, 80)
    head, _, tail = text.partition(":")
    return f"{head}:{tail[:12]}…" if len(tail) > 12 else text


def _data(doc: ReportDocument) -> str:
    told = (plain(doc.context.data_name, 60), counts(doc.subject), short(doc.subject.digests.get("data")))
    return ", ".join(t for t in told if t)


def _checked_by(doc: ReportDocument) -> str:
    who, where = plain(doc.context.run_by, 60) or "not stated", plain(doc.context.run_on, 80)
    box = plain(doc.evidence.run.isolation, 60)
    apart = "training code not isolated" if box in ("", "none") else f"training code isolated by {box}"
    return f"{who}{f' on {where}' if where else ''}; {apart}"


def _level(doc: ReportDocument) -> str:
    asked = any(about(f.metric).per_unit and f.unit == "nats" for f in words.rules(doc))
    return plain(doc.level, 20) or ("none reached" if asked else "")
