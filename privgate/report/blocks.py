"""What a section of the report is made of; the page template lays these out and nothing else."""

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Text:
    """A paragraph; ``tone`` is "" or "note"."""

    text: str
    tone: str = ""
    kind: str = field(default="text", init=False)


@dataclass(frozen=True, slots=True)
class Facts:
    """Names with values, in order; ``wide`` for long values."""

    items: Sequence[tuple[str, str]]
    wide: bool = False
    kind: str = field(default="facts", init=False)


@dataclass(frozen=True, slots=True)
class TableBlock:
    """A table with a caption; the first column names the row."""

    caption: str
    columns: Sequence[str]
    #: each as long as ``columns``
    rows: Sequence[Sequence[str]]
    #: columns set flush right
    numeric: Sequence[int] = ()
    #: if set, the table opens on request under this label, and is not printed
    folded: str = ""
    kind: str = field(default="table", init=False)


def numbers(caption: str, columns: Sequence[str], rows: Sequence[Sequence[str]], first: int = 1) -> TableBlock:
    """Return the numbers behind a chart; from column ``first`` on they are numeric."""
    return TableBlock(caption, columns, rows, range(first, len(columns)), "Numbers of this chart")


@dataclass(frozen=True, slots=True)
class Chart:
    """A drawing with what it says in one sentence and the numbers behind it."""

    #: unique on the page; prefix of all ids within the drawing
    name: str
    title: str
    #: one sentence: what the chart shows here
    reading: str
    #: drawn by ``privgate.report.charts``; the only text that reaches the page unescaped
    svg: str
    #: the same numbers
    table: TableBlock
    kind: str = field(default="chart", init=False)


@dataclass(frozen=True, slots=True)
class Code:
    """Text to copy: a command, a digest."""

    label: str
    text: str
    kind: str = field(default="code", init=False)


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading within a section."""

    text: str
    kind: str = field(default="heading", init=False)


@dataclass(frozen=True, slots=True)
class List:
    """A list of sentences."""

    items: Sequence[str]
    kind: str = field(default="list", init=False)


Block = Text | Facts | TableBlock | Chart | Code | Heading | List


@dataclass(frozen=True, slots=True)
class Section:
    """A numbered section of the evidence."""

    #: the anchor
    name: str
    title: str
    #: never empty: a section without data is not shown
    blocks: Sequence[Block]
