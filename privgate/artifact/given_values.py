"""What training is given beside its records: parameters, constants of sources, and what modules computed on import."""

import ast
import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from privgate.subject.own_modules import names_in, own_functions

#: significant digits, or denominator of a fraction, from which on a number is none that people write
_DIGITS, _FRACTION = 6, 100
#: larger numbers are none that tables hold
_HUGE = 1e300
#: columns up to which rows are tables, every column by every other
_WIDE = 20
#: categories that a table of means has in common with a column, at the least
CELLS = 9
#: values of one object of a module that are looked at
_MOST = 100_000


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
            if len(columns) > _WIDE or not columns or len(columns[0]) < CELLS:
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
    written = {g.name for g in given(recipe)}
    for part in own_functions(recipe):
        file = part.__code__.co_filename.rpartition("/")[2]
        for name in sorted(names_in(part.__code__) & part.__globals__.keys()):
            said = f"{name} of {file}"
            if said not in written and (made := _held(said, part.__globals__[name])) is not None:
                written.add(said)
                yield made


def _held(name: str, value: Any) -> Given | None:
    """Return what an object holds, as a table where it is one; None for what is no data."""
    if hasattr(value, "iloc") and not isinstance(value, type):  # columns of a frame, or values, by their index
        some = value.iloc[:_MOST]
        columns = [some.iloc[:, j] for j in range(some.shape[1])] if hasattr(some, "columns") else [some]
        value = {j: c.tolist() for j, c in enumerate([some.index, *columns])}
    elif isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "biufOU":
        value = np.asarray(value)[:_MOST].tolist() if value.ndim else value.item()
    if isinstance(value, bool) or not isinstance(value, int | float | list | tuple | dict | set | frozenset):
        return None
    made = Given(name)
    made.read(value)
    return made
