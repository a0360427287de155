"""What each column of a table may hold, declared before the data are seen."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

_HINT = "give (low, high), (low, high, None) where values may be missing, or a list of the values"


@dataclass(frozen=True, slots=True)
class Column:
    """One column: a range of numbers or a list of values, and whether a value may be missing.

    Parameters
    ----------
    name : str or int
        Of the column of a frame, or its position in an array.
    ends : (low, high), optional
        Of a numeric column.
    values : tuple, optional
        Text, whole numbers or booleans of a categorical column, in the order in which they are encoded.
    missing : bool
        Whether None, NaN or NA may stand for a value.
    """

    name: str | int
    ends: tuple[float, float] | None = None
    values: tuple[Any, ...] | None = None
    missing: bool = False

    def __post_init__(self) -> None:
        named, values = f"domain: column {self.name!r}", self.values
        if (self.ends is None) == (values is None):
            raise ValueError(f"{named} needs a range or a list of values; {_HINT}")
        if self.ends is not None and not (np.isfinite(self.ends).all() and self.ends[0] <= self.ends[1]):
            raise ValueError(f"{named} needs finite low <= high, not {self.ends}")
        if values is not None and not (values or self.missing):
            raise ValueError(f"{named} lists no value")
        if values is not None and len(set(values)) != len(values):
            raise ValueError(f"{named} lists a value twice")

    @classmethod
    def from_short(cls, name: str | int, stated: Any) -> "Column":
        """Return the column that a short form describes: a tuple is a range, a list or set the values.

        Examples
        --------
        >>> Column.from_short("age", (17, 90)).ends
        (17.0, 90.0)
        >>> Column.from_short("work", ["private", None]).missing
        True
        """
        if isinstance(stated, cls):
            return stated
        if isinstance(stated, tuple) and all(isinstance(v, Real) for v in stated[:2]):
            if len(stated) == 2 or (len(stated) == 3 and stated[2] is None):
                return cls(name, (float(stated[0]), float(stated[1])), missing=len(stated) == 3)
        elif isinstance(stated, list | set | frozenset | np.ndarray):
            plain = [v.item() if isinstance(v, np.generic) else v for v in stated]
            held = [v for v in plain if not is_missing(v)]
            if all(isinstance(v, str | int | float) for v in held):
                values = sorted(held, key=repr) if isinstance(stated, set | frozenset) else held
                return cls(name, values=tuple(values), missing=len(held) < len(plain))
        raise ValueError(f"domain: unknown key or form, {name!r}: {stated!r}; {_HINT}")

    def form(self) -> tuple[float | None, ...] | list[Any]:
        """Return the short form; ``of`` is the inverse."""
        if self.ends is not None:
            return (*self.ends, None) if self.missing else self.ends
        return [*(self.values or ()), *([None] if self.missing else [])]

    def payload(self) -> dict[str, Any]:
        """Return JSON values."""
        return {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()}

    @classmethod
    def from_payload(cls, payload: Mapping[str, Any]) -> "Column":
        """Return the column that ``payload`` describes."""
        ends, values = payload["ends"], payload["values"]
        ends = None if ends is None else (float(ends[0]), float(ends[1]))
        return cls(payload["name"], ends, None if values is None else tuple(values), bool(payload["missing"]))


def is_missing(value: Any) -> bool:
    """Whether a value is None, NaN, NaT or NA."""
    if isinstance(value, float):
        return math.isnan(value)
    return value is None or type(value).__name__ in ("NAType", "NaTType")


def columns_of(stated: Any) -> tuple[Column, ...]:
    """Return the columns of a ``privgate.Domain``, a mapping from name to short form, or columns.

    Raises
    ------
    ValueError
        Nothing is declared by name, or nobody has confirmed a domain that was read off data.
    """
    if getattr(stated, "proposed", False):
        raise ValueError(
            "the domain was read off data and nobody has confirmed it: look at it, correct it, then domain.confirm()"
        )
    if isinstance(stated, Mapping):
        return tuple(Column.from_short(name, form) for name, form in stated.items())
    if (held := getattr(stated, "columns", None)) is not None:
        return tuple(held)
    if (box := getattr(stated, "box", None)) is not None:
        return tuple(Column(k, ends) for k, ends in enumerate(box))
    if (counts := getattr(stated, "categories", None)) is not None:
        return tuple(Column(k, values=tuple(range(count))) for k, count in enumerate(counts))
    columns = tuple(stated) if isinstance(stated, Iterable) and not isinstance(stated, str) else ()
    if columns and all(isinstance(c, Column) for c in columns):
        return columns
    raise ValueError(f"domain: no column is declared; a mapping from each column's name is needed: {_HINT}")


def split(X: Any) -> tuple[list[str | int], list[NDArray[Any]]]:
    """Return names and values of the columns of a frame, or of a two-dimensional array by position."""
    if hasattr(X, "iloc") and hasattr(X, "columns"):
        return list(X.columns), [_read_values(X.iloc[:, k]) for k in range(X.shape[1])]
    array = np.asarray(X.toarray() if hasattr(X, "tocsr") else X)
    if array.ndim != 2:
        raise ValueError(f"a table with one record a row is needed, not an array of {array.ndim} dimensions")
    return list(range(array.shape[1])), list(array.T)


def _read_values(series: Any) -> NDArray[Any]:
    plain = isinstance(series.dtype, np.dtype) and series.dtype.kind in "biuf"
    return np.asarray(series if plain else series.astype(object), dtype=None if plain else object)
