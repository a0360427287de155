"""Modules that are no library's: those of a recipe, and what training left in them."""

import contextlib
import dis
import functools
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from privgate.subject.estimators import is_estimator

#: where libraries lie, and folders of theirs
_LIBRARIES, _FOLDERS = (
    (sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")),
    ("site-packages", "dist-packages"),
)
#: what is put back with what it held
_FILLED = (dict, list, set)
#: what has a function inside
_AROUND = (
    functools.partial,
    functools.cached_property,
    property,
    staticmethod,
    classmethod,
    MethodType,
    type(functools.lru_cache(len)),
)


def is_own(module: str | None, file: str) -> bool:
    """Whether a module, or a function's, is no library's and not ours, by its name and where it was read from."""
    if file.startswith("<"):  # made by code: a dataclass's methods are those of its module
        file = getattr(sys.modules.get(module or ""), "__file__", None) or file
    theirs = file.startswith(_LIBRARIES) or any(f in file for f in _FOLDERS)
    return bool(file) and not theirs and (module or "").partition(".")[0] != "privgate"


def _special(name: str) -> bool:
    """Whether a name is one of Python's own."""
    return name.startswith("__") and name.endswith("__")


def own_functions(recipe: Any) -> Iterator[FunctionType]:
    """Yield the functions that training and answering may run, of own modules, methods included."""
    todo, seen = [f for f in recipe.functions if f is not None], dict[int, Any]()
    while todo:
        part = todo.pop()
        if id(part) in seen or isinstance(part, ModuleType):
            continue
        seen[id(part)] = part  # kept alive: no other object gets its number
        if isinstance(part, FunctionType):
            todo += filter(None, [getattr(part, "__wrapped__", None)])
            if is_own(part.__globals__.get("__name__"), part.__code__.co_filename):
                todo += [part.__globals__[n] for n in names_in(part.__code__) & part.__globals__.keys()]
                yield part
        elif isinstance(part, type):
            todo += [v for kind in part.__mro__ for v in vars(kind).values()]
        elif isinstance(part, _AROUND):
            todo += [getattr(part, n) for n in ("func", "fget", "__func__", "__wrapped__") if hasattr(part, n)]
        else:
            todo.append(type(part))
            if is_estimator(part):
                todo += part.get_params().values()


def names_in(code: CodeType) -> set[str]:
    """Return the global names that a function reads, and those within; attributes are none."""
    own = {i.argval for i in dis.get_instructions(code) if i.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    return own.union(*(names_in(c) for c in code.co_consts if isinstance(c, CodeType)))


@dataclass
class States:
    """What own modules and their classes hold, to be put back.

    Modules that training imports later, and what objects hold that are no dict, list or set, stay as they are.
    """

    globals: list[tuple[dict[str, Any], dict[str, Any]]] = field(default_factory=list)
    classes: list[tuple[type, dict[str, Any]]] = field(default_factory=list)
    filled: list[tuple[Any, Any]] = field(default_factory=list)
    caches: list[Any] = field(default_factory=list)

    @classmethod
    def now(cls, recipe: Any) -> "States":
        """Return what they hold now."""
        made, functions = cls(), list(own_functions(recipe))
        modules = [vars(m) for n, m in list(sys.modules.items()) if is_own(n, getattr(m, "__file__", None) or "")]
        for own in {id(g): g for g in (*modules, *(f.__globals__ for f in functions))}.values():
            held = {k: v for k, v in own.items() if not _special(k)}
            made.globals.append((own, held))
            kinds = [v for v in held.values() if isinstance(v, type) and v.__module__ == own.get("__name__")]
            made.classes += [(k, {n: v for n, v in vars(k).items() if not _special(n)}) for k in kinds]
        values = [v for _, held in (*made.globals, *made.classes) for v in held.values()]
        functions += [v for v in values if isinstance(v, FunctionType)]
        values += [vars(f) for f in functions]
        values += [d for f in functions for d in (*(f.__defaults__ or ()), *(f.__kwdefaults__ or {}).values())]
        made.filled = [(v, v.copy()) for v in values if type(v) in _FILLED and v is not sys.modules]
        made.caches = [v for v in values if callable(getattr(v, "cache_clear", None))]
        return made

    def restore(self) -> None:
        """Put back what they held; what was computed once and kept is computed again."""
        for own, held in self.globals:
            new = [k for k, v in own.items() if k not in held and not _special(k)]
            for name in (n for n in new if not isinstance(own[n], ModuleType)):
                del own[name]
            own.update(held)
        for kind, held in self.classes:
            now = {k: v for k, v in vars(kind).items() if not _special(k)}
            with contextlib.suppress(AttributeError, TypeError):
                for name in now.keys() - held.keys():
                    delattr(kind, name)
                for name in (n for n, v in held.items() if now.get(n) is not v):
                    setattr(kind, name, held[name])
        for value, content in self.filled:
            value.clear()
            value.extend(content) if isinstance(value, list) else value.update(content)
        for cached in self.caches:
            cached.cache_clear()
