"""What statements of a script or notebook bind, call and read as: questions to their text, none of which runs it."""

import __future__

import argparse
import ast
import dis
import inspect
import linecache
import pathlib
import re
import sys
import textwrap
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


def _first(node: ast.stmt) -> int:
    return min([node.lineno, *(int(d.lineno) for d in getattr(node, "decorator_list", ()))])


def segment(node: ast.stmt, lines: list[str]) -> str:
    """Return the lines of a statement; one that shares its line with others is written anew."""
    text = textwrap.dedent("\n".join(lines[_first(node) - 1 : node.end_lineno]))
    try:
        alone = len(ast.parse(text).body) == 1
    except SyntaxError:
        alone = False
    return text if alone else ast.unparse(node)


def bound(statement: ast.stmt) -> set[str]:
    """Return the global names that a statement at the top of a file binds or changes."""
    if isinstance(statement, ast.If) and "__name__" in ast.unparse(statement.test):
        return set()
    names: set[str] = set()
    for node in _outside_functions(statement):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {(a.asname or a.name).partition(".")[0] for a in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Subscript | ast.Attribute) and isinstance(node.ctx, ast.Store):
            names |= set(dotted(node)[:1])
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        names |= set(dotted(statement.value.func)[:1])
    return names


def _outside_functions(statement: ast.AST) -> Iterator[ast.AST]:
    yield statement
    if not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
        for child in ast.iter_child_nodes(statement):
            yield from _outside_functions(child)


def work(statement: ast.stmt) -> str:
    """Return the first call in a statement that reads, trains or logs, as text; empty if there is none."""
    for node in _outside_functions(statement):
        if isinstance(node, ast.Call) and _WORK.fullmatch(called(node)):
            return f"{ast.unparse(node.func)[:60]}()"
    return ""


def called(call: ast.Call) -> str:
    """Return the last name of what is called, empty where it has none."""
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def dotted(node: ast.AST) -> list[str]:
    """Return the names of ``a.b.c``, also below subscripts; empty where it begins with anything but a name."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute | ast.Subscript):
        parts += [node.attr] if isinstance(node, ast.Attribute) else []
        node = node.value
    return [node.id, *reversed(parts)] if isinstance(node, ast.Name) else []


# What a function of a script or notebook reaches: helpers, imports and constants, without the work around them.
#
# A script trains, logs and registers at its top level, and none of that may run again where its function is imported.
# So what is recorded is no copy of the file: beginning with the function, every global name that its code reads is
# followed. A constant is written as the value that it has now (environment and command line of a script are not those
# of a worker), a module or function of a library as an import, a function or class of the script as its own text,
# anything else as the statements that made it.

#: calls that set up a library, kept where the function reaches that library: precision, determinism, warnings
_SETTING = re.compile(r"set_\w+|use_\w+|manual_seed\w*|seed|seterr|filterwarnings|simplefilter|enable_\w+|disable_\w+")
_LONGEST = 20_000  # characters of a constant as source
#: what is written as the value that it has, beside plain Python, and where it is imported from
_HELD: dict[type, str] = {argparse.Namespace: "argparse", pathlib.PosixPath: "pathlib", pathlib.WindowsPath: "pathlib"}


def needed(names: Iterable[str], *, file: Path | None) -> str:
    """Return the source that defines these names of ``__main__`` and everything that they reach.

    ``file`` is the script; None in a notebook, whose cells Python remembers. ``SubjectError``: something that is
    reached would have to be trained, read or logged again, or has no text; the sentence names its line.
    """
    part = _Part(vars(sys.modules["__main__"]), file)
    for name in names:
        part.reach(name)
    part.settings()
    part.check()
    return part.text(with_settings=True)


class _Part:
    """The part of a module that some of its names need."""

    def __init__(self, space: Mapping[str, Any], file: Path | None) -> None:
        self.space, self.file = space, file
        self.body: list[ast.stmt] = [] if file is None else ast.parse(file.read_bytes(), filename=str(file)).body
        self.lines = [] if file is None else file.read_text(encoding="utf-8").splitlines()
        self.lazy = any(isinstance(s, ast.ImportFrom) and s.module == "__future__" for s in self.body)
        self.seen: set[str] = set()
        self.imports: set[str] = set()
        self.modules: dict[str, str] = {}
        self.constants: list[str] = []
        self.settled: list[str] = []
        self.pieces: list[str] = []
        self.kept: set[int] = set()

    def text(self, *, with_settings: bool) -> str:
        """Return the source: imports, constants, what sets up libraries, then what uses them."""
        head = ["from __future__ import annotations"] if self.lazy else []
        settled = self.settled if with_settings else []
        return "\n".join([*head, *sorted(self.imports), *self.constants, *settled, *self.pieces, ""])

    def check(self) -> None:
        """Run it once, apart from what sets up libraries, so that what is missing is known before anything trains."""
        name = "the notebook" if self.file is None else self.file.name
        module = ModuleType("_privgate_part")
        sys.modules[module.__name__] = module  # dataclasses look their module up
        try:
            exec(compile(self.text(with_settings=False), name, "exec", dont_inherit=True), vars(module))  # noqa: S102  the user's own module, in the user's process
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
            self._constant(name, value)
        elif (home := _home(value)) is not None:
            alias = "" if name == value.__qualname__ else f" as {name}"
            self.imports.add(f"from {home} import {value.__qualname__}{alias}")
        elif getattr(value, "__module__", None) == "__main__" and getattr(value, "__qualname__", "") == name:
            self._own(name, value)
        else:
            self._keep_makers(name)

    def _constant(self, name: str, value: Any) -> None:
        written = repr(value)
        if len(written) > _LONGEST:
            raise SubjectError(
                f"the training function uses {name}, a {type(value).__name__} of {len(written)} characters; hand it "
                "over as a parameter, or as part of X"
            )
        for kind in (k for k in _HELD if f"{k.__name__}(" in written):
            self.imports.add(f"from {_HELD[kind]} import {kind.__name__}")
        self.constants.append(f"{name} = {written}")

    def _own(self, name: str, value: Any) -> None:
        if (text := self._definition(name, value)) is not None:
            self._add(text, self.pieces)
        elif any(name in bound(s) for s in self.body):  # by a call: a namedtuple
            self._keep_makers(name)
        else:
            raise SubjectError(f"the text of {name} is not known here; move it to a module to register it")

    def _add(self, text: str, pieces: list[str]) -> None:
        """Add a statement behind what it reaches; after ``import a.b`` the script says ``a.b``, and so does this."""
        for used in sorted(self._read_globals(text)):
            self.reach(used)
        for node in ast.walk(ast.parse(text)):
            chain = dotted(node) if isinstance(node, ast.Attribute) else []
            reached = self.modules.get(chain[0], "") if chain else ""
            for part in chain[1:]:
                reached = f"{reached}.{part}"
                if not isinstance(sys.modules.get(reached), ModuleType):
                    break
                self.imports.add(f"import {reached}")
        pieces.append(text)

    def _read_globals(self, text: str) -> set[str]:
        flags = __future__.annotations.compiler_flag if self.lazy else 0
        return _globals(compile(text, "part", "exec", flags=flags, dont_inherit=True))

    def _definition(self, name: str, value: Any) -> str | None:
        """Return the text of a function or class, from the script or the notebook's cell."""
        code = next(_codes(value), None)
        if self.file is not None:
            lines, body = self.lines, self.body
        elif code is not None and (lines := [t.rstrip("\n") for t in linecache.getlines(code.co_filename)]):
            body = ast.parse("\n".join(lines)).body
            self.lazy = self.lazy or bool(code.co_flags & __future__.annotations.compiler_flag)
        else:
            return None
        kinds = (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef)
        held = [n for top in body for n in ast.walk(top) if isinstance(n, kinds) and n.name == name]
        line = 0 if code is None else code.co_firstlineno
        nodes = [n for n in held if _first(n) <= line <= (n.end_lineno or n.lineno)] or held
        return segment(nodes[-1], lines) if nodes else None

    def _keep_makers(self, name: str) -> None:
        """Add the statements of the script that made an object."""
        where = [s for s in self.body if name in bound(s) and s.lineno not in self.kept]
        if not where:
            raise SubjectError(
                f"the training function uses {name} (a {type(self.space[name]).__name__}), which cannot be recorded "
                "from here; make it inside the function, or hand it over as a parameter"
            )
        for statement in where:
            self.kept.add(statement.lineno)
            if call := work(statement):
                path = "" if self.file is None else f"{self.file.name}:{statement.lineno}: "
                raise SubjectError(
                    f"{path}the training function uses {name}, which {call} makes when the file is imported; hand it "
                    "over as a parameter, or make it inside the function"
                )
            self._add(segment(statement, self.lines), self.pieces)

    def settings(self) -> None:
        """Add the statements that set up libraries which are reached: ``torch.set_default_dtype(torch.float64)``."""
        reached = {line.split()[1].partition(".")[0] for line in self.imports}
        for statement in self.body:
            target: ast.expr | None = None
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
                target = statement.value.func
                if not _SETTING.fullmatch(called(statement.value)):
                    continue
            elif isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Attribute | ast.Subscript):
                target = statement.targets[0]
            if target is None or not (chain := dotted(target)) or work(statement):
                continue
            held = self.space.get(chain[0])  # a module, or a library's own set_config()
            home = held.__name__ if isinstance(held, ModuleType) else (len(chain) == 1 and _home(held)) or ""
            if home.partition(".")[0] not in reached:
                continue
            text, known = segment(statement, self.lines), {chain[0], *self.modules}
            if all(name in known or _is_plain(self.space.get(name)) for name in self._read_globals(text)):
                self._add(text, self.settled)


def _is_plain(value: Any, depth: int = 0) -> bool:
    """Whether ``repr`` of a value is Python that gives it back."""
    if value is None or type(value) in {bool, int, str, bytes, complex}:
        return True
    if type(value) is float:
        return value - value == 0  # neither infinite nor NaN
    if isinstance(value, pathlib.PurePath):
        return type(value) in _HELD
    if depth > 8 or type(value) not in {list, tuple, dict, set, frozenset, argparse.Namespace}:
        return False
    value = vars(value) if isinstance(value, argparse.Namespace) else value
    parts = [*value, *value.values()] if type(value) is dict else list(value)
    return all(_is_plain(v, depth + 1) for v in parts)


def _home(value: Any) -> str | None:
    """Return the shortest module that a library's function or class can be imported from by its own name."""
    home, name = getattr(value, "__module__", None), getattr(value, "__qualname__", "")
    if not isinstance(home, str) or home in {"__main__", ""} or not name.isidentifier():
        return None
    modules = accumulate(home.split("."), "{}.{}".format)
    return next((m for m in modules if getattr(sys.modules.get(m), name, None) is value), None)


def _codes(value: Any) -> Iterator[CodeType]:
    value = inspect.unwrap(value) if callable(value) and not isinstance(value, type) else value
    if isinstance(value, FunctionType):
        yield value.__code__
    elif isinstance(value, type):
        for part in vars(value).values():
            held = getattr(part, "__func__", getattr(part, "fget", part))
            if isinstance(held, FunctionType) and held.__module__ == value.__module__:
                yield held.__code__


def _globals(code: CodeType) -> set[str]:
    """Return every global name that a piece of code and the functions in it read."""
    reads = {"LOAD_NAME", "LOAD_GLOBAL", "LOAD_FROM_DICT_OR_GLOBALS"}
    names = {str(i.argval) for i in dis.get_instructions(code) if i.opname in reads}
    return names.union(*(_globals(part) for part in code.co_consts if isinstance(part, CodeType)))
