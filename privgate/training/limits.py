"""TaskLimits on one call of the training function: time, memory, threads."""

import ctypes
import faulthandler
import resource
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Self

#: seconds that C code may overrun before the whole worker process is ended
GRACE = 2.0
_REARM = 1.0


class OutOfTimeError(BaseException):
    """Raised in the middle of training; no ``Exception``, so that training code does not swallow it."""


@dataclass(frozen=True, slots=True)
class TaskLimits:
    """What one call of the training function may take.

    Parameters
    ----------
    seconds : float
        Wall-clock time.
    memory : int
        Bytes of private memory of the worker process; 0 for no limit.
    """

    seconds: float = 3600.0
    memory: int = 0


def limit_memory(size: int) -> None:
    """Let allocations beyond ``size`` bytes fail in this process; memory-mapped data does not count on Linux."""
    if size <= 0:
        return
    kind = resource.RLIMIT_DATA if sys.platform == "linux" else resource.RLIMIT_AS
    hard = resource.getrlimit(kind)[1]
    soft = size if hard == resource.RLIM_INFINITY else min(size, hard)
    try:
        resource.setrlimit(kind, (soft, hard))
    except (ValueError, OSError):  # macOS refuses: the operating system then ends the process instead
        return


def _expire(_signal: int, _frame: FrameType | None) -> None:
    raise OutOfTimeError


class Clock:
    """Ends calls that take too long: by an exception where Python runs, else by ending the process.

    One instance a chunk of calls, used as ``with clock.call(): …``.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._main = threading.current_thread() is threading.main_thread()
        self._armed = 0.0

    def __enter__(self) -> Self:
        if self._main:
            signal.signal(signal.SIGALRM, _expire)
        return self

    def __exit__(self, *_: object) -> None:
        faulthandler.cancel_dump_traceback_later()

    @contextmanager
    def call(self, seconds: float | None = None) -> Iterator[None]:
        """Limit one call; raises ``OutOfTimeError`` in it.

        Parameters
        ----------
        seconds : float, optional
            Another limit, for this call only.
        """
        limit = self.seconds if seconds is None else seconds
        now = time.monotonic()
        if not self._armed or seconds is not None or now - self._armed > min(_REARM, limit):
            # a C thread that needs no interpreter lock; armed again at most once a second, because it costs 50 us
            faulthandler.dump_traceback_later(limit + GRACE, exit=True, file=2)
            self._armed = now if seconds is None else 0.0
        if not self._main:
            with self._raise_in_thread(limit):
                yield
            return
        signal.setitimer(signal.ITIMER_REAL, limit)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    @staticmethod
    @contextmanager
    def _raise_in_thread(limit: float) -> Iterator[None]:
        # signals reach the main thread only; Dask runs tasks in others
        ident = threading.get_ident()
        timer = threading.Timer(
            limit,
            lambda: ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(ident), ctypes.py_object(OutOfTimeError)),
        )
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
