"""Which questions a model accepts, and a model that refuses all others.

Nothing here needs more than numpy: it is stored by value, and serves where privgate is not installed.
"""

import inspect
from numbers import Number
from typing import Any

import numpy as np


class QuestionRefusedError(ValueError):
    """The question lies outside of what the model is declared to accept."""


class AcceptedQuestions:
    """A declared domain, as ``stated`` in JSON values of ``privgate.Domain.payload()``.

    ``columns`` are by name (``ends`` or ``values``, and whether they may be ``missing``); ``box`` and ``categories``
    are of tables of numbers. ``double``: floats of other precision, in which scalers compute otherwise, are refused.
    ``names``: the columns of the training frame. A frame of others is refused: a step may read columns by place or by
    name, and what is looked at must be both.
    """

    def __init__(self, stated: dict[str, Any]) -> None:
        self.stated = stated

    def holds(self, X: Any) -> Any:
        """Return which records are accepted, bool array of shape (n,); what cannot be read is not."""
        n = len(X) if not hasattr(X, "shape") else int(X.shape[0]) if X.shape else 1
        names, good = self.stated.get("names"), None
        same_columns = names is None or list(getattr(X, "columns", names)) == names
        if same_columns and (is_double(X) or not self.stated.get("double")):
            good = self._hold_columns(X) if self.stated.get("columns") else self._hold_numbers(X, n)
        return np.zeros(n, dtype=bool) if good is None else good

    def _hold_columns(self, X: Any) -> Any:
        """Return which records fit every declared column; None where these are not the columns that there are."""
        columns = self.stated["columns"]
        if hasattr(X, "iloc"):
            if list(X.columns) != [c["name"] for c in columns]:
                return None
            held = [X.iloc[:, k].astype(object).tolist() for k in range(len(columns))]
        else:
            array = np.asarray(X.toarray() if hasattr(X, "toarray") else X)
            if array.ndim != 2 or array.shape[1] != len(columns):
                return None
            held = array.T.tolist()
        return np.array([[_fits(c, v) for v in values] for c, values in zip(columns, held, strict=True)]).all(axis=0)

    def _hold_numbers(self, X: Any, n: int) -> Any:
        """Return which rows of numbers are accepted, None where there are none; NaN compares as not."""
        if (table := read_table(X, n)) is None:
            return None
        d, good = table.shape[1], np.ones(n, dtype=bool)
        counts, box = self.stated.get("categories"), self.stated.get("box")
        for sides in (None if counts is None else [(0, v - 1) for v in counts], box):
            if sides is not None:
                if len(sides) != d:
                    return None
                low, high = np.array(sides, dtype=np.float64).reshape(-1, 2).T
                good &= ((table >= low) & (table <= high)).all(axis=1)
        if counts is not None:
            good &= (table == np.floor(table)).all(axis=1)
        for block in self.stated.get("blocks", ()):
            good &= (table[:, list(block)] != 0).sum(axis=1) <= 1
        return good

    def refuse(self, X: Any) -> None:
        """Raise ``QuestionRefusedError``, which names no value, unless every record is accepted."""
        if not self.holds(X).all():
            raise QuestionRefusedError("a question lies outside of what this model is declared for (.accepted.stated)")


def is_double(X: Any) -> bool:
    """Return whether records hold no floating-point numbers but those of double precision."""
    kinds: list[Any] = X.dtypes.tolist() if hasattr(X, "iloc") else [getattr(X, "dtype", None)]
    return all(getattr(kind, "kind", "") != "f" or kind.itemsize == 8 for kind in kinds)


def read_table(X: Any, n: int) -> Any:
    """Return records as numbers, shape (n, d), images flat; None where they are none."""
    try:
        table = np.asarray(X.toarray() if hasattr(X, "toarray") else X)
        if not n or not table.ndim:
            return None
        objects = table.ravel().tolist() if table.dtype.kind == "O" else ()
        if table.dtype.kind not in "biufO" or any(isinstance(v, str | bytes) for v in objects):
            return None  # numpy reads numbers off text, times and complex numbers, and a library may not
        table = table.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        return None
    return table.reshape(n, -1) if table.ndim > 1 and len(table) == n else None


def is_missing(value: Any) -> bool:
    """Whether a value is None, NaN, NaT or NA."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, Number | np.generic) and bool(value != value)  # noqa: PLR0124  the definition of NaN


def _fits(column: dict[str, Any], value: Any) -> bool:
    try:
        if is_missing(value):
            return bool(column["missing"])
        if column["values"] is not None:
            return value in column["values"]
        return not isinstance(value, str | bytes) and column["ends"][0] <= float(value) <= column["ends"][1]
    except (TypeError, ValueError, OverflowError):
        return False


class Refusing:
    """A model that answers accepted questions as it did, and refuses all others; any other attribute is the model's."""

    def __init__(self, model: Any, stated: dict[str, Any]) -> None:
        self.model, self.accepted = model, AcceptedQuestions(stated)

    def __getattr__(self, name: str) -> Any:
        """Return the model's attribute; a method of it refuses before it answers."""
        if name in ("model", "accepted") or (name.startswith("__") and name != "__sklearn_tags__"):
            raise AttributeError(name)
        held = getattr(self.model, name)
        method = inspect.isroutine(held) or getattr(held, "__self__", None) is self.model  # of a part of it, too
        if not method or name.startswith(("get_", "set_")):
            return held
        accepted = self.accepted

        def answer_accepted(*given: Any, **named: Any) -> Any:
            X = named.get("X", given[0] if given else next(iter(named.values()), None))
            if X is not None and not isinstance(X, str | bytes | bool | int | float | np.generic):
                accepted.refuse(X)
            return held(*given, **named)

        answer_accepted.__name__ = name
        return answer_accepted
