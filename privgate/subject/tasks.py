"""What kind of model a recipe trains, and what it answers with, checked and put in order."""

from contextlib import suppress
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from privgate.errors import SubjectError

Task = Literal["classification", "regression"]
TASKS: tuple[str, ...] = get_args(Task)

#: up to this many different numbers count as labels without a declared task
FEW = 20
#: kinds of models that are judged in no way here, as libraries call them
_OTHERS = frozenset({"outlier_detector", "clusterer", "density_estimator", "transformer", "ranker"})


def of_estimator(estimator: Any) -> str:
    """Return what a library says of an estimator: a task, another word of ``_OTHERS``, or "" where it says nothing."""
    kind = getattr(estimator, "_estimator_type", None)
    if kind is None and hasattr(estimator, "__sklearn_tags__"):
        # estimators of other libraries inherit half of the protocol
        with suppress(AttributeError, IndexError, TypeError, ValueError):
            kind = estimator.__sklearn_tags__().estimator_type
    if kind is None and hasattr(estimator, "transform") and not hasattr(estimator, "predict"):
        kind = "transformer"
    return {"classifier": "classification", "regressor": "regression", "DensityEstimator": "density_estimator"}.get(
        str(kind), kind or ""
    )


def refusal(estimator: Any, task: str, *, predicts: bool) -> str:
    """Return why an unfitted estimator is not judged as it stands, one sentence; empty if it is."""
    name, kind = type(estimator).__name__, of_estimator(estimator)
    if kind in _OTHERS and (not predicts or (kind == "outlier_detector" and task == "regression")):
        return (
            f"{name} ({kind.replace('_', ' ')}) gives neither labels nor predictions about people; "
            "judge the classifier or regressor that is trained on its output"
        )
    if predicts or task == "regression":
        return ""
    if kind == "regression":
        return f"{name} predicts numbers, and the recipe does not say task='regression'; declare it and log again"
    if kind == "classification" and not hasattr(estimator, "predict_proba"):
        params = estimator.get_params(deep=True)
        if any(k.rpartition("__")[2] == "final_estimator" and v is None for k, v in params.items()):
            return ""  # stacking without a final estimator of its own: fitting chooses what gives the answers
        instead = f"train CalibratedClassifierCV({name}()), or give the recipe predict=fn(model, X) -> probabilities"
        return f"{name} gives no probabilities: {instead}"
    return ""


def unclear_task(y: NDArray[Any], *, classifier: bool = False) -> str:
    """Return why targets look like numbers rather than labels, as the beginning of a question; empty if they do not.

    Labels are few, or codes 0 .. K-1 (or 1 .. K), each of several people. For a library's classifier the targets only
    look like numbers if hardly any label has several people.
    """
    if y.dtype.kind not in "iuf":
        return ""
    known = np.unique(y)
    whole, rare = (known == np.floor(known)).all(), len(known) > len(y) // 10
    if len(known) <= FEW and (whole or not rare):
        return ""
    if rare or not whole:
        kind = "whole values" if whole else "values with fractions"
        return f"the {len(y)} targets have {len(known)} different {kind}"
    if not classifier and (known[0] not in (0, 1) or known[-1] - known[0] + 1 > len(known)):
        return f"the targets have {len(known)} different whole values between {known[0]:g} and {known[-1]:g}"
    return ""


QUESTION = "are they numbers (declare Recipe(..., task='regression')) or labels (task='classification')?"


def aligned(raw: NDArray[np.float64], own: Any, classes: NDArray[Any]) -> NDArray[np.float64]:
    """Return probabilities with one column a class of ``classes``; see ``Recipe.probabilities``."""
    if raw.ndim == 1:
        raw = np.column_stack([1.0 - raw, raw])
    if own is not None and len(own) == raw.shape[1] and len(own) != len(classes) and np.isin(own, classes).all():
        full = np.zeros((len(raw), len(classes)))
        full[:, np.searchsorted(classes, np.asarray(own, dtype=classes.dtype))] = raw
        raw = full
    if raw.ndim != 2 or raw.shape[1] != len(classes):
        raise SubjectError(f"the model returned shape {raw.shape} for {len(classes)} classes, not one column a class")
    if np.isnan(raw).any():
        raise SubjectError("the model returned NaN probabilities")
    if (raw < 0).any() or np.isinf(raw).any():
        raise SubjectError("the model returned negative or infinite probabilities")
    return raw


def numbers(raw: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return a regressor's answers, shape (n,); see ``Recipe.predictions``."""
    raw = raw[:, 0] if raw.ndim == 2 and raw.shape[1] == 1 else raw
    if raw.ndim != 1:
        raise SubjectError(f"the regressor returned shape {raw.shape}; it must give one number a record")
    if not np.isfinite(raw).all():
        raise SubjectError("the regressor returned NaN or infinity")
    return raw
