"""One file of the ledger: immutable, indexed, every entry authenticated by itself."""

import hmac
import struct
from collections.abc import Iterable, Sequence
from hashlib import blake2b, sha256

import numpy as np
from numpy.typing import NDArray

_MAGIC = b"PRIVGATE"
_VERSION = 1
_HEAD = struct.Struct("<8sIIQ")
KEY, TAG = 32, 16

Body = bytes | memoryview


def sealing_key(secret: bytes) -> bytes:
    """Return the key of the tags, of fixed length, from a secret of any."""
    return sha256(b"privgate ledger/1\0" + secret).digest()


def tag(sealing: bytes, key: bytes, body: Body) -> bytes:
    """Return the authentication tag of an entry: keyed BLAKE2b over its key and its body, 16 bytes (RFC 7693).

    The entry's key is part of it, so that no entry can be served in another's place.
    """
    h = blake2b(key, key=sealing, digest_size=TAG)
    h.update(body)
    return h.digest()


def build(entries: Iterable[tuple[bytes, Body]], sealing: bytes) -> bytes:
    """Return the bytes of a segment with these (key of 32 bytes, body) entries."""
    pairs = list(entries)
    sizes = np.array([len(body) for _, body in pairs], dtype="<u8")
    offsets = np.concatenate([np.zeros(1, "<u8"), np.cumsum(sizes, dtype="<u8")]).astype("<u8")
    keys = b"".join(key for key, _ in pairs)
    tags = b"".join(tag(sealing, key, body) for key, body in pairs)
    head = _HEAD.pack(_MAGIC, _VERSION, 0, len(pairs))
    return b"".join([head, keys, offsets.tobytes(), tags, *(body for _, body in pairs)])


class Segment:
    """A segment as read; nothing is trusted before its tag was checked.

    Parameters
    ----------
    content : memoryview
        The whole file.

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

    def bodies(self, entries: Sequence[int] | NDArray[np.int64], sealing: bytes) -> list[memoryview | None]:
        """Return bodies of entries by position; None for one that was damaged or written without the secret."""
        at = np.asarray(entries, dtype=np.int64)
        low = (self._offsets[at] + np.uint64(self._bodies_at)).tolist()
        high = (self._offsets[at + 1] + np.uint64(self._bodies_at)).tolist()
        found: list[memoryview | None] = []
        content, size = self._content, len(self._content)
        for i, start, end in zip(at.tolist(), low, high, strict=True):
            if not self._bodies_at <= start <= end <= size:
                found.append(None)
                continue
            body = content[start:end]
            key = bytes(content[_HEAD.size + KEY * i : _HEAD.size + KEY * (i + 1)])
            kept = bytes(content[self._tags_at + TAG * i : self._tags_at + TAG * (i + 1)])
            found.append(body if hmac.compare_digest(tag(sealing, key, body), kept) else None)
        return found
