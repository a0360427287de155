"""What one training released, what batches are drawn from, and everything that an object carries."""

import hashlib
import io
import random
import sys
import tempfile
import types
import weakref
from collections.abc import Iterator, Mapping
from math import comb
from typing import Any

import numpy as np
from numpy.typing import NDArray

# What one training released, written down: the batches drawn, the noised gradients applied, the random states.
#
# Given to a second training on other records, it replaces the noised gradients there. Post-processing of them depends
# on nothing else, so whatever still differs between the two trained objects came from the records by another way.


class DivergedError(BaseException):
    """A replay asks for what its transcript does not have; no ``Exception``, so that training does not swallow it."""


class EnoughError(BaseException):
    """The part of a training that was wanted is over."""


class Transcript:
    """Batches, noised gradients and random states of one training."""

    def __init__(self) -> None:
        self.start = states()
        self.batches: list[list[tuple[Any, Any]]] = []
        self._file = tempfile.TemporaryFile()  # noqa: SIM115  lives as long as the transcript
        self._steps: list[tuple[int, int, tuple[int, ...]]] = []

    @property
    def steps(self) -> int:
        """Updates written down."""
        return len(self._steps)

    def write(self, optimizer: int, gradients: list[Any]) -> None:
        """Append the gradients of one update."""
        raw = b"".join(g.detach().contiguous().numpy().tobytes() for g in gradients)
        self._steps.append((optimizer, self._file.seek(0, 2), tuple(g.numel() * g.element_size() for g in gradients)))
        self._file.write(raw)

    def read(self, step: int, optimizer: int, like: list[Any]) -> list[Any]:
        """Return the gradients of update ``step``, shaped as ``like``."""
        import torch

        if step >= len(self._steps):
            raise DivergedError("training takes more steps on other records")
        number, place, sizes = self._steps[step]
        if number != optimizer or sizes != tuple(g.numel() * g.element_size() for g in like):
            raise DivergedError("the shape of the model depends on the records")
        self._file.seek(place)
        parts = [bytearray(self._file.read(size)) for size in sizes]
        return [
            torch.frombuffer(raw, dtype=g.dtype).reshape(g.shape) if raw else g
            for raw, g in zip(parts, like, strict=True)
        ]


def reseed() -> None:
    """Seed the global generators from the operating system: nobody's seed is left from an earlier training."""
    if torch := sys.modules.get("torch"):
        torch.seed()
    np.random.seed(None)  # noqa: NPY002  the user's
    random.seed()


def states() -> Any:
    """Return the states of the global generators of random numbers."""
    torch = sys.modules.get("torch")
    return torch and torch.get_rng_state(), np.random.get_state(), random.getstate()  # noqa: NPY002  the user's


def restore(saved: Any) -> None:
    """Undo what happened to the global generators since ``states``."""
    if saved[0] is not None:
        sys.modules["torch"].set_rng_state(saved[0])
    np.random.set_state(saved[1])  # noqa: NPY002  the user's
    random.setstate(saved[2])


# Everything that an object carries, leaf by leaf, so that two trainings' objects can be compared.

#: what Opacus leaves on parameters and modules while it trains; the report warns of it, because a pickle carries it
_ON_PARAMETERS = frozenset({"grad_sample", "summed_grad", "_norm_sample"})
_ON_MODULES = frozenset({"activations"})
#: names and counters of the process, no part of a model
_IGNORED = frozenset({"__weakref__", "__builtins__", "_cdata", "_backward_pre_hooks"})
_BARE = (type(None), bool, int, float, complex, str, bytes, np.generic)
_MUTE = (type, types.ModuleType, types.BuiltinFunctionType, weakref.ref, types.MethodWrapperType)


def leaves(thing: Any, *, skip: tuple[type, ...] = ()) -> dict[str, str]:
    """Return path -> digest of every number, text, array and tensor that ``thing`` reaches.

    Parameters
    ----------
    thing : any
    skip : tuple of types
        Objects that are ours.
    """
    found: dict[str, str] = {}
    seen: dict[int, Any] = {}
    todo: list[tuple[str, Any]] = [("", thing)]
    while todo:
        path, value = todo.pop()
        if isinstance(value, _BARE):
            found[path] = _digest(type(value).__name__.encode(), repr(value).encode())
            continue
        if isinstance(value, (*_MUTE, *skip)) or type(value).__name__ in ("RemovableHandle", "lock", "RLock"):
            continue
        if id(value) in seen:
            continue
        seen[id(value)] = value
        held = _content(value)
        if held:
            found[path] = _digest(*held)
        todo += [(path + name, part) for name, part in _parts(value)]
    return found


def leftovers(thing: Any) -> bool:
    """Return whether gradients or activations of single records still hang on a network."""
    import torch

    todo, seen = [thing], {}
    while todo:
        value = todo.pop()
        if id(value) in seen or isinstance(value, (*_BARE, *_MUTE)):
            continue
        seen[id(value)] = value
        if isinstance(value, torch.Tensor):
            if any(getattr(value, name, None) is not None for name in _ON_PARAMETERS):
                return True
            continue
        if isinstance(value, torch.nn.Module) and getattr(value, "activations", None):
            return True
        todo += [part for _, part in _parts(value)]
    return False


def _digest(*parts: bytes) -> str:
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def _content(value: Any) -> tuple[bytes, ...]:
    """Return the bytes that a value holds itself, beside its parts."""
    if isinstance(value, np.ndarray):
        if value.dtype == object:
            return (str(value.shape).encode(),)
        return (str((value.shape, value.dtype)).encode(), np.ascontiguousarray(value).tobytes())
    if _is_tensor(value):
        import torch

        if value.is_meta:  # Opacus keeps one of each parameter: a shape without numbers
            return (str((tuple(value.shape), value.dtype)).encode(),)
        plain = value.detach().cpu()
        plain = plain.to_dense() if plain.layout != torch.strided else plain
        raw = plain.contiguous().reshape(-1).view(torch.uint8) if plain.numel() else plain
        return (str((tuple(plain.shape), plain.dtype)).encode(), raw.numpy().tobytes() if plain.numel() else b"")
    if isinstance(value, bytearray | memoryview):
        return (bytes(value),)
    if isinstance(value, range | slice | np.dtype):
        return (repr(value).encode(),)
    if isinstance(value, list | tuple | set | frozenset | Mapping):
        return (f"{type(value).__name__} {len(value)}".encode(),)
    if isinstance(value, types.CodeType):
        return (value.co_code, repr(value.co_names).encode())
    return ()


def _is_tensor(value: Any) -> bool:
    return type(value).__module__.startswith("torch") and hasattr(value, "detach") and hasattr(value, "numel")


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield (name, part) of everything that a value reaches directly."""
    if isinstance(value, Mapping):
        # keys may be people's names: they are compared, never told
        for i, (key, part) in enumerate(value.items()):
            yield f"[key {i}]", key
            yield f"[{i}]", part
    elif isinstance(value, set | frozenset):
        yield from ((f"[{i}]", part) for i, part in enumerate(sorted(value, key=repr)))
    elif isinstance(value, list | tuple) or (isinstance(value, np.ndarray) and value.dtype == object):
        flat = value.reshape(-1) if isinstance(value, np.ndarray) else value
        yield from ((f"[{i}]", part) for i, part in enumerate(flat))
    if isinstance(value, types.FunctionType):
        yield ".code", value.__code__
        yield ".constants", value.__code__.co_consts
        for i, cell in enumerate(value.__closure__ or ()):
            try:
                yield f".cell{i}", cell.cell_contents
            except ValueError:  # nothing in it yet
                continue
        yield ".defaults", (value.__defaults__, value.__kwdefaults__)
    elif isinstance(value, types.MethodType):
        yield ".self", value.__self__
        yield ".function", value.__func__
    yield from _attributes(value)


def _attributes(value: Any) -> Iterator[tuple[str, Any]]:
    own = getattr(value, "__dict__", None)
    if isinstance(own, Mapping):
        left = _left_on(value)
        for name in sorted(own, key=str):
            if name in left or name in _IGNORED:
                continue
            part = own[name]
            if "_hooks" in str(name) and isinstance(part, Mapping):
                part = list(part.values())  # the keys count hooks of the whole process
            if name in ("_parameters", "_buffers", "_modules") and isinstance(part, Mapping):
                yield from ((f".{key}", inner) for key, inner in part.items())
            else:
                yield f".{name}", part
    slots = [s for c in type(value).__mro__ for s in _slots(c)]
    for name in slots:
        if name not in _IGNORED and hasattr(value, name):
            yield f".{name}", getattr(value, name)
    plain = isinstance(value, (np.ndarray, list, tuple, set, frozenset, Mapping, types.CodeType, types.FunctionType))
    # a partial, a deque's kind or a file in memory has a __dict__, and more that it does not hold
    own_way = getattr(type(value), "__reduce__", None) is not object.__reduce__
    hides = own_way or isinstance(value, io.BytesIO | io.StringIO)
    whole = hides or (own is None and not slots)
    if whole and not plain and not isinstance(value, types.MethodType) and not _is_tensor(value):
        try:
            reduced = value.__reduce_ex__(4)
        except Exception:  # noqa: BLE001  whatever cannot be written down is released by no file either
            return
        if isinstance(reduced, tuple):
            yield ".state", [list(r) if isinstance(r, Iterator) else r for r in reduced[1:]]


def _left_on(value: Any) -> frozenset[str]:
    """Return names that ``leftovers`` looks at; on whatever else they stand, they are a part of the model."""
    if _is_tensor(value):
        return _ON_PARAMETERS
    torch = sys.modules.get("torch")
    return _ON_MODULES if torch is not None and isinstance(value, torch.nn.Module) else frozenset()


def _slots(cls: type) -> tuple[str, ...]:
    slots = cls.__dict__.get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


# What batches are drawn from, entry by entry, and whose record each entry is.

#: the entry is the same whatever the records are
NOBODY = -1
#: the entry depends on several people
MIXED = -2
#: the entry changed for some of its owner's changes only
UNCLEAR = -3


class Population:
    """The entries of a data set that a loader draws from.

    Parameters
    ----------
    dataset : torch data set
    """

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset
        self.entries: list[str] | None = None
        self.samplers: list[Any] = []
        self.changed = False

    def look(self) -> None:
        """Read all entries, before the first step."""
        if self.entries is None:
            self.entries = _read(self.dataset)

    def look_again(self) -> None:
        """Compare with what is there when the training is over."""
        self.changed = self.entries is not None and _read(self.dataset) != self.entries


def _read(dataset: Any) -> list[str] | None:
    """Return a digest of every entry, None for what has no entries; random changes are the same in each reading."""
    import torch
    from torch.utils.data import TensorDataset

    if type(dataset) is TensorDataset:
        columns = [t.detach().cpu().contiguous().numpy() for t in dataset.tensors]
        return [_digest_of_entry(*(np.ascontiguousarray(c[i]).tobytes() for c in columns)) for i in range(len(dataset))]
    try:
        size = len(dataset)
    except TypeError:
        return None
    before, found = states(), []
    for i in range(size):
        torch.manual_seed(0)
        np.random.seed(0)  # noqa: NPY002  the user's generator
        random.seed(0)
        found.append(_digest_of_entry(repr(sorted(leaves(dataset[i]).items())).encode()))
    restore(before)
    return found


def _digest_of_entry(*parts: bytes) -> str:
    made = hashlib.sha256()
    for part in parts:
        made.update(str(len(part)).encode() + b":" + part)
    return made.hexdigest()


def codes(units: int) -> NDArray[np.bool_]:
    """Return one word a unit, all different and of one weight, shape (units, L).

    Whatever depends on two units changes with the union of their words, which is heavier than any word.
    """
    length = 2
    while comb(length, length // 2) < 4 * units:
        length += 1
    rng = np.random.default_rng(0)
    words = np.zeros((0, length), dtype=bool)
    while len(words) < units:
        order = np.argsort(rng.random((2 * units, length)), axis=1)
        words = np.unique(np.concatenate([words, order < length // 2]), axis=0)
    chosen: NDArray[np.bool_] = words[rng.permutation(len(words))[:units]]
    return chosen


def owners(changed: NDArray[np.bool_], words: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the unit that each entry comes from, or ``NOBODY``, ``MIXED``, ``UNCLEAR``.

    Parameters
    ----------
    changed : bool array of shape (entries, L)
        Whether the entry changed when the units with this bit were replaced.
    words : bool array of shape (units, L)
    """
    known = {word.tobytes(): unit for unit, word in enumerate(words)}
    weight = int(words[0].sum())
    found = np.full(len(changed), MIXED, dtype=np.int64)
    for i, pattern in enumerate(changed):
        if not pattern.any():
            found[i] = NOBODY
        elif pattern.tobytes() in known:
            found[i] = known[pattern.tobytes()]
        elif pattern.sum() < weight:
            found[i] = UNCLEAR
    return found
