"""The report in every format, from its typed document alone: a page, a terminal's text, Markdown, and JUnit XML.

Beside them stands the overview of every production model, which is a page too.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree as ET

from privgate.errors import SubjectError
from privgate.evidence.figures import fold, number
from privgate.evidence.verdict import Outcome
from privgate.report import assertions, page_one
from privgate.report.compare import lay_out, name_both
from privgate.report.page import fill
from privgate.report.schema import Comparison, ReportDocument, SubjectFacts, read
from privgate.report.sections import sections
from privgate.report.sentences import say
from privgate.report.text import capital, item, markdown, moment, plain, prose


def page(doc: ReportDocument | Comparison) -> str:
    """Return the report, or the comparison of two, as a self-contained HTML page."""
    if isinstance(doc, Comparison):
        return fill("comparison.html", title=name_both(doc), parts=lay_out(doc))
    return fill("report.html", front=page_one.view(doc), sections=sections(doc))


# What a terminal shows, and the Markdown summary: tone -> sign.

_MARKS = {"watch": "-", "good": "+", "care": "!", "open": "?", "bad": "x"}
_SIGNS = {"watch": "👁", "good": "✅", "care": "⚠️", "open": "❔", "bad": "⛔"}


def terminal(doc: ReportDocument) -> str:
    """Return the whole text; it begins with the decision, its first word in capitals."""
    return "\n".join(lines(doc)) + "\n"


def lines(doc: ReportDocument) -> Iterator[str]:
    """Yield one screen: the decision, about what, by which policy; the reason, a line a question, the next step."""
    word, _, rest = doc.decided.text.partition(" ")
    named = {"subject": prose(page_one.subject(doc.subject)), "policy": prose(page_one.policy(doc))}
    yield say("terminal.head", decision=f"{word.upper()} {rest}".strip(), **named)
    if said := page_one.reason(doc):
        yield f"  {prose(said)}"
    for tile in page_one.tiles(doc):
        value = f"{tile.value}; " if tile.value else ""
        yield f"  {_MARKS[tile.tone]} {tile.title}: {value}{prose(tile.text)}"
    yield f"  {say('next.one')}: {page_one.steps(doc, 300)[0]}"


def summary(doc: ReportDocument | Comparison) -> str:
    """Return page one, or the comparison of two reports, as Markdown; no line begins with foreign text."""
    if isinstance(doc, Comparison):
        blocks = lay_out(doc)
        head = [f"## {markdown(name_both(doc))}", "", f"**{markdown(blocks['summary'])}**", ""]
        every = (_table(t.columns, t.rows, "|" + " --- |" * len(t.columns)) for t in blocks["tables"])
        return "\n".join([*head, *(line for lines in every for line in lines)])
    front = page_one.view(doc)
    tiles = [(t.title, f"{_SIGNS[t.tone]} {t.state}", t.value, t.text) for t in front["tiles"]]
    judged = page_one.judged(doc)
    lines = [
        f"## {_SIGNS[front['tone']]} {markdown(front['decision'])}: {markdown(front['subject'])}",
        "",
        *([f"{item(front['reason'])}", ""] if front["reason"] else []),
        f"**{say('next.one')}:** {markdown(front['next'])}",
        "",
        *_table([say(f"column.{c}") for c in ("question", "result", "measured", "told")], tiles, "| --- " * 4 + "|"),
        *(f"- **{markdown(name)}:** {markdown(value)}" for name, value in front["facts"]),
        f"- **{say('open')}:** {markdown('; '.join(front['open']))}",
        "- **{}:** {}".format(*map(markdown, front["signing"][-1])),
        "",
        f"<details><summary>{say('judged')}</summary>",
        "",
        *(f"- **{markdown(name)}:** {markdown(value)}" for name, value in judged["facts"]),
        *(f"- {item(line)}" for line in (*judged["texts"], *page_one.limits(doc))),
        "",
        "</details>",
        "",
    ]
    return "\n".join(lines)


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]], rule: str) -> list[str]:
    head, *body = (f"| {' | '.join(map(markdown, row))} |" for row in (columns, *rows))
    return [head, rule, *body, ""]


# JUnit XML for CI servers.

_COMMAND = re.compile(r"::|##\[")
_KINDS = {Outcome.FAILED: "failure", Outcome.INCONCLUSIVE: "error", Outcome.NOT_NEEDED: "skipped"}


def junit(doc: ReportDocument) -> str:
    """Return the report as JUnit XML.

    A broken rule is a ``failure``; one that could not be judged is an ``error``, because no number decided it; one that
    does not apply is ``skipped``. Preconditions are cases too: without them no number counts.
    """
    cases = assertions.list_assertions(doc)
    name = f"privgate {doc.subject.name} {doc.subject.version}".strip()
    suite = ET.Element("testsuite", name=_say(name), timestamp=_say(doc.decided_at))
    ET.SubElement(ET.SubElement(suite, "properties"), "property", name="decision", value=_say(doc.decided.text))
    tally = dict.fromkeys(("failure", "error", "skipped"), 0)
    policy = _say(f"privgate.{doc.policy.name}")
    for asserted in cases:
        finding = asserted.finding
        case = ET.SubElement(suite, "testcase", classname=policy, name=_say(finding.rule), time="0")
        said = _say(f"{asserted.title}: {asserted.sentence}")
        kind = _KINDS.get(finding.outcome, "") if finding.applies else "skipped"
        if kind:
            tally[kind] += 1
            body = "\n".join(_say(p) for p in (finding.meaning, finding.advice) if p)
            ET.SubElement(case, kind, message=said).text = body
        elif finding.outcome is Outcome.WARNED:
            ET.SubElement(case, "system-out").text = f"warning: {said}"
    if not cases:
        tally["error"] = 1
        case = ET.SubElement(suite, "testcase", classname=policy, name="policy", time="0")
        ET.SubElement(case, "error", message="no rule was judged")
    counts = (max(len(cases), 1), tally["failure"], tally["error"], tally["skipped"])
    for key, count in zip(("tests", "failures", "errors", "skipped"), counts, strict=True):
        suite.set(key, str(count))
    ET.indent(suite)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(suite, encoding="unicode") + "\n"


def _say(value: str) -> str:
    """Return text without what XML 1.0 forbids and without commands of a CI log."""
    return _COMMAND.sub(lambda m: "\u200a".join(m.group()), plain(value))


# The overview of every production model.


def index(rows: Iterable[Mapping[str, Any]], *, now: str = "") -> str:
    """Return one self-contained HTML page over many models, those that need attention first.

    Parameters
    ----------
    rows : iterable of mappings
        One a model version: ``document`` (its report, None without), ``name``, ``version``, ``alias``,
        ``href`` (relative address of its HTML report), ``problem`` (why its report could not be read, or does
        not belong to it). A report document by itself is a row too.
    now : str
        RFC 3339; what expires before it is marked. Without it nothing is marked and the page says so.
    """
    lines = sorted((_line(r, now) for r in rows), key=lambda r: (r["order"], r["model"], sorted(map(str, r.items()))))
    return fill("index.html", lines=lines, now=moment(now), attention=sum(r["order"] < 2 for r in lines))


def _line(row: Mapping[str, Any], now: str) -> dict[str, Any]:
    alone = "schema" in row
    given, problem, doc = row if alone else row.get("document"), plain(row.get("problem"), 200), None
    if given and not problem:
        try:
            doc = read(given)
        except SubjectError as exc:
            problem = plain(exc, 200)
    called = {k: str(row[k]) for k in ("name", "version") if row.get(k) and not alone}
    named = (doc.subject if doc else SubjectFacts()).model_copy(update=called)
    href = str(row.get("href") or "")  # relative: no scheme, host or way up
    href = "" if ":" in href or href.startswith(("/", "\\")) or ".." in href.split("/") else quote(href)
    line = {"model": page_one.subject(named), "alias": plain(row.get("alias"), 40), "href": href, "note": ""}
    if doc is None:
        state = "Report unusable" if problem else "Never checked"
        shown = {"tone": "bad", "verdict": state, "note": problem, "order": 0}
        return {**line, **shown, **dict.fromkeys(("policy", "expires", "worst", "checked"), "")}
    late = _late(doc.expires, now)
    released = doc.approved and not late
    return {
        **line,
        "tone": "bad" if late else page_one.tone(doc),
        "verdict": capital(doc.decided.text) + (", expired" if late else ""),
        "order": 1 + released + (released and doc.outcome is Outcome.PASSED),
        "policy": plain(doc.policy.name, 40),
        "expires": moment(doc.expires) or "no statement",
        "worst": _worst(doc),
        "checked": moment(doc.decided_at) or "not recorded",
    }


def _worst(doc: ReportDocument) -> str:
    if not doc.units or not doc.units.worst:
        return "not measured"
    first = doc.units.worst[0]
    # what has no figure is the worst
    change = max((first.pdtp, first.dtp_lower), key=lambda v: math.inf if math.isnan(v) else v)
    return f"{plain(first.unit, 16)[:8]}: {fold(change)} ({number(change)} nats)"


def _late(expires: str, now: str) -> bool:
    """Whether a report's time is over; a date that cannot be read is over."""
    if not expires or not now:
        return False
    try:
        end, today = (datetime.fromisoformat(text) for text in (expires, now))
    except ValueError:
        return True
    end, today = (when if when.tzinfo else when.replace(tzinfo=UTC) for when in (end, today))
    return end <= today
