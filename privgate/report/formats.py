"""The report in every format, from its typed document alone: a page, a terminal's text, Markdown, and JUnit XML."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from xml.etree import ElementTree as ET

from privgate.evidence.verdict import Outcome
from privgate.report import assertions, page_one
from privgate.report.compare import lay_out, name_both
from privgate.report.schema import Comparison, ReportDocument
from privgate.report.sections import sections
from privgate.report.text import fill, item, markdown, plain, prose, say


def page(doc: ReportDocument) -> str:
    """Return the report as a self-contained HTML page."""
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
        if tile.question == "claim" and tile.outcome is Outcome.NOT_NEEDED:
            continue
        value = f"{tile.value}; " if tile.value else ""
        yield f"  {_MARKS[tile.tone]} {tile.title}: {value}{prose(tile.text)}"
    yield f"  {say('next.one')}: {page_one.steps(doc, 300)[0]}"


def differences(comparison: Mapping[str, Any]) -> Iterator[str]:
    """Yield what ``compare`` returned as lines of Markdown."""
    read = Comparison.model_validate(comparison)
    blocks = lay_out(read)
    yield from (f"## {markdown(name_both(read))}", "", f"**{markdown(blocks['summary'])}**", "")
    for t in blocks["tables"]:
        yield from _table(t.columns, t.rows)


def summary(doc: ReportDocument) -> str:
    """Return page one as Markdown; no line begins with foreign text."""
    front = page_one.view(doc)
    tiles = [(t.title, f"{_SIGNS[t.tone]} {t.state}", t.value, t.text) for t in front["tiles"]]
    judged = page_one.judged(doc)
    lines = [
        f"## {_SIGNS[front['tone']]} {markdown(front['decision'])}: {markdown(front['subject'])}",
        "",
        *([f"{item(front['reason'])}", ""] if front["reason"] else []),
        f"**{say('next.one')}:** {markdown(front['next'])}",
        "",
        *_table([say(f"column.{c}") for c in ("question", "result", "measured", "told")], tiles),
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


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    head, *body = (f"| {' | '.join(map(markdown, row))} |" for row in (columns, *rows))
    return [head, "| --- " * len(columns) + "|", *body, ""]


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
    tally = Counter[str]()
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
    tally["test"] = max(len(cases), 1)
    for key in ("tests", "failures", "errors", "skipped"):
        suite.set(key, str(tally[key.removesuffix("s")]))
    ET.indent(suite)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(suite, encoding="unicode") + "\n"


def _say(value: str) -> str:
    """Return text without what XML 1.0 forbids and without commands of a CI log."""
    return _COMMAND.sub(lambda m: "\u200a".join(m.group()), plain(value))
