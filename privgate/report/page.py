"""The HTML report: one file, no scripts, nothing fetched; page one decides, the rest proves."""

from functools import cache
from pathlib import Path
from typing import Any

from privgate.report import comparison, front
from privgate.report.compared import Comparison
from privgate.report.schema import ReportDocument
from privgate.report.sections import sections
from privgate.report.sections.comparison import blocks
from privgate.report.sentences import say
from privgate.report.text import plain

_FOLDER = Path(__file__).parent / "templates"


@cache
def environment() -> Any:
    """Return the templates' environment: everything shown passes ``plain`` and is escaped."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    def shown(value: Any) -> Any:
        # sections have cut foreign text already; our own paragraphs are longer
        return value if isinstance(value, Markup) else plain(value, 4000)

    env = Environment(
        loader=FileSystemLoader(_FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    env.globals["style"] = Markup((_FOLDER / "style.css").read_text(encoding="utf-8"))  # noqa: S704  our own file
    env.globals["say"] = say
    env.filters["drawn"] = Markup  # only for drawings by privgate.report.charts, whose text matplotlib has escaped
    return env


def render(doc: ReportDocument | Comparison) -> str:
    """Return the report, or the comparison of two, as a self-contained HTML page."""
    if isinstance(doc, Comparison):
        page = environment().get_template("comparison.html")
        return str(page.render(title=comparison.title(doc), parts=blocks(doc)))
    shown = environment().get_template("report.html").render(front=front.view(doc), sections=sections(doc), doc=doc)
    return str(shown)
