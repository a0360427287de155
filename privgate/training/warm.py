"""Worker processes without a sandbox: forked from a server that has the common libraries and never a user's code.

Importing MLflow, scikit-learn and skops takes longer than most checks train, and each worker would pay for it anew. The
server starts with the environment of a worker and without the working directory on its path, so what its children
inherit holds no secret and no file of an author's. Workers of one process share one seed of Python's hashes.
"""

import contextlib
import gc
import importlib
import io
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from multiprocessing import context, forkserver, popen_forkserver, process, reduction, spawn, util
from typing import Any

from privgate.subject.sources import skops_io
from privgate.training import task_limits

#: most of what a worker imports, in the order in which one does; the last two open a stored model, beside skops
LIBRARIES = (
    "privgate.training.worker",
    "privgate.theorems",
    "pandas",
    "scipy.stats",
    "sklearn.ensemble",
    "sklearn.linear_model",
    "sklearn.pipeline",
    "mlflow.pyfunc",
    "mlflow.sklearn",
)

_STARTING = threading.Lock()


class _Server(forkserver.ForkServer):
    """The server, apart from the one that the caller's own program may use."""

    def ensure_running(self) -> None:
        """Start it in an environment of its own if it does not run."""
        with _STARTING:
            usual = util.spawnv_passfds
            util.spawnv_passfds = _spawn  # type: ignore[assignment]  # text or bytes, as the system takes both
            try:
                super().ensure_running()
            finally:
                util.spawnv_passfds = usual


def _spawn(path: str, arguments: Sequence[str], descriptors: Sequence[int]) -> int:
    """Start a Python process with a worker's environment; ``-P`` keeps the working directory off its path."""
    for each in descriptors:
        os.set_inheritable(each, True)  # noqa: FBT003  the system's own order
    try:
        return os.posix_spawn(path, [arguments[0], "-P", *arguments[1:]], task_limits.of_worker(os.environ))
    finally:
        for each in descriptors:
            os.set_inheritable(each, False)  # noqa: FBT003  the system's own order


_servers: list[_Server] = []
os.register_at_fork(after_in_child=_servers.clear)  # the parent's is no child of this process


def _server() -> _Server:
    if not _servers:
        server = _Server()
        server.set_forkserver_preload([__name__])
        _servers.append(server)
    return _servers[0]


def begin() -> None:
    """Start the server, which imports beside whatever this process does next."""
    _server().ensure_running()


class _Popen(popen_forkserver.Popen):
    """A process forked from our server, not from the one that the caller's own program may use."""

    _fds: list[int]

    def _launch(self, process_obj: Any) -> None:
        # the caller's script is no part of a worker: a notebook or a script without a guard would run again
        about = {k: v for k, v in spawn.get_preparation_data(process_obj.name).items() if not k.startswith("init_main")}
        body = io.BytesIO()
        context.set_spawning_popen(self)
        try:
            reduction.dump(about, body)
            reduction.dump(process_obj, body)
        finally:
            context.set_spawning_popen(None)
        self.sentinel, write = _server().connect_to_new_process(self._fds)
        # its other end is how the worker sees that this process is gone
        self.finalizer = util.Finalize(self, _close, (os.dup(write), self.sentinel))
        with os.fdopen(write, "wb") as pipe:
            pipe.write(body.getbuffer())
        self.pid = forkserver.read_signed(self.sentinel)


def _close(*descriptors: int) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


class Process(process.BaseProcess):
    """A process of our server's."""

    _start_method = "forkserver"

    @staticmethod
    def _Popen(process_obj: Any) -> _Popen:  # noqa: N802  multiprocessing's name
        return _Popen(process_obj)


def start(target: Callable[..., None], *arguments: Any) -> Process:
    """Start a process that calls ``target``; it ends with this one."""
    started = Process(target=target, args=arguments, daemon=True)
    started.start()
    return started


def _import_libraries() -> None:
    """Import them, in a process that does nothing else before it forks."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's
    task_limits.scrub()  # of what was set while Python started
    gc.disable()
    for name in LIBRARIES:
        with contextlib.suppress(Exception):  # a worker that needs it says so
            importlib.import_module(name)
    with contextlib.suppress(Exception):
        skops_io()
    gc.enable()
    gc.freeze()  # a collection in a worker would copy every page that it looks at


if any("multiprocessing.forkserver import main" in word for word in sys.orig_argv):
    _import_libraries()
