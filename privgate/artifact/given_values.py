"""What training is given beside its records: parameters, constants of sources, and what modules computed on import."""

import ast
import contextlib
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from types import CodeType, ModuleType
from typing import Any

import numpy as np

from privgate.subject.estimators import is_estimator
from privgate.subject.own_modules import is_own, names_in, own_functions

#: significant digits, or denominator of a fraction, from which on a number is none that people write
_DIGITS, _FRACTION = 6, 100
#: larger numbers are none that tables hold
_HUGE = 1e300
#: columns and rows up to which rows are tables, every column by every other
_WIDE, _LONG = 20, 5_000
#: categories that a table of means has in common with a column, at the least
CELLS = 9
#: values of one object of a module that are looked at
_MOST = 100_000
#: containers inside containers
_DEEP = 8


@dataclass
class Given:
    """One parameter or constant: its numbers, its texts, and where it is a table its values by key."""

    name: str
    numbers: list[float] = field(default_factory=list)
    texts: set[str] = field(default_factory=set)
    tables: list[dict[Any, float]] = field(default_factory=list)

    @property
    def size(self) -> int:
        """Values in it."""
        return len(self.numbers) + len(self.texts)

    def read(self, value: Any, *, deep: bool = False) -> None:
        """Take note of a value, JSON as ``estimators.encode`` writes it, or a literal; ``deep``: a list's part."""
        if isinstance(value, bool) or value is None:
            return
        if isinstance(value, int | float):
            self.numbers.append(float(value) if abs(value) < _HUGE else np.inf)
        elif isinstance(value, str):
            self.texts.add(value)
        elif isinstance(value, Mapping) and value.get("!") in ("dict", "frame"):
            self._table([[part[0], part[-1]] for part in value["value"]])
        elif isinstance(value, Mapping) and "!" in value:
            inner = value.get("params", value.get("value"))
            for part in inner.values() if isinstance(inner, Mapping) else [inner] if isinstance(inner, list) else []:
                self.read(part)
        elif isinstance(value, Mapping):
            self._table(list(value.items()))
        elif isinstance(value, list | tuple | set | frozenset):
            self._listed(list(value), deep=deep)

    def _listed(self, parts: list[Any], *, deep: bool) -> None:
        """Take note of a list: numbers by their places, pairs of a key and a number, and rows."""
        if not deep and _all_numbers(parts):
            self.tables.append(dict(enumerate(map(float, parts))))
        rows = [_row(p) for p in parts]
        self._crossed(rows)
        if all(len(r) == 2 for r in rows) and not any(isinstance(r[0], dict | list) for r in rows):
            self.tables.append({k: float(v) for k, v in rows if _all_numbers([v])})
        for part in parts:
            self.read(part, deep=True)

    def _table(self, pairs: list[Any]) -> None:
        numbers = {k: float(v) for k, v in pairs if not isinstance(k, dict | list) and _all_numbers([v])}
        if numbers:
            self.tables.append(numbers)
        rows = [_row(v) for _, v in pairs]
        self._crossed(rows)
        self._crossed([[k, *row] for (k, _), row in zip(pairs, rows, strict=True)])
        for k, v in pairs:
            self.texts |= {k} if isinstance(k, str) else set()
            self.read(v)

    def _crossed(self, rows: list[list[Any]]) -> None:
        """Take note of rows of one length: of every column of numbers, by place and by each other column."""
        if len({len(r) for r in rows}) != 1:
            return
        for columns in (rows, [list(c) for c in zip(*rows, strict=True)]):
            if len(columns) > _WIDE or not columns or not CELLS <= len(columns[0]) <= _LONG:
                continue
            plain = [c for c in columns if not any(isinstance(v, dict | list | tuple | set) for v in c)]
            for keys in (list(range(len(columns[0]))), *plain):
                values = [c for c in plain if c is not keys and _all_numbers(c)]
                self.tables += [dict(zip(keys, map(float, c), strict=True)) for c in values]


def _row(value: Any) -> list[Any]:
    """Return what a list, tuple, array or dict holds, without its keys; nothing of anything else."""
    if not isinstance(value, Mapping):
        return list(value) if isinstance(value, list | tuple) else []
    held = value.get("value") if "!" in value else [*value.items()]
    held = held if isinstance(held, list) else []
    return [v for _, v in held] if value.get("!", "dict") == "dict" else held


def _all_numbers(values: list[Any]) -> bool:
    return bool(values) and all(
        isinstance(v, int | float) and not isinstance(v, bool) and abs(v) < _HUGE for v in values
    )


def given(recipe: Any) -> Iterator[Given]:
    """Yield every parameter of the recipe, and every constant of its sources."""
    spec = recipe.payload.get("estimator")
    for name, value in [*recipe.payload["params"].items(), *(_settings(spec, "") if spec else ())]:
        made = Given(name)
        made.read(value)
        yield made
    for file, content in recipe.snapshot.items():
        with contextlib.suppress(SyntaxError, ValueError, RecursionError):
            yield from _literals(ast.parse(content), file)


def _literals(tree: ast.AST, file: str) -> Iterator[Given]:
    """Yield what stands in a source as numbers and texts, wherever: assigned, handed over, a default."""
    named = {
        id(node.value): ast.unparse(node.targets[0] if isinstance(node, ast.Assign) else node.target)[:60]
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None
    }
    todo: list[tuple[ast.AST, str]] = [(tree, "")]
    while todo:
        node, name = todo.pop()
        name = named.get(id(node), name)
        if isinstance(node, ast.Dict | ast.List | ast.Tuple | ast.Set) or (id(node) in named):
            with contextlib.suppress(ValueError, TypeError, RecursionError):
                line = vars(node)["lineno"]  # its text may be somebody's data
                made = Given(f"{name or f'line {line}'} of {file}")
                made.read(ast.literal_eval(node))
                yield made
                continue
        if isinstance(node, ast.Constant) and isinstance(node.value, float) and odd(node.value):
            yield Given(f"line {node.lineno} of {file}", [node.value, -node.value])
        todo += [(inner, name) for inner in ast.iter_child_nodes(node)]


def _settings(spec: Any, before: str) -> Iterator[tuple[str, Any]]:
    """Yield parameters of an estimator and of those within, by the names of ``get_params``."""
    for name, value in dict(spec.get("params", {})).items():
        if name == "public" and str(spec.get("class")).startswith("privgate.models:"):
            continue  # records that somebody declared
        inner = isinstance(value, Mapping) and value.get("!") == "estimator"
        steps = value if name in ("steps", "transformers", "transformer_list") and isinstance(value, list) else []
        for step in steps:
            parts = step["value"] if isinstance(step, Mapping) else step
            for part in parts[1:2]:
                if isinstance(part, Mapping) and part.get("!") == "estimator":
                    yield from _settings(part, f"{before}{parts[0]}__")
        if inner:
            yield from _settings(value, f"{before}{name}__")
        elif not steps:
            yield before + name, value


def odd(value: float) -> bool:
    """Whether a number is none that people write: no short decimal, and no fraction such as a third."""
    if not np.isfinite(value) or float(f"{value:.{_DIGITS - 1}g}") == value:
        return False
    return abs(float(Fraction(value).limit_denominator(_FRACTION)) - value) > 1e-12 * abs(value)


def of_modules(recipe: Any) -> Iterator[Given]:
    """Yield what the recipe's code reads of its modules that no source writes out: computed or read on import.

    Only in a worker, where the modules are loaded. ``DATA = read(); MEAN = DATA.mean()`` at the top of a script is the
    same for whoever is left out.
    """
    written = {(key, *_content(g)) for g in given(recipe) for key in (g.name, "")}
    for part in own_functions(recipe):
        file = part.__code__.co_filename.rpartition("/")[2]
        names = sorted(names_in(part.__code__) & part.__globals__.keys())
        held = [(f"{name} of {file}", part.__globals__[name]) for name in names]
        defaults = [(f"{name} of {part.__name__}", v) for name, v in _given_by_default(part)]
        for said, value in [*held, *defaults, *_inside(held, part.__code__)]:
            made = _held(said, value)
            content = None if made is None else _content(made)
            # what a source writes out has another name where it is a default
            if made is None or content is None or {(said, *content), ("", *content)} & written:
                continue
            written.add((said, *content))
            yield made


def _content(g: Given) -> tuple[frozenset[float], frozenset[str]]:
    """Return what is in it, a number that stands alone with either sign."""
    return frozenset(map(abs, g.numbers)), frozenset(g.texts)


def _file_of(module: str) -> str:
    """Return where a module was read from; of one that is not loaded, whose parts came by value, none at all."""
    return getattr(sys.modules[module], "__file__", None) or "" if module in sys.modules else "<by value>"


def _given_by_default(part: Any) -> Iterator[tuple[str, Any]]:
    """Yield defaults of arguments, and what a function closes over."""
    names = part.__code__.co_varnames[: part.__code__.co_argcount]
    yield from zip(names[::-1], (part.__defaults__ or ())[::-1], strict=False)
    yield from (part.__kwdefaults__ or {}).items()
    for name, cell in zip(part.__code__.co_freevars, part.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # empty
            yield name, cell.cell_contents


def _inside(held: list[tuple[str, Any]], code: CodeType) -> Iterator[tuple[str, Any]]:
    """Yield attributes that are read of own modules and classes, and what fitted objects learned."""
    for said, value in held:
        if isinstance(value, ModuleType | type):
            named = value.__name__ if isinstance(value, ModuleType) else value.__module__
            if is_own(named, _file_of(named)):
                yield from ((f"{k} of {said}", v) for k, v in vars(value).items() if k in _attributes(code))
        elif is_estimator(value) or is_own(type(value).__module__, _file_of(type(value).__module__)):
            yield from ((f"{k} of {said}", v) for k, v in getattr(value, "__dict__", {}).items())


def _held(name: str, value: Any) -> Given | None:
    """Return what an object holds, as a table where it is one; None for what is no data."""
    plain = _plain(value, 0)
    if plain is None or isinstance(plain, bool | str):
        return None
    made = Given(name)
    made.read(plain)
    return made


def _plain(value: Any, depth: int) -> Any:
    """Return lists, dicts and numbers that an object of a library holds; None for anything else."""
    shape = getattr(value, "shape", None)
    if hasattr(value, "iloc") and isinstance(shape, tuple):  # columns, or values, and their index
        width = value.shape[1] if hasattr(value, "columns") else 1
        some = value.iloc[: _MOST // (width + 1)]
        columns = [some.iloc[:, j] for j in range(width)] if hasattr(some, "columns") else [some]
        value = {j: c.tolist() for j, c in enumerate([some.index, *columns])}
    elif isinstance(value, np.generic) or (isinstance(value, np.ndarray) and value.dtype.kind in "biufOU"):
        table = np.asarray(value)
        value = table[: max(1, _MOST * len(table) // max(1, table.size))].tolist() if table.ndim else table.item()
    if depth > _DEEP:
        return None
    if isinstance(value, dict):
        return {k: _plain(v, depth + 1) for k, v in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(v, depth + 1) for v in value]
    return value if isinstance(value, bool | int | float | str) else None


def _attributes(code: CodeType) -> set[str]:
    """Return the names that a function reads of whatever, and those within."""
    return set(code.co_names).union(*(_attributes(c) for c in code.co_consts if isinstance(c, CodeType)))
