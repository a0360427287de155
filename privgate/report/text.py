"""Foreign text made harmless, for every format, and the pages that show it: no scripts, nothing fetched."""

import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from privgate.documents import LARGE, strict_yaml
from privgate.evidence import Count
from privgate.evidence.figures import fold, number, percent

#: longest foreign text shown anywhere; the JSON keeps all of it
LONGEST = 600

# marks that change how neighbouring text is shown or that show nothing: Cc, Cf, Cs, Co, Cn, Zl, Zp
_UNSEEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
_MARKDOWN = re.compile(r"[\\`*_{}\[\]<>#|~!&@$^]|:(?=[:/])|(?<=:):|(?<=www)\.", re.IGNORECASE)
# what begins a list, and what ends the number of one
_LIST = re.compile(r"^[-+](?= )|(?<=^\d)[.)](?= )|(?<=^\d\d)[.)](?= )|(?<=^\d\d\d)[.)](?= )")
# where a clause of our own sentences ends
_CLAUSE = re.compile(r"[.;](?= )")


def plain(value: Any, limit: int = LONGEST) -> str:
    r"""Return one line without unseen characters, cut at ``limit`` characters with a note how long it was.

    >>> plain("a\nb\u202ec")
    'a b⟨U+202E⟩c'
    """
    if value is None:
        return ""
    length = len(str(value))
    text = " ".join(str(value)[:limit].split())
    if not text.isprintable():  # nearly all text is
        text = "".join(f"⟨U+{ord(c):04X}⟩" if unicodedata.category(c) in _UNSEEN else c for c in text)
    return text if length <= limit else f"{text}… [{length:,} characters]"


def whole(text: str, limit: int) -> str:
    """Return our own sentence cut after a whole clause, for page one; the first clause may take twice the room.

    >>> whole("somebody is found in 57.3 % of cases, if asked (at odds; of one half); and more", 75)
    'somebody is found in 57.3 % of cases, if asked (at odds; of one half).'
    """
    if len(text) <= limit:
        return text
    ends = [m.start() for m in _CLAUSE.finditer(text)]
    ends = [e for e in [*ends, len(text)] if text.count("(", 0, e) == text.count(")", 0, e)]
    fitting = [e for e in ends if e <= limit] or [e for e in ends[:1] if e <= 2 * limit]
    if not fitting:  # cut at a word
        head, space, _ = text[:limit].rpartition(" ")
        return f"{(head if space else text[:limit]).rstrip(' ,;:(')}…"
    return text if fitting[-1] == len(text) else f"{text[: fitting[-1]]}."


def stop(text: str) -> str:
    """Return a sentence with its full stop."""
    text = text.rstrip()
    return text if not text or text[-1] in ".!?…]" else f"{text}."


def capital(text: str) -> str:
    """Return a text with its first letter as a capital; a name of code stays as it is written."""
    return text if ("_" in text.split(" ", 1)[0] or text.startswith("privgate ")) else text[:1].upper() + text[1:]


def prose(value: Any, limit: int = LONGEST) -> str:
    """Return a sentence of ours without the backticks around its commands: a page and a log do not read them."""
    return plain(value, limit).replace("`", "")


def item(value: Any) -> str:
    """Return text that may stand first in a line of a Markdown list and begins no list of its own.

    >>> item("1. a"), item("57.3 % of cases")
    ('1&#46; a', '57.3 % of cases')
    """
    return _LIST.sub(lambda m: "".join(f"&#{ord(c)};" for c in m.group()), markdown(value))


def markdown(value: Any, limit: int = LONGEST) -> str:
    """Return text that no Markdown reader and no CI log takes for anything but text.

    Character references work in table cells, GitHub's summaries and MLflow's descriptions; a backslash does not stop
    mentions. ``::`` and ``##[`` are commands of a CI runner, so they never appear in the raw file either.

    >>> markdown("a|b ::error::x")
    'a&#124;b &#58;&#58;error&#58;&#58;x'
    """
    return _MARKDOWN.sub(lambda m: "".join(f"&#{ord(c)};" for c in m.group()), plain(value, limit))


def shown(value: Any, write: Callable[[Any], str] | None = None) -> str:
    """Return a count of people, a range where it is small, or that it was never told; ``write`` for other numbers.

    >>> shown(1234), shown(4), shown(None)
    ('1,234', '1 to 9', 'suppressed')
    """
    if value is None:
        return "suppressed"
    return write(value) if write else " to ".join(number(end) for end in dict.fromkeys(Count(value).ends))


def moment(value: Any) -> str:
    """Return a time as people write it, in UTC if it names a zone; anything else as plain text.

    >>> moment("2026-11-21T10:00:00+01:00")
    '2026-11-21 09:00 UTC'
    """
    try:
        when = datetime.fromisoformat(str(value))
    except ValueError:
        return plain(value, 40)
    if when.tzinfo is None:
        return f"{when:%Y-%m-%d %H:%M}" if (when.hour, when.minute) != (0, 0) else f"{when:%Y-%m-%d}"
    return f"{when.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


# Our own words: the sentences of page one, of the summary and of the terminal's verdict.


@cache
def read_sentences() -> Mapping[str, str]:
    """Return key -> sentence."""
    return dict(strict_yaml.read(Path(__file__).with_name("sentences.yaml"), LARGE))


def say(key: str, **values: object) -> str:
    """Return the sentence of a key with its values in place."""
    return read_sentences()[key].format(**values)


def known(key: str) -> str:
    """Return the sentence of a key as it stands; empty if there is none."""
    return read_sentences().get(key, "")


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
