"""The report without markup of a page: what a terminal shows, the Markdown summary, and JUnit XML for CI servers."""

import re
from collections.abc import Iterator, Mapping
from xml.etree import ElementTree as ET

from privgate.evidence.verdict import Finding, Outcome
from privgate.report import assertions, page_one, two_reports, words
from privgate.report.assertions import Assertion
from privgate.report.blocks import Chart, List, Section, TableBlock, Text
from privgate.report.page_one import Tile
from privgate.report.report_schema import Comparison, ReportDocument
from privgate.report.sentences import say
from privgate.report.text import item, markdown, plain, prose

_MARKS: Mapping[str, str] = {
    Outcome.NOT_NEEDED: "-",
    Outcome.PASSED: "+",
    Outcome.WARNED: "!",
    Outcome.INCONCLUSIVE: "?",
    Outcome.FAILED: "x",
}


def terminal(doc: ReportDocument) -> str:
    """Return the whole text; it begins with the decision, its first word in capitals."""
    return "\n".join([headline(doc), *lines(doc)]) + "\n"


def headline(doc: ReportDocument) -> str:
    """Return the decision, about what, by which policy."""
    word, _, rest = words.decide(doc).text.partition(" ")
    decision = f"{word.upper()} {rest}".strip()
    named = {"subject": prose(page_one.subject(doc.subject)), "policy": prose(page_one.policy(doc))}
    return say("terminal.head", decision=decision, **named)


def lines(doc: ReportDocument) -> Iterator[str]:
    """Yield one screen: the reason, a line a question, the next step."""
    if said := page_one.reason(doc):
        yield f"  {prose(said)}"
    for tile in page_one.tiles(doc):
        value = f"{tile.value}; " if tile.value else ""
        yield f"  {_MARKS[tile.outcome]} {tile.title}: {value}{prose(tile.text)}"
    yield f"  {say('next.one')}: {page_one.steps(doc, 300)[0]}"


_SIGN = {"good": "✅", "bad": "⛔", "open": "❔", "care": "⚠️", "watch": "👁"}


def summary(doc: ReportDocument | Comparison) -> str:
    """Return page one, or the comparison of two reports, as Markdown; no line begins with foreign text."""
    if isinstance(doc, Comparison):
        return _comparison(doc)
    page = page_one.view(doc)
    lines = [
        f"## {_SIGN[page['tone']]} {markdown(page['decision'])}: {markdown(page['subject'])}",
        "",
        *([f"{item(page['reason'])}", ""] if page["reason"] else []),
        f"**{say('next.one')}:** {markdown(page['next'])}",
        "",
        f"| {' | '.join(say(f'column.{c}') for c in ('question', 'result', 'measured', 'told'))} |",
        "| --- | --- | --- | --- |",
        *(f"| {' | '.join(map(markdown, _cells(tile)))} |" for tile in page["tiles"]),
        "",
        *(f"- **{markdown(name)}:** {markdown(value)}" for name, value in page["facts"]),
        f"- **{say('open')}:** {markdown('; '.join(page['open']))}",
        "- **{}:** {}".format(*map(markdown, page["signing"][-1])),
        "",
        f"<details><summary>{say('judged')}</summary>",
        "",
        *(f"- **{markdown(name)}:** {markdown(value)}" for name, value in words.facts(doc)),
        *(f"- {item(line)}" for section in words.particulars(doc) for line in _sentences(section)),
        "",
        "</details>",
        "",
    ]
    return "\n".join(lines)


def _cells(tile: Tile) -> tuple[str, str, str, str]:
    return tile.title, f"{_SIGN[tile.tone]} {tile.state}", tile.value, tile.text


def _sentences(section: Section) -> Iterator[str]:
    for block in section.blocks:
        if isinstance(block, Text):
            yield block.text
        elif isinstance(block, List):
            yield from block.items


def _comparison(doc: Comparison) -> str:
    lines = [f"## {markdown(two_reports.title(doc))}", ""]
    for block in two_reports.blocks(doc):
        if isinstance(block, Text):
            lines += [f"**{markdown(block.text)}**", ""]
        elif isinstance(block, Chart):
            lines += [f"- {item(block.reading)}", ""]
        elif isinstance(block, TableBlock):
            lines += [f"| {' | '.join(markdown(c) for c in block.columns)} |", f"|{' --- |' * len(block.columns)}"]
            lines += [f"| {' | '.join(markdown(c) for c in row)} |" for row in block.rows]
            lines.append("")
    return "\n".join(lines)


_COMMAND = re.compile(r"::|##\[")


def junit(doc: ReportDocument) -> str:
    """Return the report as JUnit XML.

    A broken rule is a ``failure``; one that could not be judged is an ``error``, because no number decided it; one that
    does not apply is ``skipped``. Preconditions are cases too: without them no number counts.
    """
    cases = assertions.of(doc)
    name = f"privgate {doc.subject.name} {doc.subject.version}".strip()
    suite = ET.Element("testsuite", name=_say(name), timestamp=_say(doc.decided_at))
    ET.SubElement(ET.SubElement(suite, "properties"), "property", name="decision", value=_say(words.decide(doc).text))
    tally = dict.fromkeys(("failure", "error", "skipped"), 0)
    policy = _say(f"privgate.{doc.policy.name}")
    for asserted in cases:
        finding = asserted.finding
        case = ET.SubElement(suite, "testcase", classname=policy, name=_say(finding.rule), time="0")
        said = _say(f"{asserted.asked}: {asserted.sentence}")
        if kind := _kind(finding):
            tally[kind] += 1
            ET.SubElement(case, kind, message=said).text = _body(asserted)
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


def _kind(finding: Finding) -> str:
    if not finding.applies or finding.outcome is Outcome.NOT_NEEDED:
        return "skipped"
    return {Outcome.FAILED: "failure", Outcome.INCONCLUSIVE: "error"}.get(finding.outcome, "")


def _body(a: Assertion) -> str:
    return "\n".join(_say(p) for p in (a.finding.meaning, a.finding.advice) if p)


def _say(value: str) -> str:
    """Return text without what XML 1.0 forbids and without commands of a CI log."""
    return _COMMAND.sub(lambda m: "\u200a".join(m.group()), plain(value))
