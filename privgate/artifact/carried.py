"""What detectors say: of which records a part of a model carries a trace of their own, for certain or perhaps."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Carried:
    """One kind of trace in one place.

    Parameters
    ----------
    kind : str
        Key of ``KINDS``.
    where : str
        Class and attribute; never a value.
    rows : bool array of shape (n,), optional
        The records, where it can be told which.
    least : int
        So many records at least, where it cannot.
    most : int
        So many at most.
    beside : int
        Records that share it with a few others; told of, not counted.
    """

    kind: str
    where: str
    rows: Mask | None = None
    least: int = 0
    most: int = 0
    beside: int = 0

    @property
    def count(self) -> tuple[int, int]:
        """Records at least and at most."""
        own = 0 if self.rows is None else int(self.rows.sum())
        return max(own, self.least), max(own, self.least, self.most)


#: kind -> what it is, for people
KINDS = {
    "stored_records": "whole records, kept by a model that answers from them",
    "exact_rows": "numbers that are rows of the training data, exactly",
    "column": "the targets or a column of the training data, in the records' order",
    "per_record": "one number or more for each record",
    "maybe_per_record": "an array with as many entries as there are records, whose meaning is not known",
    "single_leaf": "leaves that one record alone made",
    "small_leaf": "leaves of two to four records",
    "reconstruction": "leaf counts of trees grown on all records, from which training sets were reconstructed",
    "single_text": "words, names or categories that one record alone brought in",
    "single_count": "counts of one: a cell that one record alone filled",
    "embedding": "a row of weights for somebody who has a value of their own",
    "few": "means and scales learned from very few records",
    "extremes": "smallest and largest values, each of one record alone",
    "calibration_points": "points of a calibration or of quantiles, each taken from a record",
}


def total(found: list[Carried], unknown: list[str], n: int) -> tuple[int, int]:
    """Return of how many records the file carries a trace, at least and at most; unknown parts may hold all of them."""
    union = np.zeros(n, dtype=bool)
    extra = least = 0
    for c in found:
        if c.rows is not None:
            union |= c.rows
        low, high = c.count
        least, extra = max(least, low), extra + (high - (0 if c.rows is None else int(c.rows.sum())))
    own = int(union.sum())
    return max(own, min(least, n)), n if unknown else min(n, own + extra)


@dataclass(eq=False)
class Context:
    """What detectors know of the training data.

    Parameters
    ----------
    n : int
    y : array of shape (n,)
    inputs : dict of id -> container of n records
        What each estimator of the model was fitted to, where it can be told.
    """

    n: int
    y: NDArray[Any]
    inputs: dict[int, Any] = field(default_factory=dict)

    def given(self, thing: Any) -> Any:
        """Return the records that an estimator was fitted to; None where it cannot be told."""
        return self.inputs.get(id(thing))

    def matrix(self, thing: Any) -> NDArray[np.float64] | None:
        """Return the same as numbers; None where they are not known, or no table of numbers."""
        return numbers(self.given(thing))


def numbers(X: Any) -> NDArray[np.float64] | None:
    """Return records as a table of numbers; None where they are none."""
    made = X.toarray() if hasattr(X, "toarray") else (None if X is None or isinstance(X, list) else np.asarray(X))
    if made is None or made.ndim != 2:
        return None
    try:
        return np.asarray(made, dtype=np.float64)
    except (TypeError, ValueError):
        return None
