"""The glossary."""

from collections.abc import Mapping
from typing import Any

from privgate.report import words
from privgate.report.blocks import Facts, Section


def section(doc: Mapping[str, Any]) -> Section:
    """Return the words of this report in plain language."""
    del doc
    return Section("glossary", "Glossary", [Facts(words.GLOSSARY)])
