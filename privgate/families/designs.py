"""What closed forms and theorems ask of the data before they speak: a matrix of numbers, and plain class labels."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.arrays import Index
from privgate.subject.subject import Subject

#: what looking at a parameter or a column of a kind that nobody expects may raise
ODD = (TypeError, ValueError, LookupError, ArithmeticError, AttributeError)


def odd(exc: Exception) -> str:
    """Return why nothing is said of a recipe that cannot even be looked at; its training will say what is wrong."""
    return f"a parameter or the data are of a kind that it does not expect ({type(exc).__name__})"


def estimator_of(subject: Subject, name: str) -> Any:
    """Return the recipe's estimator if it is exactly scikit-learn's class ``name``, else None."""
    estimator = subject.recipe.library_estimator
    if estimator is None or type(estimator).__name__ != name or not type(estimator).__module__.startswith("sklearn."):
        return None
    return estimator


def design_refusal(subject: Subject, *, double: bool = False, real: bool = False, missing: bool = False) -> str:
    """Return why the pool is no finite numeric matrix with class labels; empty if it is.

    Parameters
    ----------
    subject : Subject
    double : bool
        Whether numbers of single precision are refused, because the library then computes in it.
    real : bool
        Whether targets are real numbers, as a regression's are.
    missing : bool
        Whether values may be missing.
    """
    y = subject.data.y
    if not real and y.dtype.kind == "f" and not np.all(y == np.floor(y)):
        return "labels are not classes but real numbers"
    containers = [subject.data.X] + ([] if subject.data.candidates is None else [subject.data.candidates[0]])
    widths = set()
    for X in containers:
        array = table(X)
        if array is None:
            return "records are no two-dimensional numeric array"
        if not (np.isfinite(array) | (missing and np.isnan(array))).all():
            return "records hold NaN or infinity"
        widths.add(array.shape[1])
    if len(widths) != 1:
        return "candidates have another number of features than the training records"
    if double and matrix(subject).dtype in (np.float32, np.float16):
        return "records are of single precision, in which scikit-learn then computes; pass float64"
    return ""


def matrix(subject: Subject) -> NDArray[Any]:
    """Return the pool as a two-dimensional array of its own numeric type; ``refusal`` must have been empty."""
    first = table(subject.data.X)
    if first is None:
        raise TypeError("records are no two-dimensional numeric array")
    if subject.data.candidates is None:
        return first
    second = table(subject.data.candidates[0])
    return first if second is None else np.concatenate([first, second])


def unit_rows(subject: Subject, units: Index) -> tuple[Index, Index]:
    """Return (position in ``units``, row) of every record of the units, in the order of the units.

    Parameters
    ----------
    units : int64 array of shape (U,)
        Positions in ``subject.data.units``.
    """
    if subject.data.groups is None:  # a million one-row arrays take longer to join than the closed form itself
        return np.arange(len(units), dtype=np.int64), np.asarray(units, dtype=np.int64)
    members = subject.data.units
    sizes = np.array([len(members[u]) for u in units], dtype=np.int64)
    rows = np.concatenate([members[u] for u in units]) if len(units) else np.zeros(0, dtype=np.int64)
    return np.repeat(np.arange(len(units), dtype=np.int64), sizes), rows


def table(X: Any) -> NDArray[Any] | None:
    """Return records as a two-dimensional array of numbers; None where they are none."""
    if hasattr(X, "dtypes") and hasattr(X, "iloc"):
        if not all(getattr(t, "kind", "O") in "biuf" for t in X.dtypes):
            return None
    elif not hasattr(X, "shape") or hasattr(X, "nnz"):
        return None
    array = np.asarray(X)
    return array if array.ndim == 2 and array.dtype.kind in "biuf" else None


def vanishing(subject: Subject, units: Index) -> NDArray[np.bool_]:
    """Return which units take the last record of some class with them, shape (U,); a declared class stays."""
    if subject.declared_classes is not None or subject.task == "regression":
        return np.zeros(len(units), dtype=bool)
    labels, K = subject.label_codes, len(subject.classes)
    unit, rows = unit_rows(subject, units)
    pair, lost = np.unique(unit * K + labels[rows], return_counts=True)
    alone = lost >= np.bincount(labels, minlength=K)[pair % K]
    return np.asarray(np.bincount(pair // K, alone, len(units)) > 0)
