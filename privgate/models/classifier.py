"""What the classifiers here share beside scikit-learn's conventions: labels that may be declared."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin

from privgate.arrays import Float, Index


class Classifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn is not typed
    """A classifier whose labels may be declared before the data are seen."""

    classes: Any
    classes_: NDArray[Any]

    def predict_proba(self, X: Any) -> Float:
        """Return probabilities, shape (n, K), in the order of ``classes_``."""
        raise NotImplementedError

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most probable class of each record; ties go to the earlier class."""
        return np.asarray(self.classes_[self.predict_proba(X).argmax(axis=1)])

    def _labels(self, y: Any) -> Index:
        labels = np.asarray(y)
        self.classes_ = np.unique(labels if self.classes is None else np.asarray(self.classes))
        unknown = ~np.isin(labels, self.classes_)
        if unknown.any():
            raise ValueError(f"{int(unknown.sum())} labels are none of the {len(self.classes_)} declared classes")
        return np.searchsorted(self.classes_, labels).astype(np.int64)
