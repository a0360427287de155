"""Workers of this machine, each seen from outside: a call goes in, bytes come back, and what is odd is ended."""

import atexit
import contextlib
import itertools
import os
import pickle
import secrets
import select
import selectors
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from privgate.arrays import Index
from privgate.training import task_limits, worker
from privgate.training.fit import DIED_ON_MODEL, Answer, Chunk
from privgate.training.payload import Payload
from privgate.training.sandbox import bubblewrap, inside, wire
from privgate.training.sandbox.wire import GoneError
from privgate.training.task_limits import GRACE, TaskLimits

#: bytes that are kept of what the user's code printed
_MOST_LOGGED = 10 << 20
#: how long a worker may take to read a call; honest ones read at once
_SEND_SECONDS = 120.0
#: how often a process that answers nothing is looked at
_LOOK_SECONDS = 1.0
#: how long the last of what was printed may take to be written
_DRAIN_SECONDS = 5.0
#: above what the worker's own clock allows: only code that stopped that clock is still there then
_BEYOND_SECONDS = 30.0

#: what says whether a process runs, and what ends it
Handle = tuple[Callable[[], bool], Callable[[], None]]


class Worker:
    """A worker process on the other end of a socket; ``start`` starts it, given its end."""

    def __init__(self, start: Callable[[socket.socket], Handle]) -> None:
        self._channel, theirs = socket.socketpair()
        with theirs:
            self._runs, self._end = start(theirs)
        self._channel.settimeout(_SEND_SECONDS)
        self.nonce = b""  # of the present call, as the next line
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
        """Whether the present call takes too long, or the process has ended though a child of it holds the socket."""
        return time.monotonic() > self._until or not self._runs()

    def send(self, function: Callable[..., Any], *arguments: Any, most: int, seconds: float, **named: Any) -> None:
        """Send a call of a function of privgate's, whose reply may have ``most`` bytes and take ``seconds``."""
        self.nonce = secrets.token_bytes(wire.NONCE)
        self._most, self._until = most, time.monotonic() + seconds
        self._received.clear()
        body = pickle.dumps(inside.Call(self.nonce, function, arguments, named), protocol=5)
        try:
            self._channel.sendall(wire.frame(body))
        except OSError as exc:
            raise GoneError("it reads nothing") from exc

    def receive(self) -> bytes | None:
        """Return the reply if it is complete, once there is something to read; raise ``GoneError`` where none comes."""
        try:
            part = self._channel.recv(1 << 20)
        except OSError:
            part = b""
        if not part:
            raise GoneError("it ended")
        self._received += part
        if len(self._received) < wire.LENGTH.size:
            return None
        end = wire.LENGTH.size + wire.LENGTH.unpack_from(self._received)[0]
        if end > wire.LENGTH.size + self._most or len(self._received) > end:
            raise GoneError("it says more than it was asked for")
        return bytes(self._received[wire.LENGTH.size :]) if len(self._received) == end else None

    def ask(self, function: Callable[..., Any], *arguments: Any, most: int, seconds: float, **named: Any) -> bytes:
        """Return the reply to one call; raise ``GoneError`` where there is none in time."""
        self.send(function, *arguments, most=most, seconds=seconds, **named)
        with selectors.DefaultSelector() as waiting:
            waiting.register(self, selectors.EVENT_READ)
            while (ready := waiting.select(_LOOK_SECONDS)) or not self.late:
                if ready and (body := self.receive()) is not None:
                    return body
        raise GoneError("it hangs")

    def ask_last(self, function: Callable[..., Any], *arguments: Any, seconds: float) -> Any:
        """Return the JSON value that one call gives, or None where the worker died, hung or lied; it ends."""
        try:
            return wire.json_value(self.ask(function, *arguments, most=wire.MOST_JSON, seconds=seconds), self.nonce)
        except GoneError:
            return None
        finally:
            self.end()

    def end(self) -> None:
        """End the process, in which nothing has anything to finish."""
        self._channel.close()
        self._end()


class Server:
    """A process that forks workers: in a sandbox, ``shown`` as for ``bubblewrap.command``, or as the user who checks.

    One worker of a sandbox may take ``memory`` bytes; ``log`` keeps what they print.
    """

    def __init__(
        self, shown: Sequence[Path] | None = None, *, memory: int = 0, log: Path | None = None, network: bool = False
    ) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._numbers, self._keeper = itertools.count(), None
        with theirs:
            serve = "serve_plainly({})" if shown is None else "serve_in_sandbox({}, {})"
            called = serve.format(theirs.fileno(), memory)
            main = bubblewrap.python(f"from privgate.training.sandbox import inside; inside.{called}")
            streams: dict[str, Any] = {"stdin": subprocess.DEVNULL}
            if shown is None:
                streams |= {"pass_fds": [theirs.fileno()], "env": task_limits.of_worker(os.environ)}
                self._process = subprocess.Popen(main, **streams)  # noqa: S603  our own
                return
            streams |= {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
            self._process = bubblewrap.start(shown, main, theirs.fileno(), network=network, **streams)
        self._keeper = threading.Thread(target=_keep, args=(self._process.stdout, log), daemon=True)
        self._keeper.start()

    @property
    def alive(self) -> bool:
        """Whether it runs and listens."""
        return self._control.fileno() >= 0 and self._process.poll() is None

    def start_worker(
        self, settings: worker.WorkerSettings | None = None, libraries: Sequence[str] = (), *, guest: bool = True
    ) -> Worker:
        """Start a worker, once the server has imported ``libraries``; ``settings`` are those without a sandbox."""
        request = inside.Request(next(self._numbers), True, settings, libraries, guest)  # noqa: FBT003  it starts

        def start(theirs: socket.socket) -> Handle:
            ours, life = os.pipe()
            running = os.fdopen(ours, "rb")
            try:
                socket.send_fds(self._control, [pickle.dumps(request)], [theirs.fileno(), life])
            except OSError:  # it is gone, though its process may not have ended yet: another takes its place
                self._control.close()
            os.close(life)

            def end() -> None:
                running.close()
                with contextlib.suppress(OSError):
                    self._control.send(pickle.dumps(inside.Request(request.number)))

            return lambda: not running.closed and not select.select([running], [], [], 0)[0], end

        return Worker(start)

    def disown(self) -> None:
        """Leave it to the process that started it."""
        self._control.close()

    def end(self) -> None:
        """End it and its workers; with its first process, a sandbox ends, and everything in it."""
        self._control.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(0 if self._keeper else 1)  # without a sandbox, it ends its workers first
        self._process.kill()
        self._process.wait()
        if self._keeper is not None:
            self._keeper.join(_DRAIN_SECONDS)


_plain: list[Server] = []
_STARTING = threading.Lock()


def _forget_server() -> None:
    """Let go of the parent's server, which ends when nobody holds the other end."""
    for server in _plain:
        server.disown()
    _plain.clear()


os.register_at_fork(after_in_child=_forget_server)


def find_plain_server() -> Server:
    """Return this process's server without a sandbox, which begins to run here."""
    with _STARTING:
        if not (_plain and _plain[0].alive):
            _plain[:] = [Server()]
            atexit.register(_plain[0].end)
        return _plain[0]


def _keep(said: Any, log: Path) -> None:
    """Write the beginning of what a worker prints to a file, and let the rest go; it must never wait for a reader."""
    out, room = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), _MOST_LOGGED
    with said, os.fdopen(out, "wb", buffering=0) as kept, contextlib.suppress(OSError, ValueError):
        while part := said.read1(1 << 16):
            room -= kept.write(part[:room])


@dataclass(eq=False)
class _Lane:
    """A worker, whose code it has loaded, and whether that is a stored model's."""

    worker: Worker
    code: str
    opens: bool


class SandboxPool:
    """Up to ``jobs`` worker processes of this machine that train, and one that opens a stored model.

    A worker is used again for calls about the same code, and never meets another's: a stored model's code may change
    the libraries of its process. ``logs`` is a folder for what the user's code prints, ``settings`` are those of
    workers without a sandbox. At most ``slots`` chunks are in flight, so that nothing finished waits unwritten.
    """

    def __init__(
        self, jobs: int, limits: TaskLimits, logs: Path, settings: worker.WorkerSettings | None = None
    ) -> None:
        self.slots = jobs
        self.chunk_seconds = 0.2
        self._limits, self._logs, self._settings = limits, logs, settings
        self._free: list[_Lane] = []
        self._lost: list[Chunk] = []
        self._numbers = itertools.count()
        self._sandboxes: dict[tuple[Path, bool], Server] = {}
        self._waiting = selectors.DefaultSelector()

    @property
    def _flights(self) -> list[tuple[_Lane, Chunk]]:
        return [key.data for key in self._waiting.get_map().values()]

    def _find_lane(self, code: str, payload: Payload, *, opens: bool) -> _Lane:
        """Return a lane that has loaded nothing but this code, or nothing at all; it is no longer free."""
        for lane in [lane for lane in self._free if not lane.worker.alive]:
            self._drop(lane)  # ended while nothing was asked of it: nobody's fault
        chosen = next((lane for lane in reversed(self._free) if lane.code == code), None)
        if chosen is not None:
            self._free.remove(chosen)
            return chosen
        alike = [lane for lane in self._free if lane.opens == opens]
        if alike and (opens or len(alike) + len(self._flights) >= self.slots):
            self._drop(alike[0])
        libraries = (*payload.modules, *(["privgate.controls.served"] if opens else []))
        return _Lane(self._find_server(payload, opens=opens).start_worker(self._settings, libraries), code, opens)

    def _find_server(self, payload: Payload, *, opens: bool) -> Server:
        """Return what forks the workers that see a payload: a sandbox of its folder's, or this process's server."""
        if self._settings is not None:
            return find_plain_server()
        key = folder, network = Path(payload.folder).parent, payload.network and not opens
        if key not in self._sandboxes or not self._sandboxes[key].alive:
            log = self._logs / f"sandbox-{next(self._numbers)}.log"
            self._sandboxes[key] = Server([folder], memory=self._limits.memory, log=log, network=network)
        return self._sandboxes[key]

    def _drop(self, lane: _Lane) -> None:
        self._free.remove(lane)
        lane.worker.end()

    def submit(self, payload: Payload, chunk: Chunk) -> None:
        """Start a chunk in a worker that knows its code, or in a new one."""
        lane = self._find_lane(f"train:{payload.code}", payload, opens=False)
        each = self._limits.seconds + GRACE + 1.0
        seconds = max(self._limits.seconds, worker.LOADING_SECONDS) + each * len(chunk.fits) + _BEYOND_SECONDS
        call = worker.run_chunk, payload, list(chunk.fits), self._limits
        try:
            lane.worker.send(*call, most=wire.most_bytes(chunk.shapes), seconds=seconds)
        except GoneError:
            lane.worker.end()
            self._lost.append(chunk)
        else:
            self._waiting.register(lane.worker, selectors.EVENT_READ, (lane, chunk))

    def next(self) -> tuple[Chunk, list[Answer] | None]:
        """Wait for a chunk; a worker that is gone, hangs or lies is replaced when it is needed."""
        while not self._lost:
            ready = self._waiting.select(_LOOK_SECONDS)
            if not ready and (late := next((f for f in self._flights if f[0].worker.late), None)) is not None:
                return self._land(*late, None)
            for key, _ in ready:
                lane, chunk = key.data
                try:
                    if (body := lane.worker.receive()) is not None:
                        return self._land(lane, chunk, wire.answers(body, lane.worker.nonce, chunk.shapes))
                except GoneError:
                    return self._land(lane, chunk, None)
        return self._lost.pop(), None

    def _land(self, lane: _Lane, chunk: Chunk, answers: list[Answer] | None) -> tuple[Chunk, list[Answer] | None]:
        self._waiting.unregister(lane.worker)
        if answers is None:
            lane.worker.end()
        else:
            self._free.append(lane)
        return chunk, answers

    def _ask_model(
        self, payload: Payload, read: Callable[[bytes, bytes], tuple[Any, bool]], *call: Any, **bounds: Any
    ) -> Any:
        """Return what the worker of a stored model replies; None where it died or lied; it ends if ``read`` failed."""
        lane = self._find_lane(f"model:{Path(payload.folder).parent}:{payload.model}", payload, opens=True)
        try:
            reply, good = read(lane.worker.ask(*call, **bounds), lane.worker.nonce)
        except GoneError:
            reply, good = None, False
        if good:
            self._free.append(lane)
        else:
            lane.worker.end()
        return reply

    def registered(self, payload: Payload, rows: Index, *, served: str = "") -> Answer:
        """Return the stored model's answer."""
        shapes = [(len(rows), payload.classes)]

        def read(body: bytes, nonce: bytes) -> tuple[Answer, bool]:
            answer = wire.answers(body, nonce, shapes)[0]
            return answer, not answer.problem or answer.lasting

        call = read, worker.registered, payload, rows, self._limits
        seconds = self._limits.seconds + worker.LOADING_SECONDS + _BEYOND_SECONDS
        answer = self._ask_model(payload, *call, served=served, most=wire.most_bytes(shapes), seconds=seconds)
        return answer or DIED_ON_MODEL

    def examined(self, payload: Payload, by: str, *given: Any) -> Any:
        """Return what is found in the opened model, as its worker says."""

        def read(body: bytes, nonce: bytes) -> tuple[Any, bool]:
            said = wire.json_value(body, nonce)
            return said, isinstance(said, dict) and not said.get("problem")

        seconds = 2 * (self._limits.seconds + worker.LOADING_SECONDS) + _BEYOND_SECONDS
        call = read, worker.examined, payload, self._limits, by, *given
        return self._ask_model(payload, *call, most=wire.MOST_JSON, seconds=seconds)

    def close_model(self) -> None:
        """End the worker that holds a stored model, and with it its memory."""
        for lane in [lane for lane in self._free if lane.opens]:
            self._drop(lane)

    def compute(self, payload: Payload, function: Callable[..., Any], *given: Any) -> Any:
        """Return the JSON value that a function of ours makes, in a worker that has met nobody's code, nor will."""
        server, libraries = self._find_server(payload, opens=False), (function.__module__, "sklearn.ensemble")
        own = server.start_worker(self._settings, libraries, guest=False)
        return own.ask_last(function, *given, seconds=self._limits.seconds)

    def train_apart(self, payload: Payload, function: Callable[..., Any], *, runs: int) -> Any:
        """Return the JSON value that a function of ours makes, which trains so often; None where it could not.

        The worker is the call's own: the function may change its libraries.
        """
        seconds = worker.LOADING_SECONDS + runs * (self._limits.seconds + GRACE)
        own = self._find_server(payload, opens=False).start_worker(self._settings)
        return own.ask_last(function, payload, self._limits, seconds=seconds)

    def close(self) -> None:
        """End all workers."""
        for lane in [*self._free, *(lane for lane, _ in self._flights)]:
            lane.worker.end()
        for server in self._sandboxes.values():
            server.end()
        self._free, self._sandboxes = [], {}
        self._waiting.close()
