"""One call of the training function: what to train on, and where to look at the result."""

import hashlib
import struct
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from privgate import digest
from privgate.arrays import Float, Index
from privgate.subject.containers import take

_HEAD = struct.Struct("<6q")

#: nats; the same call on the same kind of machine agrees to the last bit, and no limit is stated more finely
TOLERANCE = 1e-6
#: rows from which on their digest is kept instead of them
_MANY = 4096


def _bytes(rows: Index) -> bytes:
    """Return what stands for rows in an encoding: themselves, or their digest where they are many."""
    return rows.tobytes() if len(rows) < _MANY else hashlib.sha256(rows).digest()  # type: ignore[arg-type]  # a buffer


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
    order : int
        Which order of the records it is trained in; 0 for their own. Two calls in one order have the records that
        both train on in the same order: where the code writes its own seed, this gives another model.
    """

    seed: int | None
    queries: Index
    left_out: Index | None = None
    members: Index | None = None
    relabel: tuple[tuple[int, int], ...] = ()
    repeat: int = 0
    order: int = 0

    #: nats by which two answers to it may differ and still be one
    tolerance: ClassVar[float] = TOLERANCE

    def __post_init__(self) -> None:
        if (self.left_out is None) == (self.members is None):
            raise ValueError("a Fit names either the rows left out or the members")

    @property
    def rows(self) -> int:
        """Rows of the answer."""
        return len(self.queries)

    @property
    def encoding(self) -> bytes:
        """Everything here as bytes, different for different fits; cheap, because there may be a million of them."""
        rows = (self.queries, self.left_out, self.members)
        raw = [b"" if a is None else _bytes(np.ascontiguousarray(a, dtype=np.int64)) for a in rows]
        sizes = [-1 if a is None else len(a) for a in rows]
        seed = -1 if self.seed is None else self.seed
        head = _HEAD.pack(seed, self.repeat, *sizes, len(self.relabel))
        pairs = np.array(self.relabel, dtype=np.int64).tobytes() if self.relabel else b""
        order = struct.pack("<q", self.order) if self.order else b""
        return b"".join((head, *raw, pairs, order))

    @property
    def key(self) -> str:
        """Digest of everything here; the ledger adds data, recipe and versions."""
        rows = [None if a is None else digest.of_array(a) for a in (self.queries, self.left_out, self.members)]
        order = [self.order] if self.order else []
        return digest.of_json([self.seed, rows, [list(pair) for pair in self.relabel], self.repeat, *order])


@dataclass(frozen=True, eq=False)
class Answer:
    """What came back.

    Parameters
    ----------
    log_p : float64 array of shape (Q, K)
        Natural log-probabilities, columns in the order of ``subject.classes``; empty when there is a ``problem``. Of a
        regressor: its answers about the mean of the training targets, in their standard deviations, shape (Q, 1).
    seconds : float
        Time of the call in the worker, also of one that is remembered.
    problem : str
        Why there is no answer: raised, hung, memory, NaN, wrong number of classes, worker died. One sentence.
    lasting : bool
        Whether the same call would end the same way again in this run; what depends on the machine (limits, a worker
        that died) may not. Another run tries every failed call again.
    """

    log_p: Float
    seconds: float = 0.0
    problem: str = ""
    lasting: bool = True


# Handing training rows to a recipe: exactly what ``np.delete`` would give, without new memory each time.


class Rows:
    """Training sets of one payload, in the original order of the records.

    A buffer that stays warm saves the page faults of a new copy a call. Leaving out record j after record i < j changes
    rows i .. j-1 of the result only, so where the learner is known not to write into its input, one row is copied
    instead of n. Everybody else gets a writable buffer, written anew from the stored data for every call.

    Parameters
    ----------
    X : container
        Pool records: n training records, then candidates.
    y : array of shape (P,)
    n : int
    classes : array of shape (K,)
    trusted : bool
        Whether the learner only reads its input (scikit-learn's own estimators, which refuse to write when the flag
        forbids it).
    """

    def __init__(self, X: Any, y: NDArray[Any], n: int, classes: NDArray[Any], *, trusted: bool = False) -> None:
        self.X, self.y, self.n, self.classes, self.trusted = X, y, n, classes, trusted
        self._plain = isinstance(X, np.ndarray) and X.dtype != object
        self._order: Literal["C", "F"] = "C" if not self._plain or X.flags.c_contiguous else "F"
        self._hole: int | None = None
        self._buffers: tuple[NDArray[Any], NDArray[Any]] | None = None

    def of(self, fit: Fit) -> tuple[Any, NDArray[Any]]:
        """Return (X, y) to train on."""
        alone = fit.left_out is not None and len(fit.left_out) == 1 and self._plain
        if fit.left_out is not None and alone and not (fit.relabel or fit.order):
            return self._without(int(fit.left_out[0]))
        if fit.members is not None:
            keep: Index = np.asarray(fit.members, dtype=np.int64)
        else:
            kept = np.ones(self.n, dtype=bool)
            kept[fit.left_out] = False
            keep = np.flatnonzero(kept)
        if fit.order:
            keep = keep[np.argsort(np.random.default_rng(fit.order).random(len(self.y))[keep], kind="stable")]
        X, y = take(self.X, keep), np.array(self.y[keep])
        for row, code in fit.relabel:
            y[keep == row] = self.classes[code]
        return X, y

    def _without(self, row: int) -> tuple[NDArray[Any], NDArray[Any]]:
        if not 0 <= row < self.n:
            raise IndexError(f"row {row} left out of {self.n} training records")
        if self._buffers is None:
            shape = (self.n - 1, *self.X.shape[1:])
            self._buffers = (np.empty(shape, self.X.dtype, order=self._order), np.empty(self.n - 1, self.y.dtype))
        for to, source in zip(self._buffers, (self.X, self.y), strict=True):
            to.flags.writeable = True
            if self._hole is None or not self.trusted:
                to[:row], to[row:] = source[:row], source[row + 1 : self.n]
            elif row > self._hole:
                to[self._hole : row] = source[self._hole : row]
            else:
                to[row : self._hole] = source[row + 1 : self._hole + 1]
            to.flags.writeable = not self.trusted
        self._hole = row
        return self._buffers
