"""Files of a stored model read as bytes: arrays, texts and the names of classes, and nothing of them is run.

A pickle is read with every class and function replaced by a stand-in that keeps what it is given and does nothing.
"""

import bz2
import gzip
import io
import json
import lzma
import pickle
import re
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

#: bytes that are unpacked of one file, and containers inside containers that are opened
LARGEST, DEEPEST = 1 << 32, 4
#: bytes without a meaning below which they are a name, a key or a state
OPAQUE = 64
#: bytes of text whose numbers are read
_TEXT = 1 << 24
_NUMBER = re.compile(rb"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|NaN|null|true|false", re.IGNORECASE)
_WORDS = {b"nan": b"nan", b"null": b"nan", b"true": b"1", b"false": b"0"}
_QUOTED = re.compile(r'"((?:[^"\\]|\\.){8,})"')
_CLASS = re.compile(r'"__class__":\s*"(\w+)"')
#: libraries of whose model files the bytes are parameters
BOOSTERS = ("xgboost", "lightgbm", "catboost")


@dataclass(frozen=True, eq=False)
class Found:
    """An array of a file, and the class and attribute that it belongs to."""

    where: str
    values: NDArray[Any]
    text: bool = False


@dataclass(eq=False)
class Read:
    """What the files of a model hold.

    Parameters
    ----------
    arrays : list of Found
        Of numbers.
    texts : set of str
    names : set of str
        Of classes and functions, ``module.name``.
    opaque : list of (where, bytes)
        What nobody here can read.
    unknown : list of str
        Sentences about what was not read.
    """

    arrays: list[Found] = field(default_factory=list)
    texts: set[str] = field(default_factory=set)
    names: set[str] = field(default_factory=set)
    opaque: list[tuple[str, bytes]] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    #: name of a file beside a pickle of torch's -> type of its numbers
    storages: dict[str, str] = field(default_factory=dict)


def read(files: Iterable[tuple[str, Path]]) -> Read:
    """Return what files hold; whatever is wrong with one of them, it is unknown."""
    made = Read()
    for name, path in files:
        try:
            if path.stat().st_size > LARGEST:
                made.unknown.append(f"file {name} is too large to be read")
            else:
                _content(path.read_bytes(), name, made, 0)
        except Exception as exc:  # noqa: BLE001  whatever is wrong with a stored file, it was not read
            made.unknown.append(f"file {name} cannot be read ({type(exc).__name__})")
    return made


def of_bytes(content: bytes, name: str) -> Read:
    """Return what one file of this content holds."""
    made = Read()
    try:
        _content(content, name, made, 0)
    except Exception as exc:  # noqa: BLE001  ditto
        made.unknown.append(f"file {name} cannot be read ({type(exc).__name__})")
    return made


def _content(data: bytes, name: str, into: Read, depth: int) -> None:
    """Add what bytes hold, by what they begin with: neither names nor suffixes are believed."""
    if depth > DEEPEST:
        into.unknown.append(f"{name}: containers inside containers, more than {DEEPEST}")
    elif data[:4] == b"PK\x03\x04":
        _unzip(data, name, into, depth)
    elif (unpack := _packing(data)) is not None:
        _content(_bounded(unpack(data)), name, into, depth + 1)
    elif data[:6] == b"\x93NUMPY":
        _array(np.load(io.BytesIO(data), allow_pickle=False), name, into)
    elif data[:1] == b"\x80" and data[1:2] in b"\x02\x03\x04\x05":
        _pickled(data, name, into, depth)
    elif data[:4] == b"PAR1":
        import pandas as pd

        frame = pd.read_parquet(io.BytesIO(data))
        into.arrays.append(Found(name, frame.select_dtypes("number").to_numpy(np.float64, na_value=np.nan)))
        into.texts.update(str(v) for c in frame.columns if frame[c].dtype.kind in "OU" for v in frame[c])
    elif (end := _safetensors(data)) is not None:
        _tensors(data, end, name, into)
    elif _is_text(data):
        _text(data, name, into)
    elif len(data) > OPAQUE:
        into.opaque.append((f"{_booster(data)}{name}", data))


def _unzip(data: bytes, name: str, into: Read, depth: int) -> None:
    with zipfile.ZipFile(io.BytesIO(data)) as packed:
        for one in packed.infolist():
            beside = one.filename.rpartition("/data/")
            if one.file_size > LARGEST:
                into.unknown.append(f"{one.filename} is too large to be unpacked")
            elif beside[1] and beside[2] in into.storages:
                _array(_stored(packed.read(one), into.storages[beside[2]]), "torch.storage", into)
            else:
                # arrays of skops are named by where they lay in memory
                inner = name if re.fullmatch(r"\d+\.npy", one.filename) else f"{name}/{one.filename}"
                _content(packed.read(one), inner, into, depth + 1)


#: torch's names of types of numbers
_STORED = {"FloatStorage": "<f4", "DoubleStorage": "<f8", "HalfStorage": "<f2", "LongStorage": "<i8",
           "IntStorage": "<i4", "ShortStorage": "<i2", "CharStorage": "i1", "ByteStorage": "u1",
           "BoolStorage": "u1"}  # fmt: skip


def _stored(data: bytes, kind: str) -> NDArray[Any]:
    """Return the numbers of a tensor."""
    if kind == "BFloat16Storage":  # the upper half of single precision
        return (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32)
    return np.frombuffer(data, _STORED[kind])


def _packing(data: bytes) -> Any:
    """Return what unpacks bytes; None where they are packed by nothing known."""
    if data[:2] == b"\x1f\x8b":
        return lambda d: gzip.GzipFile(fileobj=io.BytesIO(d))
    if data[:3] == b"BZh":
        return lambda d: bz2.BZ2File(io.BytesIO(d))
    if data[:6] == b"\xfd7zXZ\x00" or data[:3] == b"]\x00\x00":
        return lambda d: lzma.LZMAFile(io.BytesIO(d))
    if data[:1] == b"\x78" and len(data) > 2 and (data[0] * 256 + data[1]) % 31 == 0:
        return lambda d: io.BytesIO(zlib.decompressobj().decompress(d, LARGEST))
    return None


def _bounded(source: Any) -> bytes:
    found: bytes = source.read(LARGEST + 1)
    if len(found) > LARGEST:
        raise ValueError("too large to be unpacked")
    return found


def _array(values: NDArray[Any], where: str, into: Read) -> None:
    if values.dtype.names:
        for n in values.dtype.names:
            _array(values[n], f"{where}.{n}", into)
    elif values.dtype.kind in "biuf" and values.size:
        into.arrays.append(Found(where, values))
    elif values.dtype.kind == "U":
        into.texts.update(np.unique(values).tolist())


def _safetensors(data: bytes) -> int | None:
    """Return where the header of a safetensors file ends; None where it is none."""
    size = int.from_bytes(data[:8], "little")
    return 8 + size if 2 <= size <= len(data) - 8 and data[8:9] == b"{" else None


_TENSOR = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1", "U8": "u1",
           "BOOL": "u1"}  # fmt: skip


def _tensors(data: bytes, end: int, name: str, into: Read) -> None:
    for key, told in json.loads(data[8:end]).items():
        if key == "__metadata__":
            continue
        begin, stop = told["data_offsets"]
        part = data[end + begin : end + stop]
        if told["dtype"] in _TENSOR:
            _array(np.frombuffer(part, _TENSOR[told["dtype"]]).reshape(told["shape"]), f"{name}.{key}", into)
        else:
            into.opaque.append((f"{name}.{key}", part))


def _is_text(data: bytes) -> bool:
    part = data[:4096]
    return bool(part) and b"\x00" not in part and sum(b < 9 or 13 < b < 32 for b in part) < len(part) / 50


def _text(data: bytes, name: str, into: Read) -> None:
    """Add the numbers of a text one after another, and what stands between quotes or on a line of its own."""
    if len(data) > _TEXT:
        into.opaque.append((name, data))
        return
    numbers = [_WORDS.get(v.lower(), v) for v in _NUMBER.findall(data)]
    if numbers:
        where = f"{_booster(data)}{name}"
        into.arrays.append(Found(where, np.array(numbers, dtype="S40").astype(np.float64), text=True))
    text = data.decode("utf-8", "replace")
    into.texts.update(_QUOTED.findall(text))
    into.texts.update(line.strip() for line in text.splitlines() if 8 <= len(line) < 10_000)
    into.names.update(_CLASS.findall(text))


def _booster(data: bytes) -> str:
    """Return the library whose model bytes are, as a prefix; empty for any others."""
    if data[:5] == b"tree\n" and b"num_leaves=" in data:
        return "lightgbm."
    if data[:4] == b"CBM1":
        return "catboost."
    if data[:2] == b"{L" and b"learner" in data[:8192] and b"gradient_booster" in data:
        return "xgboost."
    return "xgboost." if data[:1] == b"{" and b'"gradient_booster"' in data and b'"learner"' in data else ""


# Pickles: each class and function is a stand-in that keeps what it is given.


class StandIn:
    """Whatever a pickle names: it keeps arguments, state and items, and runs nothing."""

    named = ""
    #: all that one pickle made: what it drops again is looked at, too
    kept: ClassVar[list[Any]] = []

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Keep the arguments."""
        made = object.__new__(cls)
        made.given = [*args, *kwargs.values()]
        cls.kept.append(made)
        return made

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.given: list[Any] = [*args, *kwargs.values()]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Keep the arguments of what a stand-in would have returned."""
        return type(self)(self, *args, **kwargs)

    def __setstate__(self, state: Any) -> None:
        """Keep the state."""
        self.given.append(state)

    def append(self, item: Any) -> None:
        """Keep an item."""
        self.given.append(item)

    add = append

    def extend(self, items: Any) -> None:
        """Keep items."""
        self.given.extend(items)

    def __setitem__(self, key: Any, item: Any) -> None:
        """Keep an item and its key."""
        self.given += [key, item]


class _Source:
    """Bytes that are read in order: without ``peek``, an unpickler takes no more than it needs."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes."""
        end = len(self.data) if size < 0 else min(self.at + size, len(self.data))
        part, self.at = self.data[self.at : end], end
        return part

    def readline(self) -> bytes:
        """Return the next line."""
        end = self.data.find(b"\n", self.at) + 1
        return self.read((end or len(self.data)) - self.at)


#: what only describes numbers, or copies bytes
_PLAIN = {"numpy.dtype": np.dtype, "builtins.bytearray": bytearray}


class _Unpickler(pickle.Unpickler):
    """Reads a pickle with stand-ins for all that it names."""

    def __init__(self, source: _Source, into: Read) -> None:
        super().__init__(source)
        self.source, self.into = source, into
        self.made: dict[str, Any] = {}
        self.kept: list[Any] = []

    def find_class(self, module: str, name: str) -> Any:
        """Return a stand-in; a description of numbers is numpy's own, which only describes."""
        full = f"{module}.{name}"
        self.into.names.add(full)
        if full in _PLAIN:
            return _PLAIN[full]
        if name.startswith("_make_skeleton"):  # of cloudpickle: what it returns is a class
            return self._class
        if full not in self.made:
            kind: dict[str, Any] = {"named": full, "kept": self.kept}
            if name.startswith("NumpyArrayWrapper"):
                kind["__setstate__"] = lambda made, state: made.given.append(_behind(self, state))
            self.made[full] = type(name, (StandIn,), kind)
        return self.made[full]

    def _class(self, *args: Any) -> Any:
        """Return a stand-in for a class that the pickle describes itself."""
        named = next((a for a in args if isinstance(a, str)), "class")
        self.into.names.add(named)
        return type(named, (StandIn,), {"named": named, "kept": self.kept})

    def persistent_load(self, pid: Any) -> Any:
        """Return a stand-in for what lies beside the pickle, and note which numbers a file of torch's holds."""
        if isinstance(pid, tuple) and len(pid) >= 5 and pid[0] == "storage":
            kind = getattr(pid[1], "named", "").rpartition(".")[2]
            if kind in _STORED or kind == "BFloat16Storage":
                self.into.storages[str(pid[2])] = kind
        return StandIn(pid)


def _behind(reader: _Unpickler, state: Any) -> Any:
    """Return the array that joblib wrote behind its description, in the middle of the pickle."""
    shape, dtype, source = tuple(state["shape"]), state["dtype"], reader.source
    if dtype.hasobject:
        return _Unpickler(source, reader.into).load()
    if state.get("numpy_array_alignment_bytes") is not None:
        source.read(source.read(1)[0])
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    order = state.get("order", "C")
    return np.frombuffer(source.read(size), dtype=dtype).reshape(shape, order=order)


def _pickled(data: bytes, name: str, into: Read, depth: int) -> None:
    source = _Source(data)
    while source.at < len(data) and data[source.at : source.at + 1] == b"\x80":
        reader = _Unpickler(source, into)
        root = reader.load()
        _walk([root, *reader.kept, *reader.memo.copy().values()], name, into, depth)
        if root and isinstance(root, list) and all(str(k) in into.storages for k in root):
            _in_order(source, root, into)
    if len(data) - source.at > OPAQUE:
        into.opaque.append((f"{name}, behind its end", data[source.at :]))


def _in_order(source: _Source, keys: list[str], into: Read) -> None:
    """Add the tensors that torch's older format writes behind its pickles, each with its length before it."""
    for key in keys:
        kind = into.storages[key]
        size = int.from_bytes(source.read(8), "little")
        item = 2 if kind == "BFloat16Storage" else np.dtype(_STORED[kind]).itemsize
        _array(_stored(source.read(size * item), kind), "torch.storage", into)


def _walk(roots: list[Any], name: str, into: Read, depth: int) -> None:
    """Add the arrays and texts of what a pickle made."""
    seen, todo = set[int](), [(root, name) for root in reversed(roots)]
    while todo:
        thing, where = todo.pop()
        if thing is None or isinstance(thing, bool | int | float | complex | type | np.dtype):
            continue
        if isinstance(thing, str):
            into.texts.add(thing)
            continue
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        if isinstance(thing, bytes | bytearray):
            _bytes(bytes(thing), where, into, depth)
        elif isinstance(thing, np.ndarray):
            _array(thing, where, into)
        elif (array := _numbers(thing)) is not None:
            _array(array, where, into)
            seen.update(map(id, _inside(thing)))
        else:
            todo += [(part, place) for part, place in _parts(thing, where)]


def _inside(thing: Any) -> Iterator[Any]:
    """Give what a described array was made of, which needs no second look."""
    for part in thing.given if isinstance(thing, StandIn) else thing:
        yield part
        yield from part if isinstance(part, tuple | list) else ()


def _numbers(thing: Any) -> NDArray[Any] | None:
    """Return the array that a stand-in of numpy's describes, or that a list of numbers is; None for anything else."""
    if isinstance(thing, StandIn):
        return _described(thing)
    if isinstance(thing, list | tuple) and len(thing) > 1:
        kinds = set(map(type, thing))
        if kinds <= {int, float, bool}:
            return np.asarray(thing, dtype=np.float64)
        if kinds <= {list, tuple} and len(set(map(len, thing))) == 1 and thing[0]:
            rows = [_numbers(v) for v in thing]
            if all(r is not None and r.ndim == 1 for r in rows):
                return np.array(rows)
    return None


def _described(thing: StandIn) -> NDArray[Any] | None:
    kind, given = thing.named.rpartition(".")[2], thing.given
    if kind == "_reconstruct" and isinstance(given[-1], tuple) and len(given[-1]) == 5:
        _, shape, dtype, fortran, data = given[-1]
    elif kind == "_frombuffer" and len(given) == 4:
        (data, dtype, shape, order), fortran = given, False
        fortran = order == "F"
    else:
        return None
    if isinstance(data, StandIn) and data.named == "_codecs.encode":  # bytes, as the oldest pickles write them
        data = str(data.given[0]).encode("latin1")
    if not isinstance(dtype, np.dtype) or dtype.hasobject or not isinstance(data, bytes | bytearray):
        return None
    return np.frombuffer(data, dtype=dtype).reshape(shape, order="F" if fortran else "C")


def _parts(thing: Any, where: str) -> Iterator[tuple[Any, str]]:
    if isinstance(thing, StandIn):
        own = thing.named or where
        for part in thing.given:
            yield part, own
    elif isinstance(thing, dict):
        for key, value in thing.items():
            short = isinstance(key, str) and key.isidentifier() and len(thing) < 200
            yield value, f"{where}.{key}" if short and where.count(".") < 6 else where
            yield key, where
    elif isinstance(thing, list | tuple | set | frozenset):
        for part in thing:
            yield part, where


def _bytes(data: bytes, where: str, into: Read, depth: int) -> None:
    """Add bytes inside a pickle: those that begin like a container are opened."""
    if len(data) <= OPAQUE:
        return
    try:
        _content(data, where, into, depth + 1)
    except Exception:  # noqa: BLE001  they only looked like one
        into.opaque.append((where, data))
