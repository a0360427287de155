"""What is told of an error in training code: what was written before anybody saw the data, and nothing of the data.

An error's message goes to whoever reads the report, and training code sees every record. So a message is taken apart,
and each part must have been written beforehand: in the recipe's sources or parameters, or in code that the error
passed through. What stands in a record is told in no case, whoever else wrote it too, and a number alone never.
Words of a library's own sentence stay, and so does a name of code, unless a record holds it as a word.

This guards against accidents, which are the rule. Code that wants to tell something in secret can choose among the
words it holds, or write its own reply; who may not read what a recipe's author knows gets no report of its errors.
"""

import builtins
import dis
import json
import os
import re
import sys
import sysconfig
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import CodeType
from typing import Any

from privgate.subject.containers import is_frame, is_sparse
from privgate.subject.storing import QUOTED

_LONGEST, _READ = 200, 2_000  # letters
_SHORTEST = 3  # letters of a word: with fewer, a record could be spelled
_HIDDEN = "…"
#: dates, times, bytes and units are numbers too, and an array of two dimensions is none
_NUMBER = re.compile(r"(?<!\w)(?![0-3]D\b)[+-]?\.?\d(?:\w|[.,:+-](?=\d))*")
#: letters that were written as others, and what was cut
_ESCAPED = re.compile(r"\\(?:x\w\w|u\w{4}|U\w{8}|.)|\w*(?:\.\.\.|…)")
_LETTER = re.compile(r"[^\W\d_]")
_UNWRITTEN = re.compile(r"[^\s'\"():,.;/\[\]]+")
_WORD = re.compile(r"[^\W\d_]+")
_OPERATOR = re.compile(r"[-+*/%@<>=!&|^]{1,2}")
#: between the parts of a text that is filled in
_FIELDS = re.compile(r"%[-#0 +]*[\d.*]*[a-zA-Z]|%\(\w+\)\w|\{[^{}]*\}")
_PRIVGATE = str(Path(__file__).resolve().parents[1])
_INSTALLED = (*{sysconfig.get_path(kind) for kind in ("stdlib", "purelib", "platlib")}, _PRIVGATE, "<frozen")
_LIBRARIES = re.compile(r"/(?:site|dist)-packages/")
#: kinds of numbers, dates and truth in NumPy; their values have no letters that a message could hold
_NUMBERS = "biufcmM"


def told(exc: BaseException, root: Path | None, held: "Held", settings: Any = None) -> str:
    """Return an error's class and what may be told of the first line of its message.

    Parameters
    ----------
    exc : BaseException
        What the code raised.
    root : Path, optional
        Where the payload lies, with ``recipe.json`` and ``src``.
    held : Held
        The texts of the data, of which none is told.
    settings : optional
        What the recipe records of itself as JSON values, where no ``recipe.json`` does.
    """
    passed = [frame.f_code for frame, _ in traceback.walk_tb(exc.__traceback__)]
    written = _written(root, passed, settings)
    text = _first_line(exc, passed)
    if isinstance(exc, OSError) and exc.errno and exc.filename:
        parts = written | {part for path in written for part in path.split("/")}
        text = f"{os.strerror(exc.errno)}: '{_by_owner(str(exc.filename), parts, held)}'"
    elif _raised_by_owner(exc):
        text = _by_owner(text, written, held)
    else:
        text = _by_library(exc, text, passed, written, held)
    name = next(kind.__name__ for kind in type(exc).__mro__ if _known(kind) or _free(kind.__name__, written, held))
    return name + (f": {text[:_LONGEST]}" if re.search(r"\w", text) or _HIDDEN in text else "")


def _first_line(exc: BaseException, passed: Iterable[CodeType]) -> str:
    """Return the line that is told of; a key is quoted, and a sentence that a library gives ``KeyError`` is no key."""
    text = str(exc).strip()
    if isinstance(exc, KeyError) and exc.args and not _raised_by_owner(exc):
        key = exc.args[0] if isinstance(exc.args[0], str) else _HIDDEN
        parts = (part for code in passed if _installed(code.co_filename) for part in _texts_in_code(code))
        text = key if any(" " in part.strip() and part.strip() in key for part in parts) else f"'{key}"
    line = "".join(c for c in text.partition("\n")[0] if c.isprintable())
    return line if len(line) <= _READ else re.sub(r"\w*$", "", line[:_READ])  # half a word is no longer known


def ours(exc: BaseException) -> bool:
    """Whether privgate's own code raised it, whose sentences hold no text of the data but what it cites of a cause."""
    last = list(traceback.walk_tb(exc.__traceback__))[-1:]
    return not last or last[0][0].f_code.co_filename.startswith(_PRIVGATE)


def _installed(file: str) -> bool:
    return file.startswith(_INSTALLED) or _LIBRARIES.search(file) is not None


def _raised_by_owner(exc: BaseException) -> bool:
    """Whether a statement of the owner's raised it, so that the whole message is the owner's choice."""
    link = exc.__traceback__
    while link is not None and link.tb_next is not None:
        link = link.tb_next
    if link is None or _installed(link.tb_frame.f_code.co_filename):
        return False
    return link.tb_frame.f_code.co_code[link.tb_lasti] == dis.opmap["RAISE_VARARGS"]


def _by_owner(text: str, written: set[str], held: "Held") -> str:
    """Return the parts of a message that stand in the sources, each once; all else is hidden."""
    parts = sorted((part for part in written if part in text and _is_long(part)), key=len, reverse=True)
    edges = [r"(?<!\w)" * p[0].isalnum() + re.escape(p) + r"(?!\w)" * p[-1].isalnum() for p in parts]
    made, at, used = "", 0, set()
    for found in re.finditer("|".join(edges) or "(?!)", text):
        part = found[0]
        made += _UNWRITTEN.sub(_HIDDEN, text[at : found.start()])
        made += part if part not in used and not held.has(part) else _HIDDEN
        at = found.end()
        used.add(part)
    return _merged(made + _UNWRITTEN.sub(_HIDDEN, text[at:]))


def _by_library(exc: BaseException, text: str, passed: list[CodeType], written: set[str], held: "Held") -> str:
    """Return a library's message without quoted values, numbers and texts of records; names that were written stay."""
    known = {type(getattr(exc, "obj", None)).__name__, *dir(builtins), "NoneType", getattr(exc, "encoding", "")}
    # what these errors quote is a name of code, however short; what others quote may be a part of a record
    of_code = isinstance(exc, NameError | AttributeError | ImportError | TypeError)
    known |= written if of_code else set()
    words = {
        w for c in passed if _installed(c.co_filename) for t in _texts_in_code(c) for w in _words(t)
    } | _of_python()
    made, at = "", 0
    for found in QUOTED.finditer(text):
        name = found["name"] or found["rest"]
        sure = name in known or _is_class(name) or (of_code and _OPERATOR.fullmatch(name))
        told = (sure and not held.has_word(name)) or _free(name, written, held)
        made += _plain(text[at : found.start()], words, held) + f"'{name if told else _HIDDEN}'"
        at = found.end()
    return _merged(made + _plain(text[at:], words, held))


def _plain(text: str, words: set[str], held: "Held") -> str:
    """Return a library's words without numbers, whole values, and words of records that the library did not write."""
    text = _ESCAPED.sub(_HIDDEN, text)
    folded = text.casefold()
    for begin in {value[:20] for value in held.text.split("\n")}:
        if begin and begin in folded:
            rest = ".*" if len(begin) == 20 else r"(?!\w)"
            text = re.sub(rf"(?<!\w){re.escape(begin)}{rest}", _HIDDEN, text, flags=re.IGNORECASE)
    text = _NUMBER.sub(_HIDDEN, text)
    return _WORD.sub(lambda w: w[0] if w[0].casefold() in words or not held.has_part(w[0]) else _HIDDEN, text)


def _merged(text: str) -> str:
    return re.sub(rf"{_HIDDEN}(?:\s*{_HIDDEN})+", _HIDDEN, text).strip()


def _free(text: str, written: set[str], held: "Held") -> bool:
    return text.strip() in written and _is_long(text) and not held.has(text)


def _is_long(text: str) -> bool:
    return len(_LETTER.findall(text)) >= _SHORTEST


def _is_class(name: str) -> bool:
    """Whether a library's module holds a class of this name."""
    module, _, own = name.rpartition(".")
    found = sys.modules.get(module)
    return _installed(str(getattr(found, "__file__", None))) and isinstance(vars(found).get(own), type)


def _words(text: str) -> list[str]:
    return _WORD.findall(text.casefold())


@cache
def _of_python() -> frozenset[str]:
    said = (f"{name} {getattr(builtins, name).__doc__}" for name in dir(builtins))
    return frozenset(word for text in said for word in _words(text))


@dataclass(frozen=True)
class Held:
    """Every text of the data in small letters, once, a line each."""

    text: str

    @classmethod
    def of(cls, X: Any, y: Any) -> "Held":
        """Return the texts of records and labels."""
        return cls("\n".join({value.strip().casefold() for value in _texts(X, y)}))

    def has(self, text: str) -> bool:
        """Whether a record holds the text, within a word too."""
        return text.strip().casefold() in self.text

    def has_word(self, text: str) -> bool:
        """Whether a record holds the text as a word."""
        wanted = text.strip().casefold()
        return self.has(text) and re.search(rf"(?<!\w){re.escape(wanted)}(?!\w)", self.text) is not None

    def has_part(self, word: str) -> bool:
        """Whether a record holds the word, or one that it is a part of if it is no abbreviation."""
        return self.has(word) if _is_long(word) else self.has_word(word)


def _known(kind: type) -> bool:
    """Whether a class is Python's or a library's under its own name."""
    module = sys.modules.get(kind.__module__)
    file = str(getattr(module, "__file__", None) or "<frozen")
    return _installed(file) and getattr(module, kind.__name__, None) is kind


def _written(root: Path | None, codes: Iterable[CodeType], settings: Any) -> set[str]:
    """Return the names and texts in code that the error passed, and in the recipe's sources and parameters."""
    sources = [code for code in codes if not code.co_filename.startswith("<string")]
    for file in sorted((root / "src").rglob("*.py")) if root else ():
        try:
            sources.append(compile(file.read_bytes(), "", "exec", dont_inherit=True))
        except (SyntaxError, ValueError, RecursionError):
            continue
    said = [*_in_json(settings)]
    for code in (inner for source in sources for inner in _within(source)):
        said += [*code.co_names, *code.co_varnames, *code.co_freevars, *code.co_cellvars, code.co_name]
        said += _texts_in_code(code)
    if root and (root / "recipe.json").is_file():
        said += _in_json(json.loads((root / "recipe.json").read_text(encoding="utf-8")))
    return {part.strip() for text in said for line in text.splitlines() for part in (line, *_FIELDS.split(line))} - {""}


def _within(code: CodeType) -> Iterator[CodeType]:
    yield code
    for value in code.co_consts:
        if isinstance(value, CodeType):
            yield from _within(value)


def _texts_in_code(code: CodeType) -> Iterator[str]:
    waiting = list(code.co_consts)
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, tuple | frozenset):
            waiting += value


def _in_json(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield from (value, *re.split(r"[:.]", value))
    elif isinstance(value, dict | list):
        for each in [*value, *value.values()] if isinstance(value, dict) else value:
            yield from _in_json(each)


def _texts(X: Any, y: Any) -> Iterator[str]:
    """Yield every value of the data that has letters, as text; labels of rows and categories of nobody are data too."""
    for column in (y, *([X.index, *(X[name] for name in X.columns)] if X is not None and is_frame(X) else [X])):
        dtype = getattr(column, "dtype", None)
        if column is None or is_sparse(column) or getattr(dtype, "kind", "O") in _NUMBERS:
            continue
        yield from _in_cells(getattr(dtype, "categories", column))


def _in_cells(value: Any) -> Iterator[str]:
    """Yield the texts in a value, however deep they lie."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, bytes):
        yield value.decode("utf-8", "replace")
    elif isinstance(value, Iterable):
        for each in [*value, *value.values()] if isinstance(value, dict) else value:
            yield from (each,) if isinstance(each, str) else _in_cells(each)
    elif value is not None and not isinstance(value, int | float):
        yield str(value)
