"""What was judged and what was found: the blocks of the questions, and the facts of page one."""

from collections.abc import Sequence
from typing import Any

from privgate.evidence import (
    ArtifactPart,
    AttributeGuesses,
    AttributeResult,
    AttributesPart,
    RobustPart,
    SensitivityFigures,
)
from privgate.evidence.figures import number, percent
from privgate.policy.rules import about
from privgate.report import words
from privgate.report.blocks import Block, Facts, Heading, TableBlock, Text
from privgate.report.report_schema import ReportDocument, SubjectFacts
from privgate.report.sentences import say
from privgate.report.text import moment, plain, prose, shown
from privgate.run.needs import Need

# What was found in the model's file, for the section on the model; and whether answers or file were judged.

COLUMNS = ("What", "Where", "Records, at least", "Records, at most", "Beside")
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


def blocks(doc: ReportDocument) -> list[Block]:
    """Return what the file carries, and whether that decided anything."""
    part = doc.evidence.artifact
    if part is None:
        return []
    ruled = ", ".join(dict.fromkeys(f.metric for f in doc.findings if Need.LOOKED in about(f.metric).needs))
    made: list[Block] = [Heading("What the file itself carries"), Text(_said(part, ruled))]
    if part.carried:
        rows = [
            (plain(c.what, 90), plain(c.where, 60), *(shown(v) for v in (c.least, c.most, c.beside)))
            for c in part.carried
        ]
        made.append(TableBlock("Traces of single records", COLUMNS, rows, (2, 3, 4)))
    if part.unknown:
        text = "; ".join(plain(u, 160) for u in part.unknown)
        made.append(Text(f"Not read, so that it may carry anybody: {text}."))
    return made


def _said(part: ArtifactPart, ruled: str) -> str:
    what = "stored file" if part.judged == "file" else "model that the recipe trains (no file is stored)"
    decided = (
        f"The rule {ruled} judges this."
        if ruled
        else "No rule judges this: an approval speaks of the model's answers, not of who can download its file."
    )
    if part.how == "bytes":
        return f"The {what} {prose(part.bytes_said)}. Its bytes were searched; nothing of it was run. {decided}"
    if part.problem:
        return f"The {what} could not be walked ({plain(part.problem, 160)}), so that it may carry anybody. {decided}"
    low, high = shown(part.least), shown(part.most)
    span = low if low == high else f"{low} for certain, and at most {high},"
    return f"The {what} carries traces of their own of {span} of {number(part.records)} records. {decided}"


# What was judged, for what, on which data, by whom and where: the facts of page one.


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
    asked = any(about(f.metric).per_unit and f.unit == "nats" for f in words.rules(doc))
    return plain(doc.level, 20) or (say("level.none") if asked else "")


# What one person moves a regressor's answers by, for the section on the risk of each person.

NOT_DTP = (
    "Sensitivity is not DTP: it says how far an answer moves when one person is left out, as a share of what the model "
    "usually errs by. It bounds no probability and stops no attack by itself."
)


def number_blocks(figures: SensitivityFigures) -> list[Block]:
    """Return residual deviations and sensitivity, with what they do not say."""
    inside, outside = figures.residual_inside, figures.residual_outside
    everywhere = (
        f"no limit known: {plain(figures.why_no_domain, 200)}"
        if figures.over_domain is None
        else f"at most {number(figures.over_domain)} residual deviations, by theorem"
    )
    apart = number(outside / inside) if inside else "unlimited"
    most = number(figures.most)
    own = f"half are below {number(figures.median)}, 99 % below {number(figures.p99)}, the worst is {most}"
    items = [
        ("Residual deviation on training records", number(inside)),
        ("Residual deviation on records left out, the unit of sensitivity", number(outside)),
        ("Errs more on records left out than on training records by a factor of", apart),
        ("Sensitivity, asked about the person's own record", own),
        ("Sensitivity, over every question of the declared domain", everywhere),
    ]
    if figures.noise:
        items.append(("Released", plain(figures.noise, 120)))
    if figures.noise_advantage is not None:
        items.append(
            ("Advantage of anybody on one noisy answer about the person, at most", percent(figures.noise_advantage))
        )
    return [Text(NOT_DTP, "note"), Facts(items, wide=True)]


# What the distance to the nearest wrong answer tells about membership, for the section on attacks.

_ROBUST = ("Who guesses", "Radius", "Members called members", "Others called members", "Difference, with its interval")


def robust_blocks(part: RobustPart | None) -> list[Block]:
    """Return one table of the adversaries."""
    if part is None:
        return []
    rows = []
    for a in part.adversaries:
        e = a.advantage
        limits = "" if e.low is None or e.high is None else f" ({percent(e.low)} to {percent(e.high)})"
        shown = "not known" if e.value is None else f"{percent(e.value)}{limits}"
        radius = "" if a.radius is None else number(a.radius)
        rows.append((plain(a.title, 60), radius, percent(a.inside), percent(a.outside), shown))
    caption = f"Distance to the nearest wrong answer, {plain(part.how, 60)}"
    return [Heading("Robustness"), TableBlock(caption, _ROBUST, rows)]


# What was found about sensitive features, for the section on attacks.

_FEATURES = ("Who guesses", "Of members", "Of candidates", "Difference, with its interval")


def attribute_blocks(part: AttributesPart | None) -> list[Block]:
    """Return one table a feature: what is guessed of members, of others, and by anybody without the model."""
    if part is None:
        return []
    made: list[Block] = [Heading("Sensitive features")]
    for found in part.attributes:
        rows = [_row(g) for g in (*found.adversaries, found.without_model)]
        made += [TableBlock(_caption(found), _FEATURES, rows), Text(_reading(found))]
        if found.by_value:
            values = [_row(g) for g in found.by_value]
            caption = f"{plain(found.name, 60)}, by its value"
            made.append(TableBlock(caption, ("Value", *_FEATURES[1:]), values, folded="Inversion, by the true value"))
    return made


def _caption(found: AttributeResult) -> str:
    return f"{plain(found.name, 60)}: who knows everything else about somebody and asks the model with every value"


def _row(guesses: AttributeGuesses) -> Sequence[str]:
    e = guesses.advantage
    limits = "" if e.low is None or e.high is None else f" ({percent(e.low)} to {percent(e.high)})"
    apart = limits.strip(" ()") or "not known" if e.value is None else f"{percent(e.value)}{limits}"
    return plain(guesses.title, 60), shown(guesses.inside, percent), shown(guesses.outside, percent), apart


def _reading(found: AttributeResult) -> str:
    said = (
        f"Saying the most frequent of its {found.values} values is right for {shown(found.prior_guess, percent)}. The "
        f"feature alone moves an answer by {number(found.influence)} {plain(found.influence_in, 30)} on average."
    )
    if found.theorem is not None:
        said += f" Normal errors of these sizes would give inversion a difference of {percent(found.theorem)}."
    return said
