"""How much of a document is read, and from what: regular files, up to a stated size."""

import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Any

#: what values of a document raise when they are not of the kind that was expected
GARBLED = (ValueError, KeyError, TypeError, AttributeError, IndexError, ArithmeticError, RecursionError, AssertionError)


#: line and column in a file, and keys that lead to a value
Spot = tuple[int, int]
Place = tuple[str | int, ...]


class DocumentError(ValueError):
    """A document cannot be read; a sentence that the caller puts behind the document's name.

    ``what`` is wrong, beginning with a verb: "is larger than 1 MiB"; ``expected`` would be right. ``spot`` is line and
    column, counted from 1, and ``place`` the keys that lead there; 0 and empty where none can be named.
    """

    def __init__(self, what: str, *, spot: Spot = (0, 0), place: Place = (), expected: str = "") -> None:
        super().__init__(what)
        self.spot, self.place, self.expected = spot, place, expected


#: bytes of what people and signers write: policies, guards, trust stores, statements, MLmodel files
SMALL = 1 << 20
#: and of what programs write: reports, recipes, suites, indices of data
LARGE = 8 << 20
DEEPEST = 64  # lists and mappings within one another


def opened(path: Path) -> BufferedReader:
    """Return a regular file opened for reading, behind links, too; ``DocumentError``: a pipe, a device, a folder."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except ValueError as exc:
        raise DocumentError("has a name that no file can have") from exc
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise DocumentError("is no regular file")
    return os.fdopen(handle, "rb")


def content(path: Path, most: int = SMALL) -> bytes:
    """Return the bytes of a regular file; ``DocumentError``: it is none, or too large."""
    with opened(path) as f:
        data = f.read(most + 1)
    if len(data) > most:
        raise too_large(most)
    return data


def text_of(path: Path, most: int = SMALL) -> str:
    """Return the text of a regular file of UTF-8; ``DocumentError``: it is none, or too large."""
    try:
        return content(path, most).decode()
    except UnicodeDecodeError as exc:
        raise DocumentError("is not UTF-8 text") from exc


def too_large(most: int) -> DocumentError:
    """Return the error of a document that is longer than so many bytes."""
    return DocumentError(f"the file is larger than {most >> 20} MiB")


@contextmanager
def reading(sentence: str, error: type[Exception]) -> Iterator[None]:
    """Turn what files and values of an unexpected kind raise into one sentence that says why; also a decorator."""
    try:
        yield
    except (OSError, *GARBLED) as exc:
        raise error(f"{sentence}: {why(exc)}") from exc


def why(exc: BaseException) -> str:
    """Return a few words on one line about what a document's value raised."""
    words = " ".join(str(exc).split())[:200]
    if isinstance(exc, OSError):
        return str(exc.strerror)
    if isinstance(exc, DocumentError):
        line, place = exc.spot[0], ".".join(map(str, exc.place))
        return ": ".join(filter(None, [f"line {line}" if line else "", place, words]))
    if isinstance(exc, KeyError):
        return f"it lacks {words}"
    if isinstance(exc, RecursionError):
        return "it is nested too deeply"
    return words if isinstance(exc, ValueError) and words else f"a value is of the wrong kind ({words})"


# Strict JSON: each key once, finite numbers of 64 bits, text that is UTF-8, nothing deeper than its limit.

_LARGEST = 1 << 63  # what 64 bits hold


def read(path: Path, most: int = SMALL) -> Any:
    """Return what a JSON file says, read as by ``content`` and ``loads``."""
    return loads(content(path, most), most)


def loads(text: str | bytes, most: int = SMALL) -> Any:
    """Return the value that JSON writes, as text or bytes of UTF-8; ``DocumentError``: too large, deep or lax."""
    try:
        raw = text.encode() if isinstance(text, str) else bytes(text)
        if len(raw) > most:
            raise too_large(most)
        kinds: dict[str, Any] = {"parse_int": _whole, "parse_float": _finite, "parse_constant": _no_constant}
        value = json.loads(raw.decode(), object_pairs_hook=_each_key_once, **kinds)
        if b"\\u" in raw:  # a lone half of a pair is no text: nothing could write it again
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeError as exc:
        raise DocumentError("is not UTF-8 text") from exc
    except DocumentError:
        raise
    except (ValueError, RecursionError) as exc:
        raise DocumentError(f"is not JSON: {' '.join(str(exc).split())[:200]}") from exc
    level = [value]
    for _ in range(DEEPEST + 1):
        level = [v for c in level if isinstance(c, dict | list) for v in (c.values() if isinstance(c, dict) else c)]
    if level:
        raise DocumentError(f"is nested more than {DEEPEST} deep")
    return value


def _whole(digits: str) -> int:
    if len(digits) > 20 or not -_LARGEST <= (value := int(digits)) < _LARGEST:
        raise DocumentError(f"holds the whole number {digits[:20]}…, which has more than 64 bits")
    return value


def _finite(digits: str) -> float:
    value = float(digits)
    if value in (float("inf"), float("-inf")):
        raise DocumentError(f"holds the number {digits[:20]}, which is not finite")
    return value


def _no_constant(name: str) -> float:
    raise DocumentError(f"holds {name}, which is not JSON")


def _each_key_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict[str, Any]()
    for key, value in pairs:
        if key in mapping:
            raise DocumentError(f"holds the key {key[:80]!r} twice")
        mapping[key] = value
    return mapping
