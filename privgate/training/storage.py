"""Where ledger segments lie: a local folder, memory, or anything that fsspec can reach."""

import mmap
import os
import sys
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from privgate.errors import UsageError

#: bytes from which on what lies in a file is read where it is needed, and not kept in memory
LARGE = 2**20

Body = bytes | memoryview


class Place(Protocol):
    """A flat set of immutable files."""

    @property
    def shared(self) -> bool:
        """Whether others can write here, so that entries must be authenticated."""
        ...

    @property
    def flush_seconds(self) -> float:
        """How long finished work may wait in memory before it is written."""
        ...

    def names(self) -> list[str]:
        """Return the names of all segments."""
        ...

    def read(self, name: str) -> memoryview:
        """Return a segment's bytes; raises ``FileNotFoundError`` if it has gone."""
        ...

    def write(self, name: str, parts: Iterable[Body], *, durable: bool = False) -> memoryview:
        """Write a whole segment or none of it; return its bytes, as ``read`` would."""
        ...

    def remove(self, name: str) -> None:
        """Delete a segment; no error if it has gone."""
        ...


class LocalPlace:
    """A folder that only this user can read: it tells who was in the training data."""

    flush_seconds = 0.0

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        found = folder.stat()
        #: an existing folder may belong to a team
        self.shared = found.st_uid != os.getuid() or bool(found.st_mode & 0o022)

    def names(self) -> list[str]:
        """Return the names of all segments."""
        found = os.scandir(self.folder)  # a pipe would never end, and a link leads to somebody else's file
        return [e.name for e in found if e.name.endswith(".seg") and e.is_file(follow_symlinks=False)]

    def read(self, name: str) -> memoryview:
        """Return a segment as mapped memory; it stays valid when the file is deleted, not when another cuts it."""
        with (self.folder / name).open("rb") as f:
            return self._content(f, 1)

    def _content(self, f: BinaryIO, least: int) -> memoryview:
        size = f.seek(0, os.SEEK_END)
        if size >= least and not self.shared:
            return memoryview(mmap.mmap(f.fileno(), size, access=mmap.ACCESS_READ))
        f.seek(0)
        return memoryview(f.read())

    def write(self, name: str, parts: Iterable[Body], *, durable: bool = False) -> memoryview:
        """Write next to the target and rename: a killed process leaves the old state or the new one."""
        temporary = self.folder / f".{name}.{uuid.uuid4().hex}.tmp"
        try:
            with os.fdopen(os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600), "w+b") as f:
                f.writelines(parts)
                f.flush()
                if durable:  # survives a power cut as well; costs milliseconds, so small segments wait for the merge
                    os.fsync(f.fileno())
                content = self._content(f, LARGE)
            temporary.replace(self.folder / name)
        except OSError as exc:
            temporary.unlink(missing_ok=True)
            raise UsageError(f"the ledger {self.folder} cannot be written: {exc.strerror}; say --ledger PLACE") from exc
        return content

    def remove(self, name: str) -> None:
        """Delete a segment; no error if it has gone."""
        (self.folder / name).unlink(missing_ok=True)


class MemoryPlace:
    """Remembers for as long as the process lives."""

    shared = False
    flush_seconds = 0.0

    def __init__(self) -> None:
        self._files: dict[str, bytes] = {}

    def names(self) -> list[str]:
        """Return the names of all segments."""
        return list(self._files)

    def read(self, name: str) -> memoryview:
        """Return a segment's bytes."""
        if name not in self._files:
            raise FileNotFoundError(name)
        return memoryview(self._files[name])

    def write(self, name: str, parts: Iterable[Body], *, durable: bool = False) -> memoryview:
        """Keep a segment."""
        del durable
        self._files[name] = b"".join(parts)
        return memoryview(self._files[name])

    def remove(self, name: str) -> None:
        """Forget a segment."""
        self._files.pop(name, None)


#: object stores show an object whole or not at all
_ATOMIC = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "memory"})


class RemotePlace:
    """A folder behind an fsspec URL, shared by a team."""

    shared = True
    #: an object store takes a tenth of a second a write
    flush_seconds = 5.0

    def __init__(self, url: str) -> None:
        import fsspec

        self._fs, self._root = fsspec.core.url_to_fs(url)
        self._fs.makedirs(self._root, exist_ok=True)
        own = self._fs.protocol
        self._atomic = not _ATOMIC.isdisjoint({own} if isinstance(own, str) else own)

    def _path(self, name: str) -> str:
        return f"{self._root.rstrip('/')}/{name}"

    def names(self) -> list[str]:
        """Return the names of all segments."""
        self._fs.invalidate_cache(self._root)
        found: list[Any] = self._fs.ls(self._root, detail=False)
        return [str(n).rpartition("/")[2] for n in found if str(n).endswith(".seg")]

    def read(self, name: str) -> memoryview:
        """Return a segment's bytes, fetched whole."""
        return memoryview(self._fs.cat_file(self._path(name)))

    def write(self, name: str, parts: Iterable[Body], *, durable: bool = False) -> memoryview:
        """Put one object; where a reader could see half of it, write elsewhere and rename."""
        del durable
        content, path = b"".join(parts), self._path(name)
        temporary = path if self._atomic else self._path(f".{name}.{uuid.uuid4().hex}.tmp")
        self._fs.pipe_file(temporary, content)
        if temporary != path:
            self._fs.mv(temporary, path)
        return memoryview(content)

    def remove(self, name: str) -> None:
        """Delete a segment; no error if it has gone."""
        try:
            self._fs.rm_file(self._path(name))
        except FileNotFoundError:
            return


def cache_folder() -> Path:
    """Return privgate's folder among the user's caches."""
    if sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "privgate"


def place(where: str | Path | None) -> Place:
    """Return the place that a setting names.

    Parameters
    ----------
    where : str, Path or None
        A folder, an fsspec URL, ``"none"`` to remember nothing beyond this process, or None for ``PRIVGATE_LEDGER`` and
        then the user's cache folder.
    """
    text = str(where if where is not None else os.environ.get("PRIVGATE_LEDGER") or cache_folder() / "ledger")
    if text == "none":
        return MemoryPlace()
    if text.startswith("file://"):
        return LocalPlace(Path(text.removeprefix("file://")))
    return RemotePlace(text) if "://" in text else LocalPlace(Path(text).expanduser())
