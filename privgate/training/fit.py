"""One call of the training function: what to train on, and where to look at the result."""

import struct
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privgate import digest

_HEAD = struct.Struct("<6q")

Float = NDArray[np.float64]
Index = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Fit:
    """One call of the training function, described by rows of the pool (training records, then candidates).

    Parameters
    ----------
    seed : int or None
        Given to the training function; None only for recipes without a seed.
    queries : int64 array of shape (Q,)
        Pool rows at which the model is evaluated.
    left_out : int64 array, optional
        Train on all *training* rows but these; exactly one of ``left_out`` and ``members`` is given.
    members : int64 array, optional
        Train on exactly these pool rows, in this order.
    relabel : tuple of (pool row, class position)
        Labels replaced before training, for the control that the recipe depends on its data.
    repeat : int
        Distinguishes deliberate repetitions of the same call (determinism control, noise floor).
    """

    seed: int | None
    queries: Index
    left_out: Index | None = None
    members: Index | None = None
    relabel: tuple[tuple[int, int], ...] = ()
    repeat: int = 0

    def __post_init__(self) -> None:
        if (self.left_out is None) == (self.members is None):
            raise ValueError("a Fit names either the rows left out or the members")

    @property
    def encoding(self) -> bytes:
        """Everything here as bytes, different for different fits; cheap, because there may be a million of them."""
        rows = (self.queries, self.left_out, self.members)
        raw = [b"" if a is None else np.asarray(a, dtype=np.int64).tobytes() for a in rows]
        sizes = [-1 if a is None else len(a) for a in rows]
        seed = -1 if self.seed is None else self.seed
        head = _HEAD.pack(seed, self.repeat, *sizes, len(self.relabel))
        pairs = np.array(self.relabel, dtype=np.int64).tobytes() if self.relabel else b""
        return b"".join((head, *raw, pairs))

    @property
    def key(self) -> str:
        """Digest of everything here; the ledger adds data, recipe and versions."""
        rows = [None if a is None else digest.of_array(a) for a in (self.queries, self.left_out, self.members)]
        return digest.of_json([self.seed, rows, [list(pair) for pair in self.relabel], self.repeat])


@dataclass(frozen=True, eq=False)
class Answer:
    """What came back.

    Parameters
    ----------
    log_p : float64 array of shape (Q, K)
        Natural log-probabilities, columns in the order of ``subject.classes``; empty when there is a ``problem``. Of a
        regressor: its answers about the mean of the training targets, in their standard deviations, shape (Q, 1).
    seconds : float
        Time of the call in the worker; 0 when remembered.
    problem : str
        Why there is no answer: raised, hung, memory, NaN, wrong number of classes, worker died. One sentence.
    lasting : bool
        Whether the same call would end the same way elsewhere; answers that depend on the machine (limits, a worker
        that died) are not remembered.
    """

    log_p: Float
    seconds: float = 0.0
    problem: str = ""
    lasting: bool = True
