"""One call of the training function: what to train on, and where to look at the result."""

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.arrays import Float, Index
from privgate.subject.containers import take

_HEAD = struct.Struct("<6q")
#: rows from which on their digest is kept instead of them
_MANY = 4096


@dataclass(frozen=True, eq=False)
class Fit:
    """One call of the training function, described by rows of the pool (training records, then candidates)."""

    #: given to the training function; None only for recipes without a seed
    seed: int | None
    #: shape (Q,): pool rows at which the model is evaluated
    queries: Index
    #: train on all *training* rows but these; exactly one of ``left_out`` and ``members`` is given
    left_out: Index | None = None
    #: train on exactly these pool rows, in this order; dozens of such lists wait together, so that they may be short
    members: Index | NDArray[np.int32] | None = None
    #: labels replaced before training, for the control that the recipe depends on its data
    relabel: tuple[tuple[int, int], ...] = ()
    #: distinguishes deliberate repetitions of the same call (determinism control, noise floor)
    repeat: int = 0
    #: which order of the records it is trained in; 0 for their own. Two calls in one order have the records that both
    #: train on in the same order: where the code writes its own seed, this gives another model
    order: int = 0
    #: what of ours reads the fitted model, and how many rows that adds to the answer; nothing where empty
    reads: tuple[str, int] = ("", 0)

    @property
    def rows(self) -> int:
        """Rows of the answer."""
        return len(self.queries) + self.reads[1]

    @property
    def encoding(self) -> bytes:
        """Everything here as bytes, different for different fits; cheap, because there may be a million of them."""
        rows = (self.queries, self.left_out, self.members)
        raw = [b"" if a is None else np.ascontiguousarray(a, dtype=np.int64).tobytes() for a in rows]
        raw = [b if len(b) < 8 * _MANY else hashlib.sha256(b).digest() for b in raw]
        sizes = [-1 if a is None else len(a) for a in rows]
        head = _HEAD.pack(-1 if self.seed is None else self.seed, self.repeat, *sizes, len(self.relabel))
        pairs = np.array(self.relabel, dtype=np.int64).tobytes() if self.relabel else b""
        order = struct.pack("<q", self.order) if self.order else b""
        reads = f"{self.reads[0]} {self.reads[1]}".encode() if self.reads[1] else b""
        return b"".join((head, *raw, pairs, order, reads))


@dataclass(frozen=True, eq=False)
class Answer:
    """What came back."""

    #: shape (Q, K): natural log-probabilities, columns in the order of ``subject.classes``; empty when there is a
    #: ``problem``. Of a regressor: its answers about the mean of the training targets, in their standard deviations,
    #: shape (Q, 1)
    log_p: Float
    #: time of the call in the worker, also of one that is remembered
    seconds: float = 0.0
    #: why there is no answer: raised, hung, memory, NaN, wrong number of classes, worker died. One sentence
    problem: str = ""
    #: whether the same call would end the same way again in this run; what depends on the machine (limits, a worker
    #: that died) may not. Another run tries every failed call again
    lasting: bool = True


def failed(problem: str, *, lasting: bool = False, seconds: float = 0.0) -> Answer:
    """Return an answer without numbers."""
    return Answer(np.zeros((0, 0)), seconds, problem, lasting)


#: what is said when the stored model ends the worker that opens it
DIED_ON_MODEL = failed("the worker process died while it opened the registered model")


@dataclass(frozen=True, eq=False)
class Chunk:
    """Calls that go to one worker together, and where their answers belong.

    In a ``last_try`` nothing else is in flight, so a death has one possible cause.
    """

    positions: Sequence[int]
    fits: Sequence[Fit]
    #: of every answer
    columns: int
    last_try: bool = False

    @property
    def shapes(self) -> list[tuple[int, int]]:
        """The shapes of the answers."""
        return [(fit.rows, self.columns) for fit in self.fits]


def select(X: Any, y: NDArray[Any], n: int, classes: NDArray[Any], fit: Fit) -> tuple[Any, NDArray[Any]]:
    """Return (X, y) to train on, of a pool of ``n`` training records and candidates, in the records' own order."""
    if fit.members is not None:
        keep: Index = np.asarray(fit.members, dtype=np.int64)
    else:
        kept = np.ones(n, dtype=bool)
        kept[fit.left_out] = False
        keep = np.flatnonzero(kept)
    if fit.order:
        keep = keep[np.argsort(np.random.default_rng(fit.order).random(len(y))[keep], kind="stable")]
    labels = np.array(y[keep])
    for row, code in fit.relabel:
        labels[keep == row] = classes[code]
    return take(X, keep), labels
