"""Asking a served model as its clients may: one record at a time, in batches, in other containers and number types.

An honest model says the same about a record whoever stands beside it. A wrapper that looks at the size of a batch, at
the order of records or at the type of a column could be checked by one kind of question and answer another.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.errors import SubjectError
from privgate.subject.containers import take

Index = NDArray[np.int64]

#: all records in one question, as they are: what everything else is compared with
WHOLE = "at once"
WAYS = ("one by one", "in batches of three", "backwards", "as an array", "as a frame", "as numbers of another type")


def parts(X: Any, n: int, way: str) -> Iterator[tuple[Index, Any]]:
    """Give (positions of records, the question about them) until each of n records is asked about once.

    Raises
    ------
    SubjectError
        There is no such question about records like these.
    """
    everybody = np.arange(n, dtype=np.int64)
    size = {"one by one": 1, "in batches of three": 3}.get(way, max(n, 1))
    for begin in range(0, n, size):
        chosen = everybody[begin : begin + size]
        if way == "backwards":
            chosen = chosen[::-1]
        yield chosen, _as(take(X, chosen), way)


def possible(X: Any, way: str) -> bool:
    """Return whether records like these can be sent in a way: a box in which something went wrong is not used again."""
    try:
        _as(X, way)
    except SubjectError:
        return False
    return True


def _as(X: Any, way: str) -> Any:
    made: Any = X
    if way == "as an array":
        made = _array(X)
    elif way == "as a frame":
        made = _frame(X)
    elif way == "as numbers of another type":
        made = _other_type(X)
    if made is None:
        raise SubjectError(f"records like these cannot be sent {way}")
    return made


def _array(X: Any) -> Any:
    """Return a table of one number type as an array, a sparse one as a dense one; None for anything else."""
    if hasattr(X, "toarray"):
        return X.toarray()
    if not hasattr(X, "columns"):
        return None
    kinds = {getattr(dtype, "kind", "O") for dtype in X.dtypes}
    return X.to_numpy() if len(kinds) == 1 and kinds <= set("biuf") else None


def _frame(X: Any) -> Any:
    if not (isinstance(X, np.ndarray) and X.ndim == 2):
        return None
    import pandas as pd

    return pd.DataFrame(X)


def _other_type(X: Any) -> Any:
    """Return the same numbers as whole numbers or as floating-point ones, whichever they are not; None if inexact."""
    if hasattr(X, "columns"):
        columns = {c: new for c in X.columns if (new := _other_type(X[c].to_numpy())) is not None}
        return X.assign(**columns) if columns and all(isinstance(c, str) for c in columns) else None
    if not isinstance(X, np.ndarray) or X.dtype.kind not in "biuf":
        return None
    kinds = (np.float64,) if X.dtype.kind in "biu" else (np.float32, np.int64)
    with np.errstate(all="ignore"):
        for kind in kinds:
            other = X.astype(kind)
            if other.dtype != X.dtype and np.array_equal(other.astype(X.dtype), X):
                return other
    return None
