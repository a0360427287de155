"""Workers that somebody else operates: a Dask cluster, or any other backend that is registered with joblib."""

import queue
import time
import uuid
import warnings
from collections import deque
from typing import Any

from privgate.arrays import Index
from privgate.errors import PrivgateWarning, UsageError
from privgate.training import worker
from privgate.training.fit import Answer
from privgate.training.payload import Payload
from privgate.training.pools import Chunk, died_on_model
from privgate.training.task_limits import TaskLimits

#: what one task costs the scheduler, measured with tasks that do nothing (tests/bench/test_retrain_dask.py)
SCHEDULING_SECONDS = 1.5e-3
CONNECT_SECONDS = 20.0  # seconds for a scheduler's answer
#: how long a scheduler that went away may take to come back
RECONNECT_SECONDS = 120.0


class DaskPool:
    """Workers of a Dask cluster, one chunk each at a time.

    A worker that dies is Dask's to replace and its chunk Dask's to run again; a chunk that ends several workers comes
    back as a death. A scheduler that is restarted forgets everything: chunks in flight are then sent again.

    Parameters
    ----------
    cluster : str or distributed.Client
        Address of a scheduler, or a client that stays the caller's.
    limits : TaskLimits
        Time is ours; memory is limited by Dask's own nannies.
    """

    def __init__(self, cluster: Any, limits: TaskLimits) -> None:
        self._limits = limits
        self._address = cluster if isinstance(cluster, str) else None
        self._client: Any = None if self._address else cluster
        self._sent: dict[str, Any] = {}
        self._flying: dict[str, tuple[Payload, Chunk, Any]] = {}
        self._done: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._counted = (0.0, 1)
        if self._address:
            self._connect()
        self._say_what_idles()

    def _connect(self) -> None:
        try:
            from distributed import Client
        except ImportError as exc:
            raise UsageError("a Dask cluster needs the extra: pip install 'privgate[dask]'") from exc
        try:
            self._client = Client(
                self._address, timeout=RECONNECT_SECONDS if self._flying else CONNECT_SECONDS, set_as_default=False
            )
        except (OSError, TimeoutError) as exc:
            raise UsageError(f"no Dask scheduler answers at {self._address}; start one or drop --cluster") from exc

    def _say_what_idles(self) -> None:
        """Warn of threads that training cannot use: its limits and environment are those of a whole process."""
        workers = self._client.scheduler_info(n_workers=-1)["workers"].values()
        threads = sum(int(w.get("nthreads", 1)) for w in workers)
        if threads > len(workers):
            warnings.warn(
                f"the cluster has {threads} threads in {len(workers)} worker processes, and trains one model at a time "
                f"in a process; start it with as many processes of one thread (dask worker --nworkers {threads} "
                "--nthreads 1)",
                PrivgateWarning,
                stacklevel=2,
            )

    @property
    def slots(self) -> int:
        """Number of worker processes, which may change while we run."""
        counted, slots = self._counted
        if time.monotonic() - counted > 1.0:
            slots = max(1, len(self._client.scheduler_info(n_workers=-1)["workers"]))
            self._counted = (time.monotonic(), slots)
        return slots

    @property
    def chunk_seconds(self) -> float:
        """Chunks so long that the scheduler is busy at most a tenth of the time that they take together."""
        return max(0.2, 10 * SCHEDULING_SECONDS * self.slots)

    def submit(self, payload: Payload, chunk: Chunk) -> None:
        """Send a chunk; the payload travels once and is then passed on between workers."""
        name = f"privgate-{uuid.uuid4().hex}"
        future = self._client.submit(
            worker.run_chunk, self._send(payload), list(chunk.fits), self._limits, key=name, pure=False
        )
        self._flying[name] = (payload, chunk, future)
        future.add_done_callback(lambda _: self._done.put(name))

    def _send(self, payload: Payload) -> Any:
        if payload.digest not in self._sent:
            # a task rather than scattered data: when all workers that hold it die, the scheduler can make it again
            name = f"privgate-payload-{uuid.uuid4().hex}"
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # "large graph": it is large, and sent once
                self._sent = {payload.digest: self._client.submit(_same, payload.pack(), key=name, pure=False)}
        return self._sent[payload.digest]

    def next(self) -> tuple[Chunk, list[Answer] | None]:
        """Wait for a chunk; see ``Pool.next``."""
        from concurrent.futures import CancelledError

        from distributed import KilledWorker

        while True:
            try:
                name = self._done.get(timeout=1.0)
            except queue.Empty:
                # futures that a scheduler forgot never call back
                gone = any(future.status in {"lost", "cancelled"} for _, _, future in self._flying.values())
                if gone or self._client.status != "running":
                    self._again()
                continue
            if name not in self._flying:
                continue
            payload, chunk, future = self._flying.pop(name)
            try:
                return chunk, future.result()
            except KilledWorker:
                return chunk, None
            except (CancelledError, OSError, TimeoutError):  # the scheduler went away, or the payload with its workers
                self._flying[name] = (payload, chunk, future)
                self._again()

    def _again(self) -> None:
        """Connect again and send everything that was in flight once more."""
        flying = list(self._flying.values())
        if self._address:
            self._client.close(timeout=1)
            self._connect()
        else:
            self._wait_for_client()
        self._flying, self._sent = {}, {}
        for payload, chunk, _ in flying:
            self.submit(payload, chunk)

    def _wait_for_client(self) -> None:
        until = time.monotonic() + RECONNECT_SECONDS
        while self._client.status != "running":
            if time.monotonic() > until:
                raise UsageError("the Dask client lost its scheduler; pass its address to connect again")
            time.sleep(0.5)

    def examined(self, payload: Payload, by: str) -> Any:
        """Return what is found in the opened model."""
        from distributed import KilledWorker

        try:
            return self._client.submit(worker.examined, self._send(payload), self._limits, by, pure=False).result()
        except KilledWorker:
            return None

    def registered(self, payload: Payload, rows: Index, *, served: str = "") -> Answer:
        """Return the stored model's answer."""
        from distributed import KilledWorker

        sent = self._send(payload)
        try:
            call = self._client.submit(worker.registered, sent, rows, self._limits, served=served, pure=False)
            answer: Answer = call.result()
        except KilledWorker:
            return died_on_model()
        return answer

    def peak_memory(self) -> int:
        """Return the largest resident memory of any worker so far."""
        return max(self._client.run(worker.peak_memory).values(), default=0)

    def close(self, *, kill: bool = False) -> None:
        """Cancel what is in flight; the cluster stays as it was."""
        if kill and self._flying:
            self._client.cancel([future for _, _, future in self._flying.values()], force=True)
        self._flying, self._sent = {}, {}
        if self._address:
            self._client.close(timeout=5)


def _same(payload: Payload) -> Payload:
    return payload


class JoblibPool:
    """Any other backend registered with joblib, by name, in rounds of one chunk a worker.

    Parameters
    ----------
    backend : str
        For example ``"ray"``; threads and ``"multiprocessing"`` are refused, because training code must not run in the
        process that may hold credentials, nor in a fork of it, which has its memory and may hold its locks for ever.
    jobs : int
    limits : TaskLimits
    """

    def __init__(self, backend: str, jobs: int, limits: TaskLimits) -> None:
        from joblib import Parallel

        try:
            self._parallel = Parallel(n_jobs=jobs, backend=backend, batch_size=1, pre_dispatch="all")
        except ValueError as exc:
            raise UsageError(f"{backend!r} is neither a Dask address nor a backend registered with joblib") from exc
        chosen = self._parallel._backend  # noqa: SLF001  joblib tells nowhere else
        if getattr(chosen, "uses_threads", False) or backend in {"sequential", "multiprocessing"}:
            raise UsageError(
                f"joblib backend {backend!r} runs training in this process or in a fork of it; "
                "use one that starts workers of its own"
            )
        self._parallel.__enter__()  # keeps the backend's workers between rounds
        self.slots = jobs
        self.chunk_seconds = 1.0
        self._limits = limits
        self._waiting: list[tuple[Payload, Chunk]] = []
        self._ready: deque[tuple[Chunk, list[Answer]]] = deque()

    def submit(self, payload: Payload, chunk: Chunk) -> None:
        """Keep a chunk for the next round."""
        self._waiting.append((payload.pack(), chunk))

    def next(self) -> tuple[Chunk, list[Answer] | None]:
        """Run a round if nothing is left of the last one."""
        from joblib import delayed

        if not self._ready:
            calls = [delayed(worker.run_chunk)(p, list(c.fits), self._limits) for p, c in self._waiting]
            found = self._parallel(calls)
            self._ready.extend((c, answers) for (_, c), answers in zip(self._waiting, found, strict=True))
            self._waiting = []
        return self._ready.popleft()

    def examined(self, payload: Payload, by: str) -> Any:
        """Return what is found in the opened model."""
        from joblib import delayed

        return self._parallel([delayed(worker.examined)(payload.pack(), self._limits, by)])[0]

    def registered(self, payload: Payload, rows: Index, *, served: str = "") -> Answer:
        """Return the stored model's answer."""
        from joblib import delayed

        answer: Answer = self._parallel(
            [delayed(worker.registered)(payload.pack(), rows, self._limits, served=served)]
        )[0]
        return answer

    def peak_memory(self) -> int:
        """Return 0: the backend does not say which worker answers."""
        return 0

    def close(self, *, kill: bool = False) -> None:
        """Forget what did not run, and tell the backend that we are done."""
        del kill
        self._parallel.__exit__(None, None, None)
        self._waiting, self._ready = [], deque()
