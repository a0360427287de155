"""Boxed workers for a fleet, each seen from outside: a call goes in, bytes come back."""

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

import numpy as np

from privgate.arrays import Index
from privgate.training import worker
from privgate.training.box import bubblewrap, templates, wire
from privgate.training.box.inside import Call
from privgate.training.fit import Answer
from privgate.training.payload import Payload
from privgate.training.pools import Chunk, died_on_model
from privgate.training.task_limits import GRACE, TaskLimits

# One boxed worker, seen from outside: a call goes in, bytes come back, and it is ended when anything is odd.

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
        self._channel, theirs = socket.socketpair()
        with theirs:
            line = bubblewrap.line(shown, network=network)
            made = _warm(line, theirs, memory, network=network) or _cold(line, theirs, memory, network=network)
        self._process, said = made
        self._keeper = threading.Thread(target=_keep, args=(said, log), daemon=True)
        self._keeper.start()
        self._channel.settimeout(_SEND_SECONDS)
        #: of the present call
        self.nonce = b""
        self._most, self._until = 0, 0.0
        self._received = bytearray()

    @property
    def alive(self) -> bool:
        """Whether the process still runs: nothing else holds the other end of the channel for long."""
        with selectors.DefaultSelector() as waiting:
            waiting.register(self._channel, selectors.EVENT_READ)
            if waiting.select(0) and not self._channel.recv(1, socket.MSG_PEEK):
                return False
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


def _cold(line: list[str], theirs: socket.socket, memory: int, *, network: bool) -> tuple[subprocess.Popen[bytes], Any]:
    """Start a process in a box that imports what it needs; return it and what it prints."""
    settings = f"{theirs.fileno()}, {int(memory)}, network={bool(network)}"
    words = bubblewrap.python(f"from privgate.training.box.inside import main; main({settings})")
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    made = bubblewrap.start(line, words, theirs.fileno(), network=network, **streams)
    return made, made.stdout


def _warm(
    line: list[str], theirs: socket.socket, memory: int, *, network: bool
) -> tuple[subprocess.Popen[bytes], Any] | None:
    """Start a box around a program that waits, and a process in it that begins with the libraries; None: it cannot."""
    box, (said, theirs_too) = templates.Waiting(line, network=network), os.pipe()
    try:
        if templates.entered(box, (theirs.fileno(), theirs_too), memory, network=network):
            return box.process, os.fdopen(said, "rb")
    finally:
        os.close(theirs_too)
    os.close(said)
    box.end()
    return None


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


# Boxed workers for a fleet: one recipe's code never meets another's, nor a stored model.

#: above what the worker's own clock allows: only code that stopped that clock is still there then
_BEYOND_SECONDS = 30.0
#: no wait for a box is longer: the system counts milliseconds in 31 bits, and a block's limit is that of a thousand
#: trainings
_AT_ONCE_SECONDS = 3600.0


@dataclass(eq=False)
class _Lane:
    """A boxed worker, whose code it has loaded, whether that is a stored model's, and what it works on."""

    box: Box
    code: str
    opens: bool = False
    chunk: Chunk | None = None
    asked: bool = False
    shapes: list[tuple[int, int]] = field(default_factory=list)
    models: list[tuple[int, int]] = field(default_factory=list)


class BoxPool:
    """Boxed worker processes on this machine; see ``pools.Pool``.

    A box is reused for calls about the same code. Opening a stored model runs code that may change the libraries of its
    process, so it has a box of its own, beside those that train: it is asked while they wait, between trainings, and
    opening it anew each time takes longer than many checks do otherwise.

    Parameters
    ----------
    jobs : int
        Number of processes that train.
    limits : TaskLimits
    logs : Path
        Folder for what the user's code prints.
    """

    def __init__(self, jobs: int, limits: TaskLimits, logs: Path) -> None:
        self.slots = jobs
        self.chunk_seconds = 0.2
        self._limits, self._logs = limits, logs
        self._free: list[_Lane] = []
        self._flying: list[_Lane] = []
        self._numbers = itertools.count()
        self._waiting = selectors.DefaultSelector()

    def _lane(self, code: str, payload: Payload, *, network: bool = False, opens: bool = False) -> _Lane:
        """Return a lane that has loaded nothing but this code, or nothing at all."""
        for lane in [lane for lane in self._free if not lane.box.alive]:
            self._drop(lane)  # ended while nothing was asked of it: nobody's fault
        chosen = next((lane for lane in reversed(self._free) if lane.code == code), None)
        if chosen is not None:
            self._free.remove(chosen)
            return chosen
        alike = [lane for lane in self._free if lane.opens == opens]
        if alike and (opens or len(alike) + len(self._flying) >= self.slots):
            self._drop(alike[0])
        log = self._logs / f"worker-{next(self._numbers)}.log"
        box = Box([Path(payload.folder).parent], memory=self._limits.memory, log=log, network=network)
        return _Lane(box, code, opens)

    def _opening(self, payload: Payload) -> _Lane:
        """Return the lane of a stored model, whatever records it is asked about."""
        return self._lane(f"model:{Path(payload.folder).parent}:{payload.model}", payload, opens=True)

    def _drop(self, lane: _Lane) -> None:
        lane.box.end()
        if lane in self._free:
            self._free.remove(lane)

    def submit(self, payload: Payload, chunk: Chunk) -> None:
        """Start a chunk in a box that knows its code, or in a new one."""
        lane = self._lane(f"train:{payload.code}", payload, network=payload.network)
        lane.chunk = chunk
        lane.shapes = [(fit.rows, payload.classes) for fit in chunk.fits]
        lane.models = [(int(fit.keep > 0), fit.keep) for fit in chunk.fits]
        each = self._limits.seconds + GRACE + 1.0
        seconds = max(self._limits.seconds, worker.LOADING_SECONDS) + each * len(chunk.fits) + _BEYOND_SECONDS
        self._flying.append(lane)
        most = wire.most_bytes(lane.shapes, lane.models)
        try:
            lane.box.send(worker.run_chunk, payload, list(chunk.fits), self._limits, most=most, seconds=seconds)
        except GoneError:
            return  # ``next`` finds it
        lane.asked = True
        self._waiting.register(lane.box, selectors.EVENT_READ, lane)

    def next(self) -> tuple[Chunk, list[Answer] | None]:
        """Wait for a chunk; a box that is gone, hangs or lies is replaced when it is needed."""
        while True:
            gone = next((lane for lane in self._flying if not lane.asked or lane.box.seconds_left <= 0), None)
            if gone is not None:
                return self._landed(gone, None)
            patience = min(lane.box.seconds_left for lane in self._flying)
            for key, _ in self._waiting.select(min(max(0.0, patience), _AT_ONCE_SECONDS)):
                lane: _Lane = key.data
                try:
                    body = lane.box.receive()
                    if body is not None:
                        made = wire.answers(body, lane.box.nonce, lane.shapes, lane.models)
                        return self._landed(lane, made)
                except (GoneError, wire.LieError):
                    return self._landed(lane, None)

    def _landed(self, lane: _Lane, answers: list[Answer] | None) -> tuple[Chunk, list[Answer] | None]:
        if lane.asked:
            self._waiting.unregister(lane.box)
            lane.asked = False
        self._flying.remove(lane)
        chunk, lane.chunk = lane.chunk, None
        if chunk is None:
            raise RuntimeError("a lane that flies has a chunk")
        if answers is None:
            lane.box.end()
        else:
            self._free.append(lane)
        return chunk, answers

    def registered(self, payload: Payload, rows: Index, *, served: str = "") -> Answer:
        """Return the stored model's answer, from a box that trains nothing."""
        lane = self._opening(payload)
        shapes = [(len(rows), payload.classes)]
        seconds = self._limits.seconds + worker.LOADING_SECONDS + _BEYOND_SECONDS
        try:
            body = ask(lane.box, worker.registered, payload, rows, self._limits, served=served,
                       most=wire.most_bytes(shapes), seconds=seconds)  # fmt: skip
            answer = wire.answers(body, lane.box.nonce, shapes)[0]
        except (GoneError, wire.LieError):
            self._drop(lane)
            return died_on_model()
        self._kept(lane, good=not answer.problem or answer.lasting)
        return answer

    def _kept(self, lane: _Lane, *, good: bool) -> None:
        """Keep a stored model's box, unless something went wrong: an import that was cut short stays half made."""
        if good:
            self._free.append(lane)
        else:
            self._drop(lane)

    def examined(self, payload: Payload, by: str) -> Any:
        """Return what is found in the opened model, as its box says, which trains nothing."""
        lane = self._opening(payload)
        seconds = 2 * (self._limits.seconds + worker.LOADING_SECONDS) + _BEYOND_SECONDS
        try:
            body = ask(lane.box, worker.examined, payload, self._limits, by, most=wire.MOST_JSON, seconds=seconds)
            found = wire.json_value(body, lane.box.nonce)
        except (GoneError, wire.LieError):
            self._drop(lane)
            return None
        self._kept(lane, good=isinstance(found, dict) and not found.get("problem"))
        return found

    def peak_memory(self) -> int:
        """Return the largest resident memory of an idle worker's past, as it says."""
        found = 0
        for lane in [lane for lane in self._free if lane.code.startswith("train")]:
            try:
                body = ask(lane.box, worker.peak_memory, most=1000, seconds=_BEYOND_SECONDS)
                said = wire.json_value(body, lane.box.nonce)
            except (GoneError, wire.LieError):
                self._drop(lane)
                continue
            found = max(found, int(np.clip(said, 0, 2**50))) if isinstance(said, int) else found
        return found

    def close(self, *, kill: bool = False) -> None:
        """End all boxes."""
        del kill  # nothing inside a box has anything to finish
        for lane in [*self._free, *self._flying]:
            lane.box.end()
        self._free, self._flying = [], []
        self._waiting.close()


def ask(box: Box, function: Callable[..., Any], *arguments: Any, most: int, seconds: float, **named: Any) -> bytes:
    """Return a boxed worker's reply to one call.

    Raises
    ------
    GoneError
        There is none in time.
    """
    box.send(function, *arguments, most=most, seconds=seconds, **named)
    with selectors.DefaultSelector() as waiting:
        waiting.register(box, selectors.EVENT_READ)
        while box.seconds_left > 0:
            if waiting.select(min(box.seconds_left, _AT_ONCE_SECONDS)) and (body := box.receive()) is not None:
                return body
    raise GoneError("it hangs")
