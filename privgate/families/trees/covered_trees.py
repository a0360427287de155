"""Which recipes train an ensemble of trees that theorems about cells cover, and what its questions can be.

Anything else is refused by name.
"""

import math
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.arrays import Float
from privgate.families import designs
from privgate.families.over_all_queries.accepted_range import Reach
from privgate.subject.subject import Subject

#: read where training records miss values
MISSING = ("LGBMClassifier", "XGBClassifier", "HistGradientBoostingClassifier")
#: refuse a question that misses a value; all others answer it, whether or not training missed one
WHOLE = ("GradientBoostingClassifier", "KeyedForest")
#: classes whose leaves are distributions that are averaged
MEANS = (
    "RandomForestClassifier",
    "ExtraTreesClassifier",
    "BaggingClassifier",
    "DecisionTreeClassifier",
    "ExtraTreeClassifier",
)
Rule = Callable[[Any], bool]


def _among(*values: Any) -> Rule:
    return lambda v: any(v is a or (type(v) is type(a) and v == a) for a in values)


def _off(v: Any) -> bool:
    return v is False


def _tree(v: Any) -> bool:
    return v is None or (type(v).__name__ in ("DecisionTreeClassifier", "ExtraTreeClassifier"))


#: library -> class -> parameter -> what it may be
COVERED: Mapping[str, Mapping[str, Mapping[str, Rule]]] = {
    "lightgbm": {
        "LGBMClassifier": {"boosting_type": _among("gbdt"), "objective": _among(None, "binary", "multiclass")}
    },
    "xgboost": {
        "XGBClassifier": {
            "booster": _among(None, "gbtree"),
            "objective": _among(None, "binary:logistic", "multi:softprob"),
            "enable_categorical": _off,
            "multi_strategy": _among(None, "one_output_per_tree"),
            "callbacks": _among(None),
            "early_stopping_rounds": _among(None),
            "feature_types": _among(None),
            "missing": lambda v: isinstance(v, float) and math.isnan(v),
            "device": _among(None, "cpu"),
        }
    },
    "sklearn": {
        "HistGradientBoostingClassifier": {"warm_start": _off},
        "GradientBoostingClassifier": {"init": _among(None, "zero"), "warm_start": _off},
        "RandomForestClassifier": {"warm_start": _off},
        "ExtraTreesClassifier": {"warm_start": _off},
        "BaggingClassifier": {"estimator": _tree, "warm_start": _off},
        "DecisionTreeClassifier": {},
        "ExtraTreeClassifier": {},
    },
    "privgate": {"Floored": {}, "KeyedForest": {}},
}
#: LightGBM takes any keyword, among them names of files and of other computers
# fmt: off
LIGHTGBM = frozenset((
    "boosting_type", "num_leaves", "max_depth", "learning_rate", "n_estimators", "subsample_for_bin", "objective",
    "class_weight", "min_split_gain", "min_child_weight", "min_child_samples", "subsample", "subsample_freq",
    "colsample_bytree", "reg_alpha", "reg_lambda", "random_state", "n_jobs", "importance_type", "deterministic",
    "force_row_wise", "force_col_wise", "verbose", "verbosity", "max_bin", "min_data_in_bin", "feature_pre_filter",
    "boost_from_average", "lambda_l1", "lambda_l2", "extra_trees", "extra_seed", "path_smooth", "sigmoid",
    "is_unbalance", "scale_pos_weight", "min_data_in_leaf", "min_sum_hessian_in_leaf", "bin_construct_sample_cnt",
    "max_delta_step", "feature_fraction", "feature_fraction_bynode", "bagging_fraction", "bagging_freq",
    "bagging_seed", "categorical_feature", "cat_smooth", "cat_l2", "max_cat_threshold", "max_cat_to_onehot",
    "min_data_per_group", "use_missing", "num_threads", "seed", "monotone_constraints", "min_gain_to_split"
))
# fmt: on
#: which of them may be text: the library joins all others into one line, in which a blank begins the next parameter
WORDS = frozenset(("boosting_type", "objective", "class_weight", "importance_type"))
#: parameters by which a training could outlast any patience, and up to where it is made where the gate itself runs;
#: larger ones train in a box, with its limits of time and memory
SIZES = ("n_estimators", "max_iter", "num_leaves", "max_leaf_nodes", "max_leaves", "max_bin", "max_bins", "depth")
LARGEST = 10_000  # of any of SIZES
OTHER = "the recipe is not an ensemble of trees of scikit-learn, LightGBM or XGBoost released by predict_proba"


def estimator_of(subject: Subject) -> Any:
    """Return the recipe's estimator if it is of a covered class and nothing beside it answers; else None."""
    payload = subject.recipe.payload
    spec = payload.get("estimator")
    if payload["predict"] is not None or not isinstance(spec, Mapping):
        return None
    home, _, name = str(spec.get("class")).partition(":")
    library = home.split(".")[0]
    if name not in COVERED.get(library, {}) or find_spec(library) is None:
        return None
    if library == "privgate" and home != "privgate.models":
        return None
    brought = {part.split("/")[0].split(".")[0] for part in subject.recipe.snapshot}
    if brought & set(COVERED):  # modules of its own by the names of those that are meant
        return None
    return subject.recipe.estimator_of(*(f"{h}." for h in COVERED if h != "privgate"), "privgate.models:")


def refusal(subject: Subject) -> str:
    """Return why the recipe, its data or its domain are not covered; empty if they are."""
    estimator = estimator_of(subject)
    if estimator is None:
        return OTHER
    if not subject.release.exact:
        return f"the release is {subject.release.form}; the bound is about probabilities"
    if problem := _parameters(estimator, seeded=subject.recipe.seed is not None) or designs.design_refusal(
        subject, missing=type(estimator).__name__ in MISSING
    ):
        return problem
    if len(subject.data.classes()) < 2:
        return "the training data have one class only"
    found = reach(subject)
    return found if isinstance(found, str) else ""


def unfit(subject: Subject) -> str:
    """Return why the theorem about cells bounds nothing here; empty if it may."""
    if problem := refusal(subject):
        return problem
    name = type(estimator_of(subject)).__name__
    if name in MEANS:
        return (
            f"{name} answers 0 where all its leaves hold one label, and a single record may change that, which makes "
            "DTP infinite; wrap it as privgate.models.Floored(…, floor=0.01)"
        )
    return ""


def reach(subject: Subject) -> Reach | str | None:
    """Return the declared domain, None where none is declared (any question is allowed), or why it is unusable."""
    domain = subject.accepted
    if domain is None:
        return None
    d = int(np.asarray(subject.data.X).shape[1])
    if domain.columns is not None and not domain.is_table and not domain.categorical and len(domain.columns) == d:
        low, high = np.array([c.ends for c in domain.columns], dtype=np.float64).T  # some of them may be missing
        return Reach(low, high)
    found = Reach.of(domain, d)
    if not isinstance(found, str) and (np.isnan(designs.matrix(subject)) & ~missing(subject)).any():
        return "records miss values that the domain does not let miss; declare columns as (low, high, None)"
    return found


def missing(subject: Subject) -> NDArray[np.bool_]:
    """Return which features of a question may be missing, shape (d,): as declared, else all, if the model answers."""
    domain, d = subject.accepted, int(np.asarray(subject.data.X).shape[1])
    if type(estimator_of(subject)).__name__ in WHOLE:
        return np.zeros(d, dtype=bool)
    if domain is None:
        return np.ones(d, dtype=bool)
    if domain.columns is not None:
        return np.array([c.missing for c in domain.columns], dtype=bool)
    return np.isin(np.arange(d), domain.missing)


def accepted(reach: Reach | None, d: int) -> tuple[Float, Float, bool]:
    """Return (low, high, whole numbers only) of the questions; everything where none is declared."""
    low, high = np.full(d, -np.inf), np.full(d, np.inf)
    if reach is None:
        return low, high, False
    if reach.low is not None and reach.high is not None:
        low, high = reach.low.astype(np.float64), reach.high.astype(np.float64)
    if reach.length is not None or reach.norm is not None:
        low = np.maximum(low, 0.0)
        high = np.minimum(high, min(v for v in (reach.length, reach.norm) if v is not None) * (1 + 1e-9))
    return low, high, reach.whole


def boxes(subject: Subject) -> tuple[Float, bool]:
    """Return the kernel's box of accepted questions, and whether all are whole numbers.

    Of shape (2, d), or (2, 2 d) where values may be missing: whether one is, is a feature more.
    """
    found, lost = reach(subject), missing(subject)
    low, high, whole = accepted(None if isinstance(found, str) else found, len(lost))
    box = np.array([low, high])
    return (np.concatenate([box, [np.zeros(len(lost)), lost]], axis=1) if lost.any() else box), whole


def _text(value: Any) -> bool:
    """Whether a parameter holds anything but numbers, and lists of them."""
    if isinstance(value, list | tuple | np.ndarray):
        return any(_text(v) for v in np.asarray(value, dtype=object).ravel().tolist())
    return value is not None and not isinstance(value, bool | int | float | np.number)


def _floor(estimator: Any) -> str:
    return "" if float(estimator.floor) > 0 else f"floor is {estimator.floor!r}, and must be above 0"


def _parameters(estimator: Any, *, seeded: bool) -> str:
    """Return which parameter takes the model out of the theorem; empty if none does."""
    name = type(estimator).__name__
    if name == "Floored":
        if type(estimator.base).__name__ not in MEANS or not type(estimator.base).__module__.startswith("sklearn."):
            return f"Floored holds {type(estimator.base).__name__}, which is none of {', '.join(MEANS)}"
        return _floor(estimator) or _parameters(estimator.base, seeded=seeded)
    if name == "KeyedForest":
        if isinstance(estimator.n_estimators, int) and estimator.n_estimators > LARGEST:
            return f"KeyedForest(n_estimators={estimator.n_estimators}) is above {LARGEST}, so it is trained in a box"
        return _floor(estimator)
    library = type(estimator).__module__.split(".")[0]
    given = estimator.get_params(deep=False)
    for parameter, fine in COVERED[library][name].items():
        if parameter in given and not fine(given[parameter]):
            return f"{name}({parameter}={given[parameter]!r}) is not covered"
    known = LIGHTGBM if library == "lightgbm" else frozenset(type(estimator)().get_params(deep=False))
    if unknown := sorted(set(given) - known):
        return f"{name}({unknown[0]}=…) is not covered"
    if large := [p for p in SIZES if isinstance(given.get(p), int | float) and given[p] > LARGEST]:
        return f"{name}({large[0]}={given[large[0]]!r}) is above {LARGEST}, so it is trained in a box"
    if library == "lightgbm" and (words := sorted(p for p in set(given) - WORDS if _text(given[p]))):
        return f"{name}({words[0]}={given[words[0]]!r}) is not covered: pass numbers, not text"
    if library == "sklearn" and given.get("random_state") is None and not seeded:
        return f"{name} has no random_state and the recipe no seed: its trees are drawn anew every time"
    return ""
