"""What a function of a script or notebook reaches: helpers, imports and constants, without the work around them.

A script's top level trains and logs, so it is not run again: beginning with the function, every global name that its
code reads is written as its value, an import, its own code, or the assignment that made it.
"""

import __future__

import argparse
import ast
import dis
import inspect
import linecache
import math
import pathlib
import re
import sys
from collections.abc import Iterable, Mapping
from itertools import accumulate
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from privgate.errors import SubjectError

#: calls that read, train or log: made again at every import, they would do so in every worker
_WORK = re.compile(
    r"(partial_)?fit(_\w+)?|train(_\w+)?|read_\w+|load\w*|open|fetch_\w+|log_\w+|start_run|autolog|download\w*|urlopen"
    r"|urlretrieve|connect|execute|query|from_pretrained|parse_\w*args|input|cross_val\w*|predict\w*|recv|get_data\w*"
)
_LONGEST = 20_000  # characters of a constant as source
#: what is written as the value that it has, beside plain Python, and where it is imported from
_HELD: dict[type, str] = {argparse.Namespace: "argparse", pathlib.PosixPath: "pathlib"}
_NAMED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def needed(names: Iterable[str], *, file: Path | None) -> str:
    """Return the source that defines these names of ``__main__`` and everything that they reach.

    ``file`` is the script; None in a notebook, whose cells Python remembers. ``SubjectError``: something that is
    reached would have to be trained, read or logged again, or has no text.
    """
    body = [] if file is None else ast.parse(file.read_bytes(), filename=str(file)).body
    part = _Part(vars(sys.modules["__main__"]), body)
    for name in names:
        part.reach(name)
    text = "\n".join(["from __future__ import annotations", *sorted(part.imports), *part.constants, *part.pieces, ""])
    _check_part(text, "the notebook" if file is None else file.name)
    return text


def _check_part(text: str, name: str) -> None:
    """Run a part once, so that what is missing is known before anything trains."""
    module = ModuleType("_privgate_part")
    sys.modules[module.__name__] = module  # dataclasses look their module up
    try:
        exec(compile(text, name, "exec", dont_inherit=True), vars(module))  # noqa: S102  the user's own module, in the user's process
    except Exception as exc:
        why = f"{type(exc).__name__}: {exc}; move the function to a module of its own"
        raise SubjectError(f"what the training function needs of {name} cannot be imported alone: {why}") from exc
    finally:
        del sys.modules[module.__name__]


class _Part:
    """The part of a module that some of its names need."""

    def __init__(self, space: Mapping[str, Any], body: list[ast.stmt]) -> None:
        self.space, self.body = space, body
        self.seen: set[str] = set()
        self.imports: set[str] = set()
        self.constants: list[str] = []
        self.pieces: list[str] = []

    def reach(self, name: str) -> None:
        """Add what defines a global name; what it needs comes before it."""
        if name in self.seen or name not in self.space or name.startswith("__"):
            return
        self.seen.add(name)
        value = self.space[name]
        if isinstance(value, ModuleType):
            self.imports.add(f"import {value.__name__}{f' as {name}' * (name != value.__name__)}")
        elif _is_plain(value):
            self._add_constant(name, value)
        elif (home := _home(value)) is not None:
            self.imports.add(f"from {home} import {value.__qualname__}{f' as {name}' * (name != value.__qualname__)}")
        else:
            self._add(self._find_definition(name, value) or self._find_maker(name, value))

    def _add_constant(self, name: str, value: Any) -> None:
        written = repr(value)
        if len(written) > _LONGEST:
            how = f"{name}, a {type(value).__name__} of {len(written)} characters"
            raise SubjectError(f"the training function uses {how}; hand it over as a parameter, or as part of X")
        for kind in (k for k in _HELD if f"{k.__name__}(" in written):
            self.imports.add(f"from {_HELD[kind]} import {kind.__name__}")
        self.constants.append(f"{name} = {written}")

    def _add(self, node: ast.stmt) -> None:
        """Add a statement behind what it reaches; after ``import a.b`` the script says ``a.b``, and so does this."""
        text, lazy = ast.unparse(node), __future__.annotations.compiler_flag
        used = sorted(_globals(compile(text, "part", "exec", flags=lazy, dont_inherit=True)))
        for name in used:
            self.reach(name)
        parts = {n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute)}
        modules = [v.__name__ for name in used if isinstance(v := self.space.get(name), ModuleType)]
        for module in modules:
            below = [m for part in parts if isinstance(sys.modules.get(m := f"{module}.{part}"), ModuleType)]
            self.imports |= {f"import {m}" for m in below}
            modules += below
        self.pieces.append(text)

    def _find_definition(self, name: str, value: Any) -> ast.stmt | None:
        """Return the statement that defines a function or class, from the script or the notebook's cell."""
        if getattr(value, "__module__", None) != "__main__" or getattr(value, "__qualname__", "") != name:
            return None
        code, body = _first_code(value), self.body
        if not body and code is not None:
            body = ast.parse("".join(linecache.getlines(code.co_filename))).body
        held = [n for top in body for n in ast.walk(top) if isinstance(n, _NAMED) and n.name == name]
        line = 0 if code is None else code.co_firstlineno
        near = [n for n in held if line in {getattr(part, "lineno", 0) for part in ast.walk(n)}]
        return next(reversed(near or held), None)

    def _find_maker(self, name: str, value: Any) -> ast.stmt:
        """Return the one assignment of the script that made an object, and neither reads, trains nor logs."""
        made = [s for s in self.body if isinstance(s, ast.Assign | ast.AnnAssign) and name in _list_bound(s)]
        calls = [ast.unparse(n.func) for s in made for n in ast.walk(s) if isinstance(n, ast.Call)]
        if len(made) == 1 and not any(_WORK.fullmatch(call.rpartition(".")[2]) for call in calls):
            return made[0]
        what = f"{name} (a {type(value).__name__}{f', of line {made[0].lineno}' if made else ''})"
        raise SubjectError(
            f"the training function uses {what}, which cannot be recorded; hand it over as a parameter, make it "
            "inside the function, or move it to a module"
        )


def _list_bound(statement: ast.stmt) -> set[str]:
    return {n.id for n in ast.walk(statement) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}


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


def _first_code(value: Any) -> CodeType | None:
    value = inspect.unwrap(value) if callable(value) and not isinstance(value, type) else value
    parts = [value] if isinstance(value, FunctionType) else vars(value).values()
    held = (getattr(part, "__func__", getattr(part, "fget", part)) for part in parts)
    return next((h.__code__ for h in held if isinstance(h, FunctionType) and h.__module__ == value.__module__), None)


def _globals(code: CodeType) -> set[str]:
    reads = {"LOAD_NAME", "LOAD_GLOBAL", "LOAD_FROM_DICT_OR_GLOBALS"}
    names = {str(i.argval) for i in dis.get_instructions(code) if i.opname in reads}
    return names.union(*(_globals(part) for part in code.co_consts if isinstance(part, CodeType)))
