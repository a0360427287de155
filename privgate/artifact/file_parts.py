"""What files hold: arrays, texts and names of classes, and what nobody here can read."""

import base64
import contextlib
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: bytes without a meaning below which they are a name, a key or a state
OPAQUE = 64
#: where numbers of many texts were, of which it says nothing how many they are
TEXTS = "texts of "
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
#: of a library, at every part of a model
_VERSION = re.compile(r"\d+\.\d+\.\d+(?:[.+]?[a-z]\w*)?")
_OTHER = re.compile(rb"[^A-Za-z0-9+/_=\s-]")
_HEX, _BASE64 = re.compile(rb"(?:[0-9a-fA-F]{2}){64,}"), re.compile(rb"[A-Za-z0-9+/_-]{86,}={0,2}")


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
    #: where -> bytes too few to be anything by themselves
    short: dict[str, list[bytes]] = field(default_factory=dict)
    #: where -> short bytes, each once
    keys: dict[str, set[bytes]] = field(default_factory=dict)


#: torch's names of types of numbers
STORED = {"FloatStorage": "<f4", "DoubleStorage": "<f8", "HalfStorage": "<f2", "LongStorage": "<i8",
           "IntStorage": "<i4", "ShortStorage": "<i2", "CharStorage": "i1", "ByteStorage": "u1",
           "BoolStorage": "u1"}  # fmt: skip


#: what is no plain rounding of a record is not taken for parameters
TENSORS = {"BFloat16Storage": "tensor of bfloat16"}


def stored(data: bytes, kind: str) -> NDArray[Any]:
    """Return the numbers of a tensor."""
    if kind == "BFloat16Storage":  # the upper half of single precision
        return (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32)
    return np.frombuffer(data, STORED[kind])


def left(parts: Iterable[bytes], where: str, into: Read) -> None:
    """Keep bytes that a container does not account for; its filling, and each check and small header, it does."""
    data = b"".join(p for p in parts if len(p.strip(b"\0Z")) > OPAQUE // 2)
    if len(data) > OPAQUE:
        into.opaque.append((where, data))


def short(data: bytes, where: str, into: Read) -> None:
    """Keep bytes that may be a record with others beside them; shorter ones are keys and dates."""
    if len(data) >= OPAQUE // 4:
        into.short.setdefault(where, []).append(data)


def add(values: NDArray[Any], where: str, into: Read) -> None:
    """Add an array: its fields, parts and texts, each for itself."""
    if values.dtype.names:
        for n in values.dtype.names:
            add(values[n], f"{where}.{n}", into)
    elif values.dtype.kind == "c":
        add(values.view(values.real.dtype), where, into)
    elif values.dtype.kind in "biuf" and values.size:
        into.arrays.append(Found(where, values.astype(values.dtype.newbyteorder("="), copy=False)))
    elif values.dtype.kind == "U":
        into.texts.update(np.unique(values).tolist())
        written(values.ravel().tolist(), where, into)
    elif values.dtype.kind in "SVMm":
        left([values.tobytes()], where, into)


def written(texts: Iterable[str], where: str, into: Read) -> None:
    """Add the numbers of texts, one text after another: all of them, and those with a point."""
    found = [v for text in texts if not _VERSION.fullmatch(text) for v in _NUMBER.findall(text)]
    for some in (found, [v for v in found if "." in v]):
        if len(some) >= 2 and (some is found or len(some) < len(found)):
            into.arrays.append(Found(where, np.array([float(v) for v in some]), text=True))


def booster(data: bytes) -> str:
    """Return the library whose model bytes are, as a prefix; empty for any others."""
    if data[:5] == b"tree\n" and b"feature_names=" in data:
        return "lightgbm."
    if data[:4] == b"CBM1":
        return "catboost."
    if data[:2] == b"{L" and b"learner" in data[:8192] and b"gradient_booster" in data:
        return "xgboost."
    return "xgboost." if data[:1] == b"{" and b'"gradient_booster"' in data and b'"learner"' in data else ""


def unlettered(data: bytes) -> bytes | None:
    """Return the bytes that a text writes in base 16 or 64; None for any other text."""
    if _OTHER.search(data, 0, 4096):
        return None
    body = b"".join(data.split())
    with contextlib.suppress(ValueError):
        if _HEX.fullmatch(body):
            return bytes.fromhex(body.decode())
        if _BASE64.fullmatch(body) and len(set(body)) > 30 and len(data) - len(body) <= len(body) // 40 + 1:
            return base64.b64decode(body.replace(b"-", b"+").replace(b"_", b"/") + b"==")
    return None
