"""A pipeline whose first steps learn nothing is its last step on transformed records: engines and theorems see that.

Features are also undone into raw questions where that is possible: real models are asked where a theorem says that they
differ most. What cannot be undone keeps the value of somebody's record.
"""

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.arrays import Float
from privgate.evidence import Precondition
from privgate.families import listed
from privgate.families.pipelines.first_steps import Seen, through
from privgate.subject.containers import take
from privgate.subject.subject import Subject


@lru_cache(maxsize=4)
def seen(subject: Subject) -> Seen:
    """Return the subject as engines and theorems may see it."""
    return through(subject, listed.container)


#: a category that nobody declares
UNDECLARED = "no such category"


def lifted(first: Any, rows: Float, X: Any, like: NDArray[np.int64]) -> Any:
    """Return records (a frame or table like ``X``) that the fitted first steps make ``rows`` (Q, d) of, where known.

    Parameters
    ----------
    like : int64 array of shape (Q,)
        Whose record of ``X`` stands in for what cannot be undone.
    """
    raw = take(X, like)
    if not hasattr(raw, "shape") or len(raw.shape) != 2 or hasattr(raw, "nnz"):
        return raw
    columns = list(raw.columns) if hasattr(raw, "iloc") else list(range(raw.shape[1]))
    values = dict.fromkeys(range(len(columns)))
    for _, step in reversed(first.steps):
        found = _undone(step, rows, len(columns))
        if len(first.steps) > 1 or not found:
            break  # what stands behind another step is not undone
        values |= found
    if not hasattr(raw, "iloc"):
        made = np.array(raw)
        for k, column in values.items():
            if column is not None and made.dtype.kind == "f":
                made[:, k] = column
        return made
    made = raw.reset_index(drop=True)
    for k, column in values.items():
        if column is not None:
            made = _with(made, k, column)
    return made


def _undone(step: Any, rows: Float, d: int) -> dict[int, Any]:
    """Return the raw values of those columns that a step's features decide."""
    kind = type(step).__name__
    if kind == "ColumnTransformer":
        found: dict[int, Any] = {}
        for name, inner, _ in step.transformers_:
            where = step.output_indices_[name]
            at = list(step._transformer_to_input_indices[name])  # noqa: SLF001  how it resolved names and selectors
            part = _undone(inner, rows[:, where], len(at)) if where.stop > where.start else {}
            found |= {at[k]: v for k, v in part.items()}
        return found
    if step == "passthrough" and rows.shape[1] == d:
        return {k: rows[:, k] for k in range(d)}
    if kind == "FixedScaler":
        return _numbers(step, rows)
    if kind == "FixedOneHot":
        return _kinds([(c.values or ()) + ((None,) if c.missing else ()) for c in step.columns_], rows, step.unknown)
    if kind == "OneHotEncoder" and step.drop_idx_ is None:
        return _kinds([tuple(c.tolist()) for c in step.categories_], rows, step.handle_unknown)
    return {}


def _numbers(step: Any, rows: Float) -> dict[int, Any]:
    found, at = {}, 0
    for k, column in enumerate(step.columns_):
        low, high = column.ends
        x = low + np.clip(rows[:, at], 0, 1) * (high - low)
        if column.missing:
            x = np.where(rows[:, at + 1] > 0.5, np.nan, x)
        found[k], at = np.clip(x, low, high), at + 1 + column.missing
    return found


def _kinds(values: list[tuple[Any, ...]], rows: Float, unknown: str) -> dict[int, Any]:
    found, at = {}, 0
    for k, known in enumerate(values):
        block = rows[:, at : at + len(known)]
        nobody = UNDECLARED if all(v is None or isinstance(v, str) for v in known) else known[0]
        column = np.empty(len(rows), dtype=object)
        column[:] = [known[j] for j in block.argmax(axis=1)]
        if unknown != "error":
            column[block.max(axis=1, initial=0.0) <= 0.5] = nobody
        found[k], at = column, at + len(known)
    return found


def _with(frame: Any, k: int, column: Any) -> Any:
    """Return the frame with one column replaced, of the type that it had; as it was where that cannot hold them."""
    import pandas as pd

    kind = frame.dtypes.iloc[k]
    if getattr(kind, "kind", "O") in "iu":
        column = np.rint(column.astype(np.float64))
    try:
        new = pd.Series(column, index=frame.index).astype(kind)
    except (TypeError, ValueError):
        return frame
    series = [frame.iloc[:, j] for j in range(frame.shape[1])]
    series[k] = new.rename(frame.columns[k])
    return pd.concat(series, axis=1)


def understood(subject: Subject) -> tuple[Precondition, ...]:
    """Return what was found of a pipeline's first steps."""
    found = seen(subject)
    if not found.steps:
        return ()
    return (Precondition("first_steps", "passed", found.words, {"steps": list(found.steps)}),)
