"""One document, several formats."""

import json
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from privgate.errors import UsageError
from privgate.report.compared import COMPARISON, Comparison
from privgate.report.schema import ReportDocument, read, read_comparison

#: format -> (module that renders it, file that ``write`` puts it in; empty: only where it is asked for)
FORMATS: Mapping[str, tuple[str, str]] = {
    "html": ("privgate.report.page", "report.html"),
    "markdown": ("privgate.report.summary", "summary.md"),
    "junit": ("privgate.report.junit", "junit.xml"),
    "text": ("privgate.report.terminal", ""),
    "json": ("", ""),
    "cyclonedx": ("privgate.report.cyclonedx", ""),
    "modelcard": ("privgate.report.modelcard", ""),
}
#: what a comparison of two reports can be rendered as
_COMPARED = ("html", "markdown", "json")


def is_comparison(document: object) -> bool:
    """Whether this is what ``compare`` returned."""
    return isinstance(document, Mapping) and document.get("schema") == COMPARISON


def render(document: Mapping[str, Any], format: str) -> str:  # noqa: A002  the word of the field
    """Return one format of a report, from its JSON alone; the same document gives the same text.

    Parameters
    ----------
    document : mapping
        What ``document`` or ``compare`` returned, or ``report.json`` holds.
    format : {"html", "markdown", "junit", "text", "json", "cyclonedx", "modelcard"}
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
        if format not in _COMPARED:
            raise UsageError(f"a comparison has no {format} form; known: {', '.join(_COMPARED)}")
        told = read_comparison(document)
    else:
        told = read(document)
    if format == "json":
        return json.dumps(document, indent=1, ensure_ascii=True, allow_nan=False) + "\n"
    renderer: Callable[[ReportDocument | Comparison], str] = import_module(FORMATS[format][0]).render
    return renderer(told)
