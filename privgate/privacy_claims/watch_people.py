"""Other records in the place of some people's, for reruns that must not show it."""

from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from privgate.subject.containers import take

Index = NDArray[np.int64]


def replaced(X: Any, y: NDArray[Any], rows: NDArray[np.bool_], rng: Generator) -> tuple[Any, NDArray[Any]]:
    """Return data in which ``rows`` have the features of other people and another label.

    Parameters
    ----------
    X, y : the records
    rows : bool array of shape (n,)
    rng : Generator
    """
    index = np.arange(len(y), dtype=np.int64)
    others = index[~rows] if (~rows).any() else index
    index[rows] = rng.choice(others, int(rows.sum()))
    return _taken(X, index), relabelled(y, rows)


def same_for_all(X: Any, y: NDArray[Any], row: int) -> tuple[Any, NDArray[Any]]:
    """Return data in which everybody has the features of ``row``: nothing can be read off their distribution."""
    everybody = np.ones(len(y), dtype=bool)
    return _taken(X, np.full(len(y), row, dtype=np.int64)), relabelled(y, everybody, by=-1)


def far_away(X: Any, rows: NDArray[np.bool_], times: float) -> Any:
    """Return the records with the numbers in ``rows`` multiplied, whole ones as far as their type holds them.

    ``times`` that are not a number make missing values, and negative ones turn every other sign as well.
    """
    if hasattr(X, "select_dtypes"):
        made = X.copy()
        for at in np.flatnonzero([d.kind in "iuf" for d in map(_plain, X.dtypes)]):
            column = X.iloc[:, at].to_numpy()
            made.isetitem(at, far_away(column, rows, times))
        return made
    if not isinstance(X, np.ndarray) or X.dtype.kind not in "iuf" or not len(X):
        return X
    size = abs(times)
    if X.dtype.kind != "f":
        if np.isnan(size):
            return X
        size = max(1, min(int(size), int(np.iinfo(X.dtype).max) // max(1, abs(int(X.max())), abs(int(X.min())))))
    made = X.copy()
    made[rows] *= X.dtype.type(size)
    if times < 0 and X.dtype.kind != "u":
        turned = made[rows]
        turned[np.indices(turned.shape).sum(axis=0) % 2 == 0] *= X.dtype.type(-1)
        made[rows] = turned
    return made


def _plain(dtype: Any) -> Any:
    return dtype if isinstance(dtype, np.dtype) else np.dtype(object)


def relabelled(y: NDArray[Any], rows: NDArray[np.bool_], *, by: int = 1) -> NDArray[Any]:
    """Return ``y`` with the next label in ``rows``; every label stays in use, so that a model has its shape."""
    classes, own = np.unique(y, return_inverse=True)
    new = own.copy()
    new[rows] = (own[rows] + by) % len(classes)
    for lost in np.setdiff1d(np.arange(len(classes)), new):
        counts = np.bincount(new, minlength=len(classes))
        free = np.flatnonzero(rows & (own != lost) & (counts[new] > 1))
        if len(free):
            new[free[0]] = lost
        else:
            new[np.flatnonzero(own == lost)[0]] = lost
    return np.asarray(classes[new])


def half(units: NDArray[np.int64], y: NDArray[Any], rng: Generator) -> NDArray[np.bool_]:
    """Return the rows of a random half of the units; relabelling them changes how often labels occur, if it can."""
    count = int(units.max()) + 1
    before = np.unique(y, return_counts=True)[1]
    rows = np.zeros(len(y), dtype=bool)
    for _ in range(50):
        chosen = np.zeros(count, dtype=bool)
        chosen[rng.permutation(count)[: (count + 1) // 2]] = True
        rows = chosen[units]
        after = np.unique(relabelled(y, rows), return_counts=True)[1]
        if len(after) == len(before) and (after != before).any():
            break
    return rows


def _taken(X: Any, index: Index) -> Any:
    made = take(X, index)
    if hasattr(made, "iloc"):
        made = made.set_axis(X.index, axis=0)
    return made
