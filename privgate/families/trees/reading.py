"""Reading fitted ensembles of every library into arrays; what they hold beyond plain trees is refused by name."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.families.trees import branches, reading_histogram, reading_lightgbm, reading_sklearn, reading_xgboost
from privgate.families.trees.ensemble import Ensemble, Index
from privgate.families.trees.joined import UnreadableError


def read(model: Any, *, X: NDArray[Any], missing: NDArray[np.bool_] | None = None) -> Ensemble:
    """Return a fitted model's trees as arrays.

    Parameters
    ----------
    model : fitted classifier of a covered class
    X : array of shape (n, d)
        Some records: their type decides whether the library rounds a question to single precision.
    missing : bool array of shape (d,), optional
        Which features of a question may be missing; the trees are then about twice as many features.

    Raises
    ------
    UnreadableError
        The model holds more than plain splits of numbers and constant leaves.
    """
    name = type(model).__name__
    if name not in READERS:
        raise UnreadableError(f"{name} is not among {', '.join(READERS)}")
    if missing is None or not missing.any():
        return READERS[name](model, X)
    lost = list[Index]()
    return branches.with_missing(READERS[name](model, X, lost), lost[0], missing)


def _floored(model: Any, X: NDArray[Any], lost: list[Index] | None = None) -> Ensemble:
    inner = READERS[type(model.model_).__name__](model.model_, X, lost)
    if inner.link != "mean":
        raise UnreadableError("a floor is read where probabilities are means of leaves")
    return replace(inner, floor=float(model.floor))


#: read where training records miss values
MISSING = ("LGBMClassifier", "XGBClassifier", "HistGradientBoostingClassifier")
#: refuse a question that misses a value; all others answer it, whether or not training missed one
WHOLE = ("GradientBoostingClassifier", "KeyedForest")
READERS: dict[str, Callable[..., Ensemble]] = {
    "LGBMClassifier": reading_lightgbm.lightgbm,
    "XGBClassifier": reading_xgboost.xgboost,
    "HistGradientBoostingClassifier": reading_histogram.histogram_boosting,
    "GradientBoostingClassifier": reading_sklearn.gradient_boosting,
    "RandomForestClassifier": reading_sklearn.forest,
    "ExtraTreesClassifier": reading_sklearn.forest,
    "BaggingClassifier": reading_sklearn.bagging,
    "DecisionTreeClassifier": reading_sklearn.single_tree,
    "ExtraTreeClassifier": reading_sklearn.single_tree,
    "Floored": _floored,
}
