"""What is wrong with a policy file, said so that a person can mend it; and where policy files lie."""

import difflib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from privgate.documents import DocumentError, strict_json, strict_yaml
from privgate.documents.strict_json import Place
from privgate.errors import PolicyError


class Mark(NamedTuple):
    """A file, as the user named it, a line and a column in it, counted from 1; 0 where none can be named."""

    file: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return ":".join(str(part) for part in self if part)


class Problem(NamedTuple):
    """One mistake at one key (``rules.0.max``) of a policy: what is wrong, what would be right, the nearest name."""

    mark: Mark
    key: str
    what: str
    expected: str = ""
    nearest: str = ""

    def __str__(self) -> str:
        parts = [": ".join(str(part) for part in self[:3] if part)]
        if self.expected:
            parts.append(f"expected {self.expected}")
        if self.nearest:
            parts.append(f"did you mean {self.nearest!r}?")
        return "; ".join(parts)


class PolicyFileError(PolicyError):
    """A policy file cannot be used; ``problems`` names every mistake that was found."""

    def __init__(self, *problems: Problem) -> None:
        self.problems = problems
        super().__init__("\n".join(str(p) for p in self.problems))


def nearest(word: object, known: Iterable[str]) -> str:
    """Return the known name that looks most like ``word``, or an empty text."""
    return next(iter(difflib.get_close_matches(str(word).lower(), list(known), n=1, cutoff=0.5)), "")


# Where policies lie: shipped ones by name, all others by path.

_PACKAGE = Path(__file__).resolve().parents[1]


def folder() -> Path:
    """Return the folder of the shipped policies: inside the wheel, or beside the package in a checkout."""
    inside = _PACKAGE / "policies"
    return inside if inside.is_dir() else _PACKAGE.parent / "policies"


def shipped() -> dict[str, Path]:
    """Return ``name -> file`` of every shipped policy."""
    return {p.stem: p for p in sorted(folder().glob("*.yaml"), key=lambda p: p.stem)}


def earlier() -> dict[str, Path]:
    """Return ``name@version -> file`` of shipped policies as they were: what was signed by one counts as it was."""
    return {p.stem: p for p in sorted((folder() / "earlier").glob("*@*.yaml"), key=lambda p: p.stem)}


def find(name_or_path: str | Path, folder: Path | None = None) -> Path:
    """Return the file of a shipped name, of ``name@version`` for one as it was, or of a path from ``folder``."""
    text, known = str(name_or_path), shipped()
    if isinstance(name_or_path, Path) or "/" in text or "\\" in text or text.endswith((".yaml", ".yml")):
        path = Path(text) if folder is None else folder / text
        if not path.is_file():
            expected = f"a policy file, or one of {', '.join(known)}"
            what = "is a folder" if path.is_dir() else "no such file"
            raise PolicyFileError(Problem(Mark(text), "", what, expected))
        return path
    if text in known:
        return known[text]
    name, _, version = text.partition("@")
    if version and name in known and f'\nversion: "{version}"\n' in known[name].read_text(encoding="utf-8"):
        return known[name]
    if text in (before := earlier()):
        return before[text]
    expected, near = f"one of {', '.join(known)}, or a path", nearest(text, [*known, *before])
    raise PolicyFileError(Problem(Mark(text), "", "no shipped policy has this name", expected, near))


@dataclass(frozen=True)
class Tree:
    """Plain values of a file, as the user named it, and where each key and list item stands."""

    file: str
    value: dict[str, Any]
    marks: dict[Place, Mark] = field(default_factory=dict)

    def mark(self, place: Place) -> Mark:
        """Return where a key stands, or the nearest key around it."""
        while place and place not in self.marks:
            place = place[:-1]
        return self.marks.get(place, Mark(self.file, 1, 1))

    def problem(self, place: Place, what: str, expected: str = "", nearest: str = "") -> Problem:
        """Return a mistake at a key."""
        return Problem(self.mark(place), dotted(place), what, expected, nearest)


def read(path: Path, name: str | None = None) -> Tree:
    """Return what a file says, which messages call ``name``; ``PolicyFileError``: it is no mapping of plain values."""
    file = name or str(path)
    try:
        return parse(strict_json.text_of(path), file)
    except (OSError, DocumentError) as exc:
        problem = Problem(Mark(file), "", f"cannot be read: {strict_json.why(exc)}", "the path of a policy file")
        raise PolicyFileError(problem) from exc


def parse(text: str, file: str) -> Tree:
    """Return what a YAML text says; see ``read``."""
    try:
        value, spots = strict_yaml.parse(text)
    except DocumentError as exc:
        raise PolicyFileError(Problem(Mark(file, *exc.spot), dotted(exc.place), str(exc), exc.expected)) from exc
    if not isinstance(value, dict):
        what = "is empty" if value is None else "is not a mapping"
        raise PolicyFileError(Problem(Mark(file, 1, 1), "", what, "keys such as 'name' and 'rules'"))
    return Tree(file, value, {place: Mark(file, *spot) for place, spot in spots.items()})


def dotted(place: Place) -> str:
    """Return a path as text: ``rules.0.max``."""
    return ".".join(str(p) for p in place)
