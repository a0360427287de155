"""The guard in force: read again when one of its files changes, so that revoking a key needs no restart."""

import hashlib
import threading
from pathlib import Path
from typing import Any

from privgate.documents import LARGE, DocumentError, door
from privgate.guard.config import Guard


class Watch:
    """The guard, read again when a file changes that it rests on: its own, the trust store, policies, their bases."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._stamps: Any = None
        self._guard: Guard | None = None

    def guard(self) -> Guard:
        """Return the guard in force.

        Raises
        ------
        PrivgateError
            The files cannot be used any more; nothing is promoted until they can.
        """
        with self._lock:
            if self._guard is None or self._stamps is None or _seen(self._guard.files) != self._stamps:
                self._guard = None
                files = Guard.load(self.path).files
                # read once more after looking at the files: what is kept is never older than its stamps
                self._stamps = _seen(files)
                fresh = Guard.load(self.path)
                if fresh.files != files:
                    self._stamps = None
                self._guard = fresh
            return self._guard


def _seen(files: tuple[Path, ...]) -> Any:
    """Return what the files are and hold: by stamps alone, two writes in one tick of a file system's clock are one."""
    try:
        return [
            (s.st_mtime_ns, s.st_ctime_ns, s.st_ino, hashlib.sha256(door.content(f, LARGE)).digest())
            for f, s in ((f, f.stat()) for f in files)
        ]
    except (OSError, DocumentError):
        return None  # reading it again says what is wrong
