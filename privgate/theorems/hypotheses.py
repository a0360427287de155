"""What closed forms and theorems ask of recipe, records and declared domain before they speak."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.arrays import Index
from privgate.subject.subject import Subject
from privgate.theorems.accepted_range import Reach

#: unit roundoff of float64: one operation errs by at most this share
U = 2.0**-53
#: the smallest share of a count that float64 holds in full
TINY = 1e-290
#: entries of the largest sparse table that is written out
_CELLS = 4e8
VANISHED = "without the person one class has no record left"
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


def design_refusal(subject: Subject, *, real: bool = False) -> str:
    """Return why the pool is no finite matrix of doubles with class labels, or ``real`` targets; empty if it is."""
    y = subject.data.y
    if not real and y.dtype.kind == "f" and not np.all(y == np.floor(y)):
        return "labels are not classes but real numbers"
    widths = set()
    for X in [subject.data.X] + ([] if subject.data.candidates is None else [subject.data.candidates[0]]):
        array = table(X)
        if array is None:
            return "records are no two-dimensional numeric array"
        if not np.isfinite(array).all():
            return "records hold NaN or infinity"
        widths.add(array.shape[1])
    if len(widths) != 1:
        return "candidates have another number of features than the training records"
    return single_precision(subject.data.X)


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


def refusal(subject: Subject, name: str) -> str:
    """Return why a theorem about exact probabilities of ``name`` says nothing here; empty if it may."""
    estimator = estimator_of(subject, name)
    if estimator is None:
        return f"the recipe is not scikit-learn's {name} released by predict_proba"
    if problem := _inexact(subject) or _misfit(estimator, subject):
        return problem
    shape = subject.data.X.shape
    if hasattr(subject.data.X, "toarray") and np.prod(np.array(shape, dtype=np.float64)) > _CELLS:
        return f"a table of {shape[0]} by {shape[1]} numbers does not fit the memory"
    return ""


def _misfit(estimator: Any, subject: Subject) -> str:
    """Return which parameter of the estimator cannot be what the theorem speaks about; empty if all can."""
    X, K = subject.data.X, len(subject.classes)
    if not hasattr(X, "shape") or len(X.shape) != 2:
        return "the features are not a table"
    for name, length in (("class_prior", K), ("priors", K), ("alpha", X.shape[1]), ("min_categories", X.shape[1])):
        value = np.asarray(getattr(estimator, name, None), dtype=object)
        if value.ndim > 1 or (value.ndim == 1 and len(value) != length):
            return f"{name} does not have {length} entries"
        if name in ("class_prior", "priors") and value.ndim == 1 and not (value.astype(np.float64) > 0).all():
            return f"{name} rules out a class"
    return ""


def single_precision(X: Any) -> str:
    """Return why results of training in single precision are not bounded; empty for anything more precise."""
    kind = np.asarray(X).dtype if not hasattr(X, "toarray") else X.dtype
    if kind.kind == "f" and kind.itemsize != 8:
        what = "single" if kind.itemsize < 8 else "extended"
        return f"records are of {what} precision, in which the library then computes; pass float64"
    return ""


def _inexact(subject: Subject) -> str:
    if not subject.release.exact:
        return (
            f"the release is {subject.release.form} at temperature "
            f"{subject.release.temperature:g}; the bound is about exact probabilities"
        )
    if len(subject.classes) < 2:
        return "the training data have one class only"
    return ""


def own_estimator(subject: Subject, name: str) -> Any:
    """Return the recipe's estimator if it is exactly ``privgate.models``' class ``name``, else None."""
    from privgate import models

    estimator = subject.recipe.library_estimator
    return estimator if type(estimator) is getattr(models, name) else None


def own_refusal(subject: Subject, name: str) -> str:
    """Return why a theorem about exact probabilities of ``privgate.models``' class says nothing here."""
    estimator = own_estimator(subject, name)
    if estimator is None:
        return f"the recipe is not privgate.models.{name} released by predict_proba"
    X = subject.data.X
    if hasattr(X, "toarray") or len(getattr(X, "shape", ())) != 2:
        return "the features are not a dense table"
    if np.asarray(X).dtype.kind == "f" and np.isnan(np.asarray(X)).any():
        return "features are missing"
    alpha, K = float(getattr(estimator, "alpha", 0.0)), len(subject.classes)
    if alpha != 0 and not alpha / (subject.data.n + K * alpha) >= TINY:
        return f"float64 does not hold the probabilities that a smoothing of {alpha:g} gives"
    return _inexact(subject)


def own_error(subject: Subject, alpha: float, operations: int) -> float:
    """Return how far rounding moves a change of smoothed shares, nats: both models, ``operations`` additions each."""
    n, K = subject.data.n, len(subject.classes)
    size = np.log1p(n) if alpha == 0 else np.log(n / alpha + K)
    return float(8 * (operations + K + 20) * U * (1 + size))


def codes(X: Any) -> NDArray[np.int64] | None:
    """Return a dense table of whole numbers from 0, or None if ``X`` is anything else."""
    array = dense(X)
    if array is None or (array < 0).any() or (array != np.floor(array)).any():
        return None
    return array.astype(np.int64)


def dense(X: Any) -> NDArray[np.float64] | None:
    """Return a finite table of numbers, shape (n, d), or None if ``X`` is anything else."""
    if hasattr(X, "toarray"):
        X = X.toarray()
    if not hasattr(X, "shape") or len(X.shape) != 2:
        return None
    array = np.asarray(X)
    if array.dtype.kind not in "biuf":
        return None
    array = array.astype(np.float64)
    return array if np.isfinite(array).all() else None


def declared(subject: Subject, X: NDArray[np.float64], otherwise: str) -> Reach | str:
    """Return the declared domain, which holds all records, or why there is none; ``otherwise`` says what follows."""
    domain = subject.accepted
    if domain is None:
        return f"no domain is declared: {otherwise}"
    made = Reach.of(domain, X.shape[1])
    if isinstance(made, str):
        return made
    return made if made.inside(X).all() else "training records lie outside the declared domain"


def reach(subject: Subject) -> Reach:
    """Return the declared domain as a set of vectors; ``declared`` has agreed to it."""
    made = Reach.of(subject.accepted, subject.data.X.shape[1]) if subject.accepted else "no domain is declared"
    if isinstance(made, str):
        raise TypeError(f"bound() without applies(): {made}")
    return made
