"""What a first step that learns made of the pool, and how its features change without each unit.

Every feature is ``a z + b + g M`` of what it was, ``M`` marking the records whose value was missing. Units without whom
a step does anything else are named, and refitted.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float64]
Index = NDArray[np.int64]
Flags = NDArray[np.bool_]

#: largest table, numbers
_CELLS = 1e8


class NotCarried(Exception):  # noqa: N818  an answer, not an error
    """Why what a step learns is not carried."""


@dataclass(frozen=True, eq=False)
class Who:
    """The records that train, and which of them each unit takes away.

    Parameters
    ----------
    n : int
        Training records, the first of the pool.
    members : sequence of U int64 arrays
    """

    n: int
    members: Sequence[Index]

    @property
    def flat(self) -> tuple[Index, Index]:
        """Return (unit, record) of every record of every unit."""
        size = np.array([len(m) for m in self.members], dtype=np.int64)
        return np.repeat(np.arange(len(size)), size), np.concatenate(list(self.members))

    def sums(self, values: Float) -> Float:
        """Return the sum of each unit's own values, (U, d) from (n, d)."""
        unit, record = self.flat
        out = np.zeros((len(self.members), values.shape[1]))
        np.add.at(out, unit, values[record])
        return out


@dataclass(frozen=True, eq=False)
class Carried:
    """Features of the pool, and how they change without each unit: ``a z + b + g M``.

    Parameters
    ----------
    Z : float64 array of shape (P, d), or None
        None where the columns hold no numbers yet: ``raw`` has them.
    raw : container of P records
        What the next step is given.
    a, b, g : float64 arrays of shape (U, d)
    M : bool array of shape (P, d)
        Where a value was missing.
    otherwise : bool array of shape (U,)
        Units without whom a step does something else.
    """

    Z: Float | None
    raw: Any
    a: Float
    b: Float
    g: Float
    M: Flags
    otherwise: Flags

    @property
    def moved(self) -> bool:
        """Whether any feature changes without somebody."""
        return bool((self.a != 1).any() or self.b.any() or self.g.any())

    def columns(self, at: Sequence[int]) -> "Carried":
        """Return some of the columns."""
        k = np.asarray(at, dtype=np.int64)
        raw = self.raw.iloc[:, k] if hasattr(self.raw, "iloc") else self.raw[:, k]
        Z = None if self.Z is None else self.Z[:, k]
        return Carried(Z, raw, self.a[:, k], self.b[:, k], self.g[:, k], self.M[:, k], self.otherwise)


def given(X: Any, units: int) -> Carried:
    """Return records as they come: nothing changes."""
    d = int(X.shape[1])
    ones = np.ones((units, d))
    return Carried(None, X, ones, 0 * ones, 0 * ones, np.zeros((X.shape[0], d), bool), np.zeros(units, bool))


def numbers(found: Carried) -> Float:
    """Return the features as numbers.

    Raises
    ------
    NotCarried
        They are none.
    """
    if found.Z is not None:
        return found.Z
    raw = found.raw.toarray() if hasattr(found.raw, "toarray") else found.raw
    if (
        hasattr(raw, "dtypes")
        and hasattr(raw, "iloc")
        and any(getattr(t, "kind", "O") not in "biuf" for t in raw.dtypes)
    ):
        raise NotCarried("text reaches a step that computes")
    table = np.asarray(raw)
    if table.ndim != 2 or table.dtype.kind not in "biuf":
        raise NotCarried("text reaches a step that computes")
    if table.dtype in (np.float32, np.float16):
        raise NotCarried("records are of single precision, in which the library then computes; pass float64")
    return table.astype(np.float64)


def dense(made: Any) -> NDArray[Any]:
    """Return a table that fits the memory.

    Raises
    ------
    NotCarried
        It does not.
    """
    if float(np.prod(np.array(made.shape, dtype=np.float64))) > _CELLS:
        raise NotCarried(f"{made.shape[1]} features of {made.shape[0]} records do not fit the memory")
    return np.asarray(made.toarray() if hasattr(made, "toarray") else made)


def unchanged(made: Any, before: Carried) -> Carried:
    """Return features that nobody's absence changes, but for units without whom an earlier step does otherwise."""
    table = dense(made)
    new = given(table, len(before.otherwise))
    return Carried(None, table, new.a, new.b, new.g, new.M, before.otherwise)
