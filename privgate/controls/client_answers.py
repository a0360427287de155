"""Asking a served model as its clients may, and reading what it answered, whatever its shape; a worker does both."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.arrays import Float, Index
from privgate.errors import SubjectError
from privgate.subject.containers import length, take

#: all records in one question, as they are: what everything else is compared with
WHOLE = "at once"
WAYS = ("one by one", "in batches of three", "backwards", "as an array", "as a frame", "as numbers of another type")


def ask(opened: Any, X: Any, way: str) -> Float:
    """Return what the served model of an opened payload answers about n records (workers only).

    Returns
    -------
    float64 array of shape (n, K)
        The value of each sorted label: a label is a 1 in its column. One number a record of a regressor, shape (n, 1).

    Raises
    ------
    SubjectError
        Records like these cannot be sent in this way, or the answer is not readable.
    """
    n, number = length(X), opened.recipe.task == "regression"
    rows, questions = zip(*split(X, n, way), strict=True)
    values = np.empty((n, 1 if number else len(opened.classes)))
    for some, raw in zip(rows, opened.stored.serve(questions), strict=True):
        values[some] = read_numbers(raw, len(some))[:, None] if number else read(raw, opened.classes, len(some))
    return values


def split(X: Any, n: int, way: str) -> Iterator[tuple[Index, Any]]:
    """Give (positions of records, the question about them) until each of n records is asked about once."""
    size = {"one by one": 1, "in batches of three": 3}.get(way, max(n, 1))
    for begin in range(0, n, size):
        rows = np.arange(begin, min(begin + size, n), dtype=np.int64)
        rows = rows[::-1] if way == "backwards" else rows
        yield rows, _convert(take(X, rows), way)


def can_send(X: Any, way: str) -> bool:
    """Return whether records like these can be sent in a way: a sandbox in which something failed is not used again."""
    try:
        _convert(X, way)
    except SubjectError:
        return False
    return True


def _convert(X: Any, way: str) -> Any:
    converters = {"as an array": _to_array, "as a frame": _to_frame, "as numbers of another type": _to_other_type}
    container = converters[way](X) if way in converters else X
    if container is None:
        raise SubjectError(f"records like these cannot be sent {way}")
    return container


def _to_array(X: Any) -> Any:
    """Return a table of one number type as an array, a sparse one as a dense one; None for anything else."""
    if hasattr(X, "toarray"):
        return X.toarray()
    kinds = {getattr(dtype, "kind", "O") for dtype in X.dtypes} if hasattr(X, "columns") else set()
    return X.to_numpy() if len(kinds) == 1 and kinds <= set("biuf") else None


def _to_frame(X: Any) -> Any:
    import pandas as pd

    return pd.DataFrame(X) if isinstance(X, np.ndarray) and X.ndim == 2 else None


def _to_other_type(X: Any) -> Any:
    """Return the same numbers as whole numbers or as floating-point ones, whichever they are not; None if inexact."""
    if hasattr(X, "columns"):
        columns = {c: new for c in X.columns if (new := _to_other_type(X[c].to_numpy())) is not None}
        return X.assign(**columns) if columns and all(isinstance(c, str) for c in columns) else None
    if not isinstance(X, np.ndarray) or X.dtype.kind not in "biuf":
        return None
    with np.errstate(all="ignore"):
        for kind in (np.float64,) if X.dtype.kind in "biu" else (np.float32, np.int64):
            other = X.astype(kind)
            if other.dtype != X.dtype and np.array_equal(other.astype(X.dtype), X):
                return other
    return None


# Reading what a served model answered, whatever its shape.


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
    mappings = isinstance(raw, list | tuple | np.ndarray) and len(raw) > 0 and all(isinstance(r, Mapping) for r in raw)
    values = _read_mappings(raw, classes) if mappings else np.asarray(raw)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim == 0 or len(values) != n:
        raise _unreadable(f"{len(values) if values.ndim else 1} answers to {n} records")
    if values.ndim == 1:
        values = _read_labels(values, classes)
    elif values.ndim == 2 and values.shape[1] == len(classes) and values.dtype.kind in "biuf":
        wanted, given = [str(c) for c in classes.tolist()], [] if names is None else [str(c) for c in names]
        by_name = sorted(given) == sorted(wanted)
        order = [given.index(c) for c in wanted] if by_name else list(range(len(wanted)))
        values = values.astype(np.float64)[:, order]
    else:
        raise _unreadable(f"an answer of shape {values.shape} and type {values.dtype}")
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
    values = np.asarray(raw)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.shape != (n,) or values.dtype.kind not in "biuf" or not np.isfinite(values).all():
        raise _unreadable(f"an answer of shape {values.shape} and type {values.dtype} instead of {n} finite numbers")
    return values.astype(np.float64)


def _read_labels(values: NDArray[Any], classes: NDArray[Any]) -> Float:
    """Return labels as ones, or two columns from the probability of the second of two classes."""
    text = values.dtype.kind in "OUS" or classes.dtype.kind not in "biuf"
    known, table = (values.astype(str), classes.astype(str)) if text else (values, classes)
    same = known[:, None] == table
    if same.any(axis=1).all():
        return np.asarray(same, dtype=np.float64)
    if values.dtype.kind == "f" and len(classes) == 2:
        second = values.astype(np.float64)
        return np.column_stack([1.0 - second, second])
    raise _unreadable("values that are neither labels of the training data nor one column a label")


def _read_mappings(raw: Any, classes: NDArray[Any]) -> Float:
    place = {str(c): j for j, c in enumerate(classes.tolist())}
    values = np.zeros((len(raw), len(classes)))
    for i, row in enumerate(raw):
        for label, value in row.items():
            if str(label) not in place:
                raise _unreadable("a mapping that names something else than labels of the training data")
            values[i, place[str(label)]] = float(value)
    return values


def _unreadable(what: str) -> SubjectError:
    return SubjectError(f"the served model returned {what}, which cannot be compared with the declared release")
