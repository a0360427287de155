"""One file of the ledger: immutable, indexed, every entry authenticated by itself."""

import hashlib
import hmac
import struct
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

_MAGIC = b"PRIVGATE"
_VERSION = 1
_HEAD = struct.Struct("<8sIIQ")
KEY, TAG = 32, 16


def tag(secret: bytes, key: bytes, body: bytes | memoryview) -> bytes:
    """Return the authentication tag of an entry: HMAC-SHA256 over its key and its body, 16 bytes.

    The key is part of it, so that no entry can be served in another's place.
    """
    return hmac.digest(secret, key + hashlib.sha256(body).digest(), "sha256")[:TAG]


def build(entries: Iterable[tuple[bytes, bytes]], secret: bytes) -> bytes:
    """Return the bytes of a segment with these (key of 32 bytes, body) entries."""
    pairs = list(entries)
    sizes = np.array([len(body) for _, body in pairs], dtype="<u8")
    offsets = np.concatenate([np.zeros(1, "<u8"), np.cumsum(sizes, dtype="<u8")]).astype("<u8")
    keys = b"".join(key for key, _ in pairs)
    tags = b"".join(tag(secret, key, body) for key, body in pairs)
    head = _HEAD.pack(_MAGIC, _VERSION, 0, len(pairs))
    return b"".join([head, keys, offsets.tobytes(), tags, *(body for _, body in pairs)])


class Segment:
    """A segment as read; nothing is trusted before its tag was checked.

    Raises
    ------
    ValueError
        Not a whole segment: foreign, truncated, or of another version.
    """

    def __init__(self, content: memoryview) -> None:
        if len(content) < _HEAD.size:
            raise ValueError("shorter than a header")
        magic, version, _, count = _HEAD.unpack(content[: _HEAD.size])
        start = _HEAD.size + KEY * count
        self._tags_at = start + 8 * (count + 1)
        self._bodies_at = self._tags_at + TAG * count
        if magic != _MAGIC or version != _VERSION or len(content) < self._bodies_at:
            raise ValueError("not a segment of this version")
        self.count = int(count)
        self._content = content
        self.keys: NDArray[np.uint8] = np.frombuffer(content, np.uint8, KEY * count, _HEAD.size).reshape(-1, KEY)
        self._offsets = np.frombuffer(content, "<u8", count + 1, start)

    def body(self, i: int, secret: bytes) -> memoryview | None:
        """Return entry ``i``, or None if it was damaged or written without the secret."""
        low, high = int(self._offsets[i]) + self._bodies_at, int(self._offsets[i + 1]) + self._bodies_at
        if not self._bodies_at <= low <= high <= len(self._content):
            return None
        body = self._content[low:high]
        at = self._tags_at + TAG * i
        good = hmac.compare_digest(tag(secret, self.keys[i].tobytes(), body), bytes(self._content[at : at + TAG]))
        return body if good else None
