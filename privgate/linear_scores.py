"""Probabilities for linear models that release none: the scores of a linear classifier through a softmax.

Ridge classifiers and least squares score a query but give no probability, so there is nothing that leave-one-out could
compare. A recipe may declare this function as its ``predict``; then this release is what is measured.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray


def softmax_scores(model: Any, X: Any) -> NDArray[np.float64]:
    """Return probabilities (n, K) from a linear model's scores.

    ``decision_function`` gives logits, one for two classes, else one a class. Without it, ``predict`` of a regression
    on the labels 0 and 1 is the logit of label 1 around one half.
    """
    if hasattr(model, "decision_function"):
        scores = np.asarray(model.decision_function(X), dtype=np.float64)
    else:
        scores = np.asarray(model.predict(X), dtype=np.float64) - 0.5
    if scores.ndim == 1:
        scores = np.column_stack([np.zeros_like(scores), scores])
    scores = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(scores / scores.sum(axis=1, keepdims=True))
