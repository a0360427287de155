"""One boxed worker, seen from outside: a call goes in, bytes come back, and it is ended when anything is odd."""

import contextlib
import os
import pickle
import secrets
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from privgate.errors import UsageError
from privgate.training.box import bubblewrap, wire
from privgate.training.box.inside import Call

#: bytes that are kept of what the user's code printed
MOST_LOGGED = 10 << 20
#: how long a worker may take to read a call; honest ones read at once
_SEND_SECONDS = 120.0
#: how long the last of what was printed may take to be written
_DRAIN_SECONDS = 5.0


class GoneError(Exception):
    """The worker ended, hung, or answered what no worker of ours would."""


class Box:
    """A worker process in a box.

    Parameters
    ----------
    shown : sequence of Path
        Folders that it may read.
    memory : int
        Bytes of private memory; 0 for no limit.
    log : Path, optional
        Where the beginning of what the user's code printed is kept.
    network : bool
        Whether it shares the host's network.
    """

    def __init__(
        self, shown: Sequence[Path], *, memory: int = 0, log: Path | None = None, network: bool = False
    ) -> None:
        program = shutil.which("bwrap")
        if program is None:
            raise UsageError(bubblewrap.found().why)
        self._channel, theirs = socket.socketpair()
        with theirs:
            settings = f"{theirs.fileno()}, {int(memory)}, network={bool(network)}"
            code = f"from privgate.training.box.inside import main; main({settings})"
            self._process = subprocess.Popen(  # noqa: S603  our own command line, without a shell
                [*bubblewrap.command(program, shown, network=network), *bubblewrap.python(code)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=bubblewrap.environment(),
                pass_fds=(theirs.fileno(),),
                cwd="/",
            )
        self._keeper = threading.Thread(target=_keep, args=(self._process.stdout, log), daemon=True)
        self._keeper.start()
        self._channel.settimeout(_SEND_SECONDS)
        #: of the present call
        self.nonce = b""
        self._most, self._until = 0, 0.0
        self._received = bytearray()

    @property
    def alive(self) -> bool:
        """Whether the process still runs."""
        return self._process.poll() is None

    def fileno(self) -> int:
        """Return what can be waited on."""
        return self._channel.fileno()

    @property
    def seconds_left(self) -> float:
        """Time until the present call takes too long."""
        return self._until - time.monotonic()

    def send(self, function: Callable[..., Any], *arguments: Any, most: int, seconds: float, **named: Any) -> None:
        """Send a call.

        Parameters
        ----------
        function : callable
            At the top of a module of privgate's.
        most : int
            Bytes that the reply may have.
        seconds : float
            That it may take.

        Raises
        ------
        GoneError
            Nobody reads it.
        """
        self.nonce = secrets.token_bytes(wire.NONCE)
        self._most, self._until = most, time.monotonic() + seconds
        self._received.clear()
        body = pickle.dumps(Call(self.nonce, function, arguments, named), protocol=5)
        try:
            self._channel.sendall(wire.frame(body))
        except OSError as exc:
            raise GoneError("it reads nothing") from exc

    def receive(self) -> bytes | None:
        """Return the reply if it is complete; call it when there is something to read.

        Raises
        ------
        GoneError
            The worker ended, or says more than it was asked for.
        """
        try:
            part = self._channel.recv(1 << 20)
        except OSError as exc:
            raise GoneError("it ended") from exc
        if not part:
            raise GoneError("it ended")
        self._received += part
        if len(self._received) < wire.LENGTH.size:
            return None
        (size,) = wire.LENGTH.unpack_from(self._received)
        if size > self._most or len(self._received) > wire.LENGTH.size + size:
            raise GoneError("it says more than it was asked for")
        return bytes(self._received[wire.LENGTH.size :]) if len(self._received) == wire.LENGTH.size + size else None

    def end(self) -> None:
        """End the worker and everything that it started: with its first process, a namespace ends."""
        self._channel.close()
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        self._process.wait()
        self._keeper.join(_DRAIN_SECONDS)


def _keep(said: Any, log: Path | None) -> None:
    """Write the beginning of what a worker prints to a file, and let the rest go; it must never wait for a reader."""
    out = None if log is None else os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    left = MOST_LOGGED
    try:
        while part := said.read1(1 << 16):
            if out is not None and left > 0:
                left -= os.write(out, part[:left])
    except (OSError, ValueError):
        return
    finally:
        said.close()
        if out is not None:
            os.close(out)
