"""One 64-bit number a record, equal for equal records: duplicates without comparing everybody with everybody."""

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

Print = NDArray[np.uint64]

_ROWS = 1 << 14  # records hashed at once, so that images need no second copy of the data
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_M1, _M2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def exact(X: Any) -> Print:
    """Return a number a record, shape (n,); different records share one with probability about 2^-64.

    Parameters
    ----------
    X : array of any rank, DataFrame, scipy sparse matrix, or list
        Negative zero equals zero, NaN equals NaN, and an integer equals the float of the same value.
    """
    if hasattr(X, "tocsr"):
        return _sparse(X.tocsr())
    if hasattr(X, "columns"):
        return _combine([_column(X.iloc[:, j]) for j in range(X.shape[1])], len(X))
    if hasattr(X, "shape") and np.asarray(X).dtype.kind in "biuf":
        return _numbers(np.asarray(X))
    values = np.asarray(X, dtype=object) if not hasattr(X, "shape") else np.asarray(X).astype(str)
    if values.ndim == 1:
        return _text([str(v) for v in values])
    return _combine([_text([str(v) for v in values[:, j]]) for j in range(values.shape[1])], len(values))


def coarse(X: Any, like: Any = None) -> tuple[Print, Print] | None:
    """Return two numbers a record that are equal for near-duplicates, or None where nearness has no meaning.

    Numbers are near when they fall into one cell of a grid of a thousandth of the column's standard deviation; two
    grids, half a cell apart, so that few pairs are cut. Everything else must be equal; text counts without case, spaces
    and punctuation.

    Parameters
    ----------
    X : container
        Records.
    like : container, optional
        Records that fix the grid; ``X`` if absent.
    """
    if hasattr(X, "tocsr"):
        return None
    if hasattr(X, "columns"):
        ref = X if like is None else like
        both = [[_cells(X.iloc[:, j], ref.iloc[:, j], shift) for j in range(X.shape[1])] for shift in (0.0, 0.5)]
        return _combine(both[0], len(X)), _combine(both[1], len(X))
    if hasattr(X, "shape"):
        array = np.asarray(X)
        if array.dtype.kind != "f":
            return None
        flat = array.reshape(len(array), -1)
        ref = flat if like is None else np.asarray(like).reshape(len(like), -1)
        step = _step(ref)
        return _numbers(np.floor(flat / step)), _numbers(np.floor(flat / step + 0.5))
    if all(isinstance(v, str) for v in X):
        plain = _text([re.sub(r"[\W_]+", " ", v).strip().casefold() for v in X])
        return plain, plain
    return None


def _mix(x: Print) -> Print:
    """Return well-mixed bits of each number (the finalizer of SplitMix64; Steele et al., 2014)."""
    x = (x ^ (x >> np.uint64(30))) * _M1
    x = (x ^ (x >> np.uint64(27))) * _M2
    return np.asarray(x ^ (x >> np.uint64(31)), dtype=np.uint64)


def _bits(a: NDArray[Any]) -> Print:
    """Return the bits of each number as float64, one form for zero and one for NaN."""
    f = a.astype(np.float64) + 0.0  # -0.0 + 0.0 is 0.0
    f[np.isnan(f)] = np.nan
    return f.view(np.uint64)


def _keys(width: int) -> Print:
    return _mix(_GOLDEN * np.arange(1, width + 1, dtype=np.uint64))


def _numbers(array: NDArray[Any]) -> Print:
    flat = array.reshape(len(array), -1)
    keys = _keys(flat.shape[1])
    out = np.empty(len(flat), dtype=np.uint64)
    for start in range(0, len(flat), _ROWS):
        block = np.ascontiguousarray(flat[start : start + _ROWS])
        out[start : start + _ROWS] = _mix(_bits(block) ^ keys).sum(axis=1, dtype=np.uint64)
    return out


def _sparse(csr: Any) -> Print:
    csr = csr.copy()
    csr.sum_duplicates()
    csr.eliminate_zeros()
    cells = _mix(_bits(csr.data) ^ _mix(_GOLDEN * (csr.indices.astype(np.uint64) + np.uint64(1))))
    # running sums wrap around, and so do their differences: exact
    total = np.concatenate([np.zeros(1, dtype=np.uint64), np.cumsum(cells, dtype=np.uint64)])
    return np.asarray(total[csr.indptr[1:]] - total[csr.indptr[:-1]], dtype=np.uint64)


def _text(values: list[str]) -> Print:
    from pandas.util import hash_array

    return np.asarray(hash_array(np.array(values, dtype=object)), dtype=np.uint64)


def _column(column: Any) -> Print:
    if column.dtype.kind in "biuf":
        return _mix(_bits(np.asarray(column)))
    return _text([str(v) for v in column.tolist()])


def _cells(column: Any, like: Any, shift: float) -> Print:
    if column.dtype.kind != "f":
        return _column(column)
    step = _step(np.asarray(like, dtype=np.float64)[:, None])[0]
    return _mix(_bits(np.floor(np.asarray(column, dtype=np.float64) / step + shift)))


def _step(reference: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return a thousandth of each column's standard deviation; 1 for a constant column."""
    step = np.nanstd(reference.astype(np.float64), axis=0) * 1e-3
    return np.asarray(np.where(np.isfinite(step) & (step > 0), step, 1.0))


def _combine(columns: list[Print], n: int) -> Print:
    out = np.zeros(n, dtype=np.uint64)
    for key, column in zip(_keys(len(columns)), columns, strict=True):
        out += _mix(column ^ key)
    return out
