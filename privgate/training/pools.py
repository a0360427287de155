"""Worker processes: where chunks of calls run, and what comes back when one of them dies."""

import queue
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from privgate.training import recognition, warm, worker
from privgate.training.fit import Answer, Call, Index
from privgate.training.limits import TaskLimits
from privgate.training.parts import Part
from privgate.training.payload import Payload


@dataclass(frozen=True, eq=False)
class Chunk:
    """Calls that go to one worker together.

    Parameters
    ----------
    positions : sequence of int
        Where the answers belong.
    fits : sequence of Fit or Block, or of Part
    last_try : bool
        Nothing else is in flight, so a death has one possible cause.
    """

    positions: Sequence[int]
    fits: Sequence[Call | Part]
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

    def recognised(self, payload: Payload, seed: int) -> Any:
        """Return what ``recognition.recognised`` says, or None where its worker died or lied."""
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

    def recognised(self, payload: Payload, seed: int) -> Any:
        """Return what is recognised; a worker that dies of it says nothing."""
        return self._said(recognition.recognised, payload, self._limits, seed)

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
