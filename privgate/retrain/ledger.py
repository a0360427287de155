"""The ledger: answers that are kept, so that nothing is trained twice and nothing finished is lost."""

import hashlib
import io
import os
import time
import uuid
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.errors import UsageError
from privgate.retrain.places import Place, place
from privgate.retrain.segment import KEY, Segment, build

#: a constant in the secret's place: the tag is then a checksum against damage, not against people
_NO_SECRET = b"privgate ledger, this user only"
_LEAST_SECRET = 16
#: many small files are slow to open; beyond this number they are merged
MANY_SEGMENTS = 64


class Ledger:
    """Bodies of bytes by keys of 32 bytes, in immutable segments that any number of processes may add to.

    Parameters
    ----------
    where : str, Path or None
        See ``places.place``.
    secret : bytes, optional
        Authenticates entries; ``PRIVGATE_LEDGER_KEY`` if absent. Needed where others can write.

    Raises
    ------
    UsageError
        The place is shared and there is no secret, or it is too short.
    """

    def __init__(self, where: str | Path | Place | None = None, *, secret: bytes | None = None) -> None:
        self.place: Place = place(where) if where is None or isinstance(where, str | Path) else where
        given = secret if secret is not None else os.environ.get("PRIVGATE_LEDGER_KEY", "").encode() or None
        if given is not None and len(given) < _LEAST_SECRET:
            raise UsageError(
                f"the ledger's key has {len(given)} bytes; use at least {_LEAST_SECRET}, for example from openssl rand -hex 32"
            )
        if given is None and self.place.shared:
            raise UsageError("a ledger that others can write to needs a key; set PRIVGATE_LEDGER_KEY")
        self._secret = given or _NO_SECRET
        #: entries that were found damaged, or written without the secret, and are computed again
        self.damaged = 0
        self._segments: list[Segment] = []
        self._names: list[str] = []
        self._pending: dict[bytes, bytes] = {}
        self._recent: dict[bytes, tuple[int, int]] = {}
        self._own: list[str] = []
        self._written = time.monotonic()
        self._open()

    # -- reading --------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        self._segments, self._names, self._recent = [], [], {}
        todo = sorted(self.place.names())
        for _ in range(3):  # a merge by another process may take files away while we read
            for name in todo:
                self._load(name)
            todo = sorted(set(self.place.names()) - set(self._names))
            if not todo:
                break
        self._index()

    def _load(self, name: str) -> None:
        try:
            segment = Segment(self.place.read(name))
        except FileNotFoundError:
            return
        except ValueError:
            self.damaged += 1
            return
        self._segments.append(segment)
        self._names.append(name)

    def _index(self) -> None:
        counts = [s.count for s in self._segments]
        keys = [s.keys for s in self._segments]
        self._keys: NDArray[np.uint8] = np.concatenate(keys) if keys else np.zeros((0, KEY), np.uint8)
        self._starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        prefix = np.ascontiguousarray(self._keys[:, :8]).view(np.uint64).ravel()
        self._order = np.argsort(prefix, kind="stable")
        self._sorted = prefix[self._order]

    def __len__(self) -> int:
        """Number of entries, duplicates of other processes included."""
        return len(self._keys) + len(self._recent) + len(self._pending)

    def find(self, keys: Sequence[bytes]) -> NDArray[np.bool_]:
        """Return which keys have an entry, shape (len(keys),); nothing is read or verified."""
        if not keys:
            return np.zeros(0, dtype=bool)
        wanted = np.frombuffer(b"".join(keys), np.uint8).reshape(-1, KEY)
        known = np.zeros(len(keys), dtype=bool)
        if len(self._sorted):
            prefix = np.ascontiguousarray(wanted[:, :8]).view(np.uint64).ravel()
            at = np.minimum(np.searchsorted(self._sorted, prefix), len(self._sorted) - 1)
            known = (self._keys[self._order[at]] == wanted).all(axis=1)
            for i in np.flatnonzero(~known & (self._sorted[at] == prefix)):  # equal first 8 bytes: 1 in 10^8 runs
                known[i] = any((self._keys[p] == wanted[i]).all() for p in self._candidates(keys[i]))
        if self._recent or self._pending:
            known |= np.fromiter((k in self._recent or k in self._pending for k in keys), bool, len(keys))
        return known

    def _candidates(self, key: bytes) -> list[int]:
        prefix = np.frombuffer(key[:8], np.uint64)[0]
        low, high = np.searchsorted(self._sorted, prefix, "left"), np.searchsorted(self._sorted, prefix, "right")
        return [int(p) for p in self._order[low:high]]

    def read(self, key: bytes) -> memoryview | None:
        """Return a key's body, or None if there is none or it is damaged."""
        if key in self._pending:
            return memoryview(self._pending[key])
        if key in self._recent:
            segment, i = self._recent[key]
            return self._segments[segment].body(i, self._secret)
        for p in self._candidates(key):
            if self._keys[p].tobytes() != key:
                continue
            segment = int(np.searchsorted(self._starts, p, "right")) - 1
            body = self._segments[segment].body(p - int(self._starts[segment]), self._secret)
            if body is not None:
                return body
            self.damaged += 1
        return None

    # -- writing: by the parent process only ------------------------------------------------------------------------

    def write(self, entries: Iterable[tuple[bytes, bytes]]) -> None:
        """Add entries; on a local folder they are on disk when this returns."""
        self._pending.update(entries)
        if time.monotonic() - self._written >= self.place.flush_seconds:
            self.flush()

    def flush(self, *, durable: bool = False) -> None:
        """Write what is pending as one segment."""
        self._written = time.monotonic()
        if not self._pending:
            return
        entries = list(self._pending.items())
        content = build(entries, self._secret)
        # unique, so that processes writing at once never meet; ordered by time, for people
        name = f"{time.time_ns():020d}-{os.getpid()}-{uuid.uuid4().hex[:8]}.seg"
        self.place.write(name, content, durable=durable)
        self._pending = {}
        self._segments.append(Segment(memoryview(content)))
        self._names.append(name)
        self._own.append(name)
        self._recent.update({key: (len(self._segments) - 1, i) for i, (key, _) in enumerate(entries)})

    def settle(self) -> None:
        """Flush, and merge when there are many segments; whatever happens midway, nothing is lost."""
        self.flush()
        if len(self._names) <= MANY_SEGMENTS:
            return
        small = sorted(range(len(self._segments)), key=lambda i: self._segments[i].count)[:-1]
        biggest = max(s.count for s in self._segments)
        # rewriting one large segment again and again would cost more than it saves
        merged = [i for i in small if self._segments[i].count <= max(1000, biggest)]
        entries: dict[bytes, bytes] = {}
        for i in merged:
            segment = self._segments[i]
            for j in range(segment.count):
                body = segment.body(j, self._secret)
                if body is not None:
                    entries[segment.keys[j].tobytes()] = bytes(body)
        name = f"{time.time_ns():020d}-{os.getpid()}-{uuid.uuid4().hex[:8]}.seg"
        self.place.write(name, build(entries.items(), self._secret), durable=True)
        for i in merged:
            self.place.remove(self._names[i])
        self._own = []
        self._open()

    # -- whole arrays, for closed forms ---------------------------------------------------------------------------------

    def array(self, key: Any) -> NDArray[Any] | None:
        """Return the array that was remembered under a JSON key, or None."""
        body = self.read(_array_key(key))
        return None if body is None else np.load(io.BytesIO(body), allow_pickle=False)

    def remember(self, key: Any, array: NDArray[Any]) -> None:
        """Keep an array under a JSON key, which must name everything that changes it."""
        out = io.BytesIO()
        np.save(out, array, allow_pickle=False)
        self.write([(_array_key(key), out.getvalue())])


def _array_key(key: Any) -> bytes:
    from privgate import digest

    return hashlib.sha256(b"array:" + digest.canonical_json(key)).digest()
