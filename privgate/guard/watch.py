"""The guard in force: read again when one of its files changes, so that revoking a key needs no restart."""

import threading
from pathlib import Path

from privgate.guard.config import Guard


class Watch:
    """The guard, read again when its file or the trust store changes: revoking a key needs no restart."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._stamps: tuple[tuple[int, ...], ...] = ()
        self._guard: Guard | None = None

    def guard(self) -> Guard:
        """Return the guard in force.

        Raises
        ------
        PrivgateError
            The files cannot be used any more; nothing is promoted until they can.
        """
        with self._lock:
            if self._guard is None or _seen(self._guard.files) != self._stamps:
                self._guard = None
                files = Guard.load(self.path).files
                # read once more after looking at the files: what is kept is never older than its stamps
                self._stamps = _seen(files)
                fresh = Guard.load(self.path)
                if fresh.files != files:
                    self._stamps = ()
                self._guard = fresh
            return self._guard


def _seen(files: tuple[Path, ...]) -> tuple[tuple[int, ...], ...]:
    try:
        return tuple((s.st_mtime_ns, s.st_ctime_ns, s.st_size, s.st_ino) for s in (f.stat() for f in files))
    except OSError:
        return ()  # reading it again says what is wrong
