"""What is told of an error in training code: what was written before anybody saw the data, and nothing of the data.

An error's message goes to whoever reads the report, and training code sees every record. So a message is taken apart,
and each part must have been written beforehand: in the recipe's sources or parameters, or in code that the error
passed through. What stands in a record is told in no case, whoever else wrote it too, and a number alone never.

This guards against accidents, which are the rule. Code that wants to tell something in secret can choose among the
words it holds, or write its own reply; who may not read what a recipe's author knows gets no report of its errors.
"""

import dis
import json
import os
import re
import sys
import sysconfig
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import CodeType
from typing import Any

from privgate.subject.containers import is_frame, is_sparse

_LONGEST = 200  # letters
_SHORTEST = 3  # letters of a word: with fewer, a record could be spelled
_HIDDEN = "…"
_QUOTED = re.compile(r"'([^']*)'|\"([^\"]*)\"|(?<!\w)['\"].*$")
_NUMBER = re.compile(r"(?<![\w.])[+-]?\.?\d[\d.,]*(?:e[+-]?\d+)?(?!\w)", re.IGNORECASE)
#: between the parts of a text that is filled in
_FIELDS = re.compile(r"%[-#0 +]*[\d.*]*[a-zA-Z]|%\(\w+\)\w|\{[^{}]*\}")
_PRIVGATE = str(Path(__file__).resolve().parents[1])
_INSTALLED = (*{sysconfig.get_path(kind) for kind in ("stdlib", "purelib", "platlib")}, _PRIVGATE, "<frozen")
_LIBRARIES = re.compile(r"/(?:site|dist)-packages/")
#: kinds of numbers, dates and truth in NumPy; their values have no letters that a message could hold
_NUMBERS = "biufcmM"


def told(exc: BaseException, root: Path | None, X: Any = None, y: Any = None, settings: Any = None) -> str:
    """Return an error's class and what may be told of the first line of its message.

    Parameters
    ----------
    exc : BaseException
        What the code raised.
    root : Path, optional
        Where the payload lies, with ``recipe.json`` and ``src``.
    X, y : optional
        The data, of which no text is told.
    settings : optional
        What the recipe records of itself as JSON values, where no ``recipe.json`` does.
    """
    passed = [frame for frame, _ in traceback.walk_tb(exc.__traceback__)]
    written = _written(root, [frame.f_code for frame in passed], settings)
    lines = str(exc).strip().splitlines()
    text = "".join(c for c in (lines[0] if lines else "") if c.isprintable())[:_LONGEST]
    if isinstance(exc, OSError) and exc.errno and exc.filename:
        text = f"{os.strerror(exc.errno)}: '{exc.filename}'"
    held = list(_texts(X, y))
    text = _written_by_owner(text, written, held) if _by_owner(exc) else _by_library(exc, text, written, held)
    name = next(kind.__name__ for kind in type(exc).__mro__ if _known(kind) or _free(kind.__name__, written, held))
    return name + (f": {text}" if re.search(r"\w", text) or _HIDDEN in text else "")


def ours(exc: BaseException) -> bool:
    """Whether privgate's own code raised it, whose sentences hold no text of the data."""
    last = list(traceback.walk_tb(exc.__traceback__))[-1:]
    return not last or last[0][0].f_code.co_filename.startswith(_PRIVGATE)


def _installed(file: str) -> bool:
    return file.startswith(_INSTALLED) or _LIBRARIES.search(file) is not None


def _by_owner(exc: BaseException) -> bool:
    """Whether a statement of the owner's raised it, so that the whole message is the owner's choice."""
    link = exc.__traceback__
    while link is not None and link.tb_next is not None:
        link = link.tb_next
    if link is None or _installed(link.tb_frame.f_code.co_filename):
        return False
    return link.tb_frame.f_code.co_code[link.tb_lasti] == dis.opmap["RAISE_VARARGS"]


def _written_by_owner(text: str, written: set[str], held: list[str]) -> str:
    """Return the parts of a message that stand in the sources, each once; all else is hidden."""
    parts = sorted((part for part in written if part in text), key=len, reverse=True)
    edges = [r"(?<!\w)" * p[0].isalnum() + re.escape(p) + r"(?!\w)" * p[-1].isalnum() for p in parts]
    made, at, used = "", 0, set()
    for found in re.finditer("|".join(edges) or "(?!)", text):
        part = found[0]
        made += _punctuation(text[at : found.start()])
        made += part if part not in used and not _stands(part, held) else _HIDDEN
        at = found.end()
        used.add(part)
    return _merged(made + _punctuation(text[at:]))


def _punctuation(text: str) -> str:
    return text if re.fullmatch(r"[\s'\"():,.;\[\]]*", text) else re.sub(r"[^\s'\"():,.;\[\]]+", _HIDDEN, text)


def _by_library(exc: BaseException, text: str, written: set[str], held: list[str]) -> str:
    """Return a library's message without quoted values, numbers and texts of records; names that were written stay."""
    kinds = {type(getattr(exc, "obj", None)).__name__, *dir(sys.modules["builtins"]), "NoneType"}
    made, at = "", 0
    for found in _QUOTED.finditer(text):
        name = _name(found[1] or found[2] or "", written | kinds, held)
        made += _plain(text[at : found.start()], held) + f"'{name}'"
        at = found.end()
    return _merged(made + _plain(text[at:], held))


def _plain(text: str, held: list[str]) -> str:
    """Return a library's words without numbers and without what a record begins with."""
    for value in held:
        if (begin := value.strip()[:20]) and begin in text:
            text = re.sub(rf"(?<!\w){re.escape(begin)}.*" if len(begin) == 20 else rf"(?<!\w){re.escape(begin)}(?!\w)",
                          _HIDDEN, text)  # fmt: skip
    return _NUMBER.sub(_HIDDEN, text)


def _name(text: str, written: set[str], held: list[str]) -> str:
    """Return a quoted name if it was written; of a path, the end that was."""
    if _free(text, written, held):
        return text
    end = text.rpartition("/")[2]
    ends = {part.rpartition("/")[2] for part in written} if end != text else set()
    return f"{_HIDDEN}/{end}" if _free(end, ends, held) else _HIDDEN


def _merged(text: str) -> str:
    return re.sub(rf"{_HIDDEN}(?:\s*{_HIDDEN})+", _HIDDEN, text).strip()


def _free(text: str, written: set[str], held: list[str]) -> bool:
    return text.strip() in written and not _stands(text, held)


def _stands(text: str, held: list[str]) -> bool:
    """Whether a record holds the text, or is the text in other letters."""
    wanted = text.strip().casefold()
    return any(wanted in value.casefold() for value in held)


def _known(kind: type) -> bool:
    """Whether a class is Python's or a library's under its own name."""
    module = sys.modules.get(kind.__module__)
    file = str(getattr(module, "__file__", None) or "<frozen")
    return _installed(file) and getattr(module, kind.__name__, None) is kind


def _written(root: Path | None, codes: Iterable[CodeType], settings: Any) -> set[str]:
    """Return the names and texts in code that the error passed, and in the recipe's sources and parameters."""
    said = [*_in_json(settings)] + [
        text for code in codes if not code.co_filename.startswith("<string") for text in _in_code(code)
    ]
    for file in sorted((root / "src").rglob("*.py")) if root else ():
        try:
            said += _in_code(compile(file.read_bytes(), "", "exec", dont_inherit=True))
        except (SyntaxError, ValueError, RecursionError):
            continue
    if root and (root / "recipe.json").is_file():
        said += _in_json(json.loads((root / "recipe.json").read_text(encoding="utf-8")))
    parts = {part.strip() for text in said for line in text.splitlines() for part in (line, *_FIELDS.split(line))}
    return {part for part in parts if len(re.findall(r"[^\W\d_]", part)) >= _SHORTEST}


def _in_code(code: CodeType) -> Iterator[str]:
    yield from (*code.co_names, *code.co_varnames, *code.co_freevars, *code.co_cellvars, code.co_name)
    waiting = list(code.co_consts)
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, tuple | frozenset):
            waiting += value
        elif isinstance(value, CodeType):
            yield from _in_code(value)


def _in_json(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield from (value, *re.split(r"[:.]", value))
    elif isinstance(value, dict | list):
        for each in [*value, *value.values()] if isinstance(value, dict) else value:
            yield from _in_json(each)


def _texts(X: Any, y: Any) -> Iterator[str]:
    """Yield every value of the data that has letters, as text."""
    for column in (y, *([X[name] for name in X.columns] if X is not None and is_frame(X) else [X])):
        if column is None or is_sparse(column) or getattr(getattr(column, "dtype", None), "kind", "O") in _NUMBERS:
            continue
        values = column.ravel() if getattr(column, "ndim", 1) > 1 else column
        yield from (str(value) for value in values if not isinstance(value, int | float))
