"""How much of a document is read, and from what: regular files, up to a stated size."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

#: what values of a document raise when they are not of the kind that was expected
GARBLED = (
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    IndexError,
    ArithmeticError,
    RecursionError,
    AssertionError,
)


class DocumentError(ValueError):
    """A document cannot be read; a sentence that the caller puts behind the document's name.

    Parameters
    ----------
    what : str
        What is wrong, beginning with a verb: "is larger than 1 MiB".
    line : int
        Counted from 1; 0 where no line can be named.
    place : tuple
        Keys and positions that lead there; empty where none can be named.
    expected : str
        What would be right; may be empty.
    """

    def __init__(self, what: str, *, line: int = 0, place: tuple[str | int, ...] = (), expected: str = "") -> None:
        super().__init__(what)
        self.line, self.place, self.expected = line, place, expected

    def of(self, file: object) -> str:
        """Return the whole sentence about a file."""
        place = "".join(f"{p}." for p in self.place).rstrip(".")
        parts = [f"{file}:{self.line}" if self.line else str(file), *([place] if place else []), str(self)]
        return ": ".join(parts)


@dataclass(frozen=True, slots=True)
class DocumentLimits:
    """What a document may be at most; within them, reading takes less than a second and 100 MB.

    Parameters
    ----------
    size : int
        Bytes.
    values : int
        Texts, numbers, lists and mappings, all together.
    depth : int
        Lists and mappings within one another.
    """

    size: int = 1 << 20
    values: int = 20_000
    depth: int = 32


#: what people and signers write: policies, guards, trust stores, statements, MLmodel files
SMALL = DocumentLimits()
#: what programs write: reports, recipes, suites, indices of data
LARGE = DocumentLimits(8 << 20, 200_000, 64)


def opened(path: Path) -> BinaryIO:
    """Return a regular file opened for reading; links are followed, because mounted configuration is made of them.

    Raises
    ------
    DocumentError
        A pipe, a device, a folder: reading it might never end.
    OSError
        It cannot be opened.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except ValueError as exc:
        raise DocumentError("has a name that no file can have") from exc
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise DocumentError("is no regular file")
    return os.fdopen(handle, "rb")


def content(path: Path, limits: DocumentLimits = SMALL) -> bytes:
    """Return the bytes of a regular file.

    Raises
    ------
    DocumentError
        It is no regular file, or too large.
    OSError
        It cannot be opened or read.
    """
    with opened(path) as f:
        found = f.read(limits.size + 1)
    if len(found) > limits.size:
        raise too_large(limits)
    return found


def too_large(limits: DocumentLimits) -> DocumentError:
    """Return the error of a document that is longer than its limit."""
    size = f"{limits.size >> 20} MiB" if limits.size >= 1 << 20 else f"{limits.size >> 10} KiB"
    return DocumentError(f"the file is larger than {size}")


@contextmanager
def reading(sentence: str, error: type[Exception]) -> Iterator[None]:
    """Turn what values of an unexpected kind raise into one sentence; also a decorator.

    Parameters
    ----------
    sentence : str
        What cannot be read.
    error : type
        Raised with the sentence and a few words on what was found. What is raised on purpose passes unchanged.
    """
    try:
        yield
    except GARBLED as exc:
        raise error(f"{sentence}: {why(exc)}") from exc


def why(exc: BaseException) -> str:
    """Return a few words on one line about what a document's value raised."""
    words = " ".join(str(exc).split())[:200]
    if isinstance(exc, OSError):
        return str(exc.strerror)
    if isinstance(exc, KeyError):
        return f"it lacks {words}"
    if isinstance(exc, RecursionError):
        return "it is nested too deeply"
    return words if isinstance(exc, ValueError) and words else f"a value is of the wrong kind ({words})"
