"""Strict YAML 1.2: plain values only, duplicate keys and non-finite numbers are errors, every spot is remembered.

Other readers take the last of two equal keys, read ``yes`` as true and ``1e-6`` as text: no limit may depend on that.
"""

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from privgate.documents.strict_json import DEEPEST, SMALL, DocumentError, Place, Spot, text_of, too_large

_DECIMAL = re.compile(r"[-+]?(0|[1-9][0-9]*|(?=\.[0-9]))(\.[0-9]*)?([eE][-+]?[0-9]+)?")
#: whatever some reader of YAML 1.1 or 1.2 takes for a number; only decimal ones are one to all of them
_NUMBER = re.compile(
    r"[-+]?(0b[01_]+|0o?[0-7_]+|0x[0-9a-fA-F_]+|[0-9][0-9_]*(\.[0-9_]*)?([eE][-+]?[0-9]+)?"
    r"|\.[0-9_]+([eE][-+]?[0-9]+)?|\.(inf|Inf|INF))|\.(nan|NaN|NAN)"
)
_WORDS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
          **dict.fromkeys(("", "~", "null", "Null", "NULL"))}  # fmt: skip
_DIRECTIVE = re.compile(r"^%(?!YAML )", re.MULTILINE)
_LARGEST = 1 << 63  # what 64 bits hold
_LONGEST_NUMBER = 100  # characters
_MOST_ALIASES = 100


def parse(text: str, most: int = SMALL) -> tuple[Any, dict[Place, Spot]]:
    """Return the value that a YAML text writes, and line and column of every key and item; or ``DocumentError``."""
    marks: dict[Place, Spot] = {}
    return _Builder(_events(text, most), marks).document(), marks


def read(path: Path, most: int = SMALL) -> Any:
    """Return the value that a YAML file writes, read as by ``strict_json.text_of`` and ``parse``."""
    return parse(text_of(path, most), most)[0]


def as_mlflow_reads(text: str) -> Any:
    """Return what MLflow's own reader, of YAML 1.1, makes of a text; ``DocumentError`` also at all that ``parse`` bans.

    Only numbers are left alone, and aliases of what holds none, ``_MOST_ALIASES`` at most.
    """
    _Builder(_events(text, SMALL), {}, numbers=False).document()
    try:
        return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506  the safe one
    except (yaml.YAMLError, ValueError, TypeError, OverflowError) as exc:
        raise DocumentError(f"is not YAML: {' '.join(str(exc).split())[:200]}") from exc


def _events(text: str, most: int) -> Iterator[Any]:
    """Give the parser's events; libyaml's parser, or the slower one of Python where that is not built."""
    depth = 0
    if len(text) > most:
        raise too_large(most)
    if _DIRECTIVE.search(text):  # each one slows down every other
        raise DocumentError("is not YAML that is read here: it holds a directive (%TAG)", expected="plain values")
    try:
        for event in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > DEEPEST:
                what = f"is not YAML that is read here: nested more than {DEEPEST} deep"
                raise DocumentError(what, spot=_spot(event))
            yield event
    except yaml.MarkedYAMLError as exc:
        mark = exc.problem_mark or exc.context_mark
        what = " ".join(str(exc.problem or exc.context or "is not YAML").split())
        spot = (mark.line + 1, mark.column + 1) if mark else (0, 0)
        raise DocumentError(f"is not YAML: {what}", spot=spot, expected="YAML 1.2") from exc
    except (yaml.YAMLError, UnicodeError, RecursionError) as exc:
        raise DocumentError(f"is not YAML: {' '.join(str(exc).split())[:200]}", expected="YAML 1.2") from exc


class _Builder:
    """Turns events into plain values; refuses aliases, so the size of the result is that of the file.

    Where ``numbers`` are left alone, a few aliases are MLflow's, which writes one where two keys hold one list.
    """

    def __init__(self, events: Iterator[Any], marks: dict[Place, Spot], *, numbers: bool = True) -> None:
        self.events, self.marks, self.numbers = events, marks, numbers
        self.inside, self.aliases = 0, 0  # anchors that are open, aliases so far

    def document(self) -> Any:
        value = None
        for event in self.events:
            if isinstance(event, yaml.DocumentStartEvent):
                known = (event.version or (1, 2)) in ((1, 1), (1, 2))
                if self.marks or not known:
                    what = "is not YAML: it holds several documents" if known else "is not YAML: its version is unknown"
                    raise DocumentError(what, spot=_spot(event), expected="YAML 1.2")
            if isinstance(event, yaml.NodeEvent):
                value = self.build(event, ())
        return value

    def build(self, event: Any, place: Place) -> Any:
        spot = _spot(event)
        self.marks.setdefault(place, spot)
        if isinstance(event, yaml.AliasEvent):
            self.aliases += 1
            if not (self.numbers or self.inside or self.aliases > _MOST_ALIASES):
                return None
            raise _refuse(spot, place, "an alias (*name)", "the value itself, or 'extends'")
        if event.tag is not None:
            raise _refuse(spot, place, f"the tag {event.tag[:80]} is not allowed", "plain values")
        self.inside += bool(event.anchor)
        if isinstance(event, yaml.MappingStartEvent):
            value: Any = dict(self.pairs(place))
        elif isinstance(event, yaml.SequenceStartEvent):
            value = list(self.items(place))
        else:
            value = self.scalar(event, spot, place)
        self.inside -= bool(event.anchor)
        return value

    def items(self, place: Place) -> Iterator[Any]:
        for i, event in enumerate(self.events):
            if isinstance(event, yaml.SequenceEndEvent):
                return
            yield self.build(event, (*place, i))

    def pairs(self, place: Place) -> Iterator[tuple[str, Any]]:
        first: dict[str, int] = {}
        for event in self.events:
            if isinstance(event, yaml.MappingEndEvent):
                return
            spot = _spot(event)
            key = self.build(event, place) if isinstance(event, yaml.ScalarEvent) else None
            if not isinstance(key, str) or (key in {"<<", "="} and event.implicit[0]):
                shown = event.value[:80] if isinstance(event, yaml.ScalarEvent) else "[…]"
                raise _refuse(spot, place, f"the key {shown!r} is not text", "a name")
            here = (*place, key)
            if key in first:
                raise _refuse(spot, here, f"duplicate key; the first is on line {first[key]}", "each key once")
            first[key] = spot[0]
            self.marks[here] = spot
            yield key, self.build(next(self.events), here)

    def scalar(self, event: Any, spot: Spot, place: Place) -> Any:
        text = event.value
        if not event.implicit[0]:  # in quotes, or a block: text, whatever it looks like
            return text
        if text in _WORDS:
            return _WORDS[text]
        if text[0] in "-+.0123456789" and (len(text) > _LONGEST_NUMBER or _NUMBER.fullmatch(text)):
            value = _number(text) if len(text) <= _LONGEST_NUMBER else None
            if not self.numbers and len(text) <= _LONGEST_NUMBER:
                return text
            if value is None or not math.isfinite(value):
                shown = text if len(text) <= 40 else f"{text[:37]}..."
                raise _refuse(spot, place, f"{shown} is not a finite number", "a finite number")
            return value
        return text  # dates stay text; the model reads them


def _spot(event: Any) -> Spot:
    return int(event.start_mark.line) + 1, int(event.start_mark.column) + 1


def _refuse(spot: Spot, place: Place, what: str, expected: str) -> DocumentError:
    return DocumentError(what, spot=spot, place=place, expected=expected)


def _number(text: str) -> int | float | None:
    """Return a decimal number; None for other notations, which two people may read differently."""
    if not _DECIMAL.fullmatch(text):
        return None
    if not text.lstrip("+-").isdigit():
        return float(text)
    return value if -_LARGEST <= (value := int(text)) < _LARGEST else None
