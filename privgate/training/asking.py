"""Asking a served model as its clients may, and reading what it answered, whatever its shape."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.arrays import Float, Index
from privgate.errors import SubjectError
from privgate.subject.containers import take

# Reading what a served model answered, whatever its shape: one value for each label, or a sentence why not.


def read(raw: Any, classes: NDArray[Any], n: int) -> Float:
    """Return the value that a served answer gives to each label.

    Parameters
    ----------
    raw : array, frame, tensor or list
        What MLflow's ``predict`` returned for n records: one label each; one column a class, in the order of the sorted
        labels or named by them; the probability of the second of two classes; or a mapping from labels to values each.
    classes : array of shape (K,)
        Sorted labels of the training data.
    n : int

    Returns
    -------
    float64 array of shape (n, K)
        A label is a 1 in its column; what is not listed is 0. Not necessarily probabilities.

    Raises
    ------
    SubjectError
        It is none of these, or holds NaN.
    """
    names = getattr(raw, "columns", None)
    found = _mapped(raw, classes) if _is_mappings(raw) else np.asarray(raw)
    if found.ndim == 2 and found.shape[1] == 1:
        found = found[:, 0]
    if found.ndim == 0 or len(found) != n:
        raise _unreadable(f"{len(found) if found.ndim else 1} answers to {n} records")
    if found.ndim == 1:
        values = _labels_or_second(found, classes)
    elif found.ndim == 2 and found.shape[1] == len(classes) and found.dtype.kind in "biuf":
        values = found.astype(np.float64)[:, _order(names, classes)]
    else:
        raise _unreadable(f"an answer of shape {found.shape} and type {found.dtype}")
    if np.isnan(values).any():
        raise _unreadable("NaN")
    return values


def read_numbers(raw: Any, n: int) -> Float:
    """Return the number that a served regressor answered for each of n records, shape (n,).

    Raises
    ------
    SubjectError
        It is not one finite number a record.
    """
    found = np.asarray(raw)
    if found.ndim == 2 and found.shape[1] == 1:
        found = found[:, 0]
    if found.shape != (n,) or found.dtype.kind not in "biuf" or not np.isfinite(found).all():
        raise _unreadable(f"an answer of shape {found.shape} and type {found.dtype} instead of {n} finite numbers")
    return found.astype(np.float64)


def _labels_or_second(found: NDArray[Any], classes: NDArray[Any]) -> Float:
    """Return labels as ones, or two columns from the probability of the second of two classes."""
    known = found.astype(str) if found.dtype.kind in "OUS" else found
    table = classes.astype(str) if found.dtype.kind in "OUS" else classes
    if known.dtype.kind in "biuf" and table.dtype.kind not in "biuf":
        known = known.astype(str)
        table = table.astype(str)
    same = known[:, None] == table
    if same.any(axis=1).all():
        return np.asarray(same, dtype=np.float64)
    if found.dtype.kind == "f" and len(classes) == 2:
        second = found.astype(np.float64)
        return np.column_stack([1.0 - second, second])
    raise _unreadable("values that are neither labels of the training data nor one column a label")


def _order(names: Any, classes: NDArray[Any]) -> NDArray[np.int64]:
    """Return which column belongs to each class, by name where the names are the labels."""
    wanted = [str(c) for c in classes.tolist()]
    given = [] if names is None else [str(c) for c in names]
    if sorted(given) == sorted(wanted):
        return np.array([given.index(c) for c in wanted], dtype=np.int64)
    return np.arange(len(wanted), dtype=np.int64)


def _is_mappings(raw: Any) -> bool:
    return isinstance(raw, list | tuple | np.ndarray) and len(raw) > 0 and all(isinstance(r, Mapping) for r in raw)


def _mapped(raw: Any, classes: NDArray[Any]) -> Float:
    place = {str(c): j for j, c in enumerate(classes.tolist())}
    out = np.zeros((len(raw), len(classes)))
    for i, row in enumerate(raw):
        for label, value in row.items():
            if str(label) not in place:
                raise _unreadable("a mapping that names something else than labels of the training data")
            out[i, place[str(label)]] = float(value)
    return out


def _unreadable(what: str) -> SubjectError:
    return SubjectError(f"the served model returned {what}, which cannot be compared with the declared release")


# Asking a served model as its clients may: one record at a time, in batches, in other containers and number types.
#
# An honest model says the same about a record whoever stands beside it. A wrapper that looks at the size of a batch,
# at the order of records or at the type of a column could be checked by one kind of question and answer another.

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
