"""Parts of a model that keep records: estimators known by name, and numbers whose meaning nobody here knows."""

import inspect
import sys
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from types import FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.evidence.telling import SMALL_CELL
from privgate.training.recognition import of_file, whose

# What detectors say: of which records a part of a model carries a trace of their own, for certain or perhaps.

Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Carried:
    """One kind of trace in one place.

    Parameters
    ----------
    kind : str
        Key of ``KINDS``.
    where : str
        Class and attribute; never a value.
    rows : bool array of shape (n,), optional
        The records, where it can be told which.
    least : int
        So many records at least, where it cannot.
    most : int
        So many at most.
    beside : int
        Records that share it with a few others; told of, not counted.
    """

    kind: str
    where: str
    rows: Mask | None = None
    least: int = 0
    most: int = 0
    beside: int = 0

    @property
    def count(self) -> tuple[int, int]:
        """Records at least and at most."""
        own = 0 if self.rows is None else int(self.rows.sum())
        return max(own, self.least), max(own, self.least, self.most)


#: kind -> what it is, for people
KINDS = {
    "stored_records": "whole records, kept by a model that answers from them",
    "exact_rows": "numbers that are rows of the training data, exactly",
    "column": "the targets or a column of the training data, in the records' order",
    "per_record": "one number or more for each record",
    "maybe_per_record": "an array with as many entries as there are records, whose meaning is not known",
    "single_leaf": "leaves that one record alone made",
    "small_leaf": "leaves of two to four records",
    "reconstruction": "leaf counts of trees grown on all records, from which training sets were reconstructed",
    "single_text": "words, names or categories that one record alone brought in",
    "single_count": "counts of one: a cell that one record alone filled",
    "embedding": "a row of weights for somebody who has a value of their own",
    "few": "means and scales learned from very few records",
    "extremes": "smallest and largest values, each of one record alone",
    "calibration_points": "points of a calibration or of quantiles, each taken from a record",
}


def total(found: list[Carried], unknown: list[str], n: int) -> tuple[int, int]:
    """Return of how many records the file carries a trace, at least and at most; unknown parts may hold all of them."""
    union = np.zeros(n, dtype=bool)
    extra = least = 0
    for c in found:
        if c.rows is not None:
            union |= c.rows
        low, high = c.count
        least, extra = max(least, low), extra + (high - (0 if c.rows is None else int(c.rows.sum())))
    own = int(union.sum())
    return max(own, min(least, n)), n if unknown else min(n, own + extra)


@dataclass(eq=False)
class Context:
    """What detectors know of the training data.

    Parameters
    ----------
    n : int
    y : array of shape (n,)
    inputs : dict of id -> container of n records
        What each estimator of the model was fitted to, where it can be told.
    """

    n: int
    y: NDArray[Any]
    inputs: dict[int, Any] = field(default_factory=dict)

    def given(self, thing: Any) -> Any:
        """Return the records that an estimator was fitted to; None where it cannot be told."""
        return self.inputs.get(id(thing))

    def matrix(self, thing: Any) -> NDArray[np.float64] | None:
        """Return the same as numbers; None where they are not known, or no table of numbers."""
        return numbers(self.given(thing))


def numbers(X: Any) -> NDArray[np.float64] | None:
    """Return records as a table of numbers; None where they are none."""
    made = X.toarray() if hasattr(X, "toarray") else (None if X is None or isinstance(X, list) else np.asarray(X))
    if made is None or made.ndim != 2:
        return None
    try:
        return np.asarray(made, dtype=np.float64)
    except (TypeError, ValueError):
        return None


# Estimators that keep records, or something of single records, in attributes that are known by name.

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


# What classes and functions of nobody's library keep in a model: numbers whose meaning nobody here knows.
#
# A library's attributes are known by name. A class that came with the model may hold records scaled, permuted, in half
# precision or as text, and there is no end of ways: more than a few numbers of its own may be anybody's.

#: numbers that are no records: so many besides, and a column so many scales and as many weights as there are labels
PLAIN, SCALES, LABELS = 64, 4, 50
#: letters of a text that may be a name or a remark
_TEXT = 128
_LONGEST = 100_000  # items; a longer collection is told by its length


def unexplained(roots: list[Any], allowed: int) -> list[str]:
    """Return a sentence on what classes and functions of nobody's library keep, if it is more than is allowed."""
    sizes: dict[str, float] = {}
    for where, size in _met(roots):
        sizes[where] = sizes.get(where, 0.0) + size
    total = sum(sizes.values())
    if total <= allowed:
        return []
    where = max(sizes, key=sizes.__getitem__)
    return [f"{where} and others of the model's own classes keep {total:.0f} numbers whose meaning nobody here knows"]


def _met(roots: list[Any]) -> Iterator[tuple[str, float]]:
    """Give the size, in numbers of 64 bits, of everything kept by what is no library's."""
    todo: list[tuple[Any, str]] = [(root, "") for root in roots]
    seen: dict[int, Any] = {}
    while todo:
        thing, where = todo.pop()
        if thing is None or isinstance(thing, type | ModuleType) or (id(thing) in seen and not isinstance(thing, int)):
            continue
        seen[id(thing)] = thing
        if (size := _size(thing)) is not None:
            if where and size:
                yield where, size
        elif isinstance(thing, Mapping | list | tuple | set | frozenset | deque):
            inner = [*thing.keys(), *thing.values()] if isinstance(thing, Mapping) else list(thing)
            if len(inner) > _LONGEST and where:
                yield where, float(len(inner))
                continue
            todo += [(v, where) for v in inner]
        elif isinstance(thing, partial | MethodType):
            parts = [thing.func, thing.args, thing.keywords] if isinstance(thing, partial) else [thing.__self__]
            todo += [(v, where) for v in (*parts, getattr(thing, "__func__", None))]
        elif isinstance(thing, FunctionType):
            if whose(thing.__code__) in ("own", "python"):
                cells = [c.cell_contents for c in thing.__closure__ or () if _full(c)]
                held = [cells, thing.__defaults__, thing.__kwdefaults__, vars(thing)]
                todo += [(v, thing.__name__) for v in held]
        else:
            todo += list(_attributes(thing))


def _size(thing: Any) -> float | None:
    """Return how many numbers a value is; None where it has parts."""
    if isinstance(thing, bool | float | complex | np.generic):
        return 1.0
    if isinstance(thing, int):
        return max(1.0, thing.bit_length() / 64)
    if isinstance(thing, str):
        return len(thing) / 8 if len(thing) > _TEXT else 0.0
    if isinstance(thing, np.ndarray):
        return None if thing.dtype.hasobject else float(thing.size)
    if isinstance(thing, bytes | bytearray | memoryview):
        return 0.0  # named as unknown where they are met
    if hasattr(thing, "numel") and hasattr(thing, "element_size"):
        return 0.0 if thing.requires_grad else float(thing.numel())
    if hasattr(thing, "tocsr") and hasattr(thing, "nnz"):
        return float(thing.nnz)
    if type(thing).__module__.partition(".")[0] == "pandas" and hasattr(thing, "size"):
        return float(thing.size)
    return None


def _full(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False


def _attributes(thing: Any) -> Iterator[tuple[Any, str]]:
    """Give the attributes of an object, and under whose name they are counted: nobody's, if its library knows them."""
    held = dict(getattr(thing, "__dict__", None) or {})
    for one in type(thing).__mro__:
        slots = one.__dict__.get("__slots__", ())
        for key in (slots,) if isinstance(slots, str) else slots:
            if hasattr(thing, key):
                held.setdefault(key, getattr(thing, key))
    name = type(thing).__name__
    if _is_own(type(thing).__module__):
        for key, value in held.items():
            # parameters of a network are what training made of everybody
            yield value, "" if key in ("_parameters", "_modules") else f"{name}.{key}"
        return
    kind: Any = type(thing)
    known = _names(kind)
    for key, value in held.items():
        if key == "_buffers" and isinstance(value, dict):
            yield from ((v, "" if f'"{k}"' in known else f"{name}.{k}") for k, v in value.items())
        else:
            yield value, "" if not known or key in known else f"{name}.{key}"


@cache
def _is_own(module: str) -> bool:
    """Whether a module is neither installed, nor ours, nor Python's."""
    root = module.partition(".")[0]
    if root in ("builtins", "privgate") or (root in sys.stdlib_module_names and root != "__main__"):
        return False
    file = getattr(sys.modules.get(module) or sys.modules.get(root), "__file__", None)
    return file is None or of_file(file) == "own"


@cache
def _names(kind: type) -> str:
    """Return the sources of a library's class and of what it is made from; empty where they cannot be read."""
    texts = []
    for one in kind.__mro__:
        if one is object or one.__module__ == "builtins":
            continue
        try:
            texts.append(inspect.getsource(sys.modules[one.__module__]))
        except (OSError, TypeError, KeyError):
            return ""
    return "\n".join(texts)
