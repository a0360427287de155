"""What the models here share: parameters in and out, declared labels; scikit-learn's conventions, not imported."""

import inspect
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from privgate.arrays import Float, Index


class Settings:
    """Parameters in and out, by the names of the constructor; those of a ``part`` within as ``part__name``."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:  # noqa: FBT001, FBT002  scikit-learn's signature
        """Return the constructor's arguments, and those of whatever is among them."""
        own = {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}
        for name, part in [*own.items()] if deep else []:
            if hasattr(part, "get_params"):
                own |= {f"{name}__{inner}": value for inner, value in part.get_params(deep=True).items()}
        return own

    def set_params(self, **params: Any) -> Self:
        """Set constructor arguments, then those of whatever is among them."""
        known = self.get_params(deep=False)
        for name, value in sorted(params.items(), key=lambda item: "__" in item[0]):
            own, _, inner = name.partition("__")
            if own not in known:
                raise ValueError(f"{type(self).__name__} has no parameter {own!r}; it has {', '.join(known)}")
            if inner:
                getattr(self, own).set_params(**{inner: value})
            else:
                setattr(self, own, value)
        return self


class Classifier(Settings):
    """A classifier whose labels may be declared before the data are seen."""

    classes: Any
    classes_: NDArray[Any]
    _estimator_type = "classifier"

    def __sklearn_tags__(self) -> Any:
        """Return what scikit-learn from 1.6 asks of an estimator before it searches or pipes it."""
        from sklearn.utils import ClassifierTags, Tags, TargetTags

        return Tags(
            estimator_type="classifier", target_tags=TargetTags(required=True), classifier_tags=ClassifierTags()
        )

    def predict_proba(self, X: Any) -> Float:
        """Return probabilities, shape (n, K), in the order of ``classes_``."""
        raise NotImplementedError

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most probable class of each record; ties go to the earlier class."""
        return np.asarray(self.classes_[self.predict_proba(X).argmax(axis=1)])

    def score(self, X: Any, y: Any) -> float:
        """Return the share of records whose most probable class is theirs."""
        return float((self.predict(X) == np.asarray(y)).mean())

    def _labels(self, y: Any) -> Index:
        labels = np.asarray(y)
        self.classes_ = np.unique(labels if self.classes is None else np.asarray(self.classes))
        unknown = ~np.isin(labels, self.classes_)
        if unknown.any():
            raise ValueError(f"{int(unknown.sum())} labels are none of the {len(self.classes_)} declared classes")
        return np.searchsorted(self.classes_, labels).astype(np.int64)
