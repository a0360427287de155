"""Sensitive features: the values that an adversary tries, how frequent each is, and records with a value put in."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.arrays import Float, Index
from privgate.errors import MeasurementError
from privgate.subject.containers import take
from privgate.subject.data import TrainingData

#: more values than this in a column of numbers, and it is cut at the quartiles of the people outside
MOST_VALUES = 12


@dataclass(frozen=True, eq=False)
class Attribute:
    """One sensitive feature.

    Parameters
    ----------
    column : str or int
    values : tuple
        What is put in for each; numbers that were cut stand for the middle of their quarter.
    names : tuple of str
        For people.
    codes : int64 array of shape (P,)
        Which of them each pool record has; -1 where it is missing, or nobody outside has it.
    prior : float64 array of shape (m,)
        How frequent each is among the people outside, who stand for what is public.
    """

    column: str | int
    values: tuple[Any, ...]
    names: tuple[str, ...]
    codes: Index
    prior: Float

    @property
    def name(self) -> str:
        """The column's name."""
        return str(self.column)


def column_of(X: Any, column: str | int) -> NDArray[Any]:
    """Return one column of a frame or of a two-dimensional array.

    Raises
    ------
    MeasurementError
        There is no such column, or records have none.
    """
    if hasattr(X, "iloc"):
        if column not in X.columns:
            raise MeasurementError(f"sensitive column {column!r} is not among the features")
        return np.asarray(X[column])
    shape: tuple[int, ...] = getattr(X, "shape", ())
    if hasattr(X, "tocsr") or len(shape) != 2 or not isinstance(column, int) or not 0 <= column < shape[1]:
        raise MeasurementError(f"sensitive column {column!r} cannot be put into a {type(X).__name__}; pass a DataFrame")
    return np.asarray(X[:, column])


def read(data: TrainingData, column: str | int) -> Attribute:
    """Return the values of a sensitive feature, as the people outside have them.

    Raises
    ------
    MeasurementError
        It cannot be read, or everybody outside has the same value.
    """
    if data.candidates is None:
        raise MeasurementError("no candidates: nobody outside shows how frequent each value is")
    raw = column_of(data.pool()[0], column)
    present = ~_missing(raw)
    outside = raw[data.n :][present[data.n :]]
    if raw.dtype.kind in "iuf" and len(np.unique(outside)) > MOST_VALUES:
        return _cut(raw.astype(np.float64), present, data.n, column)
    shown = raw.astype(str)
    names, first, counts = np.unique(shown[data.n :][present[data.n :]], return_index=True, return_counts=True)
    if len(names) < 2:
        raise MeasurementError(f"everybody outside has the same {column!r}: there is nothing to infer")
    place = np.minimum(np.searchsorted(names, shown), len(names) - 1)
    codes = np.where(present & (names[place] == shown), place, -1)
    return Attribute(
        column, tuple(outside[first]), tuple(names.tolist()), codes.astype(np.int64), counts / counts.sum()
    )


def _cut(raw: Float, present: NDArray[np.bool_], n: int, column: str | int) -> Attribute:
    """Return a number as its quarter among the people outside."""
    outside = raw[n:][present[n:]]
    edges = np.unique(np.quantile(outside, [0.25, 0.5, 0.75]))
    codes = np.where(present, np.searchsorted(edges, raw, side="right"), -1).astype(np.int64)
    own = codes[n:][present[n:]]
    kept = np.unique(own)
    middles = tuple(float(np.quantile(outside[own == k], 0.5, method="inverted_cdf")) for k in kept)
    ends = [f"below {edges[0]:g}", *(f"from {e:g}" for e in edges)]
    place = np.full(len(ends), -1, dtype=np.int64)
    place[kept] = np.arange(len(kept))
    counts = np.bincount(own, minlength=len(ends))[kept]
    codes = np.where(codes >= 0, place[codes], -1)
    return Attribute(column, middles, tuple(ends[k] for k in kept), codes, counts / counts.sum())


def _missing(raw: NDArray[Any]) -> NDArray[np.bool_]:
    if raw.dtype.kind == "f":
        return np.asarray(np.isnan(raw))
    if raw.dtype.kind == "O":
        return np.array([v is None or v != v or str(v) in ("<NA>", "NaT") for v in raw], dtype=bool)  # noqa: PLR0124  NaN
    return np.zeros(len(raw), dtype=bool)


def put_in(X: Any, rows: Index, column: str | int, value: Any) -> Any:
    """Return some records with one value of a feature for all; of the same kind and types."""
    made = take(X, rows)
    if hasattr(made, "iloc"):
        import pandas as pd

        made = made.copy()
        kind = made[column].dtype
        if kind.kind in "iu" and float(value) != int(value):
            raise MeasurementError(f"{value!r} cannot be put into column {column!r} of whole numbers")
        made[column] = pd.Series([value] * len(made), index=made.index, dtype=kind)
        return made
    made = np.array(made)
    made[:, int(column)] = value
    return made
