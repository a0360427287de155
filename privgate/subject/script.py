"""What a function of a script or notebook reaches: helpers, imports and constants, without the work around them.

A script's top level trains and logs, so it is not run again: beginning with the function, every global name that its
code reads is written as its value, an import, its own code, or the statements that made it.
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
from collections.abc import Iterable, Iterator, Mapping
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
#: calls that set up a library, kept where the function reaches that library: precision, determinism, warnings
_SETTING = re.compile(r"set_\w+|use_\w+|manual_seed\w*|seed|seterr|filterwarnings|simplefilter|enable_\w+|disable_\w+")
_LONGEST = 20_000  # characters of a constant as source
#: what is written as the value that it has, beside plain Python, and where it is imported from
_HELD: dict[type, str] = {argparse.Namespace: "argparse", pathlib.PosixPath: "pathlib", pathlib.WindowsPath: "pathlib"}
_NAMED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def needed(names: Iterable[str], *, file: Path | None) -> str:
    """Return the source that defines these names of ``__main__`` and everything that they reach.

    ``file`` is the script; None in a notebook, whose cells Python remembers. ``SubjectError``: something that is
    reached would have to be trained, read or logged again, or has no text; the sentence names its line.
    """
    part = _Part(vars(sys.modules["__main__"]), file)
    for name in names:
        part.reach(name)
    part.keep_settings()
    part.check()
    return part.text(with_settings=True)


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
        self.settings: list[str] = []
        self.pieces: list[str] = []
        self.kept: set[ast.stmt] = set()

    def text(self, *, with_settings: bool) -> str:
        """Return the source: imports, constants, what sets up libraries, then what uses them."""
        head = ["from __future__ import annotations"] if self.lazy else []
        settings = self.settings if with_settings else []
        return "\n".join([*head, *sorted(self.imports), *self.constants, *settings, *self.pieces, ""])

    def check(self) -> None:
        """Run it once, apart from what sets up libraries, so that what is missing is known before anything trains."""
        name = "the notebook" if self.file is None else self.file.name
        module = ModuleType("_privgate_part")
        sys.modules[module.__name__] = module  # dataclasses look their module up
        try:
            exec(compile(self.text(with_settings=False), name, "exec", dont_inherit=True), vars(module))  # noqa: S102  the user's own module, in the user's process
        except Exception as exc:
            why = f"{type(exc).__name__}: {exc}; move the function to a module of its own"
            raise SubjectError(f"what the training function needs of {name} cannot be imported alone: {why}") from exc
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
        elif getattr(value, "__module__", None) != "__main__" or getattr(value, "__qualname__", "") != name:
            self._add_makers(name)
        elif (node := self._definition(name, value)) is not None:
            self._add(node, self.pieces)
        elif any(name in _bound(s) for s in self.body):  # by a call: a namedtuple
            self._add_makers(name)
        else:
            raise SubjectError(f"the text of {name} is not known here; move it to a module to register it")

    def _add_constant(self, name: str, value: Any) -> None:
        written = repr(value)
        if len(written) > _LONGEST:
            how = f"{name}, a {type(value).__name__} of {len(written)} characters"
            raise SubjectError(f"the training function uses {how}; hand it over as a parameter, or as part of X")
        for kind in (k for k in _HELD if f"{k.__name__}(" in written):
            self.imports.add(f"from {_HELD[kind]} import {kind.__name__}")
        self.constants.append(f"{name} = {written}")

    def _add(self, node: ast.stmt, pieces: list[str]) -> None:
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
        pieces.append(ast.unparse(node))

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

    def _add_makers(self, name: str) -> None:
        """Add the statements of the script that made an object."""
        where = [s for s in self.body if name in _bound(s) and s not in self.kept]
        if not where:
            kind = f"{name} (a {type(self.space[name]).__name__})"
            raise SubjectError(
                f"the training function uses {kind}, which cannot be recorded; make it inside the function"
            )
        for statement in where:
            self.kept.add(statement)
            if call := _work(statement):
                path = "" if self.file is None else f"{self.file.name}:{statement.lineno}: "
                use = f"{path}the training function uses {name}, which {call} makes when the file is imported"
                raise SubjectError(f"{use}; hand it over as a parameter, or make it inside the function")
            self._add(statement, self.pieces)

    def keep_settings(self) -> None:
        """Add the statements that set up libraries which are reached: ``torch.set_default_dtype(torch.float64)``."""
        reached = {line.split()[1].partition(".")[0] for line in self.imports}
        for statement in self.body:
            call = statement.value if isinstance(statement, ast.Expr) else None
            setting = _SETTING.fullmatch(_called(call)) if isinstance(call, ast.Call) else False
            root = min(_bound(statement), default="")
            if not (setting or isinstance(statement, ast.Assign)) or _work(statement):
                continue
            held = self.space.get(root)  # a module, or a library's own set_config()
            home = held.__name__ if isinstance(held, ModuleType) else (setting and _home(held)) or ""
            names = self._read_globals(statement) - {root, *self.modules}
            if home.partition(".")[0] in reached and all(_is_plain(self.space.get(name)) for name in names):
                self._add(statement, self.settings)


def _bound(statement: ast.stmt) -> set[str]:
    """Return the global names that a statement at the top of a file binds or changes."""
    if isinstance(statement, ast.If) and "__name__" in ast.unparse(statement.test):
        return set()
    names: set[str] = set()
    for node in _outside_functions(statement):
        if isinstance(node, _NAMED):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {(a.asname or a.name).partition(".")[0] for a in node.names}
        elif isinstance(node, ast.Name | ast.Subscript | ast.Attribute) and isinstance(node.ctx, ast.Store):
            names |= set(_dotted(node)[:1])
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        names |= set(_dotted(statement.value.func)[:1])
    return names


def _outside_functions(statement: ast.AST) -> Iterator[ast.AST]:
    yield statement
    if not isinstance(statement, (*_NAMED, ast.Lambda)):
        for child in ast.iter_child_nodes(statement):
            yield from _outside_functions(child)


def _work(statement: ast.stmt) -> str:
    """Return the first call in a statement that reads, trains or logs, as text; empty if there is none."""
    calls = (node for node in _outside_functions(statement) if isinstance(node, ast.Call))
    return next((f"{ast.unparse(c.func)[:60]}()" for c in calls if _WORK.fullmatch(_called(c))), "")


def _called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _dotted(node: ast.AST) -> list[str]:
    """Return the names of ``a.b.c``, also below subscripts; empty where it begins with anything but a name."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute | ast.Subscript):
        parts += [node.attr] if isinstance(node, ast.Attribute) else []
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
