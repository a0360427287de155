"""The set of question vectors that an endpoint accepts, and upper limits of linear functions over that set.

Claim.  ``bound_dot(w)`` >= ``w . x`` and ``bound_norm(A, b)`` >= ``||A x + b||`` for every accepted x.

Why it is enough.  The set is an intersection: of a box; of non-negative vectors whose sum or Euclidean norm is limited;
of one-hot blocks of the box, where at most one entry is 1 and the others are 0. The maximum over an intersection is at
most the smallest of the single maxima. A norm is convex, so the norm at a centre plus those of the half widths bounds
it. Limits over real numbers hold for whole numbers. ``gamma`` times the terms' sizes is added for rounding.

Axioms.  The endpoint refuses everything else.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from privgate.kernel.assertion import Case, Float, Index, every
from privgate.kernel.rounding import EPS, LARGE, gamma, up


@dataclass(frozen=True, eq=False)
class Accepted:
    """A set of vectors of d features: box, one-hot blocks, largest sum and norm."""

    #: shape (d,): lower and upper ends of the box, 0 and 1 in blocks; None without a box
    low: Float | None
    high: Float | None
    #: shape (d,): which features are in no block
    single: NDArray[np.bool_]
    #: the features of each one-hot block
    blocks: tuple[Index, ...]
    #: largest sum of entries, largest Euclidean norm; infinite without such a limit
    length: float
    norm: float
    #: whether only whole numbers are accepted
    whole: bool

    @classmethod
    def from_case(cls, case: Case, d: int) -> "Accepted":
        """Return the set of questions that a case declares; ``Refused``: no limit, or one that no question keeps."""
        length, norm = (case.setting(k, float) if k in case.settings else np.inf for k in ("length", "norm"))
        block = case.array("blocks", 1, "i") if "blocks" in case.arrays else np.full(d, -1)
        every(
            (len(block) == d, f"array 'blocks' is not about {d} features"), (length >= 0 <= norm, "a negative length")
        )
        low = high = None
        if "box" in case.arrays:
            box = case.array("box", 2)
            every((box.shape == (2, d) and bool(np.isfinite(box).all()), f"'box' is not finite, of shape (2, {d})"))
            low, high = box if np.isinf([length, norm]).all() else np.maximum(box, [[0.0], [-np.inf]])
            every((bool((low <= high).all()), "the box is empty"))
            every((bool(((low == 0) & (high == 1))[block >= 0].all()), "sides of a block are not from 0 to 1"))
        every(
            (low is not None or bool((block < 0).all()), "blocks are sides of a box"),
            (low is not None or bool(np.isfinite([length, norm]).any()), "nothing limits the questions"),
        )
        blocks = tuple(np.flatnonzero(block == b) for b in np.unique(block[block >= 0]))
        return cls(low, high, block < 0, blocks, length, norm, case.setting("whole", bool, default=False))

    @cached_property
    def absolutes(self) -> "Accepted":
        """A set that holds |x| of every accepted x, entry by entry, and perhaps more vectors."""
        if self.low is None or self.high is None:
            return self
        top = np.maximum(np.abs(self.low), np.abs(self.high))
        return Accepted(np.zeros(len(top)), top, self.single, self.blocks, self.length, self.norm, self.whole)

    def bound_dot(self, w: Float) -> Float:
        """Return upper limits of ``w . x`` over the accepted x, in the shape of ``w`` without its last axis."""
        limits, error = [], gamma(w.shape[-1] + 8)
        if self.low is not None and self.high is not None:
            sides = np.maximum(w * self.low, w * self.high)
            rounding = error * (np.abs(w) @ np.maximum(np.abs(self.low), np.abs(self.high)))
            if self.blocks:
                chosen = [sides[..., block].max(axis=-1) for block in self.blocks]
                sides = np.concatenate([sides[..., self.single], np.stack(chosen, axis=-1)], axis=-1)
            limits.append(sides.sum(axis=-1) + rounding + 2 * EPS * np.abs(rounding))
        if np.isfinite(self.length):
            limits.append(up(self.length * w.max(axis=-1, initial=0.0)))
        if np.isfinite(self.norm):
            limits.append(up(self.norm * np.linalg.norm(np.maximum(w, 0.0), axis=-1) + 1e-150, w.shape[-1] + 8))
        return np.asarray(np.minimum.reduce(limits))

    def bound_norm(self, A: Float, b: Float) -> float:
        """Return an upper limit of the Euclidean norm ``||A x + b||`` over the accepted x; A (q, d), b (q,)."""
        q, d = A.shape
        axis, rest, limits = np.linalg.norm(A, axis=0), float(np.linalg.norm(b)), []
        if self.low is not None and self.high is not None:
            centre = np.where(self.single, self.low / 2 + self.high / 2, 0.0)
            half = np.where(self.single, self.high / 2 - self.low / 2, 0.0)
            rounding = gamma(d + 8) * (np.abs(self.low) + np.abs(self.high)) * self.single
            chosen = sum(float(axis[block].max()) for block in self.blocks)
            limits.append(float(np.linalg.norm(A @ centre + b)) + float(axis @ (half + rounding)) + chosen)
        if np.isfinite(self.length):
            limits.append(rest + self.length * float(axis.max(initial=0.0)))
        if np.isfinite(self.norm):
            limits.append(rest + self.norm * float(np.linalg.norm(axis)))
        return float(up(np.array(min(limits) + gamma(4) * rest + 1e-150), q + d + 16))

    def read_questions(self, case: Case, people: int, p: int) -> tuple[Float, NDArray[np.bool_]]:
        """Return a case's array ``question`` (people, d), padded by ones to (people, p), and which are accepted."""
        question = case.certificate("question", (people, len(self.single)))
        accepted = np.asarray((np.abs(question) < LARGE).all(axis=1))
        x = np.where(accepted[:, None], question, 0.0)
        return np.concatenate([x, np.ones((people, p - x.shape[1]))], axis=1), accepted & self.inside(x)

    def inside(self, X: Float) -> NDArray[np.bool_]:
        """Return which rows of X, shape (n,), are certainly accepted, rounding of the endpoint's sums included."""
        accepted = np.isfinite(X).all(axis=1)
        if self.low is not None and self.high is not None:
            accepted &= (np.clip(X, self.low, self.high) == X).all(axis=1)
        for block in self.blocks:
            accepted &= ((X[:, block] == 0) | (X[:, block] == 1)).all(axis=1) & (X[:, block].sum(axis=1) <= 1)
        if np.isfinite([self.length, self.norm]).any():
            accepted &= (X >= 0).all(axis=1)
            total, exact = X.sum(axis=1), (np.floor(X) == X).all(axis=1) & (X.sum(axis=1) < 2.0**52)
            accepted &= np.where(exact, total, up(total, X.shape[1])) <= self.length
            accepted &= up(np.linalg.norm(X, axis=1), 2 * X.shape[1]) <= self.norm
        if self.whole:
            accepted &= (np.floor(X) == X).all(axis=1)
        return np.asarray(accepted)
