"""Files of a stored model read as bytes: arrays, texts and the names of classes, and nothing of them is run.

A pickle is read with every class and function replaced by a stand-in that keeps what it is given and does nothing.
"""

import bz2
import gzip
import io
import json
import lzma
import re
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from privgate.artifact.file_parts import OPAQUE, TENSORS, Found, Read, add, booster, stored, unlettered
from privgate.artifact.inert_pickle import pickled

#: bytes that are unpacked of one file, and containers inside containers that are opened
LARGEST, DEEPEST = 1 << 32, 4
#: bytes of text whose numbers are read
_TEXT = 1 << 24
_NUMBER = re.compile(rb"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|NaN|null|true|false", re.IGNORECASE)
#: how pickles begin that do not say their protocol: a class by name, a list, a mapping, a tuple
_OLDEST = re.compile(rb"c[\w.]+\n\w+\n|\((?:lp|dp)\d|\(c[\w.]+\n|[\]}]q\x00")
_WORDS = {b"nan": np.nan, b"null": np.nan, b"true": 1.0, b"false": 0.0}
_QUOTED = re.compile(r'"((?:[^"\\]|\\.){8,})"')
#: arrays of a skops file
_ARRAY = re.compile(r"\d+\.np[yz]")
_CLASS = re.compile(r'"__class__":\s*"(\w+)"')
#: before a path, which is nobody's library
_FILE = "file "
#: libraries of whose model files the bytes are parameters
BOOSTERS = ("xgboost.", "lightgbm.", "catboost.")


def read(files: Iterable[tuple[str, Path]]) -> Read:
    """Return what files hold; whatever is wrong with one of them, it is unknown."""
    made = Read()
    for name, path in files:
        try:
            if path.stat().st_size > LARGEST:
                made.unknown.append(f"file {name} is too large to be read")
            else:
                _content(path.read_bytes(), f"{_FILE}{name}", made, 0)
        except Exception as exc:  # noqa: BLE001  whatever is wrong with a stored file, it was not read
            made.unknown.append(f"file {name} cannot be read ({type(exc).__name__})")
    return made


def of_bytes(content: bytes, name: str) -> Read:
    """Return what one file of this content holds."""
    made = Read()
    try:
        _content(content, f"{_FILE}{name}", made, 0)
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
        add(np.load(io.BytesIO(data), allow_pickle=False), name, into)
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


def _unzip(data: bytes, name: str, into: Read, depth: int) -> None:
    with zipfile.ZipFile(io.BytesIO(data)) as packed:
        named = _of_skops(packed, name)
        for one in packed.infolist():
            beside = one.filename.rpartition("/data/")
            if one.file_size > LARGEST:
                into.unknown.append(f"{one.filename} is too large to be unpacked")
            elif beside[1] and beside[2] in into.storages:
                kind = into.storages[beside[2]]
                add(stored(packed.read(one), kind), TENSORS.get(kind, "torch.storage"), into)
            else:
                inner = named.get(one.filename, f"{name}/{one.filename}")
                _content(packed.read(one), inner, into, depth + 1)


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
            add(np.frombuffer(part, _TENSOR[told["dtype"]]).reshape(told["shape"]), f"{name}.{key}", into)
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
    if numbers := [float(v) if v[0] <= 57 else _WORDS[v.lower()] for v in _NUMBER.findall(data)]:
        into.arrays.append(Found(f"{booster(data)}{name}", np.array(numbers), text=True))
    text = data.decode("utf-8", "replace")
    quoted = _QUOTED.findall(text)
    for inner in (v for v in (data, *map(str.encode, quoted)) if len(v) > OPAQUE):
        if (found := unlettered(inner)) is not None:
            _bytes(found, name, into, 0)
    into.texts.update(quoted)
    into.texts.update(line.strip() for line in text.splitlines() if 8 <= len(line) < 10_000)
    into.names.update(_CLASS.findall(text))


def _bytes(data: bytes, where: str, into: Read, depth: int) -> None:
    """Add bytes inside a pickle: those that begin like a container are opened."""
    if len(data) <= OPAQUE:
        return
    try:
        _content(data, where, into, depth + 1)
    except Exception:  # noqa: BLE001  they only looked like one
        into.opaque.append((where, data))
