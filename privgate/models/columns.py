"""What each column of a table may hold, declared before the data are seen."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
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
        if (self.ends is None) == (self.values is None):
            raise ValueError(f"domain: column {self.name!r} needs a range or a list of values; {_HINT}")
        if self.ends is not None and not (np.isfinite(self.ends).all() and self.ends[0] <= self.ends[1]):
            raise ValueError(f"domain: column {self.name!r} needs finite low <= high, not {self.ends}")
        if self.values is not None and not (self.values or self.missing):
            raise ValueError(f"domain: column {self.name!r} lists no value")
        if self.values is not None and len(set(self.values)) != len(self.values):
            raise ValueError(f"domain: column {self.name!r} lists a value twice")

    @classmethod
    def of(cls, name: str | int, stated: Any) -> "Column":
        """Return the column that a short form describes: a tuple is a range, a list or set the values.

        Examples
        --------
        >>> Column.of("age", (17, 90)).ends
        (17.0, 90.0)
        >>> Column.of("work", ["private", None]).missing
        True
        """
        if isinstance(stated, cls):
            return stated
        if isinstance(stated, tuple):
            ends = stated[:2]
            if (
                len(stated) not in (2, 3)
                or not all(isinstance(v, Real) for v in ends)
                or stated[2:] not in ((), (None,))
            ):
                raise ValueError(f"domain: unknown key or form, {name!r}: {stated!r}; {_HINT}")
            return cls(name, (float(ends[0]), float(ends[1])), missing=len(stated) == 3)
        if isinstance(stated, list | set | frozenset | np.ndarray):
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
        ends = None if self.ends is None else list(self.ends)
        values = None if self.values is None else list(self.values)
        return {"name": self.name, "ends": ends, "values": values, "missing": self.missing}

    @classmethod
    def from_payload(cls, payload: Mapping[str, Any]) -> "Column":
        """Return the column that ``payload`` describes."""
        ends, values = payload["ends"], payload["values"]
        return cls(
            payload["name"],
            None if ends is None else (float(ends[0]), float(ends[1])),
            None if values is None else tuple(values),
            bool(payload["missing"]),
        )


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
        return tuple(Column.of(name, form) for name, form in stated.items())
    if (held := getattr(stated, "columns", None)) is not None:
        return tuple(held)
    if (box := getattr(stated, "box", None)) is not None:
        return tuple(Column(k, ends) for k, ends in enumerate(box))
    if (counts := getattr(stated, "categories", None)) is not None:
        return tuple(Column(k, values=tuple(range(count))) for k, count in enumerate(counts))
    if isinstance(stated, Iterable) and not isinstance(stated, str):
        found = tuple(stated)
        if found and all(isinstance(c, Column) for c in found):
            return found
    raise ValueError(f"domain: no column is declared; a mapping from each column's name is needed: {_HINT}")


def split(X: Any) -> tuple[list[str | int], list[NDArray[Any]]]:
    """Return names and values of the columns of a frame, or of a two-dimensional array by position."""
    if hasattr(X, "iloc") and hasattr(X, "columns"):
        return list(X.columns), [_values(X.iloc[:, k]) for k in range(X.shape[1])]
    if hasattr(X, "tocsr"):
        X = X.toarray()
    array = np.asarray(X)
    if array.ndim != 2:
        raise ValueError(f"a table with one record a row is needed, not an array of {array.ndim} dimensions")
    return list(range(array.shape[1])), list(array.T)


def _values(series: Any) -> NDArray[Any]:
    kind = getattr(series.dtype, "kind", "O")
    if kind in "biuf" and isinstance(series.dtype, np.dtype):
        return np.asarray(series)
    return np.asarray(series.astype(object), dtype=object)
