"""Reading what others wrote in a process of its own, which has a clock and so much memory: a value, or one sentence.

For formats whose readers nobody can bound beforehand: CSV, Parquet, compressed arrays, sources. The process is a fork,
so nothing is imported anew. It limits what reading costs; it is no box, and its answer is that of this user's own code.
"""

import contextlib
import ctypes
import faulthandler
import gc
import logging
import mmap
import os
import pickle
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from privgate.errors import PrivgateError, SubjectError, UsageError

T = TypeVar("T")

#: what the operator may raise: GiB and seconds for reading one thing that somebody else wrote
MEMORY, SECONDS = "PRIVGATE_READ_MEMORY", "PRIVGATE_READ_SECONDS"
_USUAL_SECONDS = 600.0
_DIE_WITH_PARENT = 1  # option of prctl
_OUT_OF_MEMORY = 77  # exit code of a reader


def apart(read: Callable[[], T], what: str) -> T:
    """Return what ``read`` gives, called in a fork of this process within the operator's limits.

    Parameters
    ----------
    read : callable
        What it returns is pickled; what it raises becomes a sentence.
    what : str
        What is read, for the message.

    Raises
    ------
    PrivgateError
        As ``read`` raised it.
    SubjectError
        It raised anything else, needed more than it may, or died.
    """
    seconds, memory = _limit(SECONDS, _USUAL_SECONDS), int(_limit(MEMORY, _most() / 2**30) * 2**30)
    allowed = f"{memory / 2**30:.3g} GiB ({MEMORY}) and {seconds:.3g} s ({SECONDS})"
    with _nameless() as answer:
        gc.collect(0)
        child = os.fork()
        if not child:
            _answer(read, answer, memory, seconds)
        status = _waited(child, seconds)
        with contextlib.suppress(OSError, EOFError, ValueError, pickle.UnpicklingError):
            if status == 0 and (size := answer.seek(0, os.SEEK_END)):
                good, made = _loaded(mmap.mmap(answer.fileno(), size, access=mmap.ACCESS_COPY))
                if good:
                    return made  # type: ignore[no-any-return]  # what ``read`` gave
                raise made if isinstance(made, PrivgateError) else SubjectError(f"{what} cannot be read: {made}")
    raise SubjectError(
        f"{what} cannot be read within {allowed}: it took too {_which(status)}; whoever runs privgate may raise either"
    )


def _nameless() -> Any:
    """Return a file in memory: containers give /dev/shm 64 MB and their disks little more."""
    return os.fdopen(os.memfd_create("read"), "w+b") if sys.platform == "linux" else tempfile.TemporaryFile()


def _limit(variable: str, usual: float) -> float:
    text = os.environ.get(variable, "")
    try:
        found = float(text) if text else usual
    except ValueError:
        found = 0.0
    if not 0.0 < found < 1e9:
        raise UsageError(f"{variable} is {text[:40]!r}, which is no positive number")
    return found


def _most() -> int:
    """Return three quarters of the memory that this machine, or this container, has."""
    found = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with contextlib.suppress(OSError, ValueError):  # no control group, or one without a limit
        found = min(found, int(Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii")))
    return 3 * found // 4


def _which(status: int) -> str:
    code = os.waitstatus_to_exitcode(status)
    ended = {-signal.SIGKILL: "long", -signal.SIGXCPU: "long", _OUT_OF_MEMORY: "much memory"}
    return ended.get(code, f"much, and its reader ended with {code}")


def _waited(child: int, seconds: float) -> int:
    """Return the status with which a child ends, which is killed at the end of its time, and with this call."""
    end, pause, done, status = time.monotonic() + seconds, 0.0005, 0, 0
    try:
        while not done and time.monotonic() < end:
            time.sleep(pause)
            pause = min(1.5 * pause, 0.02)
            done, status = os.waitpid(child, os.WNOHANG)
    finally:
        if not done:
            os.kill(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
    return status


def _answer(read: Callable[[], Any], answer: Any, memory: int, seconds: float) -> NoReturn:
    """Write what reading gives, in the child, and end it: nothing of the parent's is cleaned up twice."""
    code = _OUT_OF_MEMORY
    try:
        _confine(memory, seconds)
        try:
            told: Any = (True, read())
        except PrivgateError as exc:
            told = (False, exc)
        except Exception as exc:
            if isinstance(exc, MemoryError):
                raise
            deep = isinstance(exc, RecursionError)
            words = " ".join(str(exc).split())[:200] or type(exc).__name__
            told = (False, "it is nested too deeply" if deep else words)
        _write(told, answer)
        code = 0
    except MemoryError:
        pass
    except BaseException:  # noqa: BLE001  a disk that is full, a value that cannot be pickled: nothing was read
        code = 1
    finally:
        os._exit(code)


def _confine(memory: int, seconds: float) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL, 0, 0, 0)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM, signal.SIGXCPU):
        signal.signal(number, signal.SIG_DFL)
    with contextlib.suppress(OSError):  # where memory ends, this goes first
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    faulthandler.disable()
    quiet = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(quiet, descriptor)
    # another thread may have held the locks of these, and of the files of its log, when this was forked
    sys.stdout = sys.stderr = os.fdopen(quiet, "w", encoding="utf-8")
    logging.disable()
    processor = int(seconds * (os.cpu_count() or 1)) + 1
    limits = [(resource.RLIMIT_CPU, processor), (resource.RLIMIT_FSIZE, memory), (resource.RLIMIT_CORE, 0)]
    if sys.platform == "linux":  # what the parent holds is inherited, and counts
        held = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmData"))
        limits.append((resource.RLIMIT_DATA, memory + 1024 * int(held.split()[1])))
    for kind, most in limits:
        hard = resource.getrlimit(kind)[1]
        bound = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (bound, bound))


def _write(told: Any, answer: Any) -> None:
    """Write a value: its arrays as they lie in memory, each with its length, then the rest, and where that begins."""
    sizes: list[int] = []

    def keep(buffer: pickle.PickleBuffer) -> None:
        raw = buffer.raw()
        answer.write(raw)
        answer.write(bytes(-len(raw) % 64))
        sizes.append(len(raw))

    body = pickle.dumps(told, protocol=5, buffer_callback=keep)
    head = pickle.dumps((sizes, len(body)))
    answer.write(body + head + len(head).to_bytes(8, "little"))
    answer.flush()


def _loaded(held: mmap.mmap) -> Any:
    """Return what was written; arrays lie in the file's own pages, which no name leads to."""
    view = memoryview(held)
    end = len(view) - 8 - int.from_bytes(view[-8:], "little")
    sizes, length = pickle.loads(view[end:-8])  # noqa: S301  written by our own fork
    at, parts = 0, []
    for size in sizes:
        parts.append(view[at : at + size])
        at += size + -size % 64
    return pickle.loads(view[end - length : end], buffers=parts)  # noqa: S301  ditto
