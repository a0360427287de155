"""Workers that somebody else operates: a Dask cluster."""

import queue
import time
import uuid
import warnings
from copy import copy
from typing import Any

from privgate.arrays import Index
from privgate.errors import PrivgateWarning, UsageError
from privgate.training import worker
from privgate.training.fit import DIED_ON_MODEL, Answer, Chunk
from privgate.training.payload import Payload
from privgate.training.sandbox import wire
from privgate.training.task_limits import TaskLimits

#: what one task costs the scheduler, measured with tasks that do nothing
SCHEDULING_SECONDS = 1.5e-3
_LOST = "the Dask scheduler went away; start it and run the command again, which trains nothing twice"
_NONCE = bytes(wire.NONCE)  # a reply is its own future's
CONNECT_SECONDS = 20.0  # seconds for a scheduler's answer


def _reply(*call: Any) -> bytes:
    """Return what a worker answers to a chunk in the form of this machine's workers: its parent reads both alike."""
    return wire.encoded(_NONCE, worker.run_chunk(*call))


class DaskPool:
    """Workers of a Dask cluster (a scheduler's address, or the caller's own client), one chunk each at a time.

    A worker that dies is Dask's to replace and its chunk Dask's to run again; a chunk that ends several workers comes
    back as a death. Dask's own nannies limit memory. ``UsageError``: Dask is not installed, or no scheduler answers.
    """

    def __init__(self, cluster: Any, limits: TaskLimits) -> None:
        self._limits = limits
        self._address = cluster if isinstance(cluster, str) else None
        self._client: Any = None if self._address else cluster
        self._sent: dict[str, Any] = {}
        self._flying: dict[str, tuple[Chunk, Any]] = {}
        self._done: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._counted = (0.0, 1)
        if self._address:
            self._connect()
        workers = self._workers()
        threads = sum(int(w.get("nthreads", 1)) for w in workers)
        if threads > len(workers):  # training's limits and environment are those of a whole process
            text = (
                f"the cluster has {threads} threads in {len(workers)} worker processes, and trains one model at a time "
                f"in a process; start it with as many processes of one thread (dask worker --nworkers {threads} "
                "--nthreads 1)"
            )
            warnings.warn(text, PrivgateWarning, stacklevel=2)

    def _connect(self) -> None:
        try:
            from distributed import Client

            self._client = Client(self._address, timeout=CONNECT_SECONDS, set_as_default=False)
        except ImportError as exc:
            raise UsageError("a Dask cluster needs the extra: pip install 'privgate[dask]'") from exc
        except (OSError, TimeoutError, ValueError) as exc:
            raise UsageError(f"no Dask scheduler answers at {self._address}; start one or drop --cluster") from exc

    def _workers(self) -> list[Any]:
        return list(self._client.scheduler_info(n_workers=-1)["workers"].values())

    @property
    def slots(self) -> int:
        """Number of worker processes, which may change while we run."""
        if time.monotonic() - self._counted[0] > 1.0:
            self._counted = (time.monotonic(), max(1, len(self._workers())))
        return self._counted[1]

    @property
    def chunk_seconds(self) -> float:
        """Chunks so long that the scheduler is busy at most a tenth of the time that they take together."""
        return max(0.2, 10 * SCHEDULING_SECONDS * self.slots)

    def submit(self, payload: Payload, chunk: Chunk) -> None:
        """Send a chunk; the payload travels once and is then passed on between workers."""
        name, call = f"privgate-{uuid.uuid4().hex}", (self._send(payload), list(chunk.fits), self._limits)
        future = self._client.submit(_reply, *call, key=name, pure=False)
        self._flying[name] = (chunk, future)
        future.add_done_callback(lambda _: self._done.put(name))

    def _send(self, payload: Payload) -> Any:
        if payload.digest not in self._sent:
            # a task rather than scattered data: when all workers that hold it die, the scheduler can make it again
            name = f"privgate-payload-{uuid.uuid4().hex}"
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # "large graph": it is large, and sent once
                self._sent = {payload.digest: self._client.submit(copy, payload.pack(), key=name, pure=False)}
        return self._sent[payload.digest]

    def next(self) -> tuple[Chunk, list[Answer] | None]:
        """Wait for a chunk and return it with its answers, or None where its worker died."""
        from concurrent.futures import CancelledError

        from distributed import KilledWorker

        while True:
            try:
                name = self._done.get(timeout=1.0)
                chunk, future = self._flying.pop(name)
                body = future.result()
                return chunk, wire.answers(body if isinstance(body, bytes) else b"", _NONCE, chunk.shapes)
            except queue.Empty:
                # futures that a scheduler forgot never call back
                lost = any(future.status in {"lost", "cancelled"} for _, future in self._flying.values())
                if lost or self._client.status != "running":
                    raise UsageError(_LOST) from None
            except (KilledWorker, wire.GoneError):
                return chunk, None
            except (CancelledError, OSError, TimeoutError) as exc:
                raise UsageError(_LOST) from exc

    def _ask(self, function: Any, *call: Any, **named: Any) -> Any:
        """Return what one call gives, or None where its worker died."""
        from distributed import KilledWorker

        try:
            return self._client.submit(function, *call, pure=False, **named).result()
        except KilledWorker:
            return None

    def registered(self, payload: Payload, rows: Index, *, served: str = "") -> Answer:
        """Return the stored model's answer."""
        return self._ask(worker.registered, self._send(payload), rows, self._limits, served=served) or DIED_ON_MODEL

    def examined(self, payload: Payload, by: str, *given: Any) -> Any:
        """Return what is found in the opened model."""
        return self._ask(worker.examined, self._send(payload), self._limits, by, *given)

    def close(self) -> None:
        """Cancel what is in flight; the cluster stays as it was."""
        if self._flying:
            self._client.cancel([future for _, future in self._flying.values()], force=True)
        self._flying, self._sent = {}, {}
        if self._address:
            self._client.close(timeout=5)
