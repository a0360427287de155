"""Questions that a declared domain rules out, or should: what the served model must refuse."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.random import Generator

from privgate.arrays import Float
from privgate.subject.containers import make_like, take
from privgate.theorems import hypotheses

#: columns of which odd values are tried
_COLUMNS = 24


def make_odd_questions(domain: Mapping[str, Any], X: Any, rng: Generator) -> Iterator[tuple[str, Any]]:
    """Yield (in words, one record of ``X`` with one value that a domain, as JSON values, may rule out)."""
    if len(getattr(X, "shape", ())) != 2:
        return
    names = list(getattr(X, "columns", range(X.shape[1])))
    for j in rng.permutation(len(names))[:_COLUMNS].tolist():
        for what, value in _odd_values(domain, j, names[j]):
            yield f"column {names[j]!r} {what}", _changed(take(X, rng.integers(int(X.shape[0]), size=1)), j, value)
    rows = hypotheses.dense(take(X, rng.integers(int(X.shape[0]), size=8)))
    if rows is not None:
        yield from (("several columns together", make_like(row[None], X)) for row in _odd_rows(domain, rows, rng))


def _odd_rows(domain: Mapping[str, Any], rows: Float, rng: Generator) -> Iterator[Float]:
    """Yield questions of which each number is one that is answered, and which a domain rules out as a whole."""
    d = rows.shape[1]
    for block in domain.get("blocks", ()):
        row = rows[0].copy()
        row[list(block)[:2]] = 1.0
        yield row
    if sides := domain.get("box") or [(0, v - 1) for v in domain.get("categories") or ()]:
        for k in np.array_split(rng.permutation(d), min(d, 32)):  # every column of a wide table, some at a time
            yield np.where(np.isin(np.arange(d), k), np.array(sides, dtype=np.float64)[:, 1] + 1, rows[0])


def _odd_values(domain: Mapping[str, Any], j: int, name: Any) -> Iterator[tuple[str, Any]]:
    column: Mapping[str, Any] = next((c for c in domain.get("columns") or () if c["name"] == name), {})
    box, counts = domain.get("box"), domain.get("categories")
    ends = column.get("ends") if column else box[j] if box else None
    values = column.get("values") or (range(counts[j]) if counts else ())
    yield from (("missing", np.nan), ("infinite", np.inf), ("far below", -1e300), ("far above", 1e300), ("below 0", -1))
    if ends is not None:
        low, high = ends
        yield from (("below its range", np.nextafter(low, -np.inf)), ("above its range", np.nextafter(high, np.inf)))
        yield from (("below its range", np.floor(low) - 1), ("above its range", np.ceil(high) + 1))
    elif values and not any(isinstance(v, str) for v in values):
        yield from (("of an unknown category", max(values) + 1), ("between two categories", min(values) + 0.5))
    else:
        yield from (("of an unknown category", "no such category"), ("empty", ""))


def _changed(record: Any, j: int, value: Any) -> Any:
    """Return a record with another value in a column, in the column's own type where that holds it."""
    if hasattr(record, "iloc"):
        other, own = record.copy(), record.dtypes.iloc[j]
        other[record.columns[j]] = np.array([value], dtype=own if _type_holds(own, value) else None)
        return other
    table = np.array(record.toarray() if hasattr(record, "toarray") else record)
    if not _type_holds(table.dtype, value):
        table = table.astype(object if isinstance(value, str) else np.float64)
    table[0, j] = value
    return type(record)(table) if hasattr(record, "toarray") and table.dtype != object else table


def _type_holds(dtype: Any, value: Any) -> bool:
    if not isinstance(dtype, np.dtype) or isinstance(value, str) or dtype.kind not in "biuf":
        return False
    with np.errstate(all="ignore"):
        return bool(np.array(value).astype(dtype) == value or (dtype.kind == "f" and np.isnan(value)))
