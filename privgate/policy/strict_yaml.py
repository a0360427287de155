"""A policy file's values, each with its file and line: strict YAML (``privgate.documents``) in policies' words."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from privgate.documents import DocumentError, door, strict_yaml
from privgate.documents.strict_yaml import Key, Place
from privgate.policy.problems import PolicyFileError, Problem

__all__ = ["Key", "Mark", "Place", "Tree", "dotted", "parse", "read"]


class Mark(NamedTuple):
    """A file, as the user named it, and a line in it, counted from 1."""

    file: str
    line: int


@dataclass(frozen=True)
class Tree:
    """Plain values of a file, with the line of every key and list item.

    Parameters
    ----------
    file : str
        As the user named it.
    value : mapping
        Text, numbers, booleans, null, lists and mappings.
    marks : mapping of path to mark
        Where each key and list item stands; the path is a tuple of keys and positions.
    """

    file: str
    value: dict[str, Any]
    marks: dict[Place, Mark] = field(default_factory=dict)

    def mark(self, place: Place) -> Mark:
        """Return where a key stands, or the nearest key around it."""
        while place and place not in self.marks:
            place = place[:-1]
        return self.marks.get(place, Mark(self.file, 1))


def read(path: Path, name: str | None = None) -> Tree:
    """Return what the file says.

    Parameters
    ----------
    path : Path
        The file.
    name : str, optional
        How messages call it; the path if absent.

    Raises
    ------
    PolicyFileError
        It cannot be read, is not a mapping, or holds what a policy may not hold.
    """
    file = name or str(path)
    try:
        text = door.content(path).decode("utf-8")
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
