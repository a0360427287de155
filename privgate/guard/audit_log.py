"""The audit log: what a guarded registry was asked and did, one line of JSON an event, none changed unseen."""

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
from privgate.guard import statement

#: what a line of the audit log may be about
EVENTS = ("asked", "refused", "approved", "released", "withdrawn", "renamed", "wrong")
#: characters of a sentence, which may quote a client's text
_LONGEST = 2_000
_TAIL = 256 << 10  # more than any line


@dataclass(frozen=True)
class AuditLog:
    """A file of events that any number of processes of a host append to, one line of JSON each, never changed.

    Each line names the digest of the one before. A cut end shows only to who kept a later digest.
    """

    #: the file; made if absent, for its owner and group only. Moving it away begins a new one
    path: Path

    def record(self, event: str, **said: str) -> None:
        """Append one event of ``EVENTS``, on disk at return; ``StatementError``: what it is about must not happen."""
        try:
            handle = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o640)
            with os.fdopen(handle, "r+b") as log:
                fcntl.flock(log, fcntl.LOCK_EX)  # given back when it is closed
                tail = os.pread(log.fileno(), _TAIL, max(0, os.fstat(log.fileno()).st_size - _TAIL))
                last = tail[tail.rstrip(b"\n").rfind(b"\n") + 1 :]
                if last and not last.endswith(b"\n"):  # a process was killed while it wrote
                    log.write(b"\n")
                content = {
                    "at": statement.stamp(statement.now()),
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
        """Give every event, oldest first; ``StatementError``: a line is none, or was changed, or one before it was."""
        previous = _digest(b"")
        try:
            with self.path.open("rb") as log:
                for number, line in enumerate(log, 1):
                    yield _read_event(line, previous, f"audit log {self.path}, line {number}")
                    previous = _digest(line)
        except FileNotFoundError:
            return
        except OSError as exc:
            raise StatementError(f"audit log {self.path} cannot be read: {exc.strerror}") from exc


def _read_event(line: bytes, previous: str, where: str) -> dict[str, Any]:
    try:
        event = strict_json.loads(line)
    except DocumentError as exc:
        raise StatementError(f"{where} {exc}") from exc
    if not isinstance(event, dict) or event.get("event") not in EVENTS:
        raise StatementError(f"{where} is no event")
    if event.get("previous") != previous:
        raise StatementError(f"{where} does not follow the line before it: something was changed or taken out")
    return event


def _digest(line: bytes) -> str:
    return "sha256:" + hashlib.sha256(line.rstrip(b"\n")).hexdigest() if line.strip() else ""
