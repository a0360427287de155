"""Which questions a model accepts, and a model that refuses all others.

Nothing here needs more than numpy: a copy of this file is stored beside every model whose domain is declared, and
serves it where privgate is not installed.
"""

import inspect
from typing import Any

import numpy as np


class QuestionRefusedError(ValueError):
    """The question lies outside of what the model is declared to accept."""


class AcceptedQuestions:
    """A declared domain, as JSON values of ``privgate.Domain.payload()``.

    Parameters
    ----------
    stated : dict
        ``columns`` by name (``ends`` or ``values``, and whether they may be ``missing``), or ``box``, ``categories``,
        ``max_length``, ``norm`` and ``queries`` of tables of numbers. ``double``: floats of other precision, in which
        scalers compute otherwise, are refused. ``names``: the columns of the training frame. A frame of others is
        refused: a step may read columns by place or by name, and what is looked at must be both.
    """

    def __init__(self, stated: dict[str, Any]) -> None:
        self.stated = stated

    def holds(self, X: Any) -> Any:
        """Return which records are accepted, bool array of shape (n,); what cannot be read is not."""
        n = len(X) if not hasattr(X, "shape") else int(X.shape[0]) if X.shape else 1
        columns, names = self.stated.get("columns"), self.stated.get("names")
        if self.stated.get("double") and not is_double(X):
            return np.zeros(n, dtype=bool)
        if names is not None and hasattr(X, "columns") and list(X.columns) != names:
            return np.zeros(n, dtype=bool)
        if columns:
            return self._columns(X, n, columns)
        table = _table(X, n)
        return np.zeros(n, dtype=bool) if table is None else self._numbers(table)

    def _columns(self, X: Any, n: int, columns: list[dict[str, Any]]) -> Any:
        if hasattr(X, "iloc"):
            known, names = list(X.columns), [c["name"] for c in columns]
            by_place = not all(isinstance(name, str) for name in names)  # libraries take numbers for places
            if any(known.count(name) != 1 for name in names) or (by_place and known != names):
                return np.zeros(n, dtype=bool)
            held = [X[c["name"]].astype(object).tolist() for c in columns]
        else:
            array = np.asarray(X.toarray() if hasattr(X, "toarray") else X)
            if array.ndim != 2 or array.shape[1] != len(columns):
                return np.zeros(n, dtype=bool)
            held = [column.tolist() for column in array.T]
        return np.array([[_fits(c, v) for v in values] for c, values in zip(columns, held, strict=True)]).all(axis=0)

    def _numbers(self, table: Any) -> Any:
        """Return which rows of numbers are accepted; NaN compares as not."""
        n, d = table.shape
        good = np.ones(n, dtype=bool)
        counts, box = self.stated.get("categories"), self.stated.get("box")
        for sides in (None if counts is None else [(0, v - 1) for v in counts], box):
            if sides is not None and len(sides) != d:
                return np.zeros(n, dtype=bool)
            if sides is not None:
                low, high = np.array(sides, dtype=np.float64).reshape(-1, 2).T
                lost = np.isnan(table) & np.isin(np.arange(d), self.stated.get("missing", ()))
                good &= (lost | ((table >= low) & (table <= high))).all(axis=1)
        if counts is not None:
            good &= (table == np.floor(table)).all(axis=1)
        for block in self.stated.get("blocks", ()):
            good &= (table[:, list(block)] != 0).sum(axis=1) <= 1
        length, norm = self.stated.get("max_length"), self.stated.get("norm")
        if length is not None or norm is not None:
            good &= (table >= 0).all(axis=1)
        with np.errstate(over="ignore", invalid="ignore"):
            if length is not None:
                good &= table.sum(axis=1) <= length
            if norm is not None:
                good &= np.sqrt((table**2).sum(axis=1)) <= norm * (1 + 1e-9)
        if self.stated.get("queries") is not None:
            listed = {tuple(q) for q in self.stated["queries"]}
            good &= np.array([tuple(row) in listed for row in (table + 0.0).tolist()], dtype=bool)
        return good

    def refuse(self, X: Any) -> None:
        """Raise unless every record is accepted.

        ``QuestionRefusedError``: it names no value.
        """
        if not self.holds(X).all():
            raise QuestionRefusedError(
                "a question lies outside of what this model is declared to accept; .accepted.stated says what that is"
            )


def is_double(X: Any) -> bool:
    """Return whether records hold no floating-point numbers but those of double precision."""
    kinds: list[Any] = X.dtypes.tolist() if hasattr(X, "iloc") else [getattr(X, "dtype", None)]
    return all(getattr(kind, "kind", "") != "f" or kind.itemsize == 8 for kind in kinds)


def _table(X: Any, n: int) -> Any:
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


def _fits(column: dict[str, Any], value: Any) -> bool:
    """Return whether a column may hold a value."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return bool(column["missing"])
    try:
        if value != value:  # noqa: PLR0124  NaN
            return bool(column["missing"])
        if column["values"] is not None:
            return value in column["values"]
        return not isinstance(value, str | bytes) and column["ends"][0] <= float(value) <= column["ends"][1]
    except (TypeError, ValueError, OverflowError):
        return False


class Refusing:
    """A model that answers accepted questions as it did, and refuses all others; any other attribute is the model's.

    Whoever holds the file is not bound by it: the model itself is ``.model``.

    Parameters
    ----------
    model : any
        A fitted estimator.
    stated : dict
        As for ``AcceptedQuestions``.
    """

    def __init__(self, model: Any, stated: dict[str, Any]) -> None:
        self.model, self.accepted = model, AcceptedQuestions(stated)

    def __getattr__(self, name: str) -> Any:
        """Return the model's attribute; a method of it refuses before it answers."""
        if name in ("model", "accepted") or (name.startswith("__") and name != "__sklearn_tags__"):
            raise AttributeError(name)
        found = getattr(self.model, name)
        method = inspect.isroutine(found) or getattr(found, "__self__", None) is self.model  # of a part of it, too
        if not method or name.startswith(("get_", "set_")):
            return found
        accepted = self.accepted

        def answer_accepted(*given: Any, **named: Any) -> Any:
            X = named.get("X", given[0] if given else next(iter(named.values()), None))
            if X is not None and not isinstance(X, str | bytes | bool | int | float | np.generic):
                accepted.refuse(X)
            return found(*given, **named)

        answer_accepted.__name__ = name
        return answer_accepted
