"""What closed forms and theorems ask of recipe, records and declared domain before they speak."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.arrays import Float, Index
from privgate.kernel.accepted import Accepted
from privgate.subject.accepted_questions import is_double
from privgate.subject.domain import Domain
from privgate.subject.subject import Subject

U = 2.0**-53  # unit roundoff of float64: one operation errs by at most this share
TINY = 1e-290  # the smallest share of a count that float64 holds in full
_CELLS = 4e8  # entries of the largest sparse table that is written out
VANISHED = "without the person one class has no record left"
#: what looking at a parameter or a column of a kind that nobody expects may raise
ODD = (TypeError, ValueError, LookupError, ArithmeticError, AttributeError)


def look_at(subject: Subject, refuse: Callable[[Subject], str]) -> str:
    """Return what ``refuse`` says of a subject, or that it cannot even look; its training will say what is wrong."""
    try:
        return refuse(subject)
    except ODD as exc:
        return f"a parameter or the data are of a kind that it does not expect ({type(exc).__name__})"


# The recipe.


def estimator_of(subject: Subject, name: str) -> Any:
    """Return the recipe's estimator if it is exactly scikit-learn's, or ``privgate.models``', class ``name``."""
    from privgate import models

    estimator = subject.recipe.library_estimator
    theirs = type(estimator).__name__ == name and type(estimator).__module__.startswith("sklearn.")
    return estimator if theirs or type(estimator) is getattr(models, name, None) else None


def refusal(subject: Subject, name: str, *, unsmoothed: str = "") -> str:
    """Return why a theorem about exact probabilities of class ``name`` says nothing here; empty if it may."""
    from privgate import models

    estimator, X, release, K = estimator_of(subject, name), subject.data.X, subject.release, len(subject.classes)
    shape: tuple[int, ...] = getattr(X, "shape", ())
    own, sparse = hasattr(models, name), hasattr(X, "toarray")
    if estimator is None:
        whose = f"privgate.models.{name}" if own else f"scikit-learn's {name}"
        return f"the recipe is not {whose} released by predict_proba"
    if not release.exact:
        form = f"{release.form} at temperature {release.temperature:g}"
        return f"the release is {form}; the bound is about exact probabilities"
    if K < 2:
        return "the training data have one class only"
    if len(shape) != 2 or (own and sparse):
        return "the features are not a dense table" if own else "the features are not a table"
    if sparse and float(shape[0]) * shape[1] > _CELLS:
        return f"a table of {shape[0]} by {shape[1]} numbers does not fit the memory"
    if own and np.asarray(X).dtype.kind == "f" and np.isnan(np.asarray(X)).any():
        return "features are missing"
    alpha = float(getattr(estimator, "alpha", 0.0)) if own else 0.0
    if alpha != 0 and not alpha / (subject.data.n + K * alpha) >= TINY:
        return f"float64 does not hold the probabilities that a smoothing of {alpha:g} gives"
    for parameter, size in (("class_prior", K), ("priors", K), ("alpha", shape[1]), ("min_categories", shape[1])):
        value = np.asarray(getattr(estimator, parameter, None), dtype=object)
        if value.ndim > 1 or (value.ndim == 1 and len(value) != size):
            return f"{parameter} does not have {size} entries"
        if "prior" in parameter and value.ndim == 1 and not (value.astype(np.float64) > 0).all():
            return f"{parameter} rules out a class"
    return "" if not unsmoothed or estimator.alpha > 0 else unsmoothed


# The records.


def table(X: Any) -> NDArray[Any] | None:
    """Return records as a two-dimensional array of numbers of their own type; None where they are none, or sparse."""
    kinds = [getattr(t, "kind", "O") for t in X.dtypes] if hasattr(X, "columns") else []
    if not hasattr(X, "shape") or hasattr(X, "nnz") or not all(kind in "biuf" for kind in kinds):
        return None
    array = np.asarray(X)
    return array if array.ndim == 2 and array.dtype.kind in "biuf" else None


def dense(X: Any) -> NDArray[np.float64] | None:
    """Return a finite table of numbers, shape (n, d), or None if ``X`` is anything else."""
    array = table(X.toarray() if hasattr(X, "toarray") else X)
    array = None if array is None else array.astype(np.float64)
    return array if array is not None and np.isfinite(array).all() else None


def codes(X: Any) -> NDArray[np.int64] | None:
    """Return a dense table of whole numbers from 0, or None if ``X`` is anything else."""
    array = dense(X)
    return None if array is None or ((array < 0) | (array != np.floor(array))).any() else array.astype(np.int64)


def single_precision(X: Any) -> str:
    """Return why results of training in single precision are not bounded; empty for double precision."""
    return "" if is_double(X) else "records are of single precision, in which the library then computes; pass float64"


def design_refusal(subject: Subject, *, real: bool = False) -> str:
    """Return why the pool is no finite matrix of doubles with class labels, or ``real`` targets; empty if it is."""
    y, widths = subject.data.y, set()
    if not real and y.dtype.kind == "f" and not np.all(y == np.floor(y)):
        return "labels are not classes but real numbers"
    for X in _list_tables(subject):
        if (array := table(X)) is None:
            return "records are no two-dimensional numeric array"
        if not np.isfinite(array).all():
            return "records hold NaN or infinity"
        widths.add(array.shape[1])
    if len(widths) != 1:
        return "candidates have another number of features than the training records"
    return single_precision(subject.data.X)


def matrix(subject: Subject) -> NDArray[Any]:
    """Return the pool as a two-dimensional array of its own numeric type; ``design_refusal`` must have been empty."""
    tables = [array for X in _list_tables(subject) if (array := table(X)) is not None]
    return tables[0] if len(tables) == 1 else np.concatenate(tables)


def _list_tables(subject: Subject) -> tuple[Any, ...]:
    candidates = subject.data.candidates
    return (subject.data.X,) if candidates is None else (subject.data.X, candidates[0])


def unit_rows(subject: Subject, units: Index) -> tuple[Index, Index]:
    """Return (position in ``units``, row) of every record of the units (U,), in the order of the units."""
    if subject.data.groups is None:  # a million one-row arrays take longer to join than the closed form itself
        return np.arange(len(units), dtype=np.int64), np.asarray(units, dtype=np.int64)
    members = [subject.data.units[u] for u in units]
    sizes = np.array([len(m) for m in members], dtype=np.int64)
    return np.repeat(np.arange(len(units)), sizes), np.concatenate([np.zeros(0, dtype=np.int64), *members])


def vanishing(subject: Subject, units: Index) -> NDArray[np.bool_]:
    """Return which units take the last record of some class with them, shape (U,); a declared class stays."""
    if subject.declared_classes is not None or subject.task == "regression":
        return np.zeros(len(units), dtype=bool)
    labels, K = subject.label_codes, len(subject.classes)
    person, rows = unit_rows(subject, units)
    pair, lost = np.unique(person * K + labels[rows], return_counts=True)
    alone = lost >= np.bincount(labels, minlength=K)[pair % K]
    return np.asarray(np.bincount(pair // K, alone, len(units)) > 0)


# Where a query can be, for scores that are linear in it.


def read_domain(domain: Domain, n_features: int) -> Accepted | str:
    """Return a declared domain as a set of vectors, or why it is none."""
    if not domain.is_table:
        return "the domain names categories or missing values, which only first steps make numbers of"
    sides = domain.box if domain.box is not None else [(0, v - 1) for v in domain.categories or ()]
    low, high = np.array(sides, dtype=np.float64).reshape(-1, 2).T
    if len(low) != n_features:
        return f"the domain declares {len(low)} features and the data have {n_features}"
    blocks, single = tuple(np.array(b, dtype=np.int64) for b in domain.blocks), np.ones(n_features, dtype=bool)
    single[[j for block in domain.blocks for j in block]] = False
    return Accepted(low, high, single, blocks, domain.categories is not None)


def declared(subject: Subject, X: NDArray[np.float64], otherwise: str) -> Accepted | str:
    """Return the declared domain, which holds all records, or why there is none; ``otherwise`` says what follows."""
    if subject.accepted is None:
        return f"no domain is declared: {otherwise}"
    domain = read_domain(subject.accepted, X.shape[1])
    outside = isinstance(domain, Accepted) and not replace(domain, whole=False).inside(X).all()
    return "training records lie outside the declared domain" if outside else domain


def reach(subject: Subject) -> Accepted:
    """Return the declared domain as a set of vectors; ``declared`` has agreed to it."""
    domain = read_domain(subject.accepted, subject.data.X.shape[1]) if subject.accepted else "no domain is declared"
    if isinstance(domain, str):
        raise TypeError(f"certify() without refusal(): {domain}")
    return domain


def attain(accepted: Accepted, w: Float) -> Float:
    """Return a question that attains the largest ``w . x``, (…, d)."""
    x = np.where(w > 0, accepted.high, accepted.low)
    for block in accepted.blocks:
        inner = w[..., block]
        x[..., block] = (inner == inner.max(axis=-1, keepdims=True)) & (inner > 0)
        x[..., block] *= x[..., block].cumsum(axis=-1) == 1  # one of those that tie
    return np.asarray(np.floor(x) if accepted.whole else x)  # towards 0: still inside


#: what a theorem over the declared domain assumes of whoever serves the model
OUTSIDE = "the endpoint refuses queries outside the declared ranges"


def state_domain(accepted: Accepted) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return the settings and arrays by which a case tells the kernel of a domain."""
    arrays = {"box": np.array([accepted.low, accepted.high], dtype=np.float64)}
    if accepted.blocks:
        arrays["blocks"] = np.full(len(accepted.single), -1, dtype=np.int64)
        for k, block in enumerate(accepted.blocks):
            arrays["blocks"][block] = k
    return {"whole": accepted.whole}, arrays
