"""Workers of a Spark cluster: one chunk is one task; what MLflow's users on Databricks have at hand.

Not by ``joblibspark``: its 0.6 hides every error of a task behind one of its own with joblib 1.6, and joblib's rounds
wait for the slowest chunk. Spark's own jobs of one task need neither.
"""

import os
import queue
import sys
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from privgate.arrays import Index
from privgate.errors import UsageError
from privgate.training import worker
from privgate.training.fit import Answer
from privgate.training.payload import Payload
from privgate.training.pools import Chunk, died_on_model
from privgate.training.task_limits import TaskLimits

#: starting a job costs the driver far more than a chunk of a local pool
CHUNK_SECONDS = 1.0
_LOCAL = "local"


def is_master(cluster: str) -> bool:
    """Whether a cluster's name is Spark's: ``spark`` for the session at hand, or a master's address."""
    return cluster == "spark" or cluster.startswith((f"{_LOCAL}[", "spark://"))


class SparkPool:
    """Workers of a Spark cluster, one task each at a time.

    A task whose worker dies is Spark's to try again (``spark.task.maxFailures``); one that ends them all comes back as
    a death. Workers need the same Python and the same libraries as the driver (``PYSPARK_PYTHON``).

    Parameters
    ----------
    cluster : str
        ``"spark"`` for the active session, or the one that Spark's configuration makes; or a master's address.
    limits : TaskLimits
        Time is ours; memory is limited by Spark's own settings.
    """

    def __init__(self, cluster: str, limits: TaskLimits) -> None:
        try:
            from pyspark.sql import SparkSession
        except ImportError as exc:
            raise UsageError("a Spark cluster needs the extra: pip install 'privgate[spark]'") from exc
        active = SparkSession.getActiveSession()
        self._own = active is None
        self._session: Any = _started(cluster) if active is None else active
        self._context = _context(self._session)
        self._limits, self._group = limits, f"privgate-{uuid.uuid4().hex}"
        #: tasks that run at the same time
        #: tasks that run at the same time
        self.slots = max(
            1, self._context.defaultParallelism // int(self._context.getConf().get("spark.task.cpus", "1"))
        )
        self.chunk_seconds = CHUNK_SECONDS
        self._threads = ThreadPoolExecutor(self.slots, thread_name_prefix="privgate-spark")
        self._done: queue.SimpleQueue[tuple[Chunk, Any]] = queue.SimpleQueue()
        self._sent: dict[str, Any] = {}

    def submit(self, payload: Payload, chunk: Chunk) -> None:
        """Start a job of one task; the payload is broadcast once."""
        sent, fits = self._send(payload), list(chunk.fits)
        call = self._threads.submit(self._run, worker.run_chunk, sent, fits, self._limits)
        call.add_done_callback(lambda done: self._done.put((chunk, done)))

    def next(self) -> tuple[Chunk, list[Answer] | None]:
        """Wait for a chunk; see ``Pool.next``."""
        chunk, call = self._done.get()
        return chunk, call.result()

    def _send(self, payload: Payload) -> Any:
        if payload.digest not in self._sent:
            for before in self._sent.values():
                before.destroy()
            self._sent = {payload.digest: self._context.broadcast(payload.pack())}
        return self._sent[payload.digest]

    def _run(self, function: Callable[..., Any], sent: Any, *arguments: Any, **named: Any) -> Any:
        """Return what a function says of a payload in a worker; None where workers died of it.

        Raises
        ------
        UsageError
            The workers cannot run it: other libraries, another Python, no privgate.
        """

        def task(_: int) -> Any:
            return function(sent.value, *arguments, **named)

        self._context.setJobGroup(self._group, "privgate", interruptOnCancel=True)
        try:
            return self._context.parallelize([0], 1).map(task).collect()[0]
        except Exception as exc:
            # whatever training does is an answer; an exception that Python itself reports is the workers' own
            if why := _raised(str(exc)):
                raise UsageError(
                    f"Spark's workers cannot run privgate: {why}; they need this Python and its libraries "
                    "(PYSPARK_PYTHON)"
                ) from exc
            return None

    def examined(self, payload: Payload, by: str) -> Any:
        """Return what is found in the opened model."""
        return self._run(worker.examined, self._send(payload), self._limits, by)

    def registered(self, payload: Payload, rows: Index, *, served: str = "") -> Answer:
        """Return the stored model's answer."""
        found: Answer | None = self._run(worker.registered, self._send(payload), rows, self._limits, served=served)
        return died_on_model() if found is None else found

    def peak_memory(self) -> int:
        """Return 0: Spark does not say which worker answers."""
        return 0

    def close(self, *, kill: bool = False) -> None:
        """Cancel what is in flight; the session stays as it was, or ends if it is ours."""
        if kill:
            self._context.cancelJobGroup(self._group)
        self._threads.shutdown(wait=not kill, cancel_futures=True)
        self._sent = {}
        if self._own:
            self._session.stop()


def _started(cluster: str) -> Any:
    """Return a new session, on the master that is named or configured."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName("privgate")
    if cluster != "spark":
        builder = builder.master(cluster)
    if cluster.startswith(_LOCAL):
        builder = builder.config("spark.ui.enabled", "false").config("spark.ui.showConsoleProgress", "false")
    try:
        session = builder.getOrCreate()
    except Exception as exc:  # Java is missing, or nobody answers: Spark has several words for it
        why = (str(exc).strip().splitlines() or [type(exc).__name__])[0]
        raise UsageError(f"no Spark session starts by {cluster!r}: {why}") from exc
    if cluster.startswith(_LOCAL) and "PYSPARK_PYTHON" not in os.environ:
        session.sparkContext.pythonExec = sys.executable  # else whatever is called python3
    return session


def _context(session: Any) -> Any:
    try:
        return session.sparkContext
    except Exception as exc:
        raise UsageError("this Spark session is remote (Spark Connect) and starts no tasks of our own") from exc


def _raised(text: str) -> str:
    r"""Return the last line of a traceback that a Python worker reported; empty where no Python reported any.

    >>> _raised("aborted: Traceback (most recent call last):\n  File x\nNameError: f\n\n\tat org.apache.spark")
    'NameError: f'
    >>> _raised("org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)")
    ''
    """
    _, found, trace = text.partition("Traceback (most recent call last):")
    if not found or "exited unexpectedly" in text:
        return ""
    said = [line for line in trace.split("\n\tat ")[0].splitlines() if line[:1].strip() and ":" in line]
    return said[-1].strip() if said else "an error without words"
