"""What every naive Bayes certificate asks of a recipe before it speaks."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.subject import Subject


def estimator_of(subject: Subject, name: str) -> Any:
    """Return the recipe's estimator if it is exactly scikit-learn's class ``name``, else None."""
    estimator = subject.recipe.library_estimator
    if estimator is None or type(estimator).__name__ != name or not type(estimator).__module__.startswith("sklearn."):
        return None
    return estimator


def refusal(subject: Subject, name: str) -> str:
    """Return why a theorem about exact probabilities of ``name`` says nothing here; empty if it may."""
    estimator = estimator_of(subject, name)
    if estimator is None:
        return f"does not apply, because the recipe is not scikit-learn's {name} released by predict_proba"
    if not subject.release.exact:
        return (
            f"does not apply, because the release is {subject.release.form} at temperature "
            f"{subject.release.temperature:g}; the bound is about exact probabilities"
        )
    if len(subject.classes) < 2:
        return "does not apply, because the training data have one class only"
    return ""


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
