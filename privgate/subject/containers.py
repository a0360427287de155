"""Containers of records: rows of them, one after another, and their digests; memory order is kept, always."""

from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate import digest
from privgate.arrays import Index
from privgate.errors import SubjectError

#: what holds several values
_NESTED = (list, tuple, set, frozenset, dict, np.ndarray)


def is_pandas(X: Any) -> bool:
    """Whether this is a DataFrame or a Series."""
    return type(X).__module__.startswith("pandas") and hasattr(X, "iloc")


def is_frame(X: Any) -> bool:
    """Whether this is a DataFrame."""
    return is_pandas(X) and hasattr(X, "columns")


def is_sparse(X: Any) -> bool:
    """Whether this is a scipy sparse matrix or array."""
    return hasattr(X, "tocsr") and hasattr(X, "nnz")


def as_numbers(values: Any) -> NDArray[np.float64] | None:
    """Return a column or array of numbers as float64, NaN for what is missing; None where its type is no number."""
    if str(getattr(values, "dtype", "")) == "category":
        values = np.asarray(values)
    if getattr(values.dtype, "kind", "O") not in "biuf":
        return None
    if is_pandas(values):  # a type of pandas names the kind of its numbers, and holds ``pandas.NA`` among them
        return np.asarray(values.to_numpy(dtype=np.float64, na_value=np.nan))
    return np.asarray(values, dtype=np.float64)


def length(X: Any) -> int:
    """Return the number of records of an array, DataFrame, sparse matrix or list."""
    return int(X.shape[0]) if hasattr(X, "shape") else len(X)


def order_of(X: Any) -> str:
    """Return "C" or "F": the memory order of the array that a learner sees; empty where there is no choice.

    Sums in another order differ in their last bit, of which a learner that has not converged makes 0.6.
    """
    if is_frame(X):
        kinds = set(X.dtypes)
        plain = len(kinds) == 1 and isinstance(dtype := next(iter(kinds)), np.dtype) and dtype.kind in "biufc"
        X = X.to_numpy() if plain else None
    flags = X.flags if isinstance(X, np.ndarray) else None
    return "" if flags is None or flags.c_contiguous == flags.f_contiguous else "C" if flags.c_contiguous else "F"


def laid_out(X: Any, order: str) -> Any:
    """Return the same records in this memory order."""
    if order in {"", order_of(X)}:
        return X
    values = np.asarray(X.to_numpy() if is_frame(X) else X, order="C" if order == "C" else "F")
    if not is_frame(X):
        return values
    import pandas as pd

    return pd.DataFrame(values, index=X.index, columns=X.columns, copy=False)


def make_like(rows: NDArray[np.float64], like: Any) -> Any:
    """Return a table of numbers in the kind of container, and of the types, of other records."""
    if is_frame(like):
        import pandas as pd

        return pd.DataFrame(rows, columns=like.columns).astype(like.dtypes.to_dict())
    if is_sparse(like):
        import scipy.sparse as sp

        return sp.csr_matrix(rows.astype(like.dtype))
    return rows.astype(np.asarray(like).dtype)


def take(X: Any, rows: Index) -> Any:
    """Return the given rows of any container, in the given order."""
    if is_pandas(X):
        return X.iloc[rows]
    if isinstance(X, np.ndarray) and X.ndim > 1:
        return laid_out(X[rows], order_of(X))
    if hasattr(X, "shape"):
        return X[rows]
    return [X[int(i)] for i in rows]


def stack(X: Any, other: Any) -> Any:
    """Return the records of both containers, one after the other; both are of one kind."""
    if is_pandas(X):
        import pandas as pd

        return laid_out(pd.concat([X, other], ignore_index=True), order_of(X))
    if is_sparse(X):
        import scipy.sparse as sp

        return sp.vstack([X, other], format="csc" if X.format == "csc" else "csr")
    if hasattr(X, "shape"):
        return laid_out(np.concatenate([np.asarray(X), np.asarray(other)]), order_of(X))
    return [*X, *other]


def checked(X: Any) -> Any:
    """Return a container that can be stored and asked for rows; what would reach training as another is refused."""
    if is_sparse(X):
        return X if X.format in {"csr", "csc"} else X.tocsr()
    if is_frame(X):
        named = X.columns.is_unique and all(isinstance(c, str | int | np.integer) for c in X.columns)
        if not named or X.columns.nlevels > 1:
            raise SubjectError(
                "the columns of X have names that are neither text nor numbers, or one twice; rename them"
            )
        if (empty := next((c for c, t in X.dtypes.items() if str(t).startswith("Sparse[")), None)) is not None:
            raise SubjectError(f"column {empty!r} of X is sparse; pass X.sparse.to_coo() or X.sparse.to_dense()")
    array, shape = isinstance(X, np.ndarray), getattr(X, "shape", None)
    odd = array and (np.ma.is_masked(X) or isinstance(X, np.matrix) or X.dtype.kind == "V")
    if odd or not (array or is_pandas(X) or isinstance(X, list | tuple)):
        what = f"{type(X).__module__.partition('.')[0]} {type(X).__name__}{' (a matrix, masked or structured)' * odd}"
        raise SubjectError(f"X is a {what}; pass a plain array, a DataFrame, a sparse matrix or a list of text")
    if shape is not None and (shape == () or 0 in shape[1:]):
        raise SubjectError("X has no records or no columns; pass one record a row")
    return X


def align_candidates(X: Any, other: Any) -> Any:
    """Return candidates with the columns of the training records, each of the same type."""
    ours, theirs = ((is_pandas(v), is_sparse(v), hasattr(v, "shape")) for v in (X, other))
    if ours != theirs:
        raise SubjectError(f"candidates are a {type(other).__name__}, records a {type(X).__name__}; pass one kind")
    if is_frame(X):
        if odd := [c for c in (*X.columns, *other.columns) if (c in X.columns) != (c in other.columns)]:
            who = "candidates" if odd[0] in X.columns else "training records"
            raise SubjectError(f"{who} lack the column {odd[0]!r}; pass the same columns")
        other = other if list(other.columns) == list(X.columns) else other[list(X.columns)]
        for name in [c for c in X.columns if X[c].dtype != other[c].dtype]:
            other = other.assign(**{name: cast_like(other[name], X[name], f"column {name!r}")})
    elif hasattr(X, "shape") and X.shape[1:] != other.shape[1:]:
        raise SubjectError(f"candidates have shape {other.shape} and records {X.shape}; pass the same columns")
    return cast_like(other, X, "X") if isinstance(X, np.ndarray) or (is_pandas(X) and not is_frame(X)) else other


def cast_like(values: Any, like: Any, what: str) -> Any:
    """Return candidates' values in the type of the training records; refuse them where one would change."""
    kinds = {getattr(v.dtype, "kind", "O") for v in (values, like)}
    if values.dtype == like.dtype or kinds <= set("US"):
        return values
    with suppress(TypeError, ValueError, OverflowError), np.errstate(invalid="ignore"):
        cast = values.astype(like.dtype)
        if _cells(cast) == _cells(values) or (kinds <= set("biuf") and bool((cast == values).all())):
            return cast
    types = f"type {values.dtype} and that of the training records of {like.dtype}"
    raise SubjectError(f"{what} of the candidates is of {types}, and values would change; give both the same type")


def _cells(column: Any) -> list[Any]:
    return [None if c in (["nan"], ["NA"]) else c for c in map(cell, np.asarray(column, dtype=object).ravel().tolist())]


def cell(value: Any) -> Any:
    """Return a JSON value that tells text, numbers and the kinds of nothing apart; text and None stay as they are."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool | np.bool_):
        return ["bool", str(bool(value))]
    if isinstance(value, int | np.integer):
        return ["int", str(int(value))]
    if isinstance(value, float | np.floating):
        return ["nan"] if value != value else ["float", float(value).hex()]  # noqa: PLR0124  the definition of NaN
    if (kind := type(value).__name__) == "NAType":
        return ["NA"]
    if isinstance(value, _NESTED) or getattr(value, "shape", ()) != ():  # the text of an array leaves its middle out
        raise SubjectError(f"a record holds a {kind} in one place; give each value a column, or make it text")
    return [kind, str(value)]


def content_digest(X: Any) -> str:
    """Return the digest of all values of a container, dtypes, categories and column names included."""
    if is_frame(X):
        named = ((c if isinstance(c, str) else int(c), X[c]) for c in X.columns)
        columns = (digest.canonical_json([name, *_column(column)]) for name, column in named)
        return digest.of_bytes(b"[" + b",".join(columns) + b"]")
    if is_pandas(X):
        return digest.of_json(["series", *_column(X)])
    if is_sparse(X):
        sparse = X if X.format == "csc" else X.tocsr()
        # the width of an index type is no part of the content: libraries narrow it
        wide = np.int32 if max(sparse.nnz, *sparse.shape) <= np.iinfo(np.int32).max else np.int64
        places = (sparse.indptr.astype(wide), sparse.indices.astype(wide))
        parts = [digest.of_array(a) for a in (*places, sparse.data)]
        return digest.of_json([list(sparse.shape), *parts, *(["csc"] if X.format == "csc" else [])])
    if isinstance(X, np.ndarray) and X.dtype == object:
        return digest.of_json([list(X.shape), [cell(v) for v in X.ravel().tolist()]])
    if hasattr(X, "shape"):
        return digest.of_array(np.asarray(X))
    return digest.of_json([cell(v) for v in X])


def _column(column: Any) -> list[Any]:
    kind, values = str(column.dtype), column.tolist()
    if kind == "category":
        held = [cell(v) for v in column.cat.categories.tolist()]
        return [kind, bool(column.cat.ordered), held, column.cat.codes.tolist()]
    if kind in {"str", "string"}:  # nothing is null there, whatever this pandas calls it
        return [kind, [v if isinstance(v, str) else None for v in values]]
    return [kind, [cell(v) if kind == "object" else None if v is None else str(v) for v in values]]


def plain(values: Any, what: str) -> NDArray[Any]:
    """Return an array without objects; refuse what is missing, and text among numbers: as text 1 and "1" are one."""
    try:
        array = np.asarray(values)
    except ValueError:  # lists of unequal length
        array = np.zeros((0, 2))
    if array.dtype.kind in "US" and isinstance(values, list | tuple):  # NumPy has made text of all, None and NaN too
        array = np.array([*values, None], dtype=object)[:-1]
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    objects = array.ravel().tolist() if array.dtype == object else ()
    if array.ndim > 1 or any(isinstance(v, _NESTED) for v in objects):
        said = "several labels or numbers a record are not judged together; log one model a column, each with its own y"
        raise SubjectError(f"{what}: {said}, and check each")
    if array.dtype == object and array.ndim:
        return _of_objects(array, what)
    if array.dtype.kind in "Mm" or (array.dtype.kind == "f" and what != "y"):
        _refuse_missing(np.isnat(array) if array.dtype.kind in "Mm" else np.isnan(array), what)
    return array


def _of_objects(array: NDArray[Any], what: str) -> NDArray[Any]:
    values = array.tolist()
    kinds = ["text" if isinstance(c, str) else "None" if c is None else c[0] for c in map(cell, values)]
    _refuse_missing(np.isin(kinds, ["None", "nan", "NA", "NaTType"]), what)
    known = set(kinds)
    if len(known) > 1 and not known <= {"int", "float"}:
        other = next(i for i, kind in enumerate(kinds) if kind != kinds[0])
        two = f"{kinds[0]} (record 0) with {kinds[other]} (record {other})"
        raise SubjectError(f"{what} mixes {two}, which as text may be the same; give all of them one type")
    return np.array(values if known <= {"int", "float", "bool"} else list(map(str, values)))


def _refuse_missing(missing: NDArray[Any], what: str) -> None:
    if missing.any():
        first = f"record {int(missing.argmax())} and perhaps others"
        raise SubjectError(f"{what} is missing (None or NaN) for {first}; fill it in or remove those records")


def scale_of(y: NDArray[Any]) -> tuple[float, float]:
    """Return mean and standard deviation of targets; 1 for the deviation where all are the same."""
    values = np.asarray(y, dtype=np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        mean, deviation = float(values.mean()), float(values.std())
    if not np.isfinite([mean, deviation]).all():
        raise SubjectError("the targets are too large for their deviation to be a number; use another unit")
    return mean, deviation if deviation > 0 else 1.0
