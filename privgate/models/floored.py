"""A classifier whose answers never reach 0: a declared number is added to every probability."""

from typing import Any, Self

import numpy as np

from privgate.arrays import Float
from privgate.models.classifier import Wrapping


class Floored(Wrapping):
    """Another classifier's probabilities with a number added to each, normalised again: ``(p + floor)/(1 + K floor)``.

    Without it one record that fills a leaf of every tree alone moves some answer to or from 0, which is without limit.
    ``max(p, floor)`` would not do: it is no distribution.

    Parameters
    ----------
    base : estimator
        Any classifier with ``fit`` and ``predict_proba``: a forest above all.
    floor : float
        Above 0; declared, not chosen by looking at the data.

    Examples
    --------
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> model = Floored(DecisionTreeClassifier(random_state=0), floor=0.1).fit([[0], [1]], [0, 1])
    >>> model.predict_proba([[0]]).round(3).tolist()
    [[0.917, 0.083]]
    """

    __module__ = "privgate.models"  # the name that recipes and stored models keep

    def __init__(self, base: Any = None, floor: float = 0.01) -> None:
        self.base = base
        self.floor = floor

    def fit(self, X: Any, y: Any) -> Self:
        """Train a copy of ``base``."""
        from sklearn.base import clone

        if not (np.isfinite(self.floor) and self.floor > 0):
            raise ValueError(f"floor must be a finite number above 0, not {self.floor!r}")
        self.model_ = clone(self.base).fit(X, y)
        self.classes_ = self.model_.classes_
        return self

    def predict_proba(self, X: Any) -> Float:
        """Return the probabilities of ``base`` with the floor."""
        p = np.asarray(self.model_.predict_proba(X), dtype=np.float64)
        return np.asarray((p + self.floor) / (1 + p.shape[1] * self.floor))
