"""One batch of calls on its way to workers: chunks, workers that die, and answers written as they arrive."""

import time
from collections import deque
from collections.abc import Callable, Sequence

import numpy as np

from privgate.training.clusters import DaskPool
from privgate.training.fit import Answer, Chunk, Fit, failed
from privgate.training.payload import Payload
from privgate.training.sandbox.workers import SandboxPool

Pool = SandboxPool | DaskPool

#: below this, starting a chunk would cost more than 2 % of it
LEAST_CHUNK_SECONDS = 0.05
#: workers that may die one after another without any success before the rest is given up
DEATHS = 20


class Batch:
    """One batch of calls on its way through a pool.

    A call that was with a worker when it died is tried twice more: in a chunk of its own, then with nothing else in
    flight. Only the second of these names it as the cause, because clusters blame everything that was on a dead worker.
    ``remember(name, answer)`` keeps one answer, and returns it.
    """

    def __init__(
        self,
        pool: Pool,
        shipped: Payload,
        calls: Sequence[tuple[str, Fit]],
        remember: Callable[[str, Answer], Answer],
        report: Callable[[int, int, float], None],
    ) -> None:
        self._pool, self._shipped, self._calls = pool, shipped, calls
        self._remember, self._report = remember, report
        self._todo = deque(range(len(calls)))
        self._suspects: deque[int] = deque()
        self._accused: deque[int] = deque()
        self._answers: dict[str, Answer] = {}
        self._flying = self._deaths = 0
        #: seconds of one call, estimated from those that came back
        self._pace = 0.0

    def run(self) -> dict[str, Answer]:
        """Return name -> answer for every call."""
        begun = reported = time.monotonic()
        total = len(self._calls)
        self._report(0, total, float("nan"))
        while (done := len(self._answers)) < total:
            if (now := time.monotonic()) - reported > 0.1:
                reported = now
                self._report(done, total, (now - begun) * (total - done) / done if done else float("nan"))
            while chunk := self._next_chunk():
                self._pool.submit(self._shipped, chunk)
                self._flying += 1
            self._arrive(*self._pool.next())
        self._report(total, total, 0.0)
        return self._answers

    def _next_chunk(self) -> Chunk | None:
        if self._flying >= self._pool.slots:
            return None
        last_try = not self._todo and not self._suspects
        if self._todo:
            positions = [self._todo.popleft() for _ in range(self._size())]
        elif self._suspects:
            positions = [self._suspects.popleft()]
        elif self._accused and not self._flying:
            positions = [self._accused.popleft()]
        else:
            return None
        return Chunk(positions, [self._calls[i][1] for i in positions], self._shipped.classes, last_try)

    def _size(self) -> int:
        if not self._pace:
            return 1
        # smaller chunks towards the end, so that no worker is left alone with a large one, but never tiny ones
        fair = -(-len(self._todo) // (2 * self._pool.slots))
        least = int(LEAST_CHUNK_SECONDS / self._pace)
        return min(len(self._todo), max(1, least, min(int(self._pool.chunk_seconds / self._pace), fair)))

    def _arrive(self, chunk: Chunk, answers: list[Answer] | None) -> None:
        self._flying -= 1
        if answers is None:
            self._blame(chunk)
            return
        self._deaths = 0
        took = max(1e-6, float(np.mean([a.seconds for a in answers])))
        self._pace = 0.7 * self._pace + 0.3 * took if self._pace else took
        for i, answer in zip(chunk.positions, answers, strict=True):
            name = self._calls[i][0]
            self._answers[name] = self._remember(name, answer)

    def _blame(self, chunk: Chunk) -> None:
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
        self._answers |= {self._calls[i][0]: failed(problem) for i in positions}
