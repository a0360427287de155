"""One kind in a process of its own, forked where the libraries are imported already, and stopped by processor time."""

import multiprocessing
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

_TICKS = os.sysconf("SC_CLK_TCK")
_CONTEXT = multiprocessing.get_context("forkserver")


def import_once(*more: str) -> None:
    """Import what every kind needs, and more, in the process that is forked; to be called before the first kind."""
    _CONTEXT.set_forkserver_preload(["kinds.measure", "mlflow.sklearn", "skops.io", "privgate.guard", *more])


def apart(work: Callable[..., dict[str, Any]], *arguments: Any, limit: float) -> dict[str, Any]:
    """Return the row that ``work(*arguments)`` makes, with the processor time of it and of all that it started.

    Parameters
    ----------
    work : callable
        At the top of a module.
    limit : float
        Seconds of processor time; after that, or where the process dies, the row is a verdict and a sentence.
    """
    ours, theirs = _CONTEXT.Pipe(duplex=False)
    process = _CONTEXT.Process(target=_sent, args=(theirs, work, arguments))
    start, spent = time.monotonic(), dict[int, float]()
    process.start()
    theirs.close()
    row: dict[str, Any] = {"verdict": "died", "said": "its process ended without a word"}
    while True:
        if ours.poll(1.0):
            try:
                row = ours.recv()
            except EOFError:
                process.join()
                row["said"] += f" (exit code {process.exitcode})"
            break
        spent |= _used(process.pid)
        if sum(spent.values()) > limit:
            process.kill()  # its boxes die with it
            row = {"verdict": "too slow", "said": f"not decided in {limit:.0f} s of processor time"}
            break
    process.join()
    return {**row, "seconds": round(time.monotonic() - start, 1), "cpu": round(sum(spent.values()), 1)}


def _sent(channel: Any, work: Callable[..., dict[str, Any]], arguments: tuple[Any, ...]) -> None:
    row = work(*arguments)
    channel.send(row)
    channel.close()


def _used(root: int | None) -> dict[int, float]:
    """Return process -> seconds of processor time, of a process and its descendants."""
    parent, used = dict[int, int](), dict[int, float]()
    for path in Path("/proc").glob("[0-9]*"):
        try:
            fields = (path / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        parent[int(path.name)] = int(fields[1])
        used[int(path.name)] = (int(fields[11]) + int(fields[12])) / _TICKS
    found: dict[int, float] = {}
    for pid in used:
        above = pid
        while above in parent and above != root:
            above = parent[above]
        if above == root:
            found[pid] = used[pid]
    return found
