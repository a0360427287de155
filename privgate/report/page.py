"""A page: the blocks that it is made of, and the templates that lay them out; no scripts, nothing fetched."""

import re
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from privgate.evidence.figures import number
from privgate.report.sentences import say
from privgate.report.text import LONGEST, plain

_FOLDER = Path(__file__).parent / "templates"
#: how a cell that is set flush right begins
_FIGURE = re.compile(r"(?!\d{4}-)[−\d]|unlimited|not measured|suppressed")


class Text(NamedTuple):
    """A paragraph; of tone "note" a remark in small print, of tone "heading" a heading within a section."""

    text: str
    tone: str = ""


class Facts(NamedTuple):
    """Names with values, in order; ``wide`` for long values."""

    items: Sequence[tuple[str, str]]
    wide: bool = False


class TableBlock(NamedTuple):
    """A table with a caption; the first column names the row, and each row is as long as ``columns``."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    #: if set, the table opens on request under this label, and is not printed
    folded: str = ""

    @property
    def numeric(self) -> list[int]:
        """Columns that hold figures alone, which are set flush right."""
        return [i for i in range(1, len(self.columns)) if all(_FIGURE.match(row[i]) for row in self.rows)]


class Chart(NamedTuple):
    """A drawing by ``privgate.report.charts``, what it says here in one sentence, and the numbers behind it."""

    title: str
    reading: str
    #: the only text that reaches the page unescaped
    svg: str
    table: TableBlock


class Code(NamedTuple):
    """Text to copy: a command, a digest."""

    label: str
    text: str


class List(NamedTuple):
    """A list of sentences."""

    items: Sequence[str]


Block = Text | Facts | TableBlock | Chart | Code | List


class Section(NamedTuple):
    """A numbered section of the evidence by its anchor; one without data is not shown."""

    name: str
    title: str
    blocks: Sequence[Block]


def cell(value: Any) -> str:
    """Return a value as a table shows it: text cut, numbers short, and None, a hidden count, as suppressed."""
    if value is None:
        return "suppressed"
    return plain(value, 2 * LONGEST) if isinstance(value, str) else number(value)


def table(caption: str, columns: Sequence[str], rows: Iterable[Sequence[Any]], folded: str = "") -> TableBlock:
    """Return a table of raw values."""
    return TableBlock(caption, columns, [[cell(value) for value in row] for row in rows], folded)


def facts(items: Iterable[tuple[str, Any]], *, wide: bool = False) -> Facts:
    """Return names with raw values; what is empty is left out."""
    return Facts([(name, cell(value)) for name, value in items if value != ""], wide)


@cache
def _environment() -> Any:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    def shown(value: Any) -> Any:
        # sections have cut foreign text already; our own paragraphs are longer
        return value if isinstance(value, Markup) else plain(value, 4000)

    env = Environment(loader=FileSystemLoader(_FOLDER), autoescape=True, undefined=StrictUndefined, finalize=shown,
                      trim_blocks=True, lstrip_blocks=True)  # fmt: skip
    env.globals["style"] = Markup((_FOLDER / "style.css").read_text(encoding="utf-8"))  # noqa: S704  our own file
    env.globals["say"] = say
    env.filters["kind"] = lambda block: type(block).__name__
    env.filters["drawn"] = Markup  # only for drawings by privgate.report.charts, whose text matplotlib has escaped
    return env


def fill(template: str, **told: Any) -> str:
    """Return a page of a template: everything shown passes ``plain`` and is escaped."""
    return str(_environment().get_template(template).render(**told))
