"""In a worker: whether the learners of a trained object are as a watched training left them.

What somebody learned elsewhere, in another process, by arithmetic of his own or by a library's inner functions, may be
put into a learner that was fitted under watch before. A digest of what each learner holds is taken when its ``fit``
returns, and of what the trained object holds in the end. Copies agree; so does an earlier state that was kept.
"""

import hashlib
import io
import pickle
from collections.abc import Iterator, Mapping
from types import FunctionType, MethodType
from typing import Any

import numpy as np

from privgate.training.whose import whose

#: numbers beside its parts that a learner put together of fitted parts may hold, as classes and names
_PLAIN = 64
_DEEPEST = 6
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
