"""Reading what others wrote in a fork that has a clock and so much memory: formats whose readers nobody can bound."""

import contextlib
import os
import pickle
import re
import resource
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, NoReturn, TypeVar

from privgate.errors import PrivgateError, SubjectError, UsageError

T = TypeVar("T")
#: what the operator may raise: GiB beyond what this process holds, and seconds, for reading one thing
MEMORY, SECONDS = "PRIVGATE_READ_MEMORY", "PRIVGATE_READ_SECONDS"


def apart(read: Callable[[], T], what: str) -> T:
    """Return what ``read`` gives, called in a fork of this process within the operator's limits.

    ``SubjectError``: it raised anything but a ``PrivgateError``, needed more than it may, or died.
    """
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    seconds, memory = _limit(SECONDS, 600.0), _limit(MEMORY, 0.75 * whole)
    with tempfile.TemporaryFile() as answer:
        if not (child := os.fork()):
            _answer(read, what, answer, memory)
        end, done = time.monotonic() + seconds, 0
        try:
            while not done and time.monotonic() < end:
                done = os.waitpid(child, os.WNOHANG)[0]
                time.sleep(0.0 if done else 0.002)
        finally:
            if not done:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
        if not (done and answer.seek(0, os.SEEK_END)):
            allowed = f"{memory:.3g} GiB ({MEMORY}) and {seconds:.3g} s ({SECONDS})"
            raise SubjectError(f"{what} cannot be read within {allowed}; whoever runs privgate may raise either")
        answer.seek(0)
        value = pickle.load(answer)  # noqa: S301  written by our own fork
    if isinstance(value, PrivgateError):
        raise value
    return value  # type: ignore[no-any-return]  # what ``read`` gave


def _answer(read: Callable[[], object], what: str, answer: IO[bytes], memory: float) -> NoReturn:
    """Write what reading gives, in the child, and end it; nothing is written where memory ran out."""
    try:
        held = re.search(r"VmData:\s+(\d+)", Path("/proc/self/status").read_text(encoding="ascii"))
        most = int(memory * 2**30) + 1024 * int(held[1] if held else 0)
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))
        try:
            result = read()
        except MemoryError:
            raise
        except PrivgateError as exc:
            result = exc
        except Exception as exc:  # noqa: BLE001  a reader of others may raise anything
            words = " ".join(str(exc).split())[:200] or type(exc).__name__
            result = SubjectError(f"{what} cannot be read: {words}")
        pickle.dump(result, answer, protocol=5)
        answer.flush()
    finally:
        os._exit(0)


def _limit(variable: str, usual: float) -> float:
    text = os.environ.get(variable) or str(usual)
    with contextlib.suppress(ValueError):
        if 0.0 < (limit := float(text)) < 1e9:
            return limit
    raise UsageError(f"{variable} is {text[:40]!r}, which is no positive number")
