"""The evidence, section by section; a section without data is not shown."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from privgate.report.blocks import Section

#: modules in the order of the report; each has ``section(doc) -> Section | None``
CATALOGUE = ("findings", "data", "trace", "glossary")


def sections(doc: Mapping[str, Any]) -> list[Section]:
    """Return all sections for which the document holds data."""
    built = (import_module(f"privgate.report.sections.{name}").section(doc) for name in CATALOGUE)
    return [s for s in built if s is not None]
