"""The set of question vectors that an endpoint accepts, and upper limits of linear functions over that set.

Claim.  ``bound_dot(w)`` >= ``w . x`` and ``bound_norm(A, b)`` >= ``||A x + b||`` for every accepted x.

Why it is enough.  The set is a box, and one-hot blocks of it, where at most one entry is 1 and the others are 0. A norm
is convex, so the norm at a centre plus those of the half widths bounds it. Limits over real numbers hold for whole
numbers. ``gamma`` times the terms' sizes is added for rounding.

Axioms.  The endpoint refuses everything else.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from privgate.kernel.assertion import Case, Float, Index, every
from privgate.kernel.rounding import EPS, LARGE, gamma, up


@dataclass(frozen=True, eq=False)
class Accepted:
    """A set of vectors of d features: a box, and one-hot blocks of it."""

    #: shape (d,): lower and upper ends of the box, 0 and 1 in blocks
    low: Float
    high: Float
    #: shape (d,): which features are in no block
    single: NDArray[np.bool_]
    #: the features of each one-hot block
    blocks: tuple[Index, ...]
    #: whether only whole numbers are accepted
    whole: bool

    @classmethod
    def from_case(cls, case: Case, d: int) -> "Accepted":
        """Return the set of questions that a case declares; ``Refused``: no limit, or one that no question keeps."""
        every((not {"length", "norm"} & set(case.settings), "a length or norm limits nothing any more"))
        block = case.array("blocks", 1, "i") if "blocks" in case.arrays else np.full(d, -1)
        box = case.array("box", 2)
        every(
            (len(block) == d, f"array 'blocks' is not about {d} features"),
            (box.shape == (2, d) and bool(np.isfinite(box).all()), f"'box' is not finite, of shape (2, {d})"),
        )
        low, high = box
        every(
            (bool((low <= high).all()), "the box is empty"),
            (bool(((low == 0) & (high == 1))[block >= 0].all()), "sides of a block are not from 0 to 1"),
        )
        blocks = tuple(np.flatnonzero(block == b) for b in np.unique(block[block >= 0]))
        return cls(low, high, block < 0, blocks, case.setting("whole", bool, default=False))

    @cached_property
    def absolutes(self) -> "Accepted":
        """A set that holds |x| of every accepted x, entry by entry, and perhaps more vectors."""
        top = np.maximum(np.abs(self.low), np.abs(self.high))
        return Accepted(np.zeros(len(top)), top, self.single, self.blocks, self.whole)

    def bound_dot(self, w: Float) -> Float:
        """Return upper limits of ``w . x`` over the accepted x, in the shape of ``w`` without its last axis."""
        sides = np.maximum(w * self.low, w * self.high)
        rounding = gamma(w.shape[-1] + 8) * (np.abs(w) @ np.maximum(np.abs(self.low), np.abs(self.high)))
        if self.blocks:
            chosen = [sides[..., block].max(axis=-1) for block in self.blocks]
            sides = np.concatenate([sides[..., self.single], np.stack(chosen, axis=-1)], axis=-1)
        return np.asarray(sides.sum(axis=-1) + rounding + 2 * EPS * np.abs(rounding))

    def bound_norm(self, A: Float, b: Float) -> float:
        """Return an upper limit of the Euclidean norm ``||A x + b||`` over the accepted x; A (q, d), b (q,)."""
        q, d = A.shape
        axis, rest = np.linalg.norm(A, axis=0), float(np.linalg.norm(b))
        centre = np.where(self.single, self.low / 2 + self.high / 2, 0.0)
        half = np.where(self.single, self.high / 2 - self.low / 2, 0.0)
        rounding = gamma(d + 8) * (np.abs(self.low) + np.abs(self.high)) * self.single
        chosen = sum(float(axis[block].max()) for block in self.blocks)
        limit = float(np.linalg.norm(A @ centre + b)) + float(axis @ (half + rounding)) + chosen
        return float(up(np.array(limit + gamma(4) * rest + 1e-150), q + d + 16))

    def limit_questions(self, case: Case, people: int, p: int, low: Callable[[Float], Float]) -> Float:
        """Return what ``low`` says of accepted rows of array ``question``, padded by ones; else 0, (people,)."""
        if "question" not in case.arrays:
            return np.zeros(people)
        question = case.certificate("question", (people, len(self.single)))
        accepted = np.asarray((np.abs(question) < LARGE).all(axis=1))
        x = np.where(accepted[:, None], question, 0.0)
        seen = np.nan_to_num(low(np.concatenate([x, np.ones((people, p - x.shape[1]))], axis=1)), nan=0.0)
        return np.where(accepted & self.inside(x), seen, 0.0)

    def inside(self, X: Float) -> NDArray[np.bool_]:
        """Return which rows of X are accepted, shape (n,)."""
        accepted = np.isfinite(X).all(axis=1) & (np.clip(X, self.low, self.high) == X).all(axis=1)
        for block in self.blocks:
            accepted &= ((X[:, block] == 0) | (X[:, block] == 1)).all(axis=1) & (X[:, block].sum(axis=1) <= 1)
        if self.whole:
            accepted &= (np.floor(X) == X).all(axis=1)
        return np.asarray(accepted)
