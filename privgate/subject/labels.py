"""Labels, targets, names and groups: arrays of one type, in which nothing is nobody's."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.errors import SubjectError
from privgate.subject import containers

#: several labels a record, in a container of their own
SEVERAL = (
    "{what} holds lists or sets: several labels a record are not judged together; log one model a label, each with its "
    "own y, and check each"
)


def plain(values: Any, what: str) -> NDArray[Any]:
    """Return an array without objects: text stays text, numbers stay numbers, and nobody is given a label of "None".

    Raises
    ------
    SubjectError
        Something is missing, or text and numbers are mixed, which as text would be one: 1 and "1".
    """
    if isinstance(values, list | tuple) and any(isinstance(v, set | frozenset | dict) for v in values):
        raise SubjectError(SEVERAL.format(what=what))
    array = np.asarray(values)
    if array.dtype.kind in "US" and isinstance(values, list | tuple):  # NumPy has made text of all, None and NaN too
        array = np.array([*values, None], dtype=object)[:-1]
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.dtype == object and array.ndim == 1:
        return _of_objects(array, what)
    if array.dtype.kind == "f" and what != "y":
        _refuse_missing(np.isnan(array), what)
    if array.dtype.kind in "Mm":
        _refuse_missing(np.isnat(array), what)
    return array


def like(others: NDArray[Any], y: NDArray[Any]) -> NDArray[Any]:
    """Return labels of candidates in the type of ``y`` where that changes none of them.

    Raises
    ------
    SubjectError
        One side is text and the other is not.
    """
    if (others.dtype.kind in "US") != (y.dtype.kind in "US"):
        raise SubjectError(f"labels of candidates are {others.dtype} and those of y {y.dtype}; give both one type")
    if others.dtype != y.dtype and y.dtype.kind in "biu" and others.dtype.kind in "biuf":
        cast = others.astype(y.dtype)
        return cast if np.array_equal(cast, others) else others
    return others


def _of_objects(array: NDArray[Any], what: str) -> NDArray[Any]:
    cells = [containers.cell(v) for v in array.tolist()]
    kinds = ["text" if isinstance(c, str) else "None" if c is None else c[0] for c in cells]
    _refuse_missing(np.isin(kinds, ["None", "nan", "NA", "NaTType"]), what)
    found = sorted(set(kinds))
    if len(found) > 1 and not set(found) <= {"int", "float"}:
        other = next(i for i, kind in enumerate(kinds) if kind != kinds[0])
        raise SubjectError(
            f"{what} mixes {kinds[0]} (record 0) with {kinds[other]} (record {other}), which as text may be the same; "
            "give all of them one type"
        )
    if set(found) <= {"int", "float", "bool"}:
        return np.array(array.tolist())
    return np.array([str(v) for v in array])


def _refuse_missing(missing: NDArray[Any], what: str) -> None:
    if missing.any():
        meant = {"y": "a label", "groups": "one person", "ids": "a name"}.get(what.rpartition(" ")[2], "a value")
        raise SubjectError(
            f"{what} is missing (None or NaN) for {int(missing.sum())} records, first for record "
            f"{int(missing.argmax())}; nothing is not {meant}: fill it in or remove those records"
        )


def scale_of(y: NDArray[Any]) -> tuple[float, float]:
    """Return mean and standard deviation of targets; 1 for the deviation where all are the same."""
    values = np.asarray(y, dtype=np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        mean, deviation = float(values.mean()), float(values.std())
    if not np.isfinite([mean, deviation]).all():
        raise SubjectError("the targets are too large for their deviation to be a number; use another unit")
    return mean, deviation if deviation > 0 else 1.0
