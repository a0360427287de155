"""Objects of pickles and of JSON: a stand-in for every class and function keeps what it is given, and runs nothing."""

import contextlib
import io
import pickle
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from privgate.file.contents import OPAQUE, STORAGES, Contents, decode_letters, is_writing, name_booster

#: what opens bytes that stand inside a pickle, by where they stand
Inner = Callable[[bytes, str], None]
#: what only describes numbers, or copies bytes
_PLAIN = {"numpy.dtype": np.dtype, "builtins.bytearray": bytearray}
#: how tables write a number with a decimal comma
_COMMA = re.compile(r"(-?\d+),(\d+(?:[eE]-?\d+)?)")


class StandIn:
    """Whatever a pickle names: it keeps arguments, state and items in ``given``, and runs nothing."""

    named = ""
    #: all that one pickle makes
    kept: ClassVar[list[Any]] = []
    given: list[Any]

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        stand_in = object.__new__(cls)
        stand_in.given = [*args, *kwargs.values()]
        cls.kept.append(stand_in)
        return stand_in

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return type(self)(self, *args, **kwargs)

    def __setitem__(self, key: Any, item: Any) -> None:
        self.given += [key, item]

    def append(self, item: Any) -> None:
        self.given.append(item)

    add = __setstate__ = append

    def extend(self, items: Any) -> None:
        self.given.extend(items)


class _Unpickler(pickle.Unpickler):
    """Reads a pickle with stand-ins for all that it names; of its source it takes no more than it needs."""

    def __init__(self, source: io.BytesIO, into: Contents) -> None:
        super().__init__(source)
        self.source, self.into = source, into
        self.classes: dict[str, Any] = {}
        self.kept: list[Any] = []

    def find_class(self, module: str, name: str) -> Any:
        """Return a stand-in; a description of numbers is numpy's own, which only describes."""
        full = f"{module}.{name}"
        self.into.names.add(full)
        if full in _PLAIN:
            return _PLAIN[full]
        if name.startswith("_make_skeleton"):  # of cloudpickle, for a class that the pickle describes itself
            return self._describe_class
        if full not in self.classes:
            kind: dict[str, Any] = {"named": full, "kept": self.kept}
            if name.startswith("NumpyArrayWrapper"):
                kind["__setstate__"] = lambda wrapper, state: wrapper.given.append(self._read_behind(state))
            self.classes[full] = type(name, (StandIn,), kind)
        return self.classes[full]

    def _describe_class(self, *args: Any) -> Any:
        named = next((a for a in args if isinstance(a, str)), "class")
        self.into.names.add(named)
        return type(named, (StandIn,), {"named": named, "kept": self.kept})

    def persistent_load(self, pid: Any) -> Any:
        """Return a stand-in for what lies beside the pickle, and note which numbers a file of torch's holds."""
        if isinstance(pid, tuple) and len(pid) >= 5 and pid[0] == "storage":
            kind = getattr(pid[1], "named", "").rpartition(".")[2]
            if kind in STORAGES:
                self.into.storages[str(pid[2])] = kind
        return StandIn(pid)

    def _read_behind(self, state: Any) -> Any:
        """Return the array that joblib wrote behind its description, in the middle of the pickle."""
        shape, dtype = tuple(state["shape"]), state["dtype"]
        if dtype.hasobject:
            return _Unpickler(self.source, self.into).load()
        if state.get("numpy_array_alignment_bytes") is not None:
            self.source.read(self.source.read(1)[0])
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        if all(isinstance(v, int) for v in shape):  # said, and no numbers of the model's
            del state["shape"]
        return np.frombuffer(self.source.read(size), dtype=dtype).reshape(shape, order=state.get("order", "C"))

    def note_shapes(self) -> None:
        """Note in which shape a tensor of torch's uses the numbers that lie beside the pickle."""
        for thing in self.kept:
            if thing.named.endswith("_rebuild_tensor_v2") and len(thing.given) >= 3:
                storage, shape = thing.given[0], thing.given[2]
                pid = storage.given[0] if isinstance(storage, StandIn) and storage.given else None
                if isinstance(pid, tuple) and len(pid) >= 5 and isinstance(shape, tuple):
                    self.into.shapes[str(pid[2])] = tuple(v for v in shape if isinstance(v, int))


def read_pickle(data: bytes, name: str, into: Contents, inner: Inner) -> None:
    """Add what one pickle after another holds; what stands behind the last one is opaque."""
    source = io.BytesIO(data)
    while source.tell() < len(data) and (data[source.tell()] == 0x80 or not source.tell()):
        reader = _Unpickler(source, into)
        root = reader.load()
        reader.note_shapes()
        read_objects([root, *reader.kept], name, into, inner, printed=False)
        if root and isinstance(root, list) and all(str(k) in into.storages for k in root):
            for key in root:  # of torch's older format, as in each pickle of a tensor: behind it, with its length first
                size = int.from_bytes(source.read(8), "little")
                into.add_storage(source.read(size * np.dtype(STORAGES[into.storages[key]]).itemsize), key)
    if len(data) - source.tell() > OPAQUE:
        into.opaque.append((f"{name}, behind its end", data[source.tell() :]))


def read_objects(root: Any, name: str, into: Contents, inner: Inner, *, printed: bool = True) -> None:
    """Add the arrays and texts of objects in their order; ``printed``: their numbers were printed, as in JSON."""
    seen, todo = set[int](), [(root, name)]
    numbers, strings = dict[str, list[float]](), list[str]()
    while todo:
        thing, where = todo.pop()
        if thing is None or isinstance(thing, bool | type | np.dtype):
            continue
        if isinstance(thing, int | float | complex):
            _note_number(thing, where, numbers, into)
            continue
        if isinstance(thing, str):
            strings.append(thing)
            continue
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        if isinstance(thing, bytes | bytearray):
            inner(bytes(thing), where)
        elif isinstance(thing, np.ndarray):
            into.add_array(thing, where)
        elif isinstance(thing, list | tuple) and len(thing) > 1 and all(isinstance(v, str) for v in thing):
            into.lists.append((where, len(thing)))
            todo += [(v, where) for v in thing[::-1]]
        elif isinstance(thing, list) and len(thing) > 1 and all(map(_is_row, thing)):
            names = dict.fromkeys(key for row in thing for key in row)
            add_table([[row.get(key) for row in thing] for key in names], where, into, text=printed)
            todo += [(v, where) for v in thing[::-1]]
        elif (array := _read_numbers(thing)) is not None:
            into.add_array(array, where, text=printed)
            seen.update(map(id, _list_inside(thing)))
        else:
            todo += list(_split_object(thing, where, named=not printed))[::-1]
    for where, some in numbers.items():
        into.add_array(np.array(some), where, text=printed, loose=True)
    _add_strings(strings, name, into, inner)


def _is_row(thing: Any) -> bool:
    return isinstance(thing, dict) and not any(isinstance(v, dict | list | tuple | StandIn) for v in thing.values())


def add_table(columns: Iterable[list[Any]], where: str, into: Contents, *, text: bool) -> None:
    """Add a table's columns of numbers, also those written as texts, and the texts of each row as one passage."""
    numbers, texts = list[NDArray[Any]](), list[Any]()
    for column in columns:
        if all(isinstance(v, list | np.ndarray) for v in column):  # a row in each
            with contextlib.suppress(ValueError, TypeError):
                numbers += list(np.array(column, dtype=np.float64).T)
            continue
        values = np.array([_read_printed(v) for v in column])
        if not np.isnan(values).all():
            numbers.append(values)
        if np.isnan(values).any():
            texts.append(map(str, column))
    if numbers and len(numbers[0]) > 1:
        into.add_array(np.column_stack(numbers), where, text=text)
    for row in zip(*texts, strict=True):
        into.passages += [" ".join(row), ""]


def _read_printed(value: Any) -> float:
    """Return the number that a value of a table is, or writes; NaN for anything else."""
    if isinstance(value, str):
        value = {"True": 1, "False": 0}.get(value, _COMMA.sub(r"\1.\2", value))
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return np.nan


def _note_number(thing: Any, where: str, numbers: dict[str, list[float]], into: Contents) -> None:
    """Note a number that stands by itself; very large ones are bytes."""
    if isinstance(thing, int) and abs(thing) >= 1 << 64:
        data = abs(thing).to_bytes(-(-abs(thing).bit_length() // 8), "little")
        if len(data) > OPAQUE:
            into.opaque.append((where, data))
        else:  # digests, or states of generators
            into.keys.setdefault(where, set()).add(data)
    else:
        parts = [thing.real, thing.imag] if isinstance(thing, complex) else [float(thing)]
        numbers.setdefault(where, []).extend(parts)


def _add_strings(strings: list[str], where: str, into: Contents, inner: Inner) -> None:
    """Add texts as passages, their numbers one text after another, and the bytes that some of them write in letters."""
    texts = dict[str, list[str]]()
    for text in strings:
        if (data := decode_letters(text)) is not None:
            inner(data, where)
        elif not (library := name_booster(text[:8192].encode("utf-8", "replace"))) and not is_writing(text):
            into.opaque.append((f"a text of {where}", text.encode("utf-8", "replace")))
        else:
            into.passages.append(text)
            texts.setdefault(library, []).append(text)
    into.passages.append("")
    for library, some in texts.items():
        into.add_numbers(some, f"{library}{where}")


def _list_inside(thing: Any) -> Iterator[Any]:
    for part in thing.given if isinstance(thing, StandIn) else thing:
        yield part
        for inner in part if isinstance(part, tuple | list) else ():
            yield inner
            yield from inner.given if isinstance(inner, StandIn) else ()


def _read_numbers(thing: Any) -> NDArray[Any] | None:
    """Return the array that a stand-in of numpy's describes, or that a list of numbers is; None for anything else."""
    if isinstance(thing, StandIn):
        return _read_array(thing)
    if isinstance(thing, list | tuple) and len(thing) > 1:
        kinds = set(map(type, thing))
        if kinds <= {int, float, bool}:
            return np.asarray(thing, dtype=np.float64)
        if kinds <= {list, tuple} and len(set(map(len, thing))) == 1 and thing[0]:
            rows = [_read_numbers(v) for v in thing]
            if all(r is not None and r.ndim == 1 for r in rows):
                return np.array(rows)
    return None


def _read_array(thing: StandIn) -> NDArray[Any] | None:
    kind, given, order = thing.named.rpartition(".")[2], thing.given, "C"
    if kind == "scalar" and thing.named.startswith("numpy") and len(given) == 2:
        dtype, data, shape = given[0], given[1], (-1,)
        data = data.encode("latin1") if isinstance(data, str) else data
    elif kind == "_reconstruct" and isinstance(given[-1], tuple) and len(given[-1]) == 5:
        _, shape, dtype, fortran, data = given[-1]
        order = "F" if fortran else "C"
    elif kind == "_frombuffer" and len(given) == 4:
        data, dtype, shape, order = given
    else:
        return None
    if isinstance(data, StandIn) and data.named == "_codecs.encode":  # bytes, as the oldest pickles write them
        data = str(data.given[0]).encode("latin1")
    if not isinstance(dtype, np.dtype) or dtype.hasobject or not isinstance(data, bytes | bytearray):
        return None
    return np.frombuffer(data, dtype=dtype).reshape(shape, order="F" if order == "F" else "C")


def _split_object(thing: Any, where: str, *, named: bool) -> Iterator[tuple[Any, str]]:
    """Yield the parts of an object, each with its class and attribute; a key of a mapping is a passage of its own."""
    if isinstance(thing, StandIn):
        own = where if thing.named.startswith("joblib.") else thing.named or where
        yield from ((part, own) for part in thing.given)
    elif isinstance(thing, dict):
        for key, value in thing.items():
            short = named and isinstance(key, str) and key.isidentifier() and len(thing) < 200
            yield value, f"{where}.{key}" if short and where.count(".") < 6 else where
        for key in thing:  # in the order in which words were met first: no text of anybody
            yield key, where
            if isinstance(key, str):
                yield "", where
    elif isinstance(thing, list | tuple | set | frozenset):
        yield from ((part, where) for part in thing)
