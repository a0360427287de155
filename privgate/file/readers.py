"""Stored files read by what they begin with: archives, arrays, tensors, tables and texts; nothing of them is run."""

import contextlib
import io
import json
import re
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from privgate.file.contents import OPAQUE, Contents, decode_letters, is_writing, name_booster
from privgate.file.pickles import add_table, read_objects, read_pickle

#: bytes that are unpacked of one file, and containers inside containers that are opened
LARGEST, DEEPEST = 1 << 32, 4
#: bytes of text that are read
_TEXT = 1 << 26
#: how pickles begin that do not say their protocol: a class by name, a list, a mapping, a tuple
_OLDEST = re.compile(rb"c[\w.]+\n\w+\n|\((?:lp|dp)\d|\(c[\w.]+\n|[\]}]q\x00")
#: arrays of a skops file, and what its description calls its own parts
_ARRAY = re.compile(r"\d+\.np[yz]")
_CLASS = re.compile(r'"__class__":\s*"(\w+)"')


def read_files(files: Iterable[tuple[str, Path | bytes]]) -> Contents:
    """Return what files hold, given as (name, path or bytes); one that cannot be read is noted, and ends no other."""
    into = Contents()
    for name, source in files:
        size = source.stat().st_size if isinstance(source, Path) else len(source)
        into.size += size
        try:
            if size > LARGEST:
                into.unread.append((f"file {name} is too large to be read", size))
            else:
                _read_part(source.read_bytes() if isinstance(source, Path) else source, f"file {name}", into, 0)
        except Exception as exc:  # noqa: BLE001  whatever is wrong with a stored file, it was not read
            into.unread.append((f"file {name} cannot be read ({type(exc).__name__})", size))
    for where, parts in into.fragments.items():
        into.add_opaque(b"".join(parts), where)
    return into


def _read_part(data: bytes, name: str, into: Contents, depth: int) -> None:
    """Add what bytes hold, by what they begin with: neither names nor suffixes are believed."""
    if depth > DEEPEST:
        into.unread.append((f"{name}: containers inside containers, more than {DEEPEST}", len(data)))
    elif data[:4] == b"PK\x03\x04":
        _read_zip(data, name, into, depth)
    elif (unpacker := _make_unpacker(data)) is not None:
        content, rest = unpacker.decompress(data, LARGEST), unpacker.unused_data
        if not unpacker.eof:
            raise ValueError("cut, or too large to be unpacked")
        _read_part(content, name, into, depth + 1)
        if rest.strip(b"\0"):
            _read_part(rest, name, into, depth + 1)
    elif data[:6] == b"\x93NUMPY":
        source = io.BytesIO(data)
        into.add_array(np.load(source, allow_pickle=False), name)
        into.add_opaque(data[source.tell() :], name)
    elif (data[:1] == b"\x80" and data[1:2] in b"\x02\x03\x04\x05") or _OLDEST.match(data):
        read_pickle(data, name, into, lambda inside, where: _read_inner(inside, where, into, depth))
    elif data[:4] == b"PAR1":
        import pandas as pd

        frame = pd.read_parquet(io.BytesIO(data)).reset_index()
        add_table((frame.iloc[:, j].tolist() for j in range(frame.shape[1])), name, into, text=False)
    elif _is_text(data):
        _read_text(data, name, into, depth)
    elif len(data) > OPAQUE:
        into.opaque.append((name, data))
    else:
        into.add_fragment(data, f"small files of {name.rpartition('/')[0]}")


def _is_text(data: bytes) -> bool:
    part = data[:4096]
    return bool(part) and b"\x00" not in part and sum(b < 9 or 13 < b < 32 for b in part) < len(part) / 50


def _read_inner(data: bytes, where: str, into: Contents, depth: int) -> None:
    """Add bytes inside a pickle or a text: those that begin like a container are opened."""
    if len(data) <= OPAQUE:
        into.keys.setdefault(where, set()).add(data)
        if not _is_text(data):
            into.add_fragment(data, where)
            return
    try:
        _read_part(data, where, into, depth + 1)
    except Exception:  # noqa: BLE001  they only looked like one
        into.opaque.append((where, data))


def _read_zip(data: bytes, name: str, into: Contents, depth: int) -> None:
    with zipfile.ZipFile(io.BytesIO(data)) as packed:
        named = _name_arrays(packed, name)
        for member in sorted(packed.infolist(), key=lambda f: f.header_offset):
            content, parts = packed.read(member), member.filename.rpartition("/data/")
            if parts[1] and parts[2] in into.storages:
                into.add_storage(content, parts[2])
            else:
                where = f"{name}/{member.filename}"
                _read_part(content, named.get(member.filename, where), into, depth + 1)


def _name_arrays(packed: zipfile.ZipFile, name: str) -> dict[str, str]:
    """Return the class and attribute that each array of a skops file belongs to."""
    named = dict[str, str]()
    schema = [f for f in packed.infolist() if f.filename == "schema.json" and f.file_size <= _TEXT]
    todo: list[tuple[Any, str]] = [(json.loads(packed.read(f)), name) for f in schema]
    while todo:
        part, where = todo.pop()
        if isinstance(part, list):
            todo += [(v, where) for v in part]
        elif isinstance(part, dict):
            module, file = str(part.get("__module__", "builtins")), part.get("file")
            where = where if module in ("builtins", "numpy") else f"{module}.{part.get('__class__')}"
            named.update({file: where} if isinstance(file, str) and _ARRAY.fullmatch(file) else {})
            plain = "__module__" in part  # else what a class calls its attributes
            todo += [(v, where if plain or not k.isidentifier() else f"{where}.{k}") for k, v in part.items()]
    return named


def _make_unpacker(data: bytes) -> Any:
    """Return what unpacks gzip and zlib, the packings of joblib's and R's; None for any other bytes."""
    packed = data[:2] == b"\x1f\x8b" or (data[:1] == b"\x78" and len(data) > 2 and int.from_bytes(data[:2]) % 31 == 0)
    return zlib.decompressobj(47) if packed else None


def _read_text(data: bytes, name: str, into: Contents, depth: int) -> None:
    """Add the objects of JSON, or the numbers of a text one after another, and its words."""
    where, root = f"{name_booster(data)}{name}", None
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    into.names.update(_CLASS.findall(text))
    if text.lstrip()[:1] in ("{", "["):
        with contextlib.suppress(ValueError, RecursionError):
            root = json.loads(text)
        with contextlib.suppress(ValueError, RecursionError):
            root = root if root is not None else [json.loads(line) for line in text.splitlines() if line.strip()]
    if root is not None:
        read_objects(root, where, into, lambda inside, at: _read_inner(inside, at, into, depth))
    elif (inner := decode_letters(text)) is not None:
        _read_inner(inner, name, into, depth)
    elif len(data) > _TEXT or not is_writing(text):
        into.opaque.append((name, data))
    else:
        into.passages += [text, ""]
        rows = [line for line in text.splitlines() if any(c.isdigit() for c in line)]
        into.add_numbers(rows, where)
        _read_table(rows, where, into)


def _read_table(rows: list[str], where: str, into: Contents) -> None:
    """Add a printed table, whatever separates its columns; its heading is one more row without numbers."""
    import pandas as pd

    if len(rows) < 2:
        return
    separator = next((mark for mark in ";\t|," if mark in rows[-1]), r"\s+")  # a comma last: it may be a decimal one
    with contextlib.suppress(ValueError):  # pandas' errors of a text that is no table
        frame = pd.read_csv(io.StringIO("\n".join(rows)), sep=separator, header=None, on_bad_lines="skip", dtype=str)
        add_table((frame[j].tolist() for j in frame), where, into, text=True)
