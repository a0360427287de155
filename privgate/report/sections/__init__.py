"""The evidence, section by section; a section without data is not shown."""

from importlib import import_module

from privgate.report.blocks import Section
from privgate.report.report_schema import ReportDocument

#: modules in the order of the report; each has ``section(doc) -> Section | None``
CATALOGUE = (
    "findings",
    "model",
    "data",
    "units",
    "attacks",
    "dp",
    "deletion",
    "coverage",
    "comparison",
    "methods",
    "trace",
    "glossary",
)


def sections(doc: ReportDocument) -> list[Section]:
    """Return all sections for which the document holds data."""
    made = (import_module(f"privgate.report.sections.{name}").section(doc) for name in CATALOGUE)
    return [s for s in made if s is not None]
