"""The pool of an attack: who counts as a trial, who is one person, and who had to be left out."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate import digest
from privgate.data import TrainingData, take
from privgate.errors import MeasurementError

Index = NDArray[np.int64]
Bool = NDArray[np.bool_]

#: fewer people on either side than this, and no attack is run: half of them trains, half decides
LEAST = 20
#: more values than this in a numeric sensitive column, and it is cut at the quartiles of the training records
MOST_VALUES = 12


@dataclass(frozen=True, eq=False)
class Pool:
    """Training records, then candidates; and which of them are fit to be trials.

    Parameters
    ----------
    members : bool array of shape (P,)
        Training records.
    eligible : bool array of shape (P,)
        False for candidates that are also training records, repeat another candidate, or carry an unknown label; shadow
        models are trained on the others.
    trial : bool array of shape (P,)
        Eligible rows that no other person's row equals. Were only the candidates thinned, the records left among them
        would be rarer ones than the members', and an attack that spots rare records would seem to spot members.
    unit : int64 array of shape (P,)
        Number of the person of each row: training units first, then one for each candidate.
    labels : int64 array of shape (P,)
        Class position; 0 for a label that the training set does not know (never eligible).
    removed : mapping reason -> count
        Candidates left out, and people who are no trials because somebody's record equals theirs; for the report.
    """

    members: Bool
    eligible: Bool
    trial: Bool
    unit: Index
    labels: Index
    removed: Mapping[str, int]


def fingerprints(X: Any, y: NDArray[Any], n: int) -> list[str]:
    """Return one digest a record, equal for records with equal features and label."""
    if hasattr(X, "tocsr"):
        rows: list[bytes] = [b"".join((r.indices.tobytes(), r.data.tobytes())) for r in X.tocsr()]
    elif hasattr(X, "iloc"):
        rows = [repr(r).encode() for r in X.itertuples(index=False, name=None)]
    elif hasattr(X, "shape"):
        # + 0.0: a float pool holds -0.0 and 0.0 for one value
        flat = np.asarray(X).reshape(n, -1)
        flat = np.ascontiguousarray(flat + 0.0 if flat.dtype.kind == "f" else flat)
        rows = [r.tobytes() for r in flat]
    else:
        rows = [str(v).encode() for v in X]
    return [digest.of_bytes(row, str(label).encode()) for row, label in zip(rows, y.tolist(), strict=True)]


def of(data: TrainingData) -> Pool:
    """Return the pool of a subject's data.

    Raises
    ------
    MeasurementError
        There are no candidates, or too few are left on either side.
    """
    if data.candidates is None or len(data.candidates[1]) == 0:
        raise MeasurementError(
            "no candidates: attacks need people who were not trained on; pass TrainingData(..., candidates=(X, y))"
        )
    X, y = data.pool()
    n, size = data.n, len(y)
    classes = data.classes()
    labels = np.minimum(np.searchsorted(classes, y), len(classes) - 1).astype(np.int64)
    unknown = classes[labels] != y
    names = fingerprints(X, y, size)
    known = set(names[:n])
    overlap, repeated = np.zeros(size, dtype=bool), np.zeros(size, dtype=bool)
    for i in range(n, size):
        overlap[i] = names[i] in known
    seen: set[str] = set()
    for i in range(n, size):
        repeated[i] = names[i] in seen
        seen.add(names[i])
    eligible = ~(overlap | repeated | unknown)
    unit = np.empty(size, dtype=np.int64)
    for u, rows in enumerate(data.units):
        unit[rows] = u
    unit[n:] = len(data.units) + np.arange(size - n)
    owner: dict[str, int] = {}
    shared: set[str] = set()
    for name, person in zip(names, unit.tolist(), strict=True):
        if owner.setdefault(name, person) != person:
            shared.add(name)
    unique = np.array([name not in shared for name in names])
    trial = eligible & unique
    inside, outside = len(np.unique(unit[:n][trial[:n]])), int(trial[n:].sum())
    removed = {
        "also_in_training": int(overlap.sum()),
        "repeated": int((repeated & ~overlap).sum()),
        "unknown_label": int((unknown & ~overlap & ~repeated).sum()),
        "members_with_a_double": int((~unique[:n]).sum()),
    }
    if min(inside, outside) < LEAST:
        raise MeasurementError(
            f"{inside} people in the training set and {outside} usable candidates are too few for a split; at least "
            f"{LEAST} of each are needed (removed: {', '.join(f'{v} {k}' for k, v in removed.items())})"
        )
    return Pool(np.arange(size) < n, eligible, trial, unit, labels, removed)


def features(data: TrainingData) -> NDArray[np.float64] | None:
    """Return numeric features of the pool, shape (P, d), for adversaries who know whole records; None without any."""
    X, _ = data.pool()
    if hasattr(X, "tocsr"):
        X = X.toarray() if X.shape[1] <= 2000 else None
    elif hasattr(X, "select_dtypes"):
        X = X.select_dtypes("number")
    if X is None or not hasattr(X, "shape") or len(X.shape) != 2 or X.shape[1] == 0:
        return None
    array = np.asarray(X)
    if array.dtype.kind not in "biuf":
        return None
    return np.nan_to_num(array.astype(np.float64), posinf=0.0, neginf=0.0)


def groups(data: TrainingData, column: str | int | None) -> dict[str, NDArray[Any]]:
    """Return ``column name -> text value of every pool row`` for one sensitive column, or for all of them.

    Raises
    ------
    MeasurementError
        The column is not declared sensitive, or is not there.
    """
    wanted = data.sensitive if column is None else tuple(c for c in data.sensitive if str(c) == str(column))
    if not wanted:
        what = "no sensitive column is declared" if column is None else f"{column!r} is not declared sensitive"
        raise MeasurementError(f"{what}; pass TrainingData(..., sensitive=(…))")
    X, _ = data.pool()
    return {str(c): _values(X, c, data.n) for c in wanted}


def _values(X: Any, column: str | int, n: int) -> NDArray[Any]:
    if hasattr(X, "iloc"):
        if column not in X.columns:
            raise MeasurementError(f"sensitive column {column!r} is not among the features")
        raw = X[column].to_numpy()
    elif hasattr(X, "shape") and len(X.shape) == 2 and isinstance(column, int) and 0 <= column < X.shape[1]:
        raw = np.asarray(take(X.T, np.array([column])).todense() if hasattr(X, "tocsr") else X[:, column]).ravel()
    else:
        raise MeasurementError(f"sensitive column {column!r} cannot be read from a {type(X).__name__}")
    if raw.dtype.kind in "iuf" and len(np.unique(raw)) > MOST_VALUES:
        edges = np.unique(np.nanquantile(raw[:n].astype(np.float64), [0.25, 0.5, 0.75]))
        names = [f"below {edges[0]:g}", *(f"from {e:g}" for e in edges)]
        return np.asarray(np.array(names)[np.searchsorted(edges, raw, side="right")])
    return np.asarray(raw.astype(str))
