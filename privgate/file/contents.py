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
#: torch's names of types of numbers
STORAGES = {"FloatStorage": "<f4", "DoubleStorage": "<f8", "HalfStorage": "<f2", "LongStorage": "<i8",
            "IntStorage": "<i4", "ShortStorage": "<i2", "CharStorage": "i1", "ByteStorage": "u1",
            "BoolStorage": "u1", "BFloat16Storage": "<u2"}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Array:
    """Numbers of a file, and the class and attribute that they belong to."""

    where: str
    values: NDArray[Any]
    #: printed, so that digits are lost
    text: bool = False
    #: gathered from single numbers, so that their count says nothing
    loose: bool = False


@dataclass(eq=False)
class Contents:
    """What the files of a model hold; each part with where it stands."""

    #: bytes of all files
    size: int = 0
    arrays: list[Array] = field(default_factory=list)
    #: texts in the order in which they stand; an empty one ends a passage
    passages: list[str] = field(default_factory=list)
    #: where a list of texts stands, and how many it has
    lists: list[tuple[str, int]] = field(default_factory=list)
    #: of classes and functions, ``module.name``
    names: set[str] = field(default_factory=set)
    #: what no reader here understands
    opaque: list[tuple[str, bytes]] = field(default_factory=list)
    #: why a file could not be read, and its bytes
    unread: list[tuple[str, int]] = field(default_factory=list)
    #: name of a file beside a pickle of torch's -> type of its numbers, and its shape
    storages: dict[str, str] = field(default_factory=dict)
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    #: where -> bytes too few to be anything by themselves
    fragments: dict[str, list[bytes]] = field(default_factory=dict)
    #: where -> short bytes, each once
    keys: dict[str, set[bytes]] = field(default_factory=dict)

    def add_storage(self, data: bytes, key: str) -> None:
        """Add the numbers of a tensor of torch's, in the shape in which the model uses them."""
        kind = self.storages[key]
        values = np.frombuffer(data, STORAGES[kind])
        if kind == "BFloat16Storage":  # the upper half of single precision
            values = (values.astype(np.uint32) << 16).view(np.float32)
        shape = self.shapes.get(key, ())
        self.add_array(values.reshape(shape) if int(np.prod(shape)) == values.size else values, "torch.storage")

    def add_opaque(self, data: bytes, where: str) -> None:
        """Keep bytes that a container does not account for; its filling, it does."""
        if len(data.strip(b"\0")) > OPAQUE:
            self.opaque.append((where, data))

    def add_fragment(self, data: bytes, where: str) -> None:
        """Keep bytes that may be a record with others beside them; shorter ones are keys and dates."""
        if len(data) >= OPAQUE // 4:
            self.fragments.setdefault(where, []).append(data)

    def add_array(self, values: NDArray[Any], where: str, *, text: bool = False, loose: bool = False) -> None:
        """Add an array: its fields, parts and texts, each for itself."""
        kind = values.dtype.kind
        if values.dtype.names:
            for name in values.dtype.names:
                self.add_array(values[name], f"{where}.{name}")
        elif kind == "c":
            self.add_array(values.view(values.real.dtype), where)
        elif kind in "biuf" and values.size:
            native = values.astype(values.dtype.newbyteorder("="), copy=False)
            self.arrays.append(Array(where, native, text, loose))
        elif kind == "U":
            texts = values.ravel().tolist()
            self.passages += [*texts, ""]
            self.lists.append((where, len(texts)))
            self.add_numbers(texts, where)
        elif kind in "SVMm":
            self.add_opaque(values.tobytes(), where)

    def add_numbers(self, texts: Iterable[str], where: str) -> None:
        """Add the numbers of texts, one text after another: all of them, and those with a point."""
        numbers = [v for text in texts if not _VERSION.fullmatch(text) for v in _NUMBER.findall(text)]
        points = [v for v in numbers if "." in v]
        for some in [numbers] if len(points) == len(numbers) else [numbers, points]:
            if len(some) >= 2:
                self.add_array(np.array([float(v) for v in some]), where, text=True, loose=True)


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
