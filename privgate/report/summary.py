"""The Markdown summary: one page for CI and for the model version's description."""

from collections.abc import Mapping

from privgate.report import front, two_reports
from privgate.report.blocks import Chart, TableBlock, Text
from privgate.report.report_schema import Comparison, ReportDocument
from privgate.report.sections.comparison import blocks
from privgate.report.sentences import say
from privgate.report.text import item, markdown

_COLUMNS = ("result", "rule", "measured", "limit")
_SIGN = {"good": "✅", "bad": "⛔", "open": "❔", "care": "⚠️", "watch": "👁"}


def render(doc: ReportDocument | Comparison) -> str:
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
    for block in blocks(doc):
        if isinstance(block, Text):
            lines += [f"**{markdown(block.text)}**", ""]
        elif isinstance(block, Chart):
            lines += [f"- {item(block.reading)}", ""]
        elif isinstance(block, TableBlock):
            lines += [f"| {' | '.join(markdown(c) for c in block.columns)} |", f"|{' --- |' * len(block.columns)}"]
            lines += [f"| {' | '.join(markdown(c) for c in row)} |" for row in block.rows]
            lines.append("")
    return "\n".join(lines)
