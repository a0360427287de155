"""The evidence, section by section; a section without data is not shown."""

from importlib import import_module

from privgate.report.blocks import Section, Text
from privgate.report.reading import Doc

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
    "frameworks",
    "glossary",
    "trace",
)


def sections(doc: Doc) -> list[Section]:
    """Return all sections for which the document holds data."""
    return [s for name in CATALOGUE if (s := _section(name, doc)) is not None]


def _section(name: str, doc: Doc) -> Section | None:
    section: Section | None
    try:
        section = import_module(f"privgate.report.sections.{name}").section(doc)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as exc:
        # page one must reach its reader whatever one section's data look like; the gap is said, not hidden
        said = f"This section could not be drawn: its data have an unexpected form ({type(exc).__name__}: {exc})."
        section = Section(name, name.replace("_", " ").capitalize(), [Text(f"{said} See report.json.")])
    return section
