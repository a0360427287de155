"""The audit log: who asked for what to be released, what was refused and why, what was released and withdrawn.

One line of JSON an event, appended and never changed. Each line names the digest of the line before it, so that a line
that was changed or taken out of the middle shows; that the end was cut off shows only to who kept a later digest,
which is why the log belongs on a host that the registry's users cannot write to, or is shipped away as it grows.
"""

import fcntl
import hashlib
import json
import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from privgate.documents import DocumentError, strict_json
from privgate.errors import StatementError
from privgate.guard import times

#: what a line may be about
EVENTS = ("asked", "refused", "approved", "released", "withdrawn", "renamed", "wrong")
#: a sentence may quote what somebody sent; a line is not for that
_LONGEST = 2_000
_TAIL = 256 << 10  # more than any line


@dataclass(frozen=True)
class AuditLog:
    """A file of events that any number of processes of a host append to.

    Parameters
    ----------
    path : Path
        The file; made if absent, for its owner and group only. Moving it away begins a new one.
    """

    path: Path

    def record(self, event: str, **said: str) -> None:
        """Append one event; it is on disk when this returns.

        Parameters
        ----------
        event : str
            Of ``EVENTS``.
        said : str
            What it is about: ``doing``, ``model``, ``version``, ``target``, ``why``, ``by``.

        Raises
        ------
        StatementError
            It cannot be written; what was to be recorded must not happen.
        """
        if event not in EVENTS:
            raise ValueError(f"no event {event!r}")
        try:
            handle = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o640)
            with os.fdopen(handle, "r+b") as log:
                fcntl.flock(log, fcntl.LOCK_EX)  # given back when it is closed
                last = _last_line(log)
                if last and not last.endswith(b"\n"):  # a process was killed while it wrote
                    log.write(b"\n")
                content = {
                    "at": times.stamp(times.now()),
                    "event": event,
                    **{k: v[:_LONGEST] for k, v in said.items() if v},
                    "host": socket.gethostname(),
                    "previous": _digest(last),
                }
                log.write(json.dumps(content, separators=(",", ":")).encode() + b"\n")
                log.flush()
                os.fsync(log.fileno())
        except OSError as exc:
            raise StatementError(f"audit log {self.path} cannot be written: {exc.strerror}") from exc

    def lines(self) -> Iterator[dict[str, Any]]:
        """Give every event, oldest first; nothing where there is no log yet.

        Raises
        ------
        StatementError
            A line is no event, or does not follow the one before it: the log was changed.
        """
        previous = _digest(b"")
        try:
            with self.path.open("rb") as log:
                for number, line in enumerate(log, 1):
                    yield _event(line, previous, f"audit log {self.path}, line {number}")
                    previous = _digest(line)
        except FileNotFoundError:
            return
        except OSError as exc:
            raise StatementError(f"audit log {self.path} cannot be read: {exc.strerror}") from exc


def _event(line: bytes, previous: str, where: str) -> dict[str, Any]:
    try:
        found = strict_json.loads(line)
    except DocumentError as exc:
        raise StatementError(f"{where} {exc}") from exc
    if not isinstance(found, dict) or found.get("event") not in EVENTS:
        raise StatementError(f"{where} is no event")
    if found.get("previous") != previous:
        raise StatementError(f"{where} does not follow the line before it: something was changed or taken out")
    return found


def _last_line(log: Any) -> bytes:
    size = os.fstat(log.fileno()).st_size
    tail = os.pread(log.fileno(), _TAIL, max(0, size - _TAIL))
    return bytes(tail[tail.rstrip(b"\n").rfind(b"\n") + 1 :])


def _digest(line: bytes) -> str:
    return "sha256:" + hashlib.sha256(line.rstrip(b"\n")).hexdigest() if line.strip() else ""
