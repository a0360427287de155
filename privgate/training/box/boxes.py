"""Workers of this machine, each seen from outside: a call goes in, bytes come back, and what is odd is ended."""

import contextlib
import itertools
import os
import pickle
import secrets
import selectors
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from privgate.arrays import Index
from privgate.training import warm, worker
from privgate.training.box import bubblewrap, inside, wire
from privgate.training.fit import Answer
from privgate.training.payload import Payload
from privgate.training.pools import Chunk, died_on_model
from privgate.training.task_limits import GRACE, TaskLimits

#: bytes that are kept of what the user's code printed
MOST_LOGGED = 10 << 20
#: how long a worker may take to read a call; honest ones read at once
_SEND_SECONDS = 120.0
#: how often a process that answers nothing is looked at
_LOOK_SECONDS = 1.0
#: how long the last of what was printed may take to be written
_DRAIN_SECONDS = 5.0


Handle = tuple[Callable[[], bool], Callable[[], None]]


class GoneError(Exception):
    """The worker ended, hung, or answered what no worker of ours would."""


class Worker:
    """A worker process on the other end of a socket.

    Parameters
    ----------
    start : callable
        Starts the process, given its end of the socket; returns what says whether it runs, and what ends it.
    """

    def __init__(self, start: Callable[[socket.socket], Handle]) -> None:
        self._channel, theirs = socket.socketpair()
        with theirs:
            self._runs, self._end = start(theirs)
        self._channel.settimeout(_SEND_SECONDS)
        #: of the present call
        self.nonce = b""
        self._most, self._until = 0, 0.0
        self._received = bytearray()

    @property
    def alive(self) -> bool:
        """Whether the process runs and has not closed its end, between two calls."""
        with selectors.DefaultSelector() as waiting:
            waiting.register(self._channel, selectors.EVENT_READ)
            return self._runs() and not (waiting.select(0) and not self._channel.recv(1, socket.MSG_PEEK))

    def fileno(self) -> int:
        """Return what can be waited on."""
        return self._channel.fileno()

    @property
    def late(self) -> bool:
        """Whether the present call takes too long, or its process has ended, whoever still holds its socket."""
        return time.monotonic() > self._until or not self._runs()

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
        body = pickle.dumps(inside.Call(self.nonce, function, arguments, named), protocol=5)
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

    def ask(self, function: Callable[..., Any], *arguments: Any, most: int, seconds: float, **named: Any) -> bytes:
        """Return the reply to one call.

        Raises
        ------
        GoneError
            There is none in time.
        """
        self.send(function, *arguments, most=most, seconds=seconds, **named)
        with selectors.DefaultSelector() as waiting:
            waiting.register(self, selectors.EVENT_READ)
            while (ready := waiting.select(_LOOK_SECONDS)) or not self.late:
                if ready and (body := self.receive()) is not None:
                    return body
        raise GoneError("it hangs")

    def end(self) -> None:
        """End the process."""
        self._channel.close()
        self._end()


def boxed(shown: Sequence[Path], *, memory: int = 0, log: Path | None = None, network: bool = False) -> Worker:
    """Start a worker in a sandbox.

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

    def start(theirs: socket.socket) -> Handle:
        settings = f"{theirs.fileno()}, {int(memory)}, network={bool(network)}"
        words = bubblewrap.python(f"from privgate.training.box.inside import main; main({settings})")
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        process = bubblewrap.start(shown, words, theirs.fileno(), network=network, **streams)
        keeper = threading.Thread(target=_keep, args=(process.stdout, log), daemon=True)
        keeper.start()

        def end() -> None:  # with its first process, a namespace ends, and everything in it
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            process.wait()
            keeper.join(_DRAIN_SECONDS)

        return lambda: process.poll() is None, end

    return Worker(start)


def plain(settings: worker.WorkerSettings) -> Worker:
    """Start a worker as the user who checks, which that user asked for or no sandbox can be made."""

    def start(theirs: socket.socket) -> Handle:
        process = warm.start(inside.without_sandbox, theirs, settings)

        def end() -> None:
            process.kill()
            process.join()

        return process.is_alive, end

    return Worker(start)


def _keep(said: Any, log: Path | None) -> None:
    """Write the beginning of what a worker prints to a file, and let the rest go; it must never wait for a reader."""
    out = None if log is None else os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    room = MOST_LOGGED
    try:
        while part := said.read1(1 << 16):
            if out is not None and room > 0:
                room -= os.write(out, part[:room])
    except (OSError, ValueError):
        return
    finally:
        said.close()
        if out is not None:
            os.close(out)


#: above what the worker's own clock allows: only code that stopped that clock is still there then
_BEYOND_SECONDS = 30.0


@dataclass(eq=False)
class _Lane:
    """A worker, whose code it has loaded, whether that is a stored model's, and what it works on."""

    worker: Worker
    code: str
    opens: bool = False
    chunk: Chunk | None = None
    sent: bool = False
    shapes: list[tuple[int, int]] = field(default_factory=list)


class BoxPool:
    """Worker processes of this machine, each in a sandbox where one can be made; see ``pools.Pool``.

    A worker is used again for calls about the same code, and never meets another's. Opening a stored model runs code
    that may change the libraries of its process, so it has a worker of its own beside those that train.

    Parameters
    ----------
    jobs : int
        Number of processes that train.
    limits : TaskLimits
    logs : Path
        Folder for what the user's code prints.
    settings : worker.WorkerSettings, optional
        Of workers without a sandbox; absent where there is one.
    """

    def __init__(
        self, jobs: int, limits: TaskLimits, logs: Path, settings: worker.WorkerSettings | None = None
    ) -> None:
        self.slots = jobs
        self.chunk_seconds = 0.2
        self._limits, self._logs, self._settings = limits, logs, settings
        self._free: list[_Lane] = []
        self._flying: list[_Lane] = []
        self._numbers = itertools.count()
        self._waiting = selectors.DefaultSelector()

    def _lane(self, code: str, payload: Payload, *, opens: bool = False) -> _Lane:
        """Return a lane that has loaded nothing but this code, or nothing at all."""
        for lane in [lane for lane in self._free if not lane.worker.alive]:
            self._drop(lane)  # ended while nothing was asked of it: nobody's fault
        chosen = next((lane for lane in reversed(self._free) if lane.code == code), None)
        if chosen is not None:
            self._free.remove(chosen)
            return chosen
        alike = [lane for lane in self._free if lane.opens == opens]
        if alike and (opens or len(alike) + len(self._flying) >= self.slots):
            self._drop(alike[0])
        if self._settings is not None:
            return _Lane(plain(self._settings), code, opens)
        log, shown = self._logs / f"worker-{next(self._numbers)}.log", [Path(payload.folder).parent]
        network = payload.network and not opens
        return _Lane(boxed(shown, memory=self._limits.memory, log=log, network=network), code, opens)

    def _drop(self, lane: _Lane) -> None:
        lane.worker.end()
        if lane in self._free:
            self._free.remove(lane)

    def submit(self, payload: Payload, chunk: Chunk) -> None:
        """Start a chunk in a worker that knows its code, or in a new one."""
        lane = self._lane(f"train:{payload.code}", payload)
        lane.chunk, lane.shapes = chunk, [(fit.rows, payload.classes) for fit in chunk.fits]
        each = self._limits.seconds + GRACE + 1.0
        seconds = max(self._limits.seconds, worker.LOADING_SECONDS) + each * len(chunk.fits) + _BEYOND_SECONDS
        self._flying.append(lane)
        call = worker.run_chunk, payload, list(chunk.fits), self._limits
        with contextlib.suppress(GoneError):  # ``next`` finds it
            lane.worker.send(*call, most=wire.most_bytes(lane.shapes), seconds=seconds)
            lane.sent = True
            self._waiting.register(lane.worker, selectors.EVENT_READ, lane)

    def next(self) -> tuple[Chunk, list[Answer] | None]:
        """Wait for a chunk; a worker that is gone, hangs or lies is replaced when it is needed."""
        while True:
            if (lost := next((lane for lane in self._flying if not lane.sent), None)) is not None:
                return self._landed(lost, None)
            ready = self._waiting.select(_LOOK_SECONDS)
            if not ready and (lost := next((lane for lane in self._flying if lane.worker.late), None)) is not None:
                return self._landed(lost, None)
            for key, _ in ready:
                lane: _Lane = key.data
                try:
                    body = lane.worker.receive()
                    if body is not None:
                        return self._landed(lane, wire.answers(body, lane.worker.nonce, lane.shapes))
                except (GoneError, wire.LieError):
                    return self._landed(lane, None)

    def _landed(self, lane: _Lane, answers: list[Answer] | None) -> tuple[Chunk, list[Answer] | None]:
        if lane.sent:
            self._waiting.unregister(lane.worker)
            lane.sent = False
        self._flying.remove(lane)
        chunk, lane.chunk = lane.chunk, None
        if chunk is None:
            raise RuntimeError("a lane that flies has a chunk")
        if answers is None:
            lane.worker.end()
        else:
            self._free.append(lane)
        return chunk, answers

    def _open(self, payload: Payload) -> _Lane:
        """Return the lane of a stored model, whatever records it is asked about."""
        return self._lane(f"model:{Path(payload.folder).parent}:{payload.model}", payload, opens=True)

    def registered(self, payload: Payload, rows: Index, *, served: str = "") -> Answer:
        """Return the stored model's answer, from a worker that trains nothing."""
        lane, shapes = self._open(payload), [(len(rows), payload.classes)]
        call = worker.registered, payload, rows, self._limits
        seconds = self._limits.seconds + worker.LOADING_SECONDS + _BEYOND_SECONDS
        try:
            body = lane.worker.ask(*call, served=served, most=wire.most_bytes(shapes), seconds=seconds)
            answer = wire.answers(body, lane.worker.nonce, shapes)[0]
        except (GoneError, wire.LieError):
            self._drop(lane)
            return died_on_model()
        self._keep_lane(lane, good=not answer.problem or answer.lasting)
        return answer

    def examined(self, payload: Payload, by: str) -> Any:
        """Return what is found in the opened model, as its worker says, which trains nothing."""
        lane, call = self._open(payload), (worker.examined, payload, self._limits, by)
        seconds = 2 * (self._limits.seconds + worker.LOADING_SECONDS) + _BEYOND_SECONDS
        try:
            body = lane.worker.ask(*call, most=wire.MOST_JSON, seconds=seconds)
            said = wire.json_value(body, lane.worker.nonce)
        except (GoneError, wire.LieError):
            self._drop(lane)
            return None
        self._keep_lane(lane, good=isinstance(said, dict) and not said.get("problem"))
        return said

    def _keep_lane(self, lane: _Lane, *, good: bool) -> None:
        """Keep a stored model's worker, unless something went wrong: an import that was cut short stays half made."""
        if good:
            self._free.append(lane)
        else:
            self._drop(lane)

    def close(self) -> None:
        """End all workers: nothing inside has anything to finish."""
        for lane in [*self._free, *self._flying]:
            lane.worker.end()
        self._free, self._flying = [], []
        self._waiting.close()
