"""One document, several formats."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from privgate.errors import UsageError
from privgate.report.schema import COMPARISON, Comparison, ReportDocument, read, read_comparison

#: format -> (module that renders it, file that ``write`` puts it in)
FORMATS: Mapping[str, tuple[str, str]] = {
    "html": ("privgate.report.page", "report.html"),
    "markdown": ("privgate.report.summary", "summary.md"),
    "junit": ("privgate.report.junit", "junit.xml"),
}


def is_comparison(document: object) -> bool:
    """Whether this is what ``compare`` returned."""
    return isinstance(document, Mapping) and document.get("schema") == COMPARISON


def render(document: Mapping[str, Any], format: str) -> str:  # noqa: A002  the word of the field
    """Return one format of a report, from its JSON alone; the same document gives the same text.

    Parameters
    ----------
    document : mapping
        What ``document`` or ``compare`` returned, or ``report.json`` holds.
    format : {"html", "markdown", "junit"}
        What to render.

    Raises
    ------
    UsageError
        The format is unknown.
    SubjectError
        The document is broken, or another version of privgate wrote it.
    """
    if format not in FORMATS:
        raise UsageError(f"unknown report format {format!r}; known: {', '.join(FORMATS)}")
    told: ReportDocument | Comparison
    if is_comparison(document):
        if format == "junit":
            raise UsageError("a comparison has no JUnit form; render it as html or markdown")
        told = read_comparison(document)
    else:
        told = read(document)
    renderer: Callable[[ReportDocument | Comparison], str] = import_module(FORMATS[format][0]).render
    return renderer(told)
