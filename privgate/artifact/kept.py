"""Estimators that keep records, or something of single records, in attributes that are known by name."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.artifact.carried import Carried, Context
from privgate.evidence.values import SMALL_CELL

#: attributes that hold one row of records for each that is kept: nearest neighbours, kernels, processes, prototypes
_RECORDS = ("_fit_X", "X_fit_", "X_train_", "_X_fit", "X_")
#: attributes with an entry a record
_EACH = ("oob_decision_function_", "oob_prediction_", "y_train_", "_y", "labels_", "transduction_", "embedding_",
         "label_distributions_", "negative_outlier_factor_", "codes_")  # fmt: skip
#: attributes that count records in cells
_COUNTS = ("class_count_", "feature_count_", "category_count_", "counts_", "cells_")


def of(thing: Any, about: Context) -> Iterator[Carried]:
    """Give what one object keeps of single records."""
    own, name = getattr(thing, "__dict__", None), type(thing).__name__
    if not isinstance(own, dict):
        return
    for key in _RECORDS:
        count = _length(own.get(key))
        if count and not (key == "X_" and not hasattr(thing, "predict")):
            yield _several("stored_records", f"{name}.{key}", count, about.n)
    for key in _EACH:
        if _length(own.get(key)) == about.n:
            yield Carried("per_record", f"{name}.{key}", np.ones(about.n, dtype=bool))
    if "support_" in own and "support_vectors_" in own:
        yield _support(own, name, about)
    for key in _COUNTS:
        if key in own:
            yield from _counts(own[key], f"{name}.{key}", about.n)
    yield from _few(own, name, about)
    yield from _extremes(thing, own, name, about)
    yield from _points(own, name, about)
    yield from _edges(thing, own, name, about)


def _length(value: Any) -> int:
    shape = getattr(value, "shape", None)
    if shape:
        return int(shape[0])
    return len(value) if isinstance(value, list | tuple) else 0


def _several(kind: str, where: str, count: int, n: int) -> Carried:
    """Return a trace of so many records: of everybody where there are as many as records."""
    if count >= n:
        return Carried(kind, where, np.ones(n, dtype=bool))
    return Carried(kind, where, least=count, most=count)


def _support(own: dict[str, Any], name: str, about: Context) -> Carried:
    """Return the support vectors; positions count among the records of the fit, which a fold does not share."""
    place = np.asarray(own["support_"], dtype=np.int64)
    rows = np.zeros(about.n, dtype=bool)
    whole = len(place) and own.get("shape_fit_", (0,))[0] == about.n
    if whole:
        rows[place] = True
    return Carried("stored_records", f"{name}.support_vectors_", rows if whole else None, len(place), len(place))


def _counts(value: Any, where: str, n: int) -> Iterator[Carried]:
    """Give cells of one record: those of one table exclude one another, those of several may be of the same record."""
    if isinstance(value, dict):
        value = np.array([np.sum(v) for v in value.values()])
        tables = [value]
    elif isinstance(value, list):
        tables = [np.asarray(v) for v in value]
    else:
        made = np.asarray(value)
        if made.dtype.kind not in "iuf":
            return
        tables = list(made) if made.ndim > 2 else [made]
        if where.endswith(".feature_count_"):
            tables = [made[:, j] for j in range(made.shape[1])]
    ones: list[int] = [int((t == 1).sum()) for t in tables if t.dtype.kind in "iuf"]
    if any(ones):
        yield Carried("single_count", where, least=min(n, max(ones)), most=min(n, sum(ones)))


def _few(own: dict[str, Any], name: str, about: Context) -> Iterator[Carried]:
    seen = own.get("n_samples_seen_", own.get("n_samples_"))
    if seen is None or not np.size(seen) or ("mean_" not in own and "scale_" not in own):
        return
    least = int(np.min(seen))
    if 0 < least < SMALL_CELL <= about.n:
        yield Carried("few", f"{name}.n_samples_seen_", least=least, most=least * int(np.size(seen)))


def _extremes(thing: Any, own: dict[str, Any], name: str, about: Context) -> Iterator[Carried]:
    """Give records whose value a scaler keeps because nobody else's is as small or as large."""
    keys = [k for k in ("data_min_", "data_max_", "max_abs_") if k in own]
    if not keys:
        return
    X = about.matrix(thing)
    if X is None or X.shape != (about.n, len(own[keys[0]])):
        yield Carried("extremes", name, most=min(about.n, 2 * len(own[keys[0]])))
        return
    rows = np.zeros(about.n, dtype=bool)
    for key in keys:
        hit = (np.abs(X) if key == "max_abs_" else X) == own[key]
        rows |= (hit & (hit.sum(axis=0) == 1)).any(axis=1)
    if rows.any():
        yield Carried("extremes", name, rows)


def _points(own: dict[str, Any], name: str, about: Context) -> Iterator[Carried]:
    for key in ("X_thresholds_", "quantiles_"):
        if key in own:
            points: NDArray[Any] = np.asarray(own[key])
            if key == "quantiles_" and len(points) < about.n:
                continue  # between records, not at them
            different = len(np.unique(points)) if points.ndim == 1 else len(points)
            yield _several("calibration_points", f"{name}.{key}", different, about.n)


def _edges(thing: Any, own: dict[str, Any], name: str, about: Context) -> Iterator[Carried]:
    """Give records of which an edge of a bin or a knot is the value, where nobody else has it."""
    edges = own.get("bin_edges_") if "bin_edges_" in own else [getattr(b, "t", ()) for b in own.get("bsplines_", ())]
    if edges is None or not len(edges):
        return
    X = about.matrix(thing)
    if X is None or X.shape != (about.n, len(edges)):
        yield Carried("calibration_points", name, most=min(about.n, sum(len(e) for e in edges)))
        return
    rows = np.zeros(about.n, dtype=bool)
    for column, points in zip(X.T, edges, strict=True):
        _, place, counts = np.unique(column, return_inverse=True, return_counts=True)
        rows |= np.isin(column, points) & (counts[place] == 1)
    if rows.any():
        yield Carried("calibration_points", name, rows)
