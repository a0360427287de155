"""Everything that an object carries, leaf by leaf, so that two trainings' objects can be compared."""

import hashlib
import sys
import types
import weakref
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

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
    if own is None and not slots and not plain and not isinstance(value, types.MethodType) and not _is_tensor(value):
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
