"""In a worker: data that training code has of its own, and what of its records a trained object keeps beside a learner.

A function may hold arrays in globals, closures, defaults, attributes and constants; parameters are arguments, which
the report shows. Whoever holds an array has read
something else than its arguments, and an array that a training leaves behind reaches the next one.
"""

import sys
from collections.abc import Iterator, Mapping
from functools import partial
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from privgate.collusion.whose import of_file, whose

#: numbers that parameters, class weights and lists of labels may be; an array of more holds data
MOST_NUMBERS = 64
#: bytes of text or of constants in code that are no data
MOST_TEXT = 1 << 13
_DEEPEST = 4
_WIDE = 20_000


def stores(*things: Any) -> dict[str, int]:
    """Return ``where -> numbers`` of all data held by functions, and by the functions and modules that they use."""
    found: dict[str, int] = {}
    for where, thing in _held(things):
        size = numbers(thing)
        if size > MOST_NUMBERS:
            found[where] = max(found.get(where, 0), size)
    return found


def _held(things: tuple[Any, ...]) -> Iterator[tuple[str, Any]]:
    todo, seen = list(things), set[int]()
    while todo:
        thing = todo.pop()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        if isinstance(thing, partial):
            todo.append(thing.func)
        elif isinstance(thing, MethodType):
            todo += [thing.__func__]
            yield f"the object of {thing.__name__}", vars(thing.__self__) if hasattr(thing.__self__, "__dict__") else 0
        elif isinstance(thing, FunctionType):
            if whose(thing.__code__) in ("library", "python"):
                todo += [c.cell_contents for c in thing.__closure__ or () if _full(c)]
                continue
            if hasattr(thing, "__wrapped__"):
                todo.append(thing.__wrapped__)
            yield from _of_function(thing, todo)
        elif isinstance(thing, type) and _own_module(thing.__module__):
            todo += [v for v in vars(thing).values() if isinstance(v, FunctionType)]
            yield from ((f"{thing.__name__}.{k}", v) for k, v in vars(thing).items() if not callable(v))


def _of_function(function: FunctionType, todo: list[Any]) -> Iterator[tuple[str, Any]]:
    name = function.__name__
    for i, cell in enumerate(function.__closure__ or ()):
        if _full(cell):
            todo.append(cell.cell_contents)
            yield f"{name} holds {function.__code__.co_freevars[i]}", cell.cell_contents
    for default in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
        yield f"a default of {name}", default
    yield f"attributes of {name}", {k: v for k, v in vars(function).items() if k != "__wrapped__"}
    names = set[str]()
    for code in _codes(function.__code__):
        names |= set(code.co_names)
        for constant in code.co_consts:
            if isinstance(constant, bytes | tuple | frozenset) or (
                isinstance(constant, str) and len(constant) > MOST_TEXT
            ):
                yield f"a constant in {name}", constant
    for known in sorted(names & function.__globals__.keys()):
        value = function.__globals__[known]
        todo.append(value)
        if isinstance(value, ModuleType):
            if _own_module(value.__name__):
                todo += [v for v in vars(value).values() if isinstance(v, FunctionType | type)]
                yield from ((f"{value.__name__}.{k}", v) for k, v in vars(value).items() if not k.startswith("__"))
        elif not isinstance(value, type | FunctionType | BuiltinFunctionType):
            yield f"the global {known}", value


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _full(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False


def _own_module(name: str) -> bool:
    """Whether a module is the recipe's own: neither installed, nor ours, nor Python's."""
    module = sys.modules.get(name)
    file = getattr(module, "__file__", None)
    if name.partition(".")[0] in ("privgate", *sys.stdlib_module_names) or name == "builtins":
        return False
    return file is None or of_file(file) == "own"


def numbers(thing: Any, depth: int = 0, seen: set[int] | None = None) -> int:
    """Return how many numbers (or letters beyond a page) a value holds; libraries' modules and functions hold none."""
    seen = set() if seen is None else seen
    if depth > _DEEPEST or id(thing) in seen or isinstance(thing, type | ModuleType | FunctionType | CodeType):
        return 0
    seen.add(id(thing))
    if isinstance(thing, str):
        return len(thing) // 8 if len(thing) > MOST_TEXT else 0
    if isinstance(thing, bytes | bytearray | memoryview):
        return len(thing) // 8
    if isinstance(thing, int) and not isinstance(thing, bool):
        return thing.bit_length() // 64
    for size in ("numel", "nnz", "size"):  # tensors, sparse matrices, arrays and frames
        counted = getattr(thing, size, None)
        if counted is not None and (hasattr(thing, "shape") or hasattr(thing, "numel")):
            made = counted() if callable(counted) else counted
            return int(made) if isinstance(made, int | np.integer) else 0
    inner: list[Any] = []
    if isinstance(thing, Mapping | list | tuple | set | frozenset):
        if len(thing) >= _WIDE:
            return len(thing)
        inner = [*thing.keys(), *thing.values()] if isinstance(thing, Mapping) else list(thing)
    elif hasattr(thing, "__dict__"):
        inner = list(vars(thing).values())
    plain = sum(isinstance(v, int | float) and not isinstance(v, bool) for v in inner)
    return plain + sum(numbers(v, depth + 1, seen) for v in inner)


def kept(model: Any) -> int:
    """Return how many numbers a trained object holds outside of what libraries made: in attributes of own classes."""
    total, todo, seen = 0, [model], set[int]()
    while todo:
        thing = todo.pop()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        if isinstance(thing, MethodType):
            todo += [thing.__self__, thing.__func__]
        elif isinstance(thing, FunctionType):
            todo += [c.cell_contents for c in thing.__closure__ or () if _full(c)] + list(thing.__defaults__ or ())
        elif isinstance(thing, Mapping):
            total += len(thing)
            todo += [*thing.keys(), *thing.values()] if len(thing) < _WIDE else []
        elif isinstance(thing, list | tuple | set | frozenset):
            total += len(thing)
            todo += list(thing) if len(thing) < _WIDE else []
        elif _own_module(type(thing).__module__) and hasattr(thing, "__dict__"):
            todo += list(vars(thing).values())
        elif type(thing).__module__.partition(".")[0] in ("builtins", "numpy", "pandas", "scipy") or hasattr(
            thing, "numel"
        ):
            total += numbers(thing)
    return total
