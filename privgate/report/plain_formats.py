"""The report without markup of a page: what a terminal shows, the Markdown summary, and JUnit XML for CI servers."""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from xml.etree import ElementTree as ET

from privgate.evidence.figures import fold
from privgate.report import assertions, front, two_reports, what_was_asked, words
from privgate.report.assertions import Assertion
from privgate.report.blocks import Chart, TableBlock, Text
from privgate.report.report_schema import Comparison, ReportDocument
from privgate.report.sentences import say
from privgate.report.text import item, markdown, plain, prose, shown
from privgate.report.words import capital
from privgate.verdict import Finding, Outcome

_MARKS: Mapping[str, str] = {
    Outcome.NOT_NEEDED: "-",
    Outcome.PASSED: "+",
    Outcome.WARNED: "!",
    Outcome.INCONCLUSIVE: "?",
    Outcome.FAILED: "x",
}


def terminal(doc: ReportDocument) -> str:
    """Return the whole text; it begins with the decision in capitals."""
    return "\n".join([headline(doc), *lines(doc)]) + "\n"


def headline(doc: ReportDocument) -> str:
    """Return the decision, about what, by which policy."""
    s = doc.subject
    what = prose(say("terminal.subject", name=s.name, version=s.version) if s.version else s.name)
    decision = say(f"terminal.{doc.outcome}")
    return say("terminal.head", decision=decision, subject=what, policy=prose(doc.policy.name))


def lines(doc: ReportDocument) -> Iterator[str]:
    """Yield what follows the headline; a precondition that holds is not worth a line."""
    if (doc.approved or doc.observed) and doc.decision.casefold() != say(f"terminal.{doc.outcome}").casefold():
        yield f"  {prose(doc.decision)}"  # under a waiver, or while only observing
    yield from _totals(doc)
    yield from reasons(doc, advice=True)
    unasked = [q.told for q in what_was_asked.of(doc) if q.state == "not_asked"]
    yield from (f"  {_MARKS[Outcome.NOT_NEEDED]} {capital(prose(told))}" for told in unasked)
    for step in doc.next_steps:
        yield f"  next: {prose(step.action)}"
        yield f"      {prose(step.effect)}; {prose(step.cost)}"
    yield from (f"  {prose(line)}" for line in _how(doc))


def _totals(doc: ReportDocument) -> Iterator[str]:
    """Yield how many rules ended how, and the margin that is smallest."""
    rules = [a for a in assertions.of(doc) if not a.condition and a.outcome is not Outcome.NOT_NEEDED]
    ended = Counter(a.outcome for a in rules)
    counts = {"approve": ended[Outcome.PASSED], "refuse": ended[Outcome.FAILED]}
    counts |= {"undecided": ended[Outcome.INCONCLUSIVE], "warn": ended[Outcome.WARNED]}
    yield f"  {say('terminal.total', rules=len(rules), **counts)}"
    if least := what_was_asked.smallest(rules):
        yield f"  {say('terminal.margin', **least)}"


def reasons(doc: ReportDocument, *, advice: bool = False) -> Iterator[str]:
    """Yield a line a finding, worst first; a precondition that holds is not worth one."""
    for a in sorted(assertions.of(doc), key=lambda a: words.badness(a.finding)):
        if (a.outcome is Outcome.PASSED and a.condition) or (a.outcome is Outcome.NOT_NEEDED and not a.measured):
            continue
        title = say("row.title", title=a.asked) if a.condition else a.asked
        yield f"  {_MARKS[a.outcome]} {title}: {a.sentence}"
        if advice and a.finding.advice:
            yield f"      {prose(a.finding.advice)}"


def _how(doc: ReportDocument) -> Iterator[str]:
    """Yield how the figures were come by: which engine answered for how many, what another seed changes."""
    run, influence = doc.evidence.run, doc.evidence.influence
    if influence is None:
        return
    for share in influence.engines:
        if share.asked is None:  # it was asked about a few, or about all but a few
            continue
        if share.answered is None:
            yield f"{share.engine}: part of {shown(share.asked)} people or records, {'; '.join(share.why)}"
            continue
        why = "; ".join(f"{reason} ({shown(count)})" for reason, count in share.why.items())
        rest = "" if share.handed_on == 0 else f", {shown(share.handed_on)} handed on: {why}"
        yield f"{share.engine}: {shown(share.answered)} of {shown(share.asked)} people or records{rest}"
    if influence.noise and run.seeds and run.seeds.dependent:
        yield f"seed noise: with nobody removed, {seed_alone(influence.noise.median)}"
        yield f"people whose influence exceeds this noise: {shown(influence.noise.units_above)}"


def seed_alone(median: float) -> str:
    """Return what another seed alone does to the answer about the person in the middle."""
    who = "the model's answer about every second person"
    if math.isinf(median):
        return f"another seed alone turns some label in {who} from possible to impossible, or back"
    return f"another seed alone changes {who} by {fold(median)} ({median:.2g} nats) or more"


_COLUMNS = ("result", "rule", "measured", "limit")
_SIGN = {"good": "✅", "bad": "⛔", "open": "❔", "care": "⚠️", "watch": "👁"}


def summary(doc: ReportDocument | Comparison) -> str:
    """Return the report, or the comparison of two, as one page of Markdown; no line begins with foreign text."""
    if isinstance(doc, Comparison):
        return _comparison(doc)
    page = front.view(doc)
    lines = [
        f"## {_SIGN[page['tone']]} {markdown(page['decision'])}: {markdown(page['subject'])}",
        "",
        f"**{markdown(page['sentence'])}**",
        "",
        *(f"- **{say('next.one')}:** {markdown(step)}" for step in page["steps"]),
        *(f"- {_SIGN[q['tone']]} {markdown(q['told'])}" for q in page["questions"]),
        f"- **{say('why')}:** {markdown(page['why'])}",
        f"- **{say('how_sure')}:** {markdown(page['how_sure'])}",
        f"- **{say('accuracy')}:** {markdown(page['accuracy'])}",
        "",
        f"| {' | '.join(say(f'column.{c}') for c in _COLUMNS)} |",
        "| --- | --- | --- | --- |",
    ]
    lines += [_row(row) for row in page["rows"]]
    lines += ["", *([f"*{say('more_rows.report', count=page['more'])}*", ""] if page["more"] else [])]
    lines += [item(page["held"]), ""]
    lines += [f"- **{say('waiver')}:** {markdown(w)}" for w in page["waivers"]]
    lines += [f"- **{page['changes_since']}:** {markdown(page['changes'])}"]
    lines += [f"- **{say(part)}:** {markdown(' '.join(page[part]))}" for part in ("weighed", "remains", "mitigations")]
    lines += [f"- **{name}:** {markdown(value)}" for name, value in page["facts"]]
    lines += ["", f"| {' | '.join(say(f'{c}.column') for c in ('harm', 'likely', 'bad'))} |", "| --- | --- | --- |"]
    lines += [f"| {' | '.join(markdown(h[c]) for c in ('what', 'likely', 'bad'))} |" for h in page["harms"]]
    lines += ["", f"<details><summary>{say('not_shown')}</summary>", ""]
    lines += [f"- {item(line)}" for line in page["not_shown"]]
    lines += ["", "</details>", ""]
    return "\n".join(lines)


def _row(row: Mapping[str, str]) -> str:
    title = f"{row['title']}. {row['note']}" if row["note"] else row["title"]
    cells = (f"{_SIGN[row['tone']]} {row['result']}", title, row["measured"], row["limit"])
    return f"| {' | '.join(markdown(c) for c in cells)} |"


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
    ET.SubElement(ET.SubElement(suite, "properties"), "property", name="decision", value=_say(doc.decision))
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
