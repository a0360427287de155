"""What classes and functions of nobody's library keep in a model: numbers whose meaning nobody here knows.

A library's attributes are known by name. A class that came with the model may hold records scaled, permuted, in half
precision or as text, and there is no end of ways: more than a few numbers of its own may be anybody's.
"""

import inspect
import sys
from collections import deque
from collections.abc import Iterator, Mapping
from functools import cache, partial
from types import FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from privgate.training.whose import of_file, whose

#: numbers that are no records: so many besides, and a column so many scales and as many weights as there are labels
PLAIN, SCALES, LABELS = 64, 4, 50
#: letters of a text that may be a name or a remark
_TEXT = 128
_LONGEST = 100_000


def unexplained(roots: list[Any], allowed: int) -> list[str]:
    """Return a sentence on what classes and functions of nobody's library keep, if it is more than is allowed."""
    sizes: dict[str, float] = {}
    for where, size in _met(roots):
        sizes[where] = sizes.get(where, 0.0) + size
    total = sum(sizes.values())
    if total <= allowed:
        return []
    where = max(sizes, key=sizes.__getitem__)
    return [f"{where} and others of the model's own classes keep {total:.0f} numbers whose meaning nobody here knows"]


def _met(roots: list[Any]) -> Iterator[tuple[str, float]]:
    """Give the size, in numbers of 64 bits, of everything kept by what is no library's."""
    todo: list[tuple[Any, str]] = [(root, "") for root in roots]
    seen: dict[int, Any] = {}
    while todo:
        thing, where = todo.pop()
        if thing is None or isinstance(thing, type | ModuleType) or (id(thing) in seen and not isinstance(thing, int)):
            continue
        seen[id(thing)] = thing
        if (size := _size(thing)) is not None:
            if where and size:
                yield where, size
        elif isinstance(thing, Mapping | list | tuple | set | frozenset | deque):
            inner = [*thing.keys(), *thing.values()] if isinstance(thing, Mapping) else list(thing)
            if len(inner) > _LONGEST and where:
                yield where, float(len(inner))
                continue
            todo += [(v, where) for v in inner]
        elif isinstance(thing, partial | MethodType):
            parts = [thing.func, thing.args, thing.keywords] if isinstance(thing, partial) else [thing.__self__]
            todo += [(v, where) for v in (*parts, getattr(thing, "__func__", None))]
        elif isinstance(thing, FunctionType):
            if whose(thing.__code__) in ("own", "python"):
                cells = [c.cell_contents for c in thing.__closure__ or () if _full(c)]
                held = [cells, thing.__defaults__, thing.__kwdefaults__, vars(thing)]
                todo += [(v, thing.__name__) for v in held]
        else:
            todo += list(_attributes(thing))


def _size(thing: Any) -> float | None:
    """Return how many numbers a value is; None where it has parts."""
    if isinstance(thing, bool | float | complex | np.generic):
        return 1.0
    if isinstance(thing, int):
        return max(1.0, thing.bit_length() / 64)
    if isinstance(thing, str):
        return len(thing) / 8 if len(thing) > _TEXT else 0.0
    if isinstance(thing, np.ndarray):
        return None if thing.dtype.hasobject else float(thing.size)
    if isinstance(thing, bytes | bytearray | memoryview):
        return 0.0  # named as unknown where they are met
    if hasattr(thing, "numel") and hasattr(thing, "element_size"):
        return 0.0 if thing.requires_grad else float(thing.numel())
    if hasattr(thing, "tocsr") and hasattr(thing, "nnz"):
        return float(thing.nnz)
    if type(thing).__module__.partition(".")[0] == "pandas" and hasattr(thing, "size"):
        return float(thing.size)
    return None


def _full(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False


def _attributes(thing: Any) -> Iterator[tuple[Any, str]]:
    """Give the attributes of an object, and under whose name they are counted: nobody's, if its library knows them."""
    held = dict(getattr(thing, "__dict__", None) or {})
    for one in type(thing).__mro__:
        slots = one.__dict__.get("__slots__", ())
        for key in (slots,) if isinstance(slots, str) else slots:
            if hasattr(thing, key):
                held.setdefault(key, getattr(thing, key))
    name = type(thing).__name__
    if _is_own(type(thing).__module__):
        for key, value in held.items():
            # parameters of a network are what training made of everybody
            yield value, "" if key in ("_parameters", "_modules") else f"{name}.{key}"
        return
    kind: Any = type(thing)
    known = _names(kind)
    for key, value in held.items():
        if key == "_buffers" and isinstance(value, dict):
            yield from ((v, "" if f'"{k}"' in known else f"{name}.{k}") for k, v in value.items())
        else:
            yield value, "" if not known or key in known else f"{name}.{key}"


@cache
def _is_own(module: str) -> bool:
    """Whether a module is neither installed, nor ours, nor Python's."""
    root = module.partition(".")[0]
    if root in ("builtins", "privgate") or (root in sys.stdlib_module_names and root != "__main__"):
        return False
    file = getattr(sys.modules.get(module) or sys.modules.get(root), "__file__", None)
    return file is None or of_file(file) == "own"


@cache
def _names(kind: type) -> str:
    """Return the sources of a library's class and of what it is made from; empty where they cannot be read."""
    texts = []
    for one in kind.__mro__:
        if one is object or one.__module__ == "builtins":
            continue
        try:
            texts.append(inspect.getsource(sys.modules[one.__module__]))
        except (OSError, TypeError, KeyError):
            return ""
    return "\n".join(texts)
