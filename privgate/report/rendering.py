"""One document, several formats."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from privgate.errors import UsageError

#: format -> (module that renders it, file that ``write`` puts it in)
FORMATS: Mapping[str, tuple[str, str]] = {
    "html": ("privgate.report.page", "report.html"),
    "markdown": ("privgate.report.summary", "summary.md"),
    "junit": ("privgate.report.junit", "junit.xml"),
}
#: schemas that this version still renders; a released one never leaves
SCHEMAS = ("privgate/report/v1",)
COMPARISON = "privgate/comparison/v1"
_NEEDED = ("outcome", "subject", "policy", "findings", "evidence")


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
        The format is unknown, or the document is of a schema this version does not know.
    """
    if format not in FORMATS:
        raise UsageError(f"unknown report format {format!r}; known: {', '.join(FORMATS)}")
    if is_comparison(document):
        if format == "junit":
            raise UsageError("a comparison has no JUnit form; render it as html or markdown")
    else:
        check(document)
    renderer: Callable[[Mapping[str, Any]], str] = import_module(FORMATS[format][0]).render
    return renderer(document)


def is_comparison(document: Any) -> bool:
    """Whether this is what ``compare`` returned."""
    return isinstance(document, Mapping) and document.get("schema") == COMPARISON


def check(document: Any) -> None:
    """Refuse what is no report of a known schema, before anything is rendered from it.

    Raises
    ------
    UsageError
        It is not.
    """
    if not isinstance(document, Mapping) or document.get("schema") not in SCHEMAS:
        found = document.get("schema") if isinstance(document, Mapping) else type(document).__name__
        raise UsageError(
            f"not a report of schema {' or '.join(SCHEMAS)}: found {str(found)[:80]!r}; render it with "
            "the version of privgate that wrote it"
        )
    if missing := [k for k in _NEEDED if k not in document]:
        raise UsageError(f"the report has no {', '.join(missing)}; pass the report.json that privgate wrote")
