"""What stored files hold: arrays, texts and names of classes, and bytes that no reader here understands."""

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
#: letters from which on a text must be writing
_UNBROKEN = 200
_WORDS = re.compile(r"[a-z]{3,}|[A-Z]{3,}|[\d.,:; -]{3,}|\s+|(?:(?![\x00-\x7f])[^\W\d_]){2,}")
_NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?(?!\w)")
#: of a library, at every part of a model
_VERSION = re.compile(r"\d+\.\d+\.\d+(?:[.+]?[a-z]\w*)?")
_OTHER = re.compile(rb"[^A-Za-z0-9+/_=\s-]")
_HEX, _BASE64 = re.compile(rb"(?:[0-9a-fA-F]{2}){64,}"), re.compile(rb"[A-Za-z0-9+/_-]{86,}={0,2}")


@dataclass(frozen=True, eq=False)
class Array:
    """Numbers of a file, and the class and attribute that they belong to.

    Parameters
    ----------
    where : str
    values : array of numbers
    text : bool
        They were printed, so that digits are lost.
    loose : bool
        They were gathered from single numbers, so that their count says nothing.
    """

    where: str
    values: NDArray[Any]
    text: bool = False
    loose: bool = False


@dataclass(eq=False)
class Contents:
    """What the files of a model hold.

    Parameters
    ----------
    size : int
        Bytes of all files.
    arrays : list of Array
    passages : list of str
        Texts in the order in which they stand; an empty one ends a passage.
    lists : list of (where, int)
        Lists of texts, and how many each has.
    texts : set of str
        Short texts that may be keys.
    names : set of str
        Of classes and functions, ``module.name``.
    opaque : list of (where, bytes)
        What no reader here understands.
    unread : list of (sentence, int)
        Files that could not be read, and their bytes.
    """

    size: int = 0
    arrays: list[Array] = field(default_factory=list)
    passages: list[str] = field(default_factory=list)
    lists: list[tuple[str, int]] = field(default_factory=list)
    texts: set[str] = field(default_factory=set)
    names: set[str] = field(default_factory=set)
    opaque: list[tuple[str, bytes]] = field(default_factory=list)
    unread: list[tuple[str, int]] = field(default_factory=list)
    #: name of a file beside a pickle of torch's -> type of its numbers, and its shape
    storages: dict[str, str] = field(default_factory=dict)
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    #: where -> bytes too few to be anything by themselves
    fragments: dict[str, list[bytes]] = field(default_factory=dict)
    #: where -> short bytes, each once
    keys: dict[str, set[bytes]] = field(default_factory=dict)


#: torch's names of types of numbers
STORAGES = {"FloatStorage": "<f4", "DoubleStorage": "<f8", "HalfStorage": "<f2", "LongStorage": "<i8",
            "IntStorage": "<i4", "ShortStorage": "<i2", "CharStorage": "i1", "ByteStorage": "u1",
            "BoolStorage": "u1", "BFloat16Storage": "<u2"}  # fmt: skip


def add_storage(data: bytes, key: str, into: Contents) -> None:
    """Add the numbers of a tensor of torch's, in the shape in which the model uses them."""
    kind = into.storages[key]
    values = np.frombuffer(data, STORAGES[kind])
    if kind == "BFloat16Storage":  # the upper half of single precision
        values = (values.astype(np.uint32) << 16).view(np.float32)
    shape = into.shapes.get(key, ())
    add_array(values.reshape(shape) if int(np.prod(shape)) == values.size else values, "torch.storage", into)


def add_opaque(data: bytes, where: str, into: Contents) -> None:
    """Keep bytes that a container does not account for; its filling, it does."""
    if len(data.strip(b"\0")) > OPAQUE:
        into.opaque.append((where, data))


def add_fragment(data: bytes, where: str, into: Contents) -> None:
    """Keep bytes that may be a record with others beside them; shorter ones are keys and dates."""
    if len(data) >= OPAQUE // 4:
        into.fragments.setdefault(where, []).append(data)


def add_array(values: NDArray[Any], where: str, into: Contents, *, text: bool = False, loose: bool = False) -> None:
    """Add an array: its fields, parts and texts, each for itself."""
    kind = values.dtype.kind
    if values.dtype.names:
        for n in values.dtype.names:
            add_array(values[n], f"{where}.{n}", into)
    elif kind == "c":
        add_array(values.view(values.real.dtype), where, into)
    elif kind in "biuf" and values.size:
        native = values.astype(values.dtype.newbyteorder("="), copy=False)
        into.arrays.append(Array(where, native, text, loose))
    elif kind == "U":
        texts = values.ravel().tolist()
        into.texts.update(texts)
        into.passages += [*texts, ""]
        into.lists.append((where, len(texts)))
        add_numbers(texts, where, into)
    elif kind in "SVMm":
        add_opaque(values.tobytes(), where, into)


def add_numbers(texts: Iterable[str], where: str, into: Contents) -> None:
    """Add the numbers of texts, one text after another: all of them, and those with a point."""
    numbers = [v for text in texts if not _VERSION.fullmatch(text) for v in _NUMBER.findall(text)]
    for some in (numbers, [v for v in numbers if "." in v]):
        if len(some) >= 2 and (some is numbers or len(some) < len(numbers)):
            add_array(np.array([float(v) for v in some]), where, into, text=True, loose=True)


def name_booster(data: bytes) -> str:
    """Return the library whose model bytes are, as a prefix; empty for any others."""
    if data[:5] == b"tree\n" and b"feature_names=" in data:
        return "lightgbm."
    if data[:4] == b"CBM1":
        return "catboost."
    if data[:2] == b"{L" and b"learner" in data[:8192] and b"gradient_booster" in data:
        return "xgboost."
    return "xgboost." if data[:1] == b"{" and b'"gradient_booster"' in data and b'"learner"' in data else ""


def is_writing(text: str) -> bool:
    """Whether a text is short, or words and numbers: of letters that stand for bytes, hardly three are of one kind."""
    some = text[:100_000]
    return len(some) <= _UNBROKEN or sum(map(len, _WORDS.findall(some))) >= len(some) / 4


def decode_letters(text: str) -> bytes | None:
    """Return the bytes that a text writes in base 16 or 64; None for any other text."""
    data = text.encode("utf-8", "replace")
    if len(data) <= OPAQUE or _OTHER.search(data, 0, 4096):
        return None
    body = b"".join(data.split())
    with contextlib.suppress(ValueError):
        if _HEX.fullmatch(body):
            return bytes.fromhex(body.decode())
        if _BASE64.fullmatch(body) and len(set(body)) > 30 and len(data) - len(body) <= len(body) // 40 + 1:
            return base64.b64decode(body.replace(b"-", b"+").replace(b"_", b"/") + b"==")
    return None
