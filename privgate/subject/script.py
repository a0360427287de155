"""What a function of a script or notebook reaches: helpers, imports and constants, without the work around them.

A script trains and logs at its top level, and none of that may run again where its function is imported. So what is
recorded is no copy of the file: every global name that the function reads is followed. A constant is written as the
value that it has now, a module or function of a library as an import, a function or class of the script as its own
code. Anything else is refused.
"""

import __future__

import argparse
import ast
import dis
import inspect
import linecache
import logging
import math
import pathlib
import sys
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from privgate.errors import SubjectError

_LONGEST = 20_000  # characters of a constant as source
#: what is written as the value that it has, beside plain Python, and where it is imported from
_HELD: dict[type, str] = {argparse.Namespace: "argparse", pathlib.PosixPath: "pathlib", pathlib.WindowsPath: "pathlib"}
_NAMED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def needed(names: Iterable[str], *, file: Path | None) -> str:
    """Return the source that defines these names of ``__main__`` and everything that they reach.

    ``file`` is the script; None in a notebook, whose cells Python remembers. ``SubjectError``: something that is
    reached is neither plain, nor imported, nor defined there.
    """
    part = _Part(vars(sys.modules["__main__"]), file)
    for name in names:
        part.reach(name)
    part.check()
    return part.text()


class _Part:
    """The part of a module that some of its names need."""

    def __init__(self, space: Mapping[str, Any], file: Path | None) -> None:
        self.space, self.file = space, file
        self.body: list[ast.stmt] = [] if file is None else ast.parse(file.read_bytes(), filename=str(file)).body
        self.lazy = any(isinstance(s, ast.ImportFrom) and s.module == "__future__" for s in self.body)
        self.seen: set[str] = set()
        self.imports: set[str] = set()
        self.modules: dict[str, str] = {}
        self.constants: list[str] = []
        self.pieces: list[str] = []

    def text(self) -> str:
        """Return the source: imports, constants, then what uses them."""
        head = ["from __future__ import annotations"] if self.lazy else []
        return "\n".join([*head, *sorted(self.imports), *self.constants, *self.pieces, ""])

    def check(self) -> None:
        """Run it once, so that what is missing is known before anything trains."""
        name = "the notebook" if self.file is None else self.file.name
        module = ModuleType("_privgate_part")
        sys.modules[module.__name__] = module  # dataclasses look their module up
        try:
            exec(compile(self.text(), name, "exec", dont_inherit=True), vars(module))  # noqa: S102  the user's own module, in the user's process
        except Exception as exc:
            raise SubjectError(
                f"what the training function needs of {name} cannot be imported alone: {type(exc).__name__}: {exc}; "
                "move the function to a module of its own"
            ) from exc
        finally:
            del sys.modules[module.__name__]

    def reach(self, name: str) -> None:
        """Add what defines a global name; what it needs comes before it."""
        if name in self.seen or name not in self.space or name.startswith("__"):
            return
        self.seen.add(name)
        value = self.space[name]
        if isinstance(value, ModuleType):
            self.modules[name] = value.__name__
            self.imports.add(f"import {value.__name__} as {name}" if name != value.__name__ else f"import {name}")
        elif _is_plain(value):
            self._add_constant(name, value)
        elif (home := _home(value)) is not None:
            alias = "" if name == value.__qualname__ else f" as {name}"
            self.imports.add(f"from {home} import {value.__qualname__}{alias}")
        elif isinstance(value, logging.Logger):
            self.imports.add("import logging")
            self.constants.append(f"{name} = logging.getLogger({value.name!r})")
        elif getattr(value, "__module__", None) != "__main__" or getattr(value, "__qualname__", "") != name:
            raise SubjectError(
                f"the training function uses {name} (a {type(value).__name__}), which cannot be recorded from here; "
                "make it inside the function, or hand it over as a parameter"
            )
        elif (node := self._definition(name, value)) is not None:
            self._add(node)
        else:
            raise SubjectError(f"the text of {name} is not known here; move it to a module to register it")

    def _add_constant(self, name: str, value: Any) -> None:
        written = repr(value)
        if len(written) > _LONGEST:
            raise SubjectError(
                f"the training function uses {name}, a {type(value).__name__} of {len(written)} characters; hand it "
                "over as a parameter, or as part of X"
            )
        for kind in (k for k in _HELD if f"{k.__name__}(" in written):
            self.imports.add(f"from {_HELD[kind]} import {kind.__name__}")
        self.constants.append(f"{name} = {written}")

    def _add(self, node: ast.stmt) -> None:
        """Add a statement behind what it reaches; after ``import a.b`` the script says ``a.b``, and so does this."""
        for used in sorted(self._read_globals(node)):
            self.reach(used)
        for part in ast.walk(node):
            chain = _dotted(part) if isinstance(part, ast.Attribute) else []
            reached = self.modules.get(chain[0], "") if chain else ""
            for name in chain[1:]:
                reached = f"{reached}.{name}"
                if not isinstance(sys.modules.get(reached), ModuleType):
                    break
                self.imports.add(f"import {reached}")
        self.pieces.append(ast.unparse(node))

    def _read_globals(self, node: ast.stmt) -> set[str]:
        flags = __future__.annotations.compiler_flag if self.lazy else 0
        return _globals(compile(ast.unparse(node), "part", "exec", flags=flags, dont_inherit=True))

    def _definition(self, name: str, value: Any) -> ast.stmt | None:
        """Return the statement that defines a function or class, from the script or the notebook's cell."""
        code, body = next(_codes(value), None), self.body
        if self.file is None and code is not None:
            body = ast.parse("".join(linecache.getlines(code.co_filename))).body
            self.lazy = self.lazy or bool(code.co_flags & __future__.annotations.compiler_flag)
        held = [n for top in body for n in ast.walk(top) if isinstance(n, _NAMED) and n.name == name]
        line = 0 if code is None else code.co_firstlineno
        starts = [min([n.lineno, *(d.lineno for d in n.decorator_list)]) for n in held]
        near = [n for n, start in zip(held, starts, strict=True) if start <= line <= (n.end_lineno or line)]
        return next(reversed(near or held), None)


def _dotted(node: ast.AST) -> list[str]:
    """Return the names of ``a.b.c``; empty where it begins with anything but a name."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return [node.id, *reversed(parts)] if isinstance(node, ast.Name) else []


def _is_plain(value: Any) -> bool:
    """Whether ``repr`` of a value is Python that gives it back."""
    if type(value) is float:
        return math.isfinite(value)
    if type(value) in {argparse.Namespace, dict}:
        held = vars(value) if isinstance(value, argparse.Namespace) else value
        return all(_is_plain(v) for v in [*held, *held.values()])
    if type(value) in {list, tuple, set, frozenset}:
        return all(map(_is_plain, value))
    return value is None or type(value) in {bool, int, str, bytes, complex, *_HELD}


def _home(value: Any) -> str | None:
    """Return the shortest module that a library's function or class can be imported from by its own name."""
    home, name = getattr(value, "__module__", None), getattr(value, "__qualname__", "")
    if not isinstance(home, str) or home in {"__main__", ""} or not name.isidentifier():
        return None
    modules = accumulate(home.split("."), "{}.{}".format)
    return next((m for m in modules if getattr(sys.modules.get(m), name, None) is value), None)


def _codes(value: Any) -> Iterator[CodeType]:
    value = inspect.unwrap(value) if callable(value) and not isinstance(value, type) else value
    for part in [value] if isinstance(value, FunctionType) else vars(value).values():
        held = getattr(part, "__func__", getattr(part, "fget", part))
        if isinstance(held, FunctionType) and held.__module__ == value.__module__:
            yield held.__code__


def _globals(code: CodeType) -> set[str]:
    """Return every global name that a piece of code and the functions in it read."""
    reads = {"LOAD_NAME", "LOAD_GLOBAL", "LOAD_FROM_DICT_OR_GLOBALS"}
    names = {str(i.argval) for i in dis.get_instructions(code) if i.opname in reads}
    return names.union(*(_globals(part) for part in code.co_consts if isinstance(part, CodeType)))
