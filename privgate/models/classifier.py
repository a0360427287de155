"""What the classifiers here share: parameters in and out, declared labels; scikit-learn's conventions, not imported."""

import inspect
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from privgate.arrays import Float, Index


class Settings:
    """Parameters in and out, by the names of the constructor."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:  # noqa: FBT001, FBT002  scikit-learn's signature
        """Return the constructor's arguments."""
        del deep
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def set_params(self, **params: Any) -> Self:
        """Set constructor arguments."""
        known = self.get_params()
        for name, value in params.items():
            if name not in known:
                raise ValueError(f"{type(self).__name__} has no parameter {name!r}; it has {', '.join(known)}")
            setattr(self, name, value)
        return self


class Parameters(Settings):
    """Settings, and labels out of probabilities."""

    classes_: NDArray[Any]

    def predict_proba(self, X: Any) -> Float:
        """Return probabilities, shape (n, K), in the order of ``classes_``."""
        raise NotImplementedError

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most probable class of each record; ties go to the earlier class."""
        return np.asarray(self.classes_[self.predict_proba(X).argmax(axis=1)])


class Classifier(Parameters):
    """A classifier whose labels may be declared before the data are seen."""

    classes: Any
    _estimator_type = "classifier"

    def __sklearn_tags__(self) -> Any:
        """Return what scikit-learn from 1.6 asks of an estimator before it searches or pipes it."""
        from sklearn.utils import ClassifierTags, Tags, TargetTags

        return Tags(
            estimator_type="classifier", target_tags=TargetTags(required=True), classifier_tags=ClassifierTags()
        )

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


class Wrapping(Classifier):
    """A classifier around another, ``base``, whose parameters are reached as ``base__name``."""

    base: Any

    def get_params(self, deep: bool = True) -> dict[str, Any]:  # noqa: FBT001, FBT002  scikit-learn's signature
        """Return the constructor's arguments, and ``base``'s as ``base__name``."""
        own = super().get_params(deep=False)
        if deep and hasattr(self.base, "get_params"):
            own |= {f"base__{name}": value for name, value in self.base.get_params(deep=True).items()}
        return own

    def set_params(self, **params: Any) -> Self:
        """Set constructor arguments, and ``base``'s by ``base__name``."""
        inner = {name.removeprefix("base__"): v for name, v in params.items() if name.startswith("base__")}
        super().set_params(**{name: v for name, v in params.items() if not name.startswith("base__")})
        if inner:
            self.base.set_params(**inner)
        return self
