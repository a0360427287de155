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
    """A table with a caption; the first column names the row.

    Parameters
    ----------
    caption : str
        What the table shows.
    columns : sequence of str
    rows : sequence of sequences of str
        As long as ``columns``.
    numeric : sequence of int
        Columns set flush right.
    folded : str
        If set, the table opens on request under this label.
    printed : bool
        Print it although it is folded; other folded tables are on screen only.
    """

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    numeric: Sequence[int] = ()
    folded: str = ""
    printed: bool = False
    kind: str = field(default="table", init=False)


@dataclass(frozen=True, slots=True)
class Chart:
    """A drawing with what it says in one sentence and the numbers behind it.

    Parameters
    ----------
    name : str
        Unique on the page; prefix of all ids within the drawing.
    title, desc : str
        For screen readers; ``title`` is also the caption.
    reading : str
        One sentence: what the chart shows here.
    svg : str
        Drawn by ``privgate.report.charts``; the only text that reaches the page unescaped.
    table : Table
        The same numbers.
    """

    name: str
    title: str
    desc: str
    reading: str
    svg: str
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
    """A numbered section of the evidence.

    Parameters
    ----------
    name : str
        The anchor.
    title : str
    blocks : sequence of Block
        Never empty: a section without data is not shown.
    """

    name: str
    title: str
    blocks: Sequence[Block]
