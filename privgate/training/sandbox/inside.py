"""What runs on the other side of a socket: a server that forks workers, and workers that answer in numbers or JSON.

The server imports scikit-learn once, and never a user's code: a worker forked from it holds nothing of another's.
"""

import contextlib
import ctypes
import gc
import importlib
import os
import pickle
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from privgate.subject.sources import skops_io
from privgate.training import task_limits, worker
from privgate.training.sandbox import bubblewrap, wire

#: what workers without a sandbox import, in their order: one server of a process forks all of them
LIBRARIES = ("privgate.theorems", "pandas", "scipy.stats", "sklearn.ensemble", "sklearn.linear_model",
             "sklearn.pipeline", "mlflow.pyfunc", "mlflow.sklearn")  # fmt: skip
#: bytes of one request to the server
_MOST_REQUEST = 1 << 17
_DIE_WITH_PARENT = 1  # option of prctl


@dataclass(frozen=True)
class Call:
    """What a parent asks for."""

    #: comes back with the answer
    nonce: bytes
    #: of privgate's own, by name
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    named: dict[str, Any]


@dataclass(frozen=True)
class Request:
    """A worker to start, with its socket and what stays open while it runs; or one to end."""

    number: int
    starts: bool = False
    #: without a sandbox; those in one are set up alike
    settings: worker.WorkerSettings | None = None
    #: modules of installed libraries that it will need
    libraries: Sequence[str] = ()
    #: whether it will run somebody's code, which may do with this process what it likes, and with no other
    guest: bool = True


def serve_in_sandbox(descriptor: int, memory: int) -> None:
    """Fork workers of at most ``memory`` bytes each, as nobody, until the parent closes its end."""
    bubblewrap.confine(memory)
    serve(descriptor)


def serve_plainly(descriptor: int) -> None:
    """Fork workers of all kinds as the user who checks, until the parent closes its end."""
    task_limits.scrub()  # of what was set while Python started
    _import_libraries(LIBRARIES)
    with contextlib.suppress(ImportError):
        skops_io()
    serve(descriptor)


def serve(descriptor: int) -> None:
    """Fork workers as who runs this process, until the parent closes its end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's
    gc.disable()  # of what is imported, nothing is garbage
    with socket.socket(fileno=descriptor) as control:
        _Server(control).run()


class _Server:
    """Forks workers and ends them; a descriptor of each stays open here for as long as it runs."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._open: dict[int, int] = {}
        self._processes: dict[int, int] = {}

    def run(self) -> None:
        signal.signal(signal.SIGCHLD, self._note_ended)
        while (received := socket.recv_fds(self._control, _MOST_REQUEST, 2))[0]:
            request: Request = pickle.loads(received[0])  # noqa: S301  from the parent, which made this process
            if request.starts:
                _import_libraries(request.libraries)
                self._fork(request, *received[1])
            elif (process := self._processes.pop(request.number, None)) in self._open:
                _end_group(process)
        for process in self._open:
            _end_group(process)

    def _fork(self, request: Request, channel: int, life: int) -> None:
        for each in (channel, life):
            os.set_inheritable(each, False)  # noqa: FBT003  the system's own order
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})  # until it is known here
        process = os.fork()
        if not process:
            for each in (self._control.detach(), life, *self._open.values()):
                os.close(each)
            bubblewrap.set_readable(request.guest)
            _work(channel, request.settings or worker.WorkerSettings(folder=bubblewrap.HOME))
        os.close(channel)
        self._open[process], self._processes[request.number] = life, process
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})

    def _note_ended(self, *_: Any) -> None:
        with contextlib.suppress(ChildProcessError):
            while process := os.waitpid(-1, os.WNOHANG)[0]:
                _end_group(process)  # what it started and left behind
                os.close(self._open.pop(process))


def _end_group(process: int) -> None:
    for end in (os.kill, os.killpg):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            end(process, signal.SIGKILL)


def _import_libraries(names: Sequence[str]) -> None:
    """Import what workers will need, in a process that has no code of a user's; a worker says what cannot be."""
    for name in set(names) - set(sys.modules):
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    gc.freeze()  # a collection in a worker would copy every page that it looks at


def _work(descriptor: int, settings: worker.WorkerSettings) -> NoReturn:
    """Serve calls in a process that was just forked, until the parent closes its end."""
    try:
        os.setsid()  # what it starts ends with it
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL, 0, 0, 0)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
        gc.enable()
        gc.set_threshold(20_000)  # looking through what is imported is a tenth of the time
        worker.start(settings)
        sys.stdout = os.fdopen(os.dup(1), "w", buffering=1, errors="backslashreplace")  # it is ended without a warning
        with socket.socket(fileno=descriptor) as channel:
            _answer_calls(channel)
    except BaseException:  # noqa: BLE001  it says so in its log, and its parent misses it
        traceback.print_exc()
    finally:
        os._exit(0)


def _answer_calls(channel: socket.socket) -> None:
    with channel.makefile("rb") as calls:
        while head := calls.read(wire.LENGTH.size):
            call: Call = pickle.loads(calls.read(*wire.LENGTH.unpack(head)))  # noqa: S301  from the parent, our maker
            channel.sendall(wire.frame(wire.encoded(call.nonce, call.function(*call.arguments, **call.named))))
