"""What names a record, and the records of one member: containers of any kind, with nothing in them of others."""

import contextlib
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

Index = NDArray[np.int64]


def names(X: Any, ids: str | int | None) -> Iterator[bytes]:
    """Yield what names each record: its id, or its own features; numbers by value, everything else as text."""
    if hasattr(X, "tocsr"):
        X = X.toarray() if ids is None else X.tocsr()[:, [int(ids)]].toarray()
    elif hasattr(X, "columns"):
        if ids is not None and ids not in X.columns:
            raise ValueError(f"X has no column {ids!r} that would name the person; its columns: {list(X.columns)[:20]}")
        X = X if ids is None else X[[ids]]
    elif ids is not None:
        X = np.asarray(X, dtype=object)[:, [int(ids)]]
    rows = X.itertuples(index=False, name=None) if hasattr(X, "columns") else iter(X)
    for row in rows:
        cells = row if isinstance(row, tuple) else np.asarray(row, dtype=object).ravel().tolist()
        if ids is not None and text(cells[0]) == "missing":
            raise ValueError(f"column {ids!r} holds no id for some record; every record belongs to one person")
        yield "\x1f".join(text(cell) for cell in cells).encode()


def text(cell: Any) -> str:
    """Return one spelling a value, whatever type a table keeps it in: 1, 1.0 and True are the same number."""
    if isinstance(cell, int | float | np.number | np.bool_):
        with contextlib.suppress(OverflowError, TypeError):  # whole numbers beyond float64; complex ones
            number = float(cell)
            return "missing" if math.isnan(number) else f"number {number + 0.0!r}"  # -0 and 0 are one number
    # None, NaT and pandas' NA have no value to be named by
    if cell is None or type(cell).__name__ in ("NaTType", "NAType"):
        return "missing"
    # numpy's text is no other text
    return f"text {str.__repr__(cell)}" if isinstance(cell, str) else f"{type(cell).__name__} {cell!r}"


def take(X: Any, rows: Index) -> Any:
    """Return some of the records, in the container that they came in."""
    if hasattr(X, "iloc"):
        return X.iloc[rows].reset_index(drop=True)  # row numbers of the whole change when somebody leaves
    return X[rows] if hasattr(X, "shape") else [X[int(i)] for i in rows]


def own_categories(X: Any) -> Any:
    """Return records whose categories are those that they hold: a column's type lists everybody's."""
    if not hasattr(X, "iloc") or not hasattr(X, "columns"):
        return X
    for k, dtype in enumerate(X.dtypes):
        if str(dtype) == "category":
            X.isetitem(k, X.iloc[:, k].cat.remove_unused_categories())
    return X


def joined(public: Any, own: Any) -> Any:
    """Return public records, then a member's own."""
    if hasattr(own, "iloc"):
        import pandas as pd

        return pd.concat([public, own], ignore_index=True)
    if hasattr(own, "tocsr"):
        import scipy.sparse as sp

        return sp.vstack([public, own], format="csr")
    return np.concatenate([public, own]) if hasattr(own, "shape") else [*public, *own]
