"""What a model answers with, checked and put in order: one column a class, or one number a record."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.errors import SubjectError


def aligned(raw: NDArray[np.float64], own: Any, classes: NDArray[Any]) -> NDArray[np.float64]:
    """Return probabilities with one column a class of ``classes``; see ``Recipe.probabilities``."""
    if raw.ndim == 1:
        raw = np.column_stack([1.0 - raw, raw])
    if own is not None and len(own) == raw.shape[1] and len(own) != len(classes) and np.isin(own, classes).all():
        full = np.zeros((len(raw), len(classes)))
        full[:, np.searchsorted(classes, np.asarray(own, dtype=classes.dtype))] = raw
        raw = full
    if raw.ndim != 2 or raw.shape[1] != len(classes):
        raise SubjectError(
            f"the model returned shape {raw.shape} for {len(classes)} classes; it must give one column a class"
        )
    if np.isnan(raw).any():
        raise SubjectError("the model returned NaN probabilities")
    if (raw < 0).any():
        raise SubjectError("the model returned negative probabilities")
    return raw


def numbers(raw: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return a regressor's answers, shape (n,); see ``Recipe.predictions``."""
    if raw.ndim == 2 and raw.shape[1] == 1:
        raw = raw[:, 0]
    if raw.ndim != 1:
        raise SubjectError(f"the regressor returned shape {raw.shape}; it must give one number a record")
    if not np.isfinite(raw).all():
        raise SubjectError("the regressor returned NaN or infinity")
    return raw
