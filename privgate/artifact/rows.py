"""Finding training records in any array: rows of numbers that are, to the last bit, rows of the training data.

A row is named by the sum of mixed bits of its numbers, zeros adding nothing, so that sparse and dense ones agree. Where
records are so coarse that chance alone makes rows like theirs, finding one shows nothing: columns that were permuted
one by one make rows that nobody has, and an array that holds these as often was not made of the records.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float64]
Hash = NDArray[np.uint64]
Mask = NDArray[np.bool_]

#: rows by chance over rows of the data, above which nothing is shown
CHANCE = 0.1
#: permuted rows that are looked for at most
_PERMUTED = 20_000
#: and at least: of few records there are several permutations
_LEAST = 200
#: numbers of a sparse table that is permuted at most; larger ones are no work of chance
_MOST = 20_000_000
_KINDS = {"double": np.float64, "single": np.float32, "half": np.float16}
#: rows of an array that are looked for in single precision too
_NEARLY = 1_000_000


@dataclass(eq=False)
class Table:
    """Training records as one estimator sees them, to be looked for.

    Parameters
    ----------
    values : float64 array of shape (n, columns), or sparse
    """

    values: Any

    @property
    def columns(self) -> int:
        """Numbers in a record."""
        return int(self.values.shape[1])

    @cached_property
    def double(self) -> tuple[Hash, Hash]:
        """Names of the records, shape (n,), and of permuted rows that are no record's."""
        return self._names(np.float64)

    @cached_property
    def single(self) -> tuple[Hash, Hash]:
        """The same in single precision."""
        return self._names(np.float32)

    @cached_property
    def half(self) -> tuple[Hash, Hash]:
        """The same in half precision."""
        return self._names(np.float16)

    def _names(self, kind: Any) -> tuple[Hash, Hash]:
        own = named(self.values, kind)
        few = self.values[:_PERMUTED]
        dense = few.toarray() if hasattr(few, "tocsr") and few.shape[1] * few.shape[0] < _MOST else few
        if hasattr(dense, "tocsr"):
            return own, np.zeros(0, dtype=np.uint64)
        several = np.tile(dense, (-(-_LEAST // len(dense)), 1)) if len(dense) < _LEAST else dense
        return own, np.setdiff1d(named(np.random.default_rng(0).permuted(several, axis=0), kind), own)


def table(values: Any) -> Table | None:
    """Return records ready to be looked for; None where there is no table of numbers."""
    if hasattr(values, "tocsr"):
        return Table(values.tocsr())
    values = np.asarray(values)
    if values.dtype.kind not in "biuf" or values.ndim < 2 or 0 in values.shape:
        return None
    return Table(values.reshape(len(values), -1).astype(np.float64))


def named(values: Any, kind: Any = np.float64) -> Hash:
    """Return a name of each row, equal for equal rows; 0 for a row of zeros."""
    if hasattr(values, "tocsr"):
        made = values.tocsr()
        rows = np.repeat(np.arange(made.shape[0]), np.diff(made.indptr))
        total = np.zeros(made.shape[0], dtype=np.uint64)
        np.add.at(total, rows, _bits(made.data.astype(kind).astype(np.float64), made.indices.astype(np.uint64)))
        return total
    dense = np.asarray(values)
    total = np.zeros(len(dense), dtype=np.uint64)
    with np.errstate(over="ignore", invalid="ignore"):  # beyond half precision is infinite
        for j in range(dense.shape[1]):
            total += _bits(dense[:, j].astype(kind).astype(np.float64), np.uint64(j))
    return total


def found(array: Any, own: Table) -> tuple[Mask, Mask]:
    """Return which records an array holds for certain, and which perhaps, each of shape (n,)."""
    n = int(own.values.shape[0])
    sure = perhaps = np.zeros(n, dtype=bool)
    # a mean of one record alone is it but for the last digits; numbers of a text or of raw bytes are so many
    kinds = ("double", "single") if hasattr(array, "dtype") and array.shape[:1] <= (_NEARLY,) else ("double",)
    if getattr(array, "dtype", None) == np.float16:
        kinds = ("half",)
    for view, kind in ((v, k) for v in _views(array, own.columns) for k in kinds):
        names = np.unique(named(view, _KINDS[kind]))
        known, mixed = getattr(own, kind)
        hit = np.isin(known, names) & (known != 0)
        if not hit.any():
            continue
        sparse = hasattr(own.values, "tocsr") and not len(mixed)
        chance = np.isin(mixed, names).mean() if len(mixed) else float(not sparse)
        if chance <= CHANCE * hit.mean():
            sure = sure | hit
        elif view.shape[0] >= n // 2:
            perhaps = perhaps | hit
    return sure, perhaps & ~sure


def _views(array: Any, columns: int) -> list[Any]:
    """Return the ways in which an array may be made of rows of so many columns."""
    if hasattr(array, "tocsr"):
        return [array] if array.shape[1] == columns else []
    if array.dtype.kind not in "biuf" or array.size < columns or array.ndim == 0:
        return []
    made = []
    if array.ndim == 2 and 0 <= array.shape[1] - columns <= 4:  # records with a few columns beside them
        made += [array[:, k : k + columns] for k in range(array.shape[1] - columns + 1)]
    if array.ndim == 2 and array.shape[0] == columns:
        made.append(array.T)
    if array.ndim > 2 and (array.shape[-1] == columns or np.prod(array.shape[1:]) == columns):
        made.append(array.reshape(-1, columns))
    if array.ndim == 1 and columns > 1 and array.size % columns == 0:
        made += [array.reshape(-1, columns), array.reshape(columns, -1).T]
    return made


def _bits(values: Float, salt: Any) -> Hash:
    """Return mixed bits of numbers, 0 for 0 (splitmix64 of Steele, Lea and Flood, 2014)."""
    values = np.where(np.isnan(values), np.nan, values)  # one NaN
    z: Hash = np.ascontiguousarray(values + 0.0).view(np.uint64)
    with np.errstate(over="ignore"):
        z = z ^ ((salt + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15))
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    return np.where(values == 0, np.uint64(0), z)


def sequence(array: Any, columns: list[NDArray[Any]]) -> bool:
    """Return whether an array is, in order and to the last bit, one of the columns; of two values or more."""
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "biufU":
        return False
    flat = array.reshape(-1)
    for column in columns:
        if flat.size != column.size or (flat.dtype.kind == "U") != (column.dtype.kind in "OU"):
            continue
        if flat.dtype.kind == "U":
            if (flat == column.astype(str)).all():
                return True
        elif column.dtype.kind in "biuf" and _same(flat.astype(np.float64), column.astype(np.float64), flat.dtype):
            return True
    return False


def _same(a: Float, b: Float, dtype: Any) -> bool:
    if np.nanmin(b, initial=np.inf) == np.nanmax(b, initial=-np.inf):
        return False
    rounded = b.astype(dtype).astype(np.float64) if dtype == np.float32 else b
    return bool(np.array_equal(a, rounded, equal_nan=True))
