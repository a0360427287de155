"""One call in a worker process of its own, ended with it: for code that changes the libraries it runs under."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from privgate.training import isolation, warm, worker
from privgate.training.limits import GRACE, TaskLimits
from privgate.training.payload import Payload, readable


def apart(
    function: Callable[..., Any], shipped: Payload, *arguments: Any, limits: TaskLimits, runs: int, way: str, logs: Path
) -> Any:
    """Return the JSON value that ``function(shipped, *arguments)`` gives, or None if its worker died, hung or lied.

    Parameters
    ----------
    function : callable
        At the top of a module of privgate's.
    shipped : Payload
        The only thing in its folder's folder.
    limits : TaskLimits
        Of one training.
    runs : int
        Trainings that the call makes at most.
    way : str
        See ``isolation.of``.
    logs : Path
        Folder for what the user's code prints.
    """
    if isolation.of(way) == isolation.NONE:
        return _beside(function, shipped, *arguments, limits=limits, logs=logs)
    from privgate.training.box import wire
    from privgate.training.box.pool import ask
    from privgate.training.box.process import Box, GoneError

    place = Path(shipped.folder).parent
    readable(place)
    seconds = worker.LOADING_SECONDS + runs * (limits.seconds + GRACE)
    box = Box([place], memory=limits.memory, log=logs / "worker.log")
    try:
        return wire.json_value(ask(box, function, shipped, *arguments, most=wire.MOST_JSON, seconds=seconds), box.nonce)
    except (GoneError, wire.LieError):
        return None
    finally:
        box.end()


def _beside(function: Callable[..., Any], shipped: Payload, *arguments: Any, limits: TaskLimits, logs: Path) -> Any:
    """Do the same in a process of this user."""
    from concurrent.futures.process import BrokenProcessPool

    executor = warm.executor(worker.WorkerSettings(logs=str(logs), memory=limits.memory))
    try:
        return executor.submit(function, shipped, *arguments).result()
    except BrokenProcessPool:
        return None
    finally:
        warm.end(executor, kill=True)
