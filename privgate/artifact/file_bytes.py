"""Files of a stored model read as bytes: arrays, texts and the names of classes, and nothing of them is run.

A pickle is read with every class and function replaced by a stand-in that keeps what it is given and does nothing.
"""

import bz2
import io
import json
import lzma
import re
import zipfile
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from privgate.artifact.file_parts import OPAQUE, TENSORS, Found, Read, add, booster, left, short, stored, unlettered
from privgate.artifact.inert_pickle import pickled

#: bytes that are unpacked of one file, and containers inside containers that are opened
LARGEST, DEEPEST = 1 << 32, 4
#: bytes of text whose numbers are read
_TEXT = 1 << 24
_NUMBER = re.compile(rb"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|NaN|null|true|false", re.IGNORECASE)
#: how pickles begin that do not say their protocol: a class by name, a list, a mapping, a tuple
_OLDEST = re.compile(rb"c[\w.]+\n\w+\n|\((?:lp|dp)\d|\(c[\w.]+\n|[\]}]q\x00")
_VERSION = re.compile(rb'"\d+\.\d+\.\d+\\?"')  # which stands at every part of a skops file
_WORDS = {b"nan": np.nan, b"null": np.nan, b"true": 1.0, b"false": 0.0}
_QUOTED = re.compile(r'"((?:[^"\\]|\\.){8,})"')
_KEY = re.compile(r'"([\w+/=-]{8,64})"\s*:')
#: arrays of a skops file
_ARRAY = re.compile(r"\d+\.np[yz]")
_CLASS = re.compile(r'"__class__":\s*"(\w+)"')
#: before a path, which is nobody's library
_FILE = "file "
#: libraries of whose model files the bytes are parameters
BOOSTERS = ("xgboost.", "lightgbm.", "catboost.")


def read(files: Iterable[tuple[str, Path | bytes]]) -> Read:
    """Return what files hold; whatever is wrong with one of them, it is unknown."""
    made = Read()
    for name, held in files:
        try:
            if isinstance(held, Path) and held.stat().st_size > LARGEST:
                made.unknown.append(f"file {name} is too large to be read")
            else:
                _content(held if isinstance(held, bytes) else held.read_bytes(), f"{_FILE}{name}", made, 0)
        except Exception as exc:  # noqa: BLE001  whatever is wrong with a stored file, it was not read
            made.unknown.append(f"file {name} cannot be read ({type(exc).__name__})")
    for where, parts in made.short.items():
        left([b"".join(parts)], where, made)
    return made


def of_bytes(content: bytes, name: str) -> Read:
    """Return what one file of this content holds."""
    return read([(name, content)])


def _content(data: bytes, name: str, into: Read, depth: int) -> None:
    """Add what bytes hold, by what they begin with: neither names nor suffixes are believed."""
    if depth > DEEPEST:
        into.unknown.append(f"{name}: containers inside containers, more than {DEEPEST}")
    elif data[:4] == b"PK\x03\x04":
        _unzip(data, name, into, depth)
    elif (make := _packing(data)) is not None:
        content, rest = _unpacked(data, make)
        left([rest], name, into)
        _content(content, name, into, depth + 1)
    elif data[:6] == b"\x93NUMPY":
        source = io.BytesIO(data)
        add(np.load(source, allow_pickle=False), name, into)
        left([data[source.tell() :]], name, into)
    elif (data[:1] == b"\x80" and data[1:2] in b"\x02\x03\x04\x05") or _OLDEST.match(data):
        pickled(data, name, into, lambda inside, where: _bytes(inside, where, into, depth))
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
        into.opaque.append((name, data))
    else:
        short(data, f"small files of {name.rpartition('/')[0]}", into)


def _unzip(data: bytes, name: str, into: Read, depth: int) -> None:
    with zipfile.ZipFile(io.BytesIO(data)) as packed:
        named, between, at = _of_skops(packed, name), [packed.comment], 0
        for one in sorted(packed.infolist(), key=lambda f: f.header_offset):
            begin, body, content = _member(data, one, f"{name}/{one.filename}", into)
            behind = begin + 30 + len(one.orig_filename.encode())
            between += [data[at:begin], data[behind:body], one.extra, one.comment]
            at = max(at, body + one.compress_size)
            beside = one.filename.rpartition("/data/")
            if beside[1] and beside[2] in into.storages:
                kind = into.storages[beside[2]]
                add(stored(content, kind), TENSORS.get(kind, "torch.storage"), into)
            else:
                _content(content, named.get(one.filename, f"{name}/{one.filename}"), into, depth + 1)
        between.append(data[at : packed.start_dir])
        listed = sum(46 + len(f.orig_filename.encode()) + len(f.extra) + len(f.comment) for f in packed.infolist())
        between.append(data[packed.start_dir + listed :][: -98 - len(packed.comment)])
    left(between, f"{name}, between its files", into)


def _member(data: bytes, one: zipfile.ZipInfo, where: str, into: Read) -> tuple[int, int, bytes]:
    """Return where a file of a zip begins, where its bytes do, and what it holds."""
    begin = one.header_offset
    sizes = (int.from_bytes(data[begin + k : begin + k + 2], "little") for k in (26, 28))
    body = begin + 30 + sum(sizes)
    raw = data[body : body + one.compress_size]
    if one.flag_bits & 1 or one.compress_type not in _ZIPPED:
        raise ValueError("packed in a way that is not read")
    make = _ZIPPED[one.compress_type]
    content, rest = _unpacked(raw, make) if make else (raw, b"")
    left([rest], where, into)
    return begin, body, content


def _of_skops(packed: zipfile.ZipFile, name: str) -> dict[str, str]:
    """Return the class that each array of a skops file belongs to, which is named by where it lay in memory."""
    named = dict[str, str]()
    schema = [f for f in packed.infolist() if f.filename == "schema.json" and f.file_size <= _TEXT]
    todo: list[tuple[Any, str]] = [(json.loads(packed.read(f)), name) for f in schema]
    while todo:
        part, where = todo.pop()
        if isinstance(part, dict):
            module, file = str(part.get("__module__", "builtins")), part.get("file")
            where = where if module in ("builtins", "numpy") else f"{module}.{part.get('__class__')}"
            named.update({file: where} if isinstance(file, str) and _ARRAY.fullmatch(file) else {})
        todo += [
            (v, where) for v in (part.values() if isinstance(part, dict) else part if isinstance(part, list) else ())
        ]
    return named


_PACKINGS: tuple[tuple[bytes, Callable[[], Any]], ...] = (
    (b"\x1f\x8b", lambda: zlib.decompressobj(31)),
    (b"BZh", bz2.BZ2Decompressor),
    (b"\xfd7zXZ\x00", lzma.LZMADecompressor),
    (b"]\x00\x00", lzma.LZMADecompressor),
    (b"\x78", zlib.decompressobj),
)
#: how files of a zip are packed
_ZIPPED = {0: None, 8: lambda: zlib.decompressobj(-15), 12: bz2.BZ2Decompressor}


def _packing(data: bytes) -> Any:
    """Return what makes an unpacker of bytes; None where they are packed by nothing known."""
    if data[:1] == b"\x78" and (len(data) < 3 or (data[0] * 256 + data[1]) % 31):
        return None
    return next((make for begin, make in _PACKINGS if data.startswith(begin)), None)


def _unpacked(data: bytes, make: Any) -> tuple[bytes, bytes]:
    """Return what streams one after another hold, 100 at most, and the bytes behind them."""
    made, room = list[bytes](), LARGEST
    for _ in range(100):
        one = make()
        made.append(one.decompress(data, room))
        room -= len(made[-1])
        if not one.eof or room <= 0:
            raise ValueError("cut, or too large to be unpacked")
        data = one.unused_data
        if _packing(data) is not make:
            break
    return b"".join(made), data


def _safetensors(data: bytes) -> int | None:
    """Return where the header of a safetensors file ends; None where it is none."""
    size = int.from_bytes(data[:8], "little")
    return 8 + size if 2 <= size <= len(data) - 8 and data[8:9] == b"{" else None


_TENSOR = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1", "U8": "u1",
           "BOOL": "u1"}  # fmt: skip


def _tensors(data: bytes, end: int, name: str, into: Read) -> None:
    at = 0
    _text(data[8:end], f"{name}, its header", into)
    for key, told in sorted(json.loads(data[8:end]).items(), key=lambda t: t[1].get("data_offsets", [0])):
        if key == "__metadata__":
            continue
        begin, stop = told["data_offsets"]
        left([data[end + at : end + begin]], name, into)
        at = max(at, stop)
        part = data[end + begin : end + stop]
        if told["dtype"] in _TENSOR:
            add(np.frombuffer(part, _TENSOR[told["dtype"]]).reshape(told["shape"]), f"{name}.{key}", into)
        else:
            into.opaque.append((f"{name}.{key}", part))
    left([data[end + at :]], name, into)


def _is_text(data: bytes) -> bool:
    part = data[:4096]
    return bool(part) and b"\x00" not in part and sum(b < 9 or 13 < b < 32 for b in part) < len(part) / 50


def _text(data: bytes, name: str, into: Read) -> None:
    """Add the numbers of a text one after another, and what stands between quotes or on a line of its own."""
    if len(data) > _TEXT:
        into.opaque.append((name, data))
        return
    if numbers := [float(v) if v[0] <= 57 else _WORDS[v.lower()] for v in _NUMBER.findall(_VERSION.sub(b"", data))]:
        into.arrays.append(Found(f"{booster(data)}{name}", np.array(numbers), text=True))
    text = data.decode("utf-8", "replace")
    quoted = _QUOTED.findall(text)
    for inner in (v for v in (data, *map(str.encode, quoted)) if len(v) > OPAQUE):
        if (found := unlettered(inner)) is not None:
            _bytes(found, name, into, 0)
    into.texts.update(quoted, _KEY.findall(text))
    into.texts.update(line.strip() for line in text.splitlines() if 8 <= len(line) < 10_000)
    into.names.update(_CLASS.findall(text))


def _bytes(data: bytes, where: str, into: Read, depth: int) -> None:
    """Add bytes inside a pickle: those that begin like a container are opened."""
    if len(data) <= OPAQUE:
        into.keys.setdefault(where, set()).add(data)
    if len(data) <= OPAQUE and not _is_text(data):
        short(data, where, into)
        return
    try:
        _content(data, where, into, depth + 1)
    except Exception:  # noqa: BLE001  they only looked like one
        into.opaque.append((where, data))
