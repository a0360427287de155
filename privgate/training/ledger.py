"""What seals a ledger: the operator's secret, or one of this user's own that is made when it is first needed.

A public constant would let everybody who can write a file there say what training gave. Training code can read neither:
a box has no home and no environment of anybody's.
"""

import hashlib
import hmac
import io
import itertools
import mmap
import os
import secrets
import struct
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b, sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate import digest
from privgate.errors import UsageError
from privgate.training.storage import LARGE, Body, MemoryPlace, Place, place

VARIABLE = "PRIVGATE_LEDGER_KEY"
#: bytes, below which a secret could be guessed
LEAST = 16


def given_key(secret: bytes | None) -> bytes | None:
    """Return the secret that somebody chose, or None.

    Raises
    ------
    UsageError
        It is too short.
    """
    chosen = secret if secret is not None else os.environ.get(VARIABLE, "").encode() or None
    if chosen is not None and len(chosen) < LEAST:
        raise UsageError(f"the ledger's key has {len(chosen)} bytes; use {LEAST} or more, such as openssl rand -hex 32")
    return chosen


def own() -> bytes:
    """Return this user's secret, which no other user can read.

    Raises
    ------
    UsageError
        It cannot be made, or others can read it.
    """
    home = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    path = home / "privgate" / "ledger.key"
    try:
        if not path.is_file():
            _make(path)
        found, secret = path.stat(), path.read_bytes().strip()
    except OSError as exc:
        raise UsageError(f"the ledger's key {path} cannot be read or made: {exc.strerror}; set {VARIABLE}") from exc
    if found.st_mode & 0o077 or found.st_uid != os.getuid():
        raise UsageError(
            f"the ledger's key {path} can be read by others or is another user's; set {VARIABLE}, or delete it to have "
            "one made"
        )
    if len(secret) < LEAST:
        raise UsageError(f"the ledger's key {path} is shorter than {LEAST} bytes; delete it to have one made")
    return secret


def _make(path: Path) -> None:
    """Write a new secret whole, or leave the one that another process wrote meanwhile."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as f:
            f.write(secrets.token_hex(32).encode())
        os.link(draft, path)
    except FileExistsError:
        return
    finally:
        draft.unlink()


# One file of the ledger: immutable, indexed, every entry authenticated by itself.

_MAGIC = b"PRIVGATE"
_VERSION = 1  # of a segment's layout
_HEAD = struct.Struct("<8sIIQ")
KEY, TAG = 32, 16  # bytes


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
    return b"".join(_parts(list(entries), sealing))


def _parts(pairs: Sequence[tuple[bytes, Body]], sealing: bytes) -> list[Body]:
    tags = [tag(sealing, key, body) for key, body in pairs]
    return [_head([key for key, _ in pairs], [len(body) for _, body in pairs], tags), *(body for _, body in pairs)]


def _head(keys: Sequence[bytes], sizes: Sequence[int], tags: Sequence[bytes]) -> bytes:
    """Return what stands before the bodies of a segment."""
    offsets = np.concatenate([np.zeros(1, "<u8"), np.cumsum(np.array(sizes, dtype="<u8"), dtype="<u8")]).astype("<u8")
    return b"".join([_HEAD.pack(_MAGIC, _VERSION, 0, len(keys)), *keys, offsets.tobytes(), *tags])


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
        # copied: in the file, two entries may change places after they were looked up
        self.keys: NDArray[np.uint8] = np.frombuffer(content, np.uint8, KEY * count, _HEAD.size).reshape(-1, KEY).copy()
        self._offsets = np.frombuffer(content, "<u8", count + 1, start)

    def bodies(self, entries: Sequence[int] | NDArray[np.int64], sealing: bytes) -> Iterator[memoryview | None]:
        """Yield bodies of entries by position; None for one that was damaged or written without the secret."""
        at = np.asarray(entries, dtype=np.int64)
        low = (self._offsets[at] + np.uint64(self._bodies_at)).tolist()
        high = (self._offsets[at + 1] + np.uint64(self._bodies_at)).tolist()
        content, size = self._content, len(self._content)
        for i, start, end in zip(at.tolist(), low, high, strict=True):
            if not self._bodies_at <= start <= end <= size:
                yield None
                continue
            body = memoryview(bytes(content[start:end]))  # of its own: the file may change after its tag was checked
            self._forget(end - start)
            yield body if hmac.compare_digest(tag(sealing, self.keys[i].tobytes(), body), self.tag_of(i)) else None

    def tag_of(self, entry: int) -> bytes:
        """Return the tag of an entry by position, as it was read."""
        return bytes(self._content[self._tags_at + TAG * entry : self._tags_at + TAG * (entry + 1)])

    def copied(self, entry: int) -> Iterator[memoryview]:
        """Yield a body by position, unread: its tag goes with it."""
        start, end = (int(v) + self._bodies_at for v in self._offsets[entry : entry + 2])
        yield self._content[start:end]
        self._forget(end - start)

    def _forget(self, size: int) -> None:
        """Give pages of a mapped file back, which would count as this process's memory, once many were read."""
        if size >= LARGE and isinstance(self._content.obj, mmap.mmap):
            self._content.obj.madvise(mmap.MADV_DONTNEED)


# The ledger: answers that are kept, so that nothing is trained twice and nothing finished is lost.

#: many files are slow to open; beyond this number, those of one size are merged
MANY_SEGMENTS = 64
#: segments that one run writes before it merges
AT_ONCE = 256

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
        given = given_key(secret)
        if given is None and self.place.shared:
            raise UsageError("a ledger that others can write to needs a key; set PRIVGATE_LEDGER_KEY")
        if given is None:
            given = secrets.token_bytes(32) if isinstance(self.place, MemoryPlace) else own()
        self._sealing = sealing_key(given)
        #: entries or whole segments that were found damaged, or written without the secret; they are computed again
        self.damaged, self._hurt = 0, set[bytes]()
        self._pending: dict[bytes, bytes] = {}
        self._written, self._unsettled = time.monotonic(), 0
        self._open()

    @property
    def lasting(self) -> bool:
        """Whether another run can read what this one remembers."""
        return not isinstance(self.place, MemoryPlace)

    def drawn(self, *parts: bytes) -> bytes:
        """Return 32 bytes that are always the same for these parts, and that nobody without the secret can foretell."""
        return hmac.digest(self._sealing, b"drawn" + b"".join(hashlib.sha256(p).digest() for p in parts), "sha256")

    # -- reading --------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        self._segments: list[Segment] = []
        self._names: list[str] = []
        self._others: set[str] = set()  # of others of the team, who alone may read them
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
        except PermissionError:
            self._others.add(name)
            content = memoryview(b"")
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
        self.damaged += key not in self._hurt
        self._hurt.add(key)
        for position in self._copies(key):
            segment = int(np.searchsorted(self._starts, position, "right")) - 1
            body = next(self._segments[segment].bodies([position - self._starts[segment]], self._sealing))
            if body is not None:
                return body
        return None

    # -- writing: by the parent process only ------------------------------------------------------------------------

    def write(self, entries: Iterable[tuple[bytes, bytes]]) -> None:
        """Add entries; in a local folder they are on disk when this returns."""
        self._pending.update(entries)
        if time.monotonic() - self._written >= self.place.flush_seconds:
            self.flush()
            if self._unsettled > AT_ONCE:  # a long run leaves a few hundred files, not one a training
                self.settle()

    def flush(self, *, durable: bool = False) -> None:
        """Write what is pending as one segment."""
        self._written = time.monotonic()
        if not self._pending:
            return
        keys = list(self._pending)
        name = _new_name()
        content = self.place.write(name, _parts(list(self._pending.items()), self._sealing), durable=durable)
        self._unsettled += 1
        self._pending = {}
        start = self._starts[-1]
        self._segments.append(Segment(content))
        self._names.append(name)
        self._starts.append(start + len(keys))
        self._recent.update(zip(keys, range(start, start + len(keys)), strict=True))

    def settle(self) -> None:
        """Flush, and merge where there are many segments; whatever happens midway, nothing is lost.

        Segments of like size are merged with each other, so an entry is rewritten a few times in its life at most. The
        merged file is complete and on disk before the first of its parts is deleted. Damaged entries stay behind. One
        body at a time is in memory: it is read once for its tag, and once to be copied with that tag.
        """
        self.flush()
        self._unsettled = 0
        by_size: dict[int, list[int]] = {}
        for i, segment in enumerate(self._segments):
            if self._names[i] not in self._others:
                by_size.setdefault(segment.count.bit_length() // 4, []).append(i)
        many = [i for alike in by_size.values() if len(alike) > MANY_SEGMENTS for i in alike]
        if not many:
            return
        sound: dict[bytes, tuple[Segment, int, int]] = {}
        for segment in (self._segments[i] for i in many):
            for at, body in enumerate(segment.bodies(range(segment.count), self._sealing)):
                if body is not None:
                    sound[segment.keys[at].tobytes()] = (segment, at, len(body))
        head = _head(list(sound), [size for *_, size in sound.values()], [s.tag_of(at) for s, at, _ in sound.values()])
        parts = (part for segment, at, _ in sound.values() for part in segment.copied(at))
        self.place.write(_new_name(), itertools.chain([head], parts), durable=True)
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
