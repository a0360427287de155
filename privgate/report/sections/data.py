"""Data and conditions: what must hold before any number counts."""

from privgate.report import assertions
from privgate.report.blocks import Section, TableBlock
from privgate.report.report_schema import ReportDocument
from privgate.report.sentences import say
from privgate.report.text import prose


def section(doc: ReportDocument) -> Section | None:
    """Return the preconditions in the order in which they were checked."""
    checked = doc.evidence.preconditions
    if not checked:
        return None
    rows = [(assertions.condition(p.name), say(f"result.{p.outcome}"), prose(p.message)) for p in checked]
    caption = "What must hold before any figure counts, in the order checked"
    table = TableBlock(caption, ("Condition", "Result", "What was found"), rows)
    return Section("data", "Data and conditions", [table])
