"""What each part of a model was fitted to: training records carried through the steps before it."""

from typing import Any

import numpy as np

#: what holds estimators that are fitted to the same records as their holder
_WRAPPED = ("estimator", "estimator_", "best_estimator_", "base_estimator_", "regressor_", "estimators_", "models_",
            "calibrated_classifiers_", "predictor_", "model_", "_Booster")  # fmt: skip


def of(model: Any, X: Any) -> dict[int, Any]:
    """Return id of each estimator -> the records that reach it; those that cannot be told are left out."""
    found: dict[int, Any] = {}
    _feed(model, X, found, 0)
    return found


def _feed(thing: Any, X: Any, found: dict[int, Any], depth: int) -> None:
    if id(thing) in found or depth > 12 or not hasattr(thing, "__dict__"):
        return
    found[id(thing)] = X
    if isinstance(getattr(thing, "steps", None), list):
        _pipeline(thing, X, found, depth)
        return
    if hasattr(thing, "transformers_"):
        _columns(thing, X, found, depth)
        return
    if hasattr(thing, "transformer_list"):
        for _, part in thing.transformer_list:
            _feed(part, X, found, depth + 1)
        return
    subsets = getattr(thing, "estimators_features_", None)
    for name in _WRAPPED:
        inner = vars(thing).get(name)
        parts = list(inner) if isinstance(inner, list | tuple) else [inner]
        if isinstance(inner, np.ndarray) and inner.dtype == object:
            parts = list(inner.ravel())
        for k, part in enumerate(parts):
            if part is None or isinstance(part, str | int | float):
                continue
            own = X
            if subsets is not None and name == "estimators_":
                own = np.asarray(X)[:, subsets[k]] if getattr(X, "ndim", 0) == 2 else None
            if own is not None:
                _feed(part, own, found, depth + 1)


def _pipeline(thing: Any, X: Any, found: dict[int, Any], depth: int) -> None:
    for name, step in thing.steps:
        del name
        if step is None or step == "passthrough":
            continue
        _feed(step, X, found, depth + 1)
        if step is thing.steps[-1][1]:
            return
        try:
            X = step.transform(X)
        except Exception:  # noqa: BLE001  stored code: what comes behind it is told of nothing, and stays uncertain
            return


def _columns(thing: Any, X: Any, found: dict[int, Any], depth: int) -> None:
    for _, part, columns in thing.transformers_:
        own = None if isinstance(part, str) else _chosen(X, columns)
        if own is not None:
            _feed(part, own, found, depth + 1)


def _chosen(X: Any, columns: Any) -> Any:
    from sklearn.utils import _safe_indexing

    try:
        return _safe_indexing(X, columns, axis=1)
    except Exception:  # noqa: BLE001  ditto
        return None
