"""What a section of the report is made of; the page template lays these out and nothing else."""

import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from privgate.evidence.figures import number
from privgate.report.text import LONGEST, plain

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

    #: unique on the page; prefix of all ids within the drawing
    name: str
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
