"""Worker processes: where chunks of calls run, what comes back when one dies, and answers written as they arrive."""

import hashlib
import itertools
import queue
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from privgate.arrays import Index
from privgate.training import context, warm, worker
from privgate.training.context import Freshness
from privgate.training.fit import Answer, Fit
from privgate.training.ledger import Ledger
from privgate.training.payload import Payload
from privgate.training.task_limits import TaskLimits

# Worker processes: where chunks of calls run, and what comes back when one of them dies.


@dataclass(frozen=True, eq=False)
class Chunk:
    """Calls that go to one worker together.

    Parameters
    ----------
    positions : sequence of int
        Where the answers belong.
    fits : sequence of Fit
    last_try : bool
        Nothing else is in flight, so a death has one possible cause.
    """

    positions: Sequence[int]
    fits: Sequence[Fit]
    last_try: bool = False


class Pool(Protocol):
    """Runs chunks in worker processes; at most ``slots`` of them at once, so that nothing finished waits unwritten."""

    @property
    def slots(self) -> int:
        """Number of chunks in flight."""
        ...

    @property
    def chunk_seconds(self) -> float:
        """Seconds of work that one chunk should hold."""
        ...

    def submit(self, payload: Payload, chunk: Chunk) -> None:
        """Start a chunk; there must be a free slot."""
        ...

    def next(self) -> tuple[Chunk, list[Answer] | None]:
        """Wait for a chunk and return it with its answers, or None where its worker died."""
        ...

    def registered(self, payload: Payload, rows: Index, *, served: str = "") -> Answer:
        """Return the stored model's answer."""
        ...

    def examined(self, payload: Payload, by: str) -> Any:
        """Return what ``worker.examined`` says, or None where its worker died or lied."""
        ...

    def peak_memory(self) -> int:
        """Return the largest memory that a worker has needed so far, in bytes; 0 where it cannot be known."""
        ...

    def close(self, *, kill: bool = False) -> None:
        """End the workers."""
        ...


def died_on_model() -> Answer:
    """Return what is said when the stored model ends the worker that opens it."""
    return Answer(
        np.zeros((0, 0)), problem="the worker process died while it opened the registered model", lasting=False
    )


class LocalPool:
    """Worker processes on this machine: one executor a worker, so that a death takes nobody else's work with it.

    Parameters
    ----------
    jobs : int
        Number of processes.
    limits : TaskLimits
    settings : worker.Settings
    """

    def __init__(self, jobs: int, limits: TaskLimits, settings: worker.WorkerSettings) -> None:
        self.slots = jobs
        #: starting a chunk costs a millisecond or two, and at most one chunk a worker is lost to a kill
        self.chunk_seconds = 0.2
        self._limits, self._settings = limits, settings
        self._lanes: list[Any] = []
        self._free: list[Any] = []
        self._done: queue.SimpleQueue[tuple[Any, Chunk, Future[list[Answer]]]] = queue.SimpleQueue()

    def _lane(self) -> Any:
        if self._free:
            return self._free.pop()
        made = warm.executor(self._settings)
        self._lanes.append(made)
        return made

    def _drop(self, lane: Any) -> None:
        self._lanes.remove(lane)
        warm.end(lane, kill=True)

    def submit(self, payload: Payload, chunk: Chunk) -> None:
        """Start a chunk on a free worker, starting one if there are fewer than ``slots``."""
        lane = self._lane()
        future = lane.submit(worker.run_chunk, payload, list(chunk.fits), self._limits)
        future.add_done_callback(lambda done: self._done.put((lane, chunk, done)))

    def next(self) -> tuple[Chunk, list[Answer] | None]:
        """Wait for a chunk; a dead worker is replaced when it is needed."""
        from concurrent.futures.process import BrokenProcessPool

        lane, chunk, future = self._done.get()
        try:
            answers = future.result()
        except BrokenProcessPool:
            self._drop(lane)
            return chunk, None
        self._free.append(lane)
        return chunk, answers

    def registered(self, payload: Payload, rows: Index, *, served: str = "") -> Answer:
        """Return the stored model's answer; a worker that it kills becomes a problem."""
        from concurrent.futures.process import BrokenProcessPool

        lane = self._lane()
        try:
            answer: Answer = lane.submit(worker.registered, payload, rows, self._limits, served=served).result()
        except BrokenProcessPool:
            self._drop(lane)
            return died_on_model()
        self._free.append(lane)
        return answer

    def examined(self, payload: Payload, by: str) -> Any:
        """Return what is found in the opened model; a worker that dies of it says nothing."""
        return self._said(worker.examined, payload, self._limits, by)

    def _said(self, function: Callable[..., Any], *arguments: Any) -> Any:
        from concurrent.futures.process import BrokenProcessPool

        lane = self._lane()
        try:
            found = lane.submit(function, *arguments).result()
        except BrokenProcessPool:
            self._drop(lane)
            return None
        self._free.append(lane)
        return found

    def peak_memory(self) -> int:
        """Return the largest resident memory of an idle worker's past."""
        return max((int(lane.submit(worker.peak_memory).result()) for lane in self._free), default=0)

    def close(self, *, kill: bool = False) -> None:
        """End all workers; idle ones are simply told to leave."""
        for lane in self._lanes:
            warm.end(lane, kill=kill)
        self._lanes, self._free = [], []


# One batch of calls on its way through a pool: chunks, deaths, and answers written as they arrive.

#: below this, starting a chunk would cost more than 2 % of it
LEAST_CHUNK_SECONDS = 0.05
#: workers that may die one after another without any success before the rest is given up
DEATHS = 20


class Owner(Protocol):
    """Whose batch it is: where its calls run, what remembers them, and who is told."""

    ledger: Ledger
    calls: int

    @property
    def freshness(self) -> Freshness:
        """What was trained by this very process."""
        ...

    @property
    def pool(self) -> Pool:
        """Where calls run."""
        ...

    def report(self, done: int, total: int, seconds_left: float) -> None:
        """Tell how far the batch is."""
        ...


def _is_reply(answers: Any, fits: Sequence[Fit], columns: int) -> bool:
    """Whether these are answers to these calls; no box stands between us and the workers of a cluster."""
    if not isinstance(answers, list) or len(answers) != len(fits):
        return False
    return all(
        isinstance(a, Answer)
        and (a.problem or issubclass(type(a.log_p), np.ndarray))
        and (a.problem or (a.log_p.shape, a.log_p.dtype.kind) == ((fit.rows, columns), "f"))
        and (a.problem or (a.log_p < np.inf).all())  # NaN is not, either
        for a, fit in zip(answers, fits, strict=True)
    )


class Batch:
    """One batch of calls on its way through the pool.

    A call that was with a worker when it died is tried twice more: in a chunk of its own, then with nothing else in
    flight. Only the second of these names it as the cause, because clusters blame everything that was on a dead worker.
    """

    def __init__(
        self,
        fleet: Owner,
        shipped: Payload,
        keys: list[bytes],
        fits: Sequence[Fit],
        models: Sequence[Sequence[bytes]] = (),
        *,
        held: Callable[[Answer], Answer] | None = None,
    ) -> None:
        self._fleet, self._shipped, self._keys, self._fits = fleet, shipped, keys, list(fits)
        #: what is held of an answer once it is written
        self._held = held
        #: ledger keys of each call's models
        self._models = models or [()] * len(fits)
        self._todo = deque(range(len(fits)))
        self._suspects: deque[int] = deque()
        self._accused: deque[int] = deque()
        self._answers: dict[bytes, Answer] = {}
        self._trained = self._total = 0
        self._flying = 0
        #: seconds of one call, estimated from those that came back: of one that trains, and of one that only asks
        self._paces: dict[bool, float] = {}
        self._deaths = 0

    def all(self) -> dict[bytes, Answer]:
        """Return key -> answer for every fit."""
        pool, started = self._fleet.pool, time.monotonic()
        told, self._total = started, sum(self._trains(i) for i in range(len(self._fits)))
        if self._total:
            self._fleet.report(0, self._total, float("nan"))
        while len(self._answers) < len(self._fits):
            while chunk := self._next_chunk(pool):
                pool.submit(self._shipped, chunk)
                self._flying += 1
            self._arrived(*pool.next())
            now, total = time.monotonic(), self._total
            if total and (now - told > 0.1 or len(self._answers) == len(self._fits)):
                told, done = now, self._trained
                self._fleet.report(done, total, (now - started) * (total - done) / done if done else float("nan"))
        return self._answers

    def _trains(self, i: int) -> int:
        """Return how many models a call trains: none where all are known."""
        return int(not self._asks(i))

    def _next_chunk(self, pool: Pool) -> Chunk | None:
        if self._flying >= self._slots(pool):
            return None
        if self._todo:
            picked = [self._todo.popleft() for _ in range(self._size(pool))]
        elif self._suspects:
            picked = [self._suspects.popleft()]
        elif self._accused and not self._flying:
            picked = [self._accused.popleft()]
            return Chunk(picked, [self._fits[i] for i in picked], last_try=True)
        else:
            return None
        return Chunk(picked, [self._fits[i] for i in picked])

    def _slots(self, pool: Pool) -> int:
        return min(pool.slots, self._shipped.at_once or pool.slots)

    def _size(self, pool: Pool) -> int:
        asks = self._asks(self._todo[0])
        seconds = self._paces.get(asks, 0.0)
        if not seconds:
            return 1
        # smaller chunks towards the end, so that no worker is left alone with a large one, but never tiny ones
        fair = -(-len(self._todo) // (2 * self._slots(pool)))
        least = int(LEAST_CHUNK_SECONDS / seconds)
        size = max(1, least, min(int(pool.chunk_seconds / seconds), fair))
        return sum(1 for _ in itertools.takewhile(lambda i: self._asks(i) == asks, itertools.islice(self._todo, size)))

    def _asks(self, position: int) -> bool:
        """Whether a call comes with all its models: a worker has nothing to train for it."""
        call = self._fits[position]
        return bool(call.models) and all(call.models)

    def _arrived(self, chunk: Chunk, answers: list[Answer] | None) -> None:
        self._flying -= 1
        if answers is None or not _is_reply(answers, chunk.fits, self._shipped.classes):
            self._died(chunk)
            return
        self._deaths = 0
        # a worker that was given no model has trained one, whatever it says
        reused = [a.reused and self._asks(i) for i, a in zip(chunk.positions, answers, strict=True)]
        new = [i for i, asked in zip(chunk.positions, reused, strict=True) if not asked]
        self._fleet.calls += len(new)
        for asked in set(reused):
            times = [a.seconds for a, r in zip(answers, reused, strict=True) if r == asked]
            took = max(1e-6, float(np.mean(times)))
            self._paces[asked] = 0.7 * self._paces.get(asked, took) + 0.3 * took
        # what nothing was trained for says nothing about how long training takes
        found = {
            self._keys[i]: replace(a, models=(), seconds=0.0 if asked else a.seconds)
            for i, a, asked in zip(chunk.positions, answers, reused, strict=True)
        }
        self._trained += sum(self._trains(i) for i in chunk.positions)
        self._fleet.freshness.trained += len(new)
        bodies = {k: context.encode(a) for k, a in found.items() if not a.problem}  # the next run's place may be mended
        self._fleet.freshness.instead |= {k: a for k, a in found.items() if a.problem and a.lasting}
        for i, answer in zip(chunk.positions, answers, strict=True):
            models = {k: m for k, m in zip(self._models[i], answer.models, strict=False) if m}
            self._fleet.freshness.models |= {k: hashlib.sha256(m).digest() for k, m in models.items()}
            bodies |= models
        made = {k: context.told(a) for k, a in found.items()}
        self._fleet.freshness.fresh |= made
        self._fleet.freshness.said |= made
        known = self._fleet.ledger.find(list(bodies)).tolist()
        there = [k for k, held in zip(bodies, known, strict=True) if held and k in found]
        for k, body in zip(there, self._fleet.ledger.read(there), strict=True):  # another wrote it, or it is damaged
            if body is None or context.told(context.decode(body)[0]) != made[k]:
                self._fleet.freshness.instead.setdefault(k, found[k])
        self._fleet.ledger.write((k, b) for (k, b), held in zip(bodies.items(), known, strict=True) if not held)
        self._answers.update(found if self._held is None else {k: self._held(a) for k, a in found.items()})

    def _died(self, chunk: Chunk) -> None:
        for i in chunk.positions:
            self._total += 1 - self._trains(i)
            self._fits[i] = replace(self._fits[i], models=(), keep=0)  # opening one may have been what ended the worker
        if len(chunk.positions) > 1:
            self._suspects.extend(chunk.positions)
            return
        self._deaths += 1
        if chunk.last_try:
            self._fail(chunk.positions, "the worker process died while training: killed, out of memory, or crashed")
        else:
            self._accused.extend(chunk.positions)
        if self._deaths >= DEATHS:
            rest = [*self._todo, *self._suspects, *self._accused]
            self._fail(rest, f"not tried to the end: {DEATHS} worker processes in a row died while training")
            self._todo, self._suspects, self._accused = deque(), deque(), deque()

    def _fail(self, positions: Sequence[int], problem: str) -> None:
        for i in positions:
            self._trained += self._trains(i)
            self._answers[self._keys[i]] = Answer(np.zeros((0, 0)), problem=problem, lasting=False)
