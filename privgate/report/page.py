"""A page: the blocks that it is made of, and the templates that lay them out; no scripts, nothing fetched."""

import math
import re
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from privgate.evidence.figures import fold, number, percent
from privgate.report.text import LONGEST, plain, prose, say, shown

_FOLDER = Path(__file__).parent / "templates"
#: how a cell that is set flush right begins
_FIGURE = re.compile(r"(?!\d{4}-)[−\d]|unlimited|not measured|suppressed")


class TableBlock(NamedTuple):
    """A table with a caption; the first column names the row, and each row is as long as ``columns``."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]

    @property
    def numeric(self) -> list[int]:
        """Columns that hold figures alone, which are set flush right."""
        return [i for i in range(1, len(self.columns)) if all(_FIGURE.match(row[i]) for row in self.rows)]


class Section(NamedTuple):
    """A numbered section of the evidence by its anchor."""

    name: str
    title: str
    #: of its template
    body: str


def cell(value: Any) -> str:
    """Return a value as a table shows it: text cut, numbers short, and None, a hidden count, as suppressed."""
    if value is None:
        return "suppressed"
    return plain(value, 2 * LONGEST) if isinstance(value, str) else number(value)


def table(caption: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> TableBlock:
    """Return a table of raw values."""
    return TableBlock(caption, columns, [[cell(value) for value in row] for row in rows])


@cache
def _environment() -> Any:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    def harmless(value: Any) -> Any:
        # sections have cut foreign text already; our own paragraphs are longer
        return value if isinstance(value, Markup) else plain(value, 4000)

    env = Environment(loader=FileSystemLoader(_FOLDER), autoescape=True, undefined=StrictUndefined, finalize=harmless,
                      trim_blocks=True, lstrip_blocks=True)  # fmt: skip
    env.globals["style"] = Markup((_FOLDER / "style.css").read_text(encoding="utf-8"))  # noqa: S704  our own file
    env.globals |= {"say": say, "tabulate": table, "percent": percent, "inf": math.inf}
    env.filters |= {f.__name__: f for f in (cell, fold, number, percent, plain, prose, shown)}
    env.filters["finite"] = math.isfinite
    env.filters["counted"] = lambda count: number(count) if count else ""
    env.filters["drawn"] = Markup  # only for drawings by privgate.report.charts, which escapes its text
    return env


def fill(template: str, **values: Any) -> str:
    """Return a page of a template: everything shown passes ``plain`` and is escaped."""
    return str(_environment().get_template(template).render(**values))


def fill_section(name: str, asserted: Any) -> Section:
    """Return a section of the evidence; its body is empty where the figures hold nothing for it."""
    blocks = _environment().get_template("sections.html").module
    body = getattr(blocks, name)(asserted).strip()
    # a sentence is one line, wherever the template wraps it
    return Section(name, blocks.titles[name], type(body)(re.sub(r"\s*\n(?=[^<\n])", " ", body)))
