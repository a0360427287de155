"""Worker processes that begin with the common libraries imported: forked from a server that never loads a user's code.

Importing MLflow, scikit-learn and skops takes longer than most checks train, and each worker would pay for it anew. The
server is started with the environment of a worker and without the working directory on its path, so what its children
inherit holds no secret and no file of an author's. Workers of one process share one seed of Python's hashes.
"""

import io
import os
import threading
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import context, forkserver, popen_forkserver, process, reduction, spawn, util
from typing import Any, TypeVar

from privgate.training import task_limits, worker

T = TypeVar("T")
R = TypeVar("R")

#: imported by the server, in which nothing else happens before it forks
LIBRARIES = "privgate.training.warm_libraries"

_STARTING = threading.Lock()


class _Server(forkserver.ForkServer):
    """The server, apart from the one that the caller's own program may use."""

    def ensure_running(self) -> None:
        """Start it in an environment of its own if it does not run."""
        with _STARTING:
            usual = util.spawnv_passfds
            util.spawnv_passfds = _spawned  # type: ignore[assignment]  # text or bytes, as the system takes both
            try:
                super().ensure_running()
            finally:
                util.spawnv_passfds = usual


def _spawned(path: str, arguments: Sequence[str], descriptors: Sequence[int]) -> int:
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
        made = _Server()
        made.set_forkserver_preload([LIBRARIES])
        _servers.append(made)
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


class _Process(process.BaseProcess):
    _start_method = "forkserver"

    @staticmethod
    def _Popen(process_obj: Any) -> _Popen:  # noqa: N802  multiprocessing's name
        return _Popen(process_obj)


class _Context(context.ForkServerContext):
    Process = _Process  # type: ignore[assignment]  # a context names its processes' class


def executor(settings: worker.WorkerSettings, jobs: int = 1) -> ProcessPoolExecutor:
    """Return an executor of worker processes."""
    return ProcessPoolExecutor(jobs, _Context(), worker.start, (settings,))


def end(made: ProcessPoolExecutor, *, kill: bool) -> None:
    """End an executor: what it works on is waited for, or killed."""
    if kill:
        for each in list((made._processes or {}).values()):  # noqa: SLF001  public from Python 3.14 on
            each.kill()
    made.shutdown(wait=not kill, cancel_futures=kill)
