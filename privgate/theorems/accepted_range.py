"""Where a query can be, for scores that are linear in it: the largest value of ``w . x`` over the domain."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privgate.arrays import Float
from privgate.subject.domain import Domain


@dataclass(frozen=True, eq=False)
class Reach:
    """A declared domain as a set of vectors; the intersection of what is stated.

    Parameters
    ----------
    low, high : float64 array of shape (d,), optional
        Box.
    length : float, optional
        Non-negative vectors whose entries sum to at most this.
    norm : float, optional
        Non-negative vectors of at most this Euclidean norm.
    whole : bool
        Whether only whole numbers are asked about; real numbers are then a superset.
    blocks : tuple of int64 arrays
        Sides of the box from 0 to 1 of which at most one is 1 and the others are 0: one-hot encodings.
    """

    low: Float | None = None
    high: Float | None = None
    length: float | None = None
    norm: float | None = None
    whole: bool = False
    blocks: tuple[NDArray[np.int64], ...] = ()

    @classmethod
    def of(cls, domain: Domain, n_features: int) -> "Reach | str":
        """Return the domain as a set of vectors, or why it is none."""
        if not domain.is_table:
            return "the domain names categories or missing values, which only first steps make numbers of"
        low = high = None
        if domain.categories is not None:
            low, high = np.zeros(len(domain.categories)), np.array(domain.categories, dtype=np.float64) - 1
        if domain.box is not None:
            low, high = np.array(domain.box, dtype=np.float64).reshape(-1, 2).T
        if low is not None and len(low) != n_features:
            return f"the domain declares {len(low)} features and the data have {n_features}"
        blocks = tuple(np.array(b, dtype=np.int64) for b in domain.blocks)
        return cls(low, high, domain.max_length, domain.norm, domain.categories is not None, blocks)

    @property
    def stated(self) -> int:
        """How many constraints there are; with more than one, the smallest of their maxima is an upper bound."""
        return (self.low is not None) + (self.length is not None) + (self.norm is not None) + bool(self.blocks)

    def maximum(self, w: Float) -> Float:
        """Return the largest ``w . x``, shape of ``w`` without its last axis; exact if one constraint is stated."""
        found = []
        if self.low is not None and self.high is not None:
            low, high = self.low, self.high
            if self.length is not None or self.norm is not None:
                low = np.maximum(low, 0.0)
            sides = np.maximum(w * low, w * high)
            total = sides.sum(axis=-1)
            for block in self.blocks:
                total -= sides[..., block].sum(axis=-1) - sides[..., block].max(axis=-1)
            found.append(total)
        if self.length is not None:
            found.append(self.length * np.maximum(w.max(axis=-1), 0.0))
        if self.norm is not None:
            found.append(self.norm * np.sqrt((np.maximum(w, 0.0) ** 2).sum(axis=-1)))
        return np.asarray(np.minimum.reduce(found))

    def best(self, w: Float) -> Float:
        """Return a query that attains the largest ``w . x`` if one constraint is stated; ask ``inside``."""
        if self.low is not None and self.high is not None:
            x = np.where(w > 0, self.high, self.low)
            if self.length is not None or self.norm is not None:
                x = np.where(w > 0, self.high, np.maximum(self.low, 0.0))
            for block in self.blocks:
                inner = w[..., block]
                x[..., block] = (inner == inner.max(axis=-1, keepdims=True)) & (inner > 0)
                x[..., block] *= x[..., block].cumsum(axis=-1) == 1  # one of those that tie
        elif self.length is not None:
            x = np.zeros(w.shape)
            top = w.argmax(axis=-1)[..., None]
            np.put_along_axis(x, top, self.length * (np.take_along_axis(w, top, axis=-1) > 0), axis=-1)
        else:
            x = np.maximum(w, 0.0)
            size = np.sqrt((x**2).sum(axis=-1, keepdims=True))
            x = np.divide((self.norm or 0.0) * x, size, out=np.zeros(w.shape), where=size > 0)
        return self._shrunk(x)

    def _shrunk(self, x: Float) -> Float:
        scale = np.ones(x.shape[:-1])
        if self.length is not None:
            total = x.sum(axis=-1)
            scale = np.minimum(scale, np.divide(self.length, total, out=np.ones_like(total), where=total > self.length))
        if self.norm is not None:
            size = np.sqrt((x**2).sum(axis=-1))
            scale = np.minimum(scale, np.divide(self.norm, size, out=np.ones_like(size), where=size > self.norm))
        x = x * scale[..., None]
        if self.whole or self.length is not None:
            x = np.floor(x)  # towards 0: still inside
        return np.asarray(x)

    def inside(self, x: Float) -> NDArray[np.bool_]:
        """Return whether queries lie in the domain, shape of ``x`` without its last axis."""
        good = np.ones(x.shape[:-1], dtype=bool)
        if self.low is not None and self.high is not None:
            good &= ((x >= self.low) & (x <= self.high)).all(axis=-1)
        for block in self.blocks:
            good &= (x[..., block] != 0).sum(axis=-1) <= 1
        if self.length is not None or self.norm is not None:
            good &= (x >= 0).all(axis=-1)
        if self.length is not None:
            good &= x.sum(axis=-1) <= self.length * (1 + 1e-12)
        if self.norm is not None:
            good &= np.sqrt((x**2).sum(axis=-1)) <= self.norm * (1 + 1e-9)
        return good

    def longest(self, n_features: int) -> tuple[float, float]:
        """Return upper bounds of ``||x||_1`` and ``||x||_2`` over the domain."""
        one, two = [], []
        if self.low is not None and self.high is not None:
            side = np.maximum(np.abs(self.low), np.abs(self.high))
            for block in self.blocks:
                side[block[1:]] = 0.0  # one of them is 1, and it does not matter which
            one.append(float(side.sum()))
            two.append(float(np.sqrt((side**2).sum())))
        if self.length is not None:
            one.append(self.length)
            two.append(self.length)
        if self.norm is not None:
            one.append(self.norm * float(np.sqrt(n_features)))
            two.append(self.norm)
        return min(one), min(two)

    def words(self) -> str:
        """Return what the endpoint must refuse."""
        said = []
        if self.low is not None:
            said.append("outside the declared ranges")
        if self.length is not None:
            said.append(f"longer than {self.length:g}")
        if self.norm is not None:
            said.append(f"of norm above {self.norm:g}")
        return "the endpoint refuses queries " + " or ".join(said)
