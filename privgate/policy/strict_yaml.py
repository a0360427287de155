"""Strict YAML 1.2: plain values only, duplicate keys and non-finite numbers are errors, every line is remembered.

Other readers of YAML take the last of two equal keys, read ``yes`` as true and ``1e-6`` as text; a limit must not
depend on that.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from privgate.policy.problems import PolicyFileError, Problem

Key = str | int
Place = tuple[Key, ...]

_TAG = "tag:yaml.org,2002:"
_DECIMAL = re.compile(r"[-+]?(0|[1-9][0-9]*|(?=\.[0-9]))(\.[0-9]*)?([eE][-+]?[0-9]+)?")
_LARGEST = 1 << 20  # bytes; a policy is a page or two


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
        if path.stat().st_size > _LARGEST:
            raise PolicyFileError(Problem(file, 0, "", "the file is larger than 1 MiB", "a policy"))
        text = path.read_text(encoding="utf-8")
    except OSError as exc:
        raise PolicyFileError(
            Problem(file, 0, "", f"cannot be read: {exc.strerror}", "the path of a policy file")
        ) from exc
    except UnicodeDecodeError as exc:
        raise PolicyFileError(Problem(file, 0, "", "is not UTF-8 text", "YAML")) from exc
    return parse(text, file)


def parse(text: str, file: str) -> Tree:
    """Return what a YAML text says; see ``read``."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    try:
        root = YAML(typ="safe", pure=True).compose(text)
    except MarkedYAMLError as exc:
        mark = exc.problem_mark or exc.context_mark
        what = " ".join(str(exc.problem or exc.context or "is not YAML").split())
        raise PolicyFileError(
            Problem(file, mark.line + 1 if mark else 0, "", f"is not YAML: {what}", "YAML 1.2")
        ) from exc
    except (YAMLError, RecursionError) as exc:
        raise PolicyFileError(Problem(file, 0, "", f"is not YAML: {' '.join(str(exc).split())}", "YAML 1.2")) from exc
    marks: dict[Place, Mark] = {}
    value = _Builder(file, marks).build(root, ()) if root is not None else None
    if not isinstance(value, dict):
        raise PolicyFileError(
            Problem(file, 1, "", "is empty" if value is None else "is not a mapping", "keys such as 'name' and 'rules'")
        )
    return Tree(file, value, marks)


class _Builder:
    """Turns nodes into plain values; refuses aliases, so the size of the result is that of the file."""

    def __init__(self, file: str, marks: dict[Place, Mark]) -> None:
        self.file = file
        self.marks = marks
        self.seen: set[int] = set()

    def build(self, node: Any, place: Place) -> Any:
        line = node.start_mark.line + 1
        self.marks.setdefault(place, Mark(self.file, line))
        if id(node) in self.seen:
            raise self.refuse(line, place, "an alias (*name)", "the value itself, or 'extends'")
        self.seen.add(id(node))
        kind = node.tag.removeprefix(_TAG)
        if kind == "map":
            return dict(self.pairs(node, place))
        if kind == "seq":
            return [self.build(item, (*place, i)) for i, item in enumerate(node.value)]
        return self.scalar(node, kind, line, place)

    def pairs(self, node: Any, place: Place) -> Iterator[tuple[str, Any]]:
        first: dict[str, int] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            key = key_node.value
            if not isinstance(key, str) or key_node.tag != _TAG + "str":
                raise self.refuse(line, place, f"the key {key!r} is not text", "a name")
            here = (*place, key)
            if key in first:
                raise self.refuse(line, here, f"duplicate key; the first is on line {first[key]}", "each key once")
            first[key] = line
            self.marks[here] = Mark(self.file, line)
            yield key, self.build(value_node, here)

    def scalar(self, node: Any, kind: str, line: int, place: Place) -> Any:
        text = node.value
        if kind in {"str", "timestamp"}:  # dates stay text; the model reads them
            return text
        if kind == "null":
            return None
        if kind == "bool":
            return text.lower() == "true"
        if kind in {"int", "float"}:
            value = _number(text)
            if value is None or not math.isfinite(value):
                raise self.refuse(line, place, f"{text} is not a finite number", "a finite number")
            return value
        raise self.refuse(line, place, f"the tag {node.tag} is not allowed", "plain values")

    def refuse(self, line: int, place: Place, what: str, expected: str) -> PolicyFileError:
        return PolicyFileError(Problem(self.file, line, dotted(place), what, expected))


def _number(text: str) -> int | float | None:
    """Return a decimal number; None for other notations, which two people may read differently."""
    if not _DECIMAL.fullmatch(text):
        return None
    return int(text) if text.lstrip("+-").isdigit() else float(text)


def dotted(place: Place) -> str:
    """Return a path as text: ``rules.0.max``."""
    return ".".join(str(p) for p in place)
