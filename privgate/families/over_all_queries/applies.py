"""What every naive Bayes certificate asks of a recipe before it speaks."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.families.designs import estimator_of
from privgate.families.over_all_queries.accepted_range import Reach
from privgate.subject.subject import Subject

#: unit roundoff of float64: one operation errs by at most this share
U = 2.0**-53
#: the smallest share of a count that float64 holds in full
TINY = 1e-290
#: entries of the largest sparse table that is written out
_CELLS = 4e8


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


def smoothing(estimator: Any) -> float | None:
    """Return the additive smoothing that the library uses, or None if it is one number a feature."""
    alpha = np.asarray(estimator.alpha, dtype=np.float64)
    if alpha.ndim != 0:
        return None
    # the library raises smaller values to this unless force_alpha is set
    return float(alpha) if getattr(estimator, "force_alpha", True) else max(float(alpha), 1e-10)


def prior(estimator: Any) -> tuple[bool, NDArray[np.float64] | None]:
    """Return (learnt from the counts, fixed log-priors or None)."""
    if estimator.class_prior is not None:
        with np.errstate(divide="ignore"):
            return False, np.log(np.asarray(estimator.class_prior, dtype=np.float64))
    return bool(estimator.fit_prior), None


def smoothings(estimator: Any) -> NDArray[np.float64]:
    """Return the additive smoothing that the library uses, one number or one a feature."""
    alpha = np.asarray(estimator.alpha, dtype=np.float64)
    return alpha if getattr(estimator, "force_alpha", True) else np.maximum(alpha, 1e-10)


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
