"""What a worker process may take, what it may know about its surroundings, and which files it opens."""

import faulthandler
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Self

#: seconds that C code may overrun before the whole worker process is ended
GRACE = 2.0
_REARM = 1.0  # seconds until a limit is set again


class OutOfTimeError(BaseException):
    """Raised in the middle of training; no ``Exception``, so that training code does not swallow it."""


@dataclass(frozen=True, slots=True)
class TaskLimits:
    """What one call of the training function may take: seconds, and bytes of private memory (0 for no limit)."""

    seconds: float = 3600.0
    memory: int = 0


def limit_memory(size: int) -> None:
    """Let allocations beyond ``size`` bytes fail in this process; memory-mapped data does not count."""
    if size <= 0:
        return
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    soft = size if hard == resource.RLIM_INFINITY else min(size, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _expire(_signal: int, _frame: FrameType | None) -> None:
    raise OutOfTimeError


class Clock:
    """Ends calls that take too long: by an exception where Python runs, else by ending the process.

    One instance a chunk of calls, used as ``with clock.call(): …``.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds, self._armed = seconds, 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        faulthandler.cancel_dump_traceback_later()

    @contextmanager
    def call(self, seconds: float | None = None) -> Iterator[None]:
        """Limit one call, to other seconds than usual where they are given; raises ``OutOfTimeError`` in it."""
        limit = self.seconds if seconds is None else seconds
        now = time.monotonic()
        if not self._armed or seconds is not None or now - self._armed > min(_REARM, limit):
            # a C thread that needs no interpreter lock; armed again at most once a second, because it costs 50 us
            faulthandler.dump_traceback_later(limit + GRACE, exit=True, file=2)
            self._armed = now if seconds is None else 0.0
        if threading.current_thread() is not threading.main_thread():  # Dask's, which no signal reaches
            yield
            return
        signal.signal(signal.SIGALRM, _expire)
        signal.setitimer(signal.ITIMER_REAL, limit)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)


#: the only names that reach training code; everything else (registry credentials, cloud keys, tokens) stays outside
ALLOWED = ("PATH", "HOME", "LANG", "LANGUAGE", "TMPDIR", "TZ", "LD_LIBRARY_PATH", "VIRTUAL_ENV",
           "CUDA_VISIBLE_DEVICES", "CUBLAS_WORKSPACE_CONFIG")  # fmt: skip  # whose GPU, and whether it repeats itself
ALLOWED_PREFIXES = ("LC_", "PYTHON", "COVERAGE_PROCESS_")
#: refused even below an allowed prefix
SECRET = ("TOKEN", "KEY", "SECRET", "PASSWORD", "CREDENTIAL")

#: several processes that each start several threads are many times slower than one thread each
ONE_THREAD: Mapping[str, str] = dict.fromkeys((
    "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS", "NUMBA_NUM_THREADS", "LOKY_MAX_CPU_COUNT", "POLARS_MAX_THREADS", "RAYON_NUM_THREADS",
    "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS",
    # a library that asks for more than it is told: XGBoost with n_jobs=-1, LightGBM by its scikit-learn interface,
    # which without it counts cores with another process and then waits for them, 40 s a training
    "OMP_THREAD_LIMIT",
), "1")  # fmt: skip


def allowed(name: str) -> bool:
    """Whether a variable of this name may reach training code."""
    if any(word in name.upper() for word in SECRET):
        return False
    return name in ALLOWED or name in ONE_THREAD or name.startswith(ALLOWED_PREFIXES)


def of_worker(environ: Mapping[str, str]) -> dict[str, str]:
    """Return what a worker is started with: only what is allowed, and one thread; the rest would stay in ``/proc``."""
    return {**{name: value for name, value in environ.items() if allowed(name)}, **ONE_THREAD}


def scrub(instead: Mapping[str, str] | None = None) -> None:
    """Delete every variable that is not allowed, in this process, for good; or all that is not ``instead``."""
    for name in [n for n in os.environ if not allowed(n) or (instead is not None and n not in instead)]:
        del os.environ[name]
    os.environ.update({**(instead or {}), **ONE_THREAD})


@contextmanager
def scrubbed() -> Iterator[None]:
    """Scrub for the length of a block, in a process that belongs to somebody else (a Dask worker)."""
    before = dict(os.environ)
    scrub()
    try:
        yield
    finally:
        for name in [n for n in os.environ if n not in before]:
            del os.environ[name]
        os.environ.update(before)


# Which files a worker opens: Python's own ``open`` is watched, from before anything of the user's is imported. A reader
# in another language (pyarrow, HDF5, a database's client) opens files that nobody sees here.

#: what belongs to the machine and to libraries: programs, fonts, time zones, devices, settings
_MACHINE = ("/proc/", "/sys/", "/dev/", "/etc/", "/usr/", "/lib", "/run/")
_ROOTS = tuple(f"{os.path.realpath(p)}/" for p in (sys.prefix, sys.base_prefix))
_ENDINGS = (".py", ".pyc", ".pyi", ".so", ".ttf", ".otf", ".afm", ".pth", ".mplstyle")
_PARTS = ("/site-packages/", "/dist-packages/", ".dist-info/", "/matplotlib/", "/fontconfig/", "/fonts/", "/zoneinfo/",
          "/.config/mlflow/")  # fmt: skip

_read = dict[str, None]()
_written = set[str]()


def watch_files() -> None:
    """Note from now on which files this process opens; a second call changes nothing."""
    if _note not in _watching:
        _watching.append(_note)
        sys.addaudithook(_note)


def _note(event: str, arguments: tuple[Any, ...]) -> None:
    if event not in ("open", "sqlite3.connect") or not isinstance(arguments[0], str | bytes):
        return
    path = os.fsdecode(arguments[0])
    if path.startswith(_ROOTS) and ".." not in path:  # of libraries, which are many, and whose links stay there
        return
    path = os.path.realpath(path)  # now: a link may be gone in the end
    mode, flags = (arguments[1], arguments[2]) if event == "open" else ("r", 0)
    if (mode or "r")[0] in "wxa" or flags & (os.O_WRONLY | os.O_CREAT):
        _written.add(path)
    elif len(_read) < 10_000:
        _read.setdefault(path)


_watching = list[Any]()


def list_opened(*folders: str) -> list[str]:
    """Return the files that were read, in order: none of a library's, of ``folders``, or that this process wrote."""
    given = (*_ROOTS, *_MACHINE, *(f"{os.path.realpath(f)}/" for f in (*folders, str(Path.cwd()))))
    return [
        path
        for path in _read
        if not path.startswith(given)
        and not path.endswith(_ENDINGS)
        and not any(part in path for part in _PARTS)
        and path not in _written
        and Path(path).is_file()
    ]
