"""Records that are moments and no people: a series in time, or windows over one, of which nobody can be left out."""

import re
from typing import Any

import numpy as np

from privgate.subject import containers

#: a date, as text
_DATE = r"\d{4}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d)?)?"


def refusal(X: Any) -> str:
    """Return why no record of ``X`` is a person, and what to name instead; empty if they may be people."""
    if where := _steps_of_time(X):
        return (
            f"{where} runs through time in equal steps, so that records are moments and no people; name what is "
            "left out together: groups=(the person or the block of time that each record belongs to)"
        )
    if _windows(X):
        return (
            "each row of X is the one before it moved on by one column, so that records are windows over one "
            "series and no people; name what is left out together: groups=(the block of time of each record)"
        )
    return ""


def _windows(X: Any) -> bool:
    """Whether each record is the one before it, moved on by one column: windows over one series."""
    array = X if isinstance(X, np.ndarray) else None
    if array is None and containers.is_frame(X) and all(getattr(d, "kind", "O") in "iuf" for d in X.dtypes):
        array = X.to_numpy()
    if array is None or array.ndim != 2 or array.dtype.kind not in "iuf" or array.shape[1] < 2 or len(array) < 10:
        return False
    many = len(np.unique(array[:, 0])) > len(array) // 2  # not codes and flags, which repeat by themselves
    one = len(array) - 1
    moved = [(array[1:, :-1] == array[:-1, 1:]), (array[1:, 1:] == array[:-1, :-1])]
    return bool(many and max(int(m.all(axis=1).sum()) for m in moved) > 0.9 * one)


def _steps_of_time(X: Any) -> str:
    """Return what of a frame is a regular series of times, each once; empty if nothing is."""
    if not containers.is_frame(X) or len(X) < 3:
        return ""
    import pandas as pd

    named = [("the index of X", X.index), *((f"column {c!r} of X", X[c]) for c in X.columns)]
    for name, values in named:
        if getattr(values.dtype, "kind", "") != "M":
            written = values.dtype == object or str(values.dtype).startswith(("str", "string"))
            if not written or not all(isinstance(v, str) and re.fullmatch(_DATE, v) for v in values):
                continue
        times = pd.DatetimeIndex(pd.to_datetime(values, errors="coerce"))
        if times.is_unique and not times.hasnans and pd.infer_freq(times.sort_values()) is not None:
            return name
    return ""
