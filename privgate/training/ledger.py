"""The ledger: answers that are kept, so that nothing is trained twice and nothing finished is lost."""

import hashlib
import hmac
import io
import os
import secrets
import time
import uuid
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate import digest
from privgate.errors import UsageError
from privgate.training import ledger_key
from privgate.training.ledger_file import KEY, Segment, build, sealing_key
from privgate.training.storage import MemoryPlace, Place, place

#: many files are slow to open; beyond this number, those of one size are merged
MANY_SEGMENTS = 64

Positions = NDArray[np.int64]


class Ledger:
    """Bodies of bytes by keys of 32 bytes, in immutable segments that any number of processes may add to.

    Written by parent processes only. Entries are never changed; equal keys mean equal bodies.

    Parameters
    ----------
    where : str, Path, Place or None
        See ``storage.place``.
    secret : bytes, optional
        Authenticates entries; if absent ``PRIVGATE_LEDGER_KEY``, and where nobody else can write this user's own.

    Raises
    ------
    UsageError
        The place is shared and there is no secret, or it is too short.
    """

    def __init__(self, where: str | Path | Place | None = None, *, secret: bytes | None = None) -> None:
        self.place: Place = place(where) if where is None or isinstance(where, str | Path) else where
        given = ledger_key.given(secret)
        if given is None and self.place.shared:
            raise UsageError("a ledger that others can write to needs a key; set PRIVGATE_LEDGER_KEY")
        if given is None:
            given = secrets.token_bytes(32) if isinstance(self.place, MemoryPlace) else ledger_key.own()
        self._sealing = sealing_key(given)
        #: entries or whole segments that were found damaged, or written without the secret; they are computed again
        self.damaged = 0
        self._pending: dict[bytes, bytes] = {}
        self._written = time.monotonic()
        self._open()

    def drawn(self, *parts: bytes) -> bytes:
        """Return 32 bytes that are always the same for these parts, and that nobody without the secret can foretell."""
        return hmac.digest(self._sealing, b"drawn" + b"".join(hashlib.sha256(p).digest() for p in parts), "sha256")

    # -- reading --------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        self._segments: list[Segment] = []
        self._names: list[str] = []
        todo = set(self.place.names())
        while todo:  # a merge by another process may take files away, and add one, while we read
            for name in sorted(todo):
                self._load(name)
            todo = set(self.place.names()) - set(self._names)
        self._index()

    def _load(self, name: str) -> None:
        try:
            content = self.place.read(name)
        except FileNotFoundError:
            return
        self._names.append(name)
        try:
            self._segments.append(Segment(content))
        except ValueError:
            self.damaged += 1
            self._segments.append(Segment(memoryview(build([], self._sealing))))

    def _index(self) -> None:
        keys = [s.keys for s in self._segments]
        #: key -> position, for what was written since the last opening
        self._recent: dict[bytes, int] = {}
        self._keys: NDArray[np.uint8] = np.concatenate(keys) if keys else np.zeros((0, KEY), np.uint8)
        self._starts = [0, *np.cumsum([s.count for s in self._segments]).tolist()]
        prefix = np.ascontiguousarray(self._keys[:, :8]).view(np.uint64).ravel()
        self._order = np.argsort(prefix, kind="stable")
        self._sorted = prefix[self._order]

    def __len__(self) -> int:
        """Return the number of entries; those that two processes both made count twice."""
        return int(self._starts[-1]) + len(self._pending)

    def locate(self, keys: Sequence[bytes]) -> Positions:
        """Return where each key's entry is, -1 where there is none; nothing is read or verified.

        Two sorted searches for all keys together, because there may be a million of them.
        """
        wanted = np.frombuffer(b"".join(keys), np.uint8).reshape(-1, KEY)
        at = np.full(len(keys), -1, dtype=np.int64)
        if len(self._sorted) and len(keys):
            prefix = np.ascontiguousarray(wanted[:, :8]).view(np.uint64).ravel()
            near = np.minimum(np.searchsorted(self._sorted, prefix), len(self._sorted) - 1)
            same = (self._keys[self._order[near]] == wanted).all(axis=1)
            at[same] = self._order[near[same]]
            for i in np.flatnonzero(
                ~same & (self._sorted[near] == prefix)
            ).tolist():  # first 8 bytes alike: nearly never
                at[i] = next(iter(self._copies(keys[i])), -1)
        if self._recent:
            for i in np.flatnonzero(at < 0).tolist():
                at[i] = self._recent.get(keys[i], -1)
        return at

    def _copies(self, key: bytes) -> list[int]:
        """Return every position with this key: several processes may have written it."""
        prefix = np.frombuffer(key[:8], np.uint64)[0]
        low, high = np.searchsorted(self._sorted, prefix, "left"), np.searchsorted(self._sorted, prefix, "right")
        found = [int(p) for p in self._order[low:high] if self._keys[p].tobytes() == key]
        return found + ([self._recent[key]] if key in self._recent else [])

    def find(self, keys: Sequence[bytes]) -> NDArray[np.bool_]:
        """Return which keys have an entry, shape (len(keys),)."""
        known = self.locate(keys) >= 0
        if self._pending:
            known |= np.fromiter((k in self._pending for k in keys), bool, len(keys))
        return known

    def read(self, keys: Sequence[bytes]) -> list[memoryview | None]:
        """Return each key's body; None where there is none, or only a damaged one."""
        at = self.locate(keys)
        bodies: list[memoryview | None] = [None] * len(keys)
        order = np.argsort(at, kind="stable")
        order = order[at[order] >= 0]
        cuts = np.searchsorted(at[order], self._starts)
        for segment, start, low, high in zip(self._segments, self._starts, cuts, cuts[1:], strict=False):
            rows = order[low:high]
            if len(rows):
                for i, body in zip(rows.tolist(), segment.bodies(at[rows] - start, self._sealing), strict=True):
                    bodies[i] = body
        for i, body in enumerate(bodies):
            if body is None:
                bodies[i] = self._second_chance(keys[i], int(at[i]))
        return bodies

    def _second_chance(self, key: bytes, tried: int) -> memoryview | None:
        """Return another copy of an entry whose first copy is damaged, or what is not written yet."""
        if key in self._pending:
            return memoryview(self._pending[key])
        if tried < 0:
            return None
        self.damaged += 1
        for position in self._copies(key):
            segment = int(np.searchsorted(self._starts, position, "right")) - 1
            body = self._segments[segment].bodies([position - self._starts[segment]], self._sealing)[0]
            if body is not None:
                return body
        return None

    # -- writing: by the parent process only ------------------------------------------------------------------------

    def write(self, entries: Iterable[tuple[bytes, bytes]]) -> None:
        """Add entries; in a local folder they are on disk when this returns."""
        self._pending.update(entries)
        if time.monotonic() - self._written >= self.place.flush_seconds:
            self.flush()

    def flush(self, *, durable: bool = False) -> None:
        """Write what is pending as one segment."""
        self._written = time.monotonic()
        if not self._pending:
            return
        keys = list(self._pending)
        content = build(self._pending.items(), self._sealing)
        name = _new_name()
        self.place.write(name, content, durable=durable)
        self._pending = {}
        start = self._starts[-1]
        self._segments.append(Segment(memoryview(content)))
        self._names.append(name)
        self._starts.append(start + len(keys))
        self._recent.update(zip(keys, range(start, start + len(keys)), strict=True))

    def settle(self) -> None:
        """Flush, and merge where there are many segments; whatever happens midway, nothing is lost.

        Segments of like size are merged with each other, so an entry is rewritten a few times in its life at most. The
        merged file is complete and on disk before the first of its parts is deleted. Damaged entries stay behind.
        """
        self.flush()
        by_size: dict[int, list[int]] = {}
        for i, segment in enumerate(self._segments):
            by_size.setdefault(segment.count.bit_length() // 4, []).append(i)
        many = [i for alike in by_size.values() if len(alike) > MANY_SEGMENTS for i in alike]
        if not many:
            return
        entries: dict[bytes, memoryview] = {}
        for segment in (self._segments[i] for i in many):
            keys = [k.tobytes() for k in segment.keys]
            bodies = segment.bodies(range(segment.count), self._sealing)
            entries.update((k, b) for k, b in zip(keys, bodies, strict=True) if b is not None)
        self.place.write(_new_name(), build(entries.items(), self._sealing), durable=True)
        for i in many:
            self.place.remove(self._names[i])
        self._open()

    # -- whole arrays, for closed forms -----------------------------------------------------------------------------

    def array(self, key: Any) -> NDArray[Any] | None:
        """Return the array that was remembered under a JSON key, or None.

        Parameters
        ----------
        key : JSON value
            Must name everything that changes the array: digests, versions, options.
        """
        body = self.read([_array_key(key)])[0]
        return None if body is None else np.asarray(np.load(io.BytesIO(body), allow_pickle=False))

    def remember(self, key: Any, array: NDArray[Any]) -> None:
        """Keep an array under a JSON key; see ``array``."""
        out = io.BytesIO()
        np.save(out, array, allow_pickle=False)
        self.write([(_array_key(key), out.getvalue())])


def _new_name() -> str:
    """Return a name that no other process uses, so that processes writing at once never meet; sorted by time."""
    return f"{time.time_ns():020d}-{os.getpid()}-{uuid.uuid4().hex[:8]}.seg"


def _array_key(key: Any) -> bytes:
    return hashlib.sha256(b"array:" + digest.canonical_json(key)).digest()
