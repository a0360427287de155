"""In a worker: whether the learners of a trained object are as a watched training left them.

What somebody learned elsewhere, in another process, by arithmetic of his own or by a library's inner functions, may be
put into a learner that was fitted under watch before. A digest of what each learner holds is taken when its ``fit``
returns, and of what the trained object holds in the end. Copies agree; so does an earlier state that was kept.
"""

import hashlib
import io
import pickle
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import cloudpickle
import numpy as np

from privgate.training.recognition import of_file, whose

#: numbers beside its parts that a learner put together of fitted parts may hold, as classes and names
_PLAIN = 64
_DEEPEST = 6  # levels of things within things
_SIZED = (np.ndarray, list, tuple, dict)
#: what scikit-learn holds only while it trains
_PASSING = ("_callback_fit_ctx", "_skl_")


def learner(thing: Any) -> bool:
    """Whether a library's ``fit`` trains this object."""
    fit = getattr(type(thing), "fit", None)
    fit = getattr(fit, "__wrapped__", fit)
    return isinstance(fit, FunctionType) and whose(fit.__code__) == "library" and hasattr(type(thing), "get_params")


def within(thing: Any, depth: int = 0) -> Iterator[Any]:
    """Give a learner and the learners in it."""
    if depth > _DEEPEST:
        return
    if learner(thing):
        yield thing
        for value in vars(thing).values():
            yield from within(value, depth + 1)
    elif isinstance(thing, list | tuple):
        for value in thing:
            yield from within(value, depth + 1)
    elif isinstance(thing, Mapping):
        yield from within(list(thing.values()), depth)
    elif isinstance(thing, np.ndarray) and thing.dtype == object:
        yield from within(thing.ravel().tolist(), depth)


def state(thing: Any) -> bytes | None:
    """Return a digest of what an attribute holds; None where it cannot be taken."""
    sink = io.BytesIO()
    digester = _Digester(sink, protocol=5)
    digester.fast = True  # no memo: copies share other parts than their originals
    try:
        digester.dump(thing)
    except Exception:  # noqa: BLE001  whatever cannot be pickled has no digest
        return None
    return hashlib.blake2b(sink.getbuffer(), digest_size=16).digest()


class Left:
    """What learners held when a watched training ended, as digests of their attributes."""

    def __init__(self) -> None:
        self._digests: set[tuple[str, str, bytes]] = set()
        self._without: list[Any] = []
        self._had: dict[int, tuple[Any, frozenset[str]]] = {}

    def note(self, thing: Any) -> None:
        """Take a learner that has just been fitted, and the learners in it."""
        for one in within(thing):
            self._had[id(one)] = one, frozenset(vars(one))
            digests = _digests(one)
            self._digests |= digests
            if not all(d for _, _, d in digests):
                self._without.append(one)

    def known(self, thing: Any) -> bool:
        """Whether a learner is as some watched training left it, or is put together of such.

        Attributes count one by one: early stopping keeps the best weights, and not how often it went on after them.
        """
        digests = _digests(thing)
        if any(thing is one for one in self._without) or (digests <= self._digests and all(d for _, _, d in digests)):
            return True
        parts = [p for value in vars(thing).values() for p in _tops(value)]
        others = [v for v in vars(thing).values() if not list(_tops(v))]
        sizes = [v.size if isinstance(v, np.ndarray) else len(v) for v in others if isinstance(v, _SIZED)]
        small = max(sizes, default=0) <= _PLAIN
        return bool(parts) and small and all(self.known(p) for p in parts)

    def added(self, thing: Any) -> list[Any]:
        """Return values of attributes that a learner did not have when its training ended; all if it never ended."""
        _, before = self._had.get(id(thing), (None, None))
        if before is None:
            before = frozenset(vars(thing)) if self.known(thing) else frozenset(thing.get_params(deep=False))
        return [v for k, v in vars(thing).items() if k not in before]


def _tops(value: Any) -> Iterator[Any]:
    """Give the learners in a value, and none within them."""
    if learner(value):
        yield value
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _tops(one)
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from _tops(one)


def strangers(learners: list[Any], left: Left) -> list[str]:
    """Return the names of fitted learners that no watched training left as they are."""
    return sorted({type(t).__name__ for t in learners if _fitted(t) and not left.known(t)})


def _digests(thing: Any) -> set[tuple[str, str, bytes]]:
    """Return a digest of each attribute that is no plain parameter; an empty one where none can be taken."""
    plain = set(thing.get_params(deep=False))
    held = {k: v for k, v in _attributes(thing).items() if k not in plain or not _is_plain(v)}
    return {(type(thing).__qualname__, k, state(v) or b"") for k, v in held.items()}


def _fitted(thing: Any) -> bool:
    return bool(_attributes(thing).keys() - thing.get_params(deep=False).keys())


def _attributes(thing: Any) -> dict[str, Any]:
    return {k: v for k, v in vars(thing).items() if not k.startswith(_PASSING)}


def _as(*named: Any) -> None:
    """Stand for something in a digest."""


class _Digester(pickle.Pickler):
    """Writes what two equal learners have in common, whatever their arrays' order in memory."""

    def reducer_override(self, thing: Any) -> Any:
        """Return what stands for an object."""
        if thing is _as:
            return NotImplemented
        if isinstance(thing, np.ndarray) and not thing.dtype.hasobject:
            content = hashlib.blake2b(np.ascontiguousarray(thing).tobytes(), digest_size=16).digest()
            return _as, (thing.dtype.str, thing.shape, content)
        if isinstance(thing, np.random.RandomState | np.random.Generator):
            return _as, ("chance",)
        if isinstance(thing, FunctionType | MethodType):
            return _as, (thing.__qualname__,)
        if hasattr(thing, "save_raw"):
            return _as, (hashlib.blake2b(bytes(thing.save_raw()), digest_size=16).digest(),)
        if hasattr(thing, "model_to_string"):
            return _as, (thing.model_to_string(),)
        if hasattr(thing, "numel") and hasattr(thing, "detach"):
            return _as, (str(thing.dtype), tuple(thing.shape), thing.detach().cpu().double().numpy().tobytes())
        if learner(thing):
            plain = set(thing.get_params(deep=False))
            held = {k: v for k, v in _attributes(thing).items() if k not in plain or not _is_plain(v)}
            return _as, (type(thing).__qualname__, held)
        return NotImplemented


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, str | int | float | bool | np.generic) or callable(value)


# In a worker: data that training code has of its own, and what of its records a trained object keeps beside a learner.
#
# A function may hold arrays in globals, closures, defaults, attributes and constants; parameters are arguments, which
# the report shows. Whoever holds an array has read something else than its arguments, and an array that a training
# leaves behind reaches the next one.

#: numbers that parameters, class weights and lists of labels may be; an array of more holds data
MOST_NUMBERS = 64
#: bytes of text or of constants in code that are no data
MOST_TEXT = 1 << 13
#: numbers that stand in the code of one function
MOST_CONSTANTS = 512
#: by which code reaches its module's globals without naming them
_BY_NAME = {"globals", "vars", "modules", "import_module", "__import__", "__dict__", "eval", "f_globals"}
#: Python's modules whose objects tell of the process alone
_ABOUT_THE_PROCESS = ("logging", "threading", "re", "weakref", "contextvars")
_HELD_DEEPEST = 4  # levels of things within things
_WIDE = 20_000  # items; a wider thing is counted by its length


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
            plain = (v.__func__ if isinstance(v, staticmethod | classmethod) else v for v in vars(thing).values())
            todo += [v.fget if isinstance(v, property) else v for v in plain]
            todo += [b for b in thing.__bases__ if b is not object]
            yield from ((f"{thing.__name__}.{k}", v) for k, v in vars(thing).items() if not callable(v))
        elif not isinstance(thing, type | ModuleType) and hasattr(type(thing), "get_params") and learner(thing):
            yield from _of_learner(thing, todo)
        elif not isinstance(thing, type | ModuleType) and _own_module(type(thing).__module__):
            todo.append(type(thing))


def _of_learner(thing: Any, todo: list[Any]) -> Iterator[tuple[str, Any]]:
    """Give functions and tables among the parameters of a recipe's estimator, and what fitted ones among them hold."""
    for one in within(thing):
        for key, value in one.get_params(deep=False).items():
            if isinstance(value, FunctionType | partial | MethodType):
                todo.append(value)
            elif getattr(value, "ndim", 0) > 1:
                yield f"the parameter {key}", value
        for key, value in vars(one).items():
            if key.endswith("_") and not key.startswith("_"):
                yield f"{key} of a fitted {type(one).__name__}", value


def _of_function(function: FunctionType, todo: list[Any]) -> Iterator[tuple[str, Any]]:
    name = function.__name__
    for i, cell in enumerate(function.__closure__ or ()):
        if _full(cell):
            todo.append(cell.cell_contents)
            yield f"{name} holds {function.__code__.co_freevars[i]}", cell.cell_contents
    for default in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
        yield f"a default of {name}", default
    yield f"attributes of {name}", {k: v for k, v in vars(function).items() if k != "__wrapped__"}
    yield from _constants(function)
    names = {n for code in _codes(function.__code__) for n in code.co_names}
    if names & _BY_NAME:
        # what is looked up by a name that is made up may be anything that the module holds
        todo += [v for v in function.__globals__.values() if isinstance(v, FunctionType | type)]
        names |= {k for k in function.__globals__ if not k.startswith("__")}
    for known in sorted(names & function.__globals__.keys()):
        value = function.__globals__[known]
        todo.append(value)
        if isinstance(value, ModuleType):
            if _own_module(value.__name__):
                todo += [v for v in vars(value).values() if isinstance(v, FunctionType | type)]
                yield from ((f"{value.__name__}.{k}", v) for k, v in vars(value).items() if not k.startswith("__"))
            else:  # what somebody put into a library
                yield from ((f"{value.__name__}.{k}", vars(value)[k]) for k in names & vars(value).keys())
        elif not isinstance(value, type | FunctionType | BuiltinFunctionType):
            yield f"the global {known}", value


def _constants(function: FunctionType) -> Iterator[tuple[str, Any]]:
    name, letters, plain = function.__name__, 0, 0
    for code in _codes(function.__code__):
        for constant in code.co_consts:
            if isinstance(constant, bytes | tuple | frozenset | int):
                yield f"a constant in {name}", constant
            letters += len(constant) if isinstance(constant, str) else 0
            plain += isinstance(constant, float | int)
    if letters > MOST_TEXT:
        yield f"texts in {name}", "x" * letters
    if plain > MOST_CONSTANTS:
        yield f"numbers in {name}", [0.0] * plain


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
    if depth > _HELD_DEEPEST or id(thing) in seen or isinstance(thing, type | ModuleType | FunctionType | CodeType):
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
    elif hasattr(thing, "__dict__") and type(thing).__module__.partition(".")[0] not in _ABOUT_THE_PROCESS:
        inner = list(vars(thing).values())
    plain = sum(isinstance(v, int | float) and not isinstance(v, bool) for v in inner)
    return plain + sum(numbers(v, depth + 1, seen) for v in inner)


@dataclass
class Kept:
    """What a trained object holds outside of libraries' learners.

    Parameters
    ----------
    bytes, own : int
        All of it, and what is no module's of torch, which its training may have made.
    learners : list
        The learners that were met, outermost ones alone.
    unknown : bool
        Whether some of it could not be walked.
    """

    bytes: int = 0
    own: int = 0
    learners: list[Any] = field(default_factory=list)
    unknown: bool = False


def kept(model: Any, left: Left | None = None) -> Kept:
    """Return what a trained object keeps beside its learners: what pickling it would write."""
    found, waiting, seen = Kept(), [model], set[int]()
    while waiting:
        walker = _Walker(found, left or Left(), waiting, seen)
        part = waiting.pop()
        try:
            walker.dump(part)
        except Exception:  # noqa: BLE001  the watched code's own objects: what they raise says that they stay closed
            found.unknown = True
        found.bytes += walker.sink.size
        found.own += walker.sink.size
    return found


class _Sink:
    """A file that counts and keeps nothing."""

    size = 0

    def write(self, data: Any) -> int:
        """Count."""
        self.size += len(data)
        return len(data)


class _Walker(cloudpickle.Pickler):  # type: ignore[misc]  # untyped
    """Goes through an object as pickling does, past learners of libraries and modules of torch."""

    def __init__(self, found: Kept, left: Left, waiting: list[Any], seen: set[int]) -> None:
        self.sink, self._found, self._left, self._waiting, self._seen = _Sink(), found, left, waiting, seen
        super().__init__(self.sink, protocol=5)

    def persistent_id(self, thing: Any) -> Any:
        """Count an object that is not gone into; None to go on into it."""
        if thing is None or isinstance(thing, type | ModuleType | BuiltinFunctionType | CodeType):
            return 0 if isinstance(thing, CodeType) else None
        if isinstance(thing, FunctionType):
            if id(thing) not in self._seen and whose(thing.__code__) == "own":
                self._seen.add(id(thing))
                cells = [c.cell_contents for c in thing.__closure__ or () if _full(c)]
                self._waiting.append([cells, thing.__defaults__, thing.__kwdefaults__, vars(thing)])
            return 0
        if isinstance(thing, np.ndarray):
            if thing.dtype.hasobject:
                return None
            self._found.bytes += thing.nbytes
            self._found.own += thing.nbytes
            return 0
        if hasattr(thing, "numel") and hasattr(thing, "element_size"):
            size = thing.numel() * thing.element_size()
            self._found.bytes += size
            self._found.own += 0 if thing.requires_grad else size
            return 0
        if _booster(thing):
            return 0
        if learner(thing):
            if id(thing) not in self._seen:
                self._seen.add(id(thing))
                self._found.learners.append(thing)
                self._waiting += self._left.added(thing)
            return 0
        return None


def _booster(thing: Any) -> bool:
    return f"{type(thing).__module__}.{type(thing).__name__}" in ("xgboost.core.Booster", "lightgbm.basic.Booster")
