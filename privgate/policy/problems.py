"""What is wrong with a policy file, said so that a person can mend it; and where policy files lie."""

import difflib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from privgate.documents import DocumentError, strict_json, strict_yaml
from privgate.documents.strict_yaml import Place
from privgate.errors import PolicyError


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake in one place of a policy file: what is wrong, what would be right, the nearest valid name.

    The line is counted from 1, and 0 where none can be named; the key is a path, for example ``rules.0.max``.
    """

    file: str
    line: int
    key: str
    what: str
    expected: str = ""
    nearest: str = ""

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        parts = [f"{place}: {self.key}: {self.what}" if self.key else f"{place}: {self.what}"]
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
    found = difflib.get_close_matches(str(word).lower(), list(known), n=1, cutoff=0.5)
    return found[0] if found else ""


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
    """Return the file of a shipped name, of ``name@version`` for one as it was, or of a path.

    A relative path starts from the folder ``beside``; from the working directory if absent.
    """
    text = str(name_or_path)
    is_path = isinstance(name_or_path, Path) or "/" in text or "\\" in text or text.endswith((".yaml", ".yml"))
    if not is_path:
        known = shipped()
        if text in known:
            return known[text]
        name, _, version = text.partition("@")
        if version and name in known and f'\nversion: "{version}"\n' in known[name].read_text(encoding="utf-8"):
            return known[name]
        if text in (before := earlier()):
            return before[text]
        expected, near = f"one of {', '.join(known)}, or a path", nearest(text, [*known, *before])
        raise PolicyFileError(Problem(text, 0, "", "no shipped policy has this name", expected, near))
    path = Path(text) if folder is None else folder / text
    if not path.is_file():
        raise PolicyFileError(Problem(text, 0, "", "no such file", f"a policy file, or one of {', '.join(shipped())}"))
    return path


class Mark(NamedTuple):
    """A file, as the user named it, and a line in it, counted from 1."""

    file: str
    line: int


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
        return self.marks.get(place, Mark(self.file, 1))


def read(path: Path, name: str | None = None) -> Tree:
    """Return what a file says, which messages call ``name``, or else by its path.

    ``PolicyFileError``: it cannot be read, is not a mapping, or holds what a policy may not hold.
    """
    file = name or str(path)
    try:
        text = strict_json.content(path).decode("utf-8")
    except OSError as exc:
        what = f"cannot be read: {exc.strerror}"
        raise PolicyFileError(Problem(file, 0, "", what, "the path of a policy file")) from exc
    except UnicodeDecodeError as exc:
        raise PolicyFileError(Problem(file, 0, "", "is not UTF-8 text", "YAML")) from exc
    except DocumentError as exc:
        raise PolicyFileError(Problem(file, 0, "", str(exc), "a policy")) from exc
    return parse(text, file)


def parse(text: str, file: str) -> Tree:
    """Return what a YAML text says; see ``read``."""
    try:
        value, lines = strict_yaml.parse(text)
    except DocumentError as exc:
        raise PolicyFileError(Problem(file, exc.line, dotted(exc.place), str(exc), exc.expected)) from exc
    if not isinstance(value, dict):
        what = "is empty" if value is None else "is not a mapping"
        raise PolicyFileError(Problem(file, 1, "", what, "keys such as 'name' and 'rules'"))
    return Tree(file, value, {place: Mark(file, line) for place, line in lines.items()})


def dotted(place: Place) -> str:
    """Return a path as text: ``rules.0.max``."""
    return ".".join(str(p) for p in place)
