"""Reading fitted ensembles of every library into arrays; what they hold beyond plain trees is refused by name."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.families.trees import branches
from privgate.families.trees.branches import Run, Tree
from privgate.families.trees.ensemble import Ensemble, Float, Index

#: relative error of one operation in single precision
U32 = 2.0**-24
#: what LightGBM takes for 0
ZERO = float(np.float32(1e-35))


class UnreadableError(ValueError):
    """Raised where a fitted model holds something that no theorem about its cells covers; says what."""


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
    if name not in MISSING:
        raise UnreadableError(f"{name} is not read where values are missing")
    lost = list[Index]()
    return branches.with_missing(READERS[name](model, X, lost), lost[0], missing)


def _joined(parts: Sequence[Tree], lost: list[Index] | None = None) -> dict[str, Any]:
    """Return trees, counted from 0, as one table; where missing values go is put into ``lost``."""
    sizes = np.array([len(p[0]) for p in parts])
    start = np.append(0, np.cumsum(sizes))
    shift = np.repeat(start[:-1], sizes)
    feature = np.concatenate([p[0] for p in parts]).astype(np.int32)
    children = [np.where(feature >= 0, np.concatenate([p[k] for p in parts]) + shift, 0) for k in (2, 3)]
    if lost is not None:
        lost.append(np.where(feature >= 0, np.concatenate([p[5] for p in parts]) + shift, 0).astype(np.int64))
    return {
        "start": start.astype(np.int32),
        "feature": feature,
        "cut": np.where(feature >= 0, np.concatenate([p[1] for p in parts]).astype(np.float64), 0.0),
        "left": children[0].astype(np.int32),
        "right": children[1].astype(np.int32),
        "value": np.concatenate([np.asarray(p[4], dtype=np.float64).reshape(len(p[0]), -1) for p in parts]),
    }


def _at_most(threshold: Float) -> Float:
    """Return the largest number of single precision that is at most each threshold, -inf where there is none."""
    with np.errstate(over="ignore"):
        near = threshold.astype(np.float32)
    return np.where(near > threshold, np.nextafter(near, np.float32(-np.inf)), near).astype(np.float64)


def _finite(cut: Float) -> Float:
    """Return thresholds beyond every number of single precision as the largest double: everything goes left."""
    big = np.finfo(np.float64).max
    return np.clip(cut, -big, big)


# -- LightGBM -------------------------------------------------------------------------------------------------------


def _lightgbm(model: Any, X: NDArray[Any], lost: list[Index] | None = None) -> Ensemble:
    text = model.booster_.model_to_string()
    head, _, body = text.partition("\nTree=")
    said = dict(line.partition("=")[::2] for line in head.splitlines() if "=" in line)
    if "average_output" in head.split():
        raise UnreadableError("LightGBM averages its trees (boosting rf)")
    objective = said.get("objective", "").split()
    if objective[:1] not in (["binary"], ["multiclass"]):
        raise UnreadableError(f"LightGBM's objective is {' '.join(objective) or 'unknown'}")
    blocks = body.partition("end of trees")[0].split("\nTree=") if body else []
    trees = [_lightgbm_tree(dict(line.partition("=")[::2] for line in b.splitlines() if "=" in line)) for b in blocks]
    if not trees:
        raise UnreadableError("the ensemble has no tree")
    G = int(said.get("num_tree_per_iteration", "1"))
    options = dict(o.split(":") for o in objective if ":" in o)
    return Ensemble(
        link="logistic" if objective[0] == "binary" else "softmax",
        **_joined(trees, lost),
        group=(np.arange(len(trees)) % G).astype(np.int32),
        base=np.zeros(G),  # it is in the first trees
        scale=float(options.get("sigmoid", 1.0)) if objective[0] == "binary" else 1.0,
        cast=np.asarray(X).dtype != np.float64,  # whole numbers become single precision, too
    )


def _lightgbm_tree(said: dict[str, str]) -> Tree:
    if said.get("is_linear", "0") != "0":
        raise UnreadableError("LightGBM's leaves are linear (linear_tree)")
    value = np.array(said["leaf_value"].split(), dtype=np.float64)
    if said["num_leaves"] == "1":
        return (np.array([-1]), np.zeros(1), np.zeros(1), np.zeros(1), value[:1], np.zeros(1))
    feature = np.array(said["split_feature"].split(), dtype=np.int64)
    kind = np.array(said["decision_type"].split(), dtype=np.int64)
    named = (kind & 1).astype(bool)
    if (~named & (kind >> 2 & 3 == 1)).any():
        raise UnreadableError("LightGBM takes zero for missing")
    threshold = _finite(np.array(said["threshold"].split(), dtype=np.float64))  # all that are not missing go left
    # it takes numbers up to this size for 0, so the lower of its two thresholds next to 0 lets that number right
    threshold = np.where((threshold >= -ZERO) & (threshold < 0), np.nextafter(-ZERO, -np.inf), threshold)
    inner, leaves = len(feature), len(value)
    child = [np.array(said[f"{side}_child"].split(), dtype=np.int64) for side in ("left", "right")]
    child = [np.where(c >= 0, c, inner + ~c) for c in child]
    # without missing values in training, one is taken for 0; with them, a node has a default
    lost = np.where(np.where(kind >> 2 & 3 == 2, kind >> 1 & 1 == 1, threshold >= 0), child[0], child[1])
    none = np.zeros(leaves)
    tree = (
        np.append(feature, none - 1).astype(np.int64),
        np.append(threshold, none),
        np.append(child[0], none),
        np.append(child[1], none),
        np.append(np.zeros(inner), value),
        np.append(lost, none),
    )
    if not named.any():
        return tree
    edges = np.array(said["cat_boundaries"].split(), dtype=np.int64)
    words = np.array(said["cat_threshold"].split(), dtype=np.uint32)
    runs = list[Run]()
    for node in np.flatnonzero(named).tolist():
        at = int(threshold[node])
        bits = words[edges[at] : edges[at + 1]]
        codes = np.arange(32 * len(bits))
        there = (bits[codes // 32] >> (codes % 32).astype(np.uint32) & 1).astype(bool)
        sides = np.where(there, child[0][node], child[1][node])
        # it cuts fractions off towards 0, and sends what is below 0, unknown or missing right
        cuts = np.append(-1.0, np.nextafter(codes + 1.0, 0.0))
        ends = child[1][node]
        runs.append((node, int(feature[node]), cuts, np.concatenate([[ends], sides, [ends]]), int(ends)))
    return branches.with_runs(tree, runs)


# -- XGBoost --------------------------------------------------------------------------------------------------------


def _xgboost(model: Any, X: NDArray[Any], lost: list[Index] | None = None) -> Ensemble:
    del X  # it rounds every question
    whole = json.loads(bytes(model.get_booster().save_raw("json")))["learner"]
    booster = whole["gradient_booster"]
    objective = whole["objective"]["name"]
    if booster["name"] != "gbtree":
        raise UnreadableError(f"XGBoost's booster is {booster['name']}")
    if objective not in ("binary:logistic", "multi:softprob"):
        raise UnreadableError(f"XGBoost's objective is {objective}")
    if "best_iteration" in whole.get("attributes", {}):
        raise UnreadableError("XGBoost stopped early and keeps trees that it does not use")
    trees = booster["model"]["trees"]
    if not trees:
        raise UnreadableError("the ensemble has no tree")
    base, error = _xgboost_base(whole["learner_model_param"], logistic=objective == "binary:logistic")
    return Ensemble(
        link="logistic" if objective == "binary:logistic" else "softmax",
        **_joined([_xgboost_tree(t) for t in trees], lost),
        group=np.array(booster["model"]["tree_info"], dtype=np.int32),
        base=base,
        base_error=error,
        single=True,
        cast=True,
    )


def _xgboost_tree(tree: dict[str, Any]) -> Tree:
    if any(tree.get("split_type", [])) or tree.get("categories"):
        raise UnreadableError("XGBoost splits categories")
    if int(tree["tree_param"].get("size_leaf_vector", 1)) > 1:
        raise UnreadableError("XGBoost's leaves are vectors (multi_output_tree)")
    left = np.array(tree["left_children"], dtype=np.int64)
    right = np.array(tree["right_children"], dtype=np.int64)
    number = np.array(tree["split_conditions"], dtype=np.float32)
    inner = left >= 0
    below = np.nextafter(number, np.float32(-np.inf)).astype(np.float64)  # it asks x < t
    return (
        np.where(inner, np.array(tree["split_indices"], dtype=np.int64), -1),
        np.where(inner, _finite(below), 0.0),
        left,
        right,
        np.where(inner, 0.0, number.astype(np.float64)),
        np.where(np.array(tree["default_left"], dtype=np.int64) != 0, left, right),
    )


def _xgboost_base(param: dict[str, Any], *, logistic: bool) -> tuple[Float, float]:
    """Return the scores before any tree, and how far the library's logit in single precision may be from them."""
    stated = np.array(str(param["base_score"]).strip("[]").split(","), dtype=np.float32).astype(np.float64)
    classes = max(1, int(param["num_class"]))
    if not logistic:
        base = np.broadcast_to(stated, (classes,)).copy()
        return base, 2 * U32 * float(np.abs(base).max())
    p = float(stated[0])
    if not 0 < p < 1:
        raise UnreadableError(f"XGBoost's base score {p} is no probability")
    base = np.array([np.log(p) - np.log1p(-p)])
    return base, 4 * U32 * float(1 / (1 - p) + 1 / p + abs(base[0]))


# -- scikit-learn ---------------------------------------------------------------------------------------------------


def _histogram_boosting(model: Any, X: NDArray[Any], lost: list[Index] | None = None) -> Ensemble:
    del X  # it compares doubles whatever it is asked
    stages = model._predictors  # noqa: SLF001  scikit-learn shows its trees nowhere else
    place, known = _histogram_columns(model)
    trees = [_histogram_tree(p, place, known) for stage in stages for p in stage]
    base = np.asarray(model._baseline_prediction, dtype=np.float64).ravel()  # noqa: SLF001  ditto
    G = len(base)
    if not trees:
        raise UnreadableError("the ensemble has no tree")
    return Ensemble(
        link="logistic" if G == 1 else "softmax",
        **_joined(trees, lost),
        group=(np.arange(len(trees)) % G).astype(np.int32),
        base=base,
    )


def _histogram_columns(model: Any) -> tuple[Index, list[Float]]:
    """Return which column of a question each of the trees' features is, and the values of those that are categories."""
    d, named = int(model.n_features_in_), model.is_categorical_
    if named is None:
        return np.arange(d), []
    known = model._preprocessor.named_transformers_["encoder"].categories_  # noqa: SLF001  ditto
    if any(np.asarray(k).dtype.kind not in "iuf" for k in known):
        raise UnreadableError("HistGradientBoosting's categories are no numbers")
    return np.append(np.flatnonzero(named), np.flatnonzero(~named)), [np.asarray(k, dtype=np.float64) for k in known]


def _histogram_tree(predictor: Any, place: Index, known: list[Float]) -> Tree:
    nodes = predictor.nodes
    leaf, left, right = nodes["is_leaf"].astype(bool), nodes["left"].astype(np.int64), nodes["right"].astype(np.int64)
    named = nodes["is_categorical"].astype(bool) & ~leaf
    inside = np.where(leaf, 0, nodes["feature_idx"].astype(np.int64))
    lost = np.where(nodes["missing_go_to_left"].astype(bool), left, right)
    tree = (
        np.where(leaf, -1, place[inside]),
        np.where(leaf | named, 0.0, _finite(nodes["num_threshold"].astype(np.float64))),
        left,
        right,
        np.where(leaf, nodes["value"].astype(np.float64), 0.0),
        lost,
    )
    runs = list[Run]()
    for node in np.flatnonzero(named).tolist():
        values = known[inside[node]]
        values = values[~np.isnan(values)]  # a missing value is no category of its own
        bits = np.asarray(predictor.raw_left_cat_bitsets)[int(nodes["bitset_idx"][node])]
        codes = np.arange(len(values))
        there = (bits[codes // 32] >> (codes % 32).astype(np.uint32) & 1).astype(bool)
        # exactly a known value, or else as if it were missing
        cuts = np.column_stack([np.nextafter(values, -np.inf), values]).ravel()
        away = np.full(len(values), lost[node])
        sides = np.column_stack([away, np.where(there, left[node], right[node])]).ravel()
        runs.append((node, int(place[inside[node]]), cuts, np.append(sides, lost[node]), int(lost[node])))
    return branches.with_runs(tree, runs) if runs else tree


def _sklearn_tree(tree: Any, value: Float) -> tuple[NDArray[Any], ...]:
    inner = np.asarray(tree.children_left) >= 0
    return (
        np.where(inner, tree.feature, -1),
        np.where(inner, _finite(_at_most(np.asarray(tree.threshold, dtype=np.float64))), 0.0),
        np.asarray(tree.children_left, dtype=np.int64),
        np.asarray(tree.children_right, dtype=np.int64),
        value,
    )


def _gradient_boosting(model: Any, X: NDArray[Any]) -> Ensemble:
    base = np.asarray(model._raw_predict_init(np.asarray(X[:1], dtype=np.float32)), dtype=np.float64)[0]  # noqa: SLF001  ditto
    trees = [
        _sklearn_tree(e.tree_, model.learning_rate * e.tree_.value[:, 0, 0])
        for stage in model.estimators_
        for e in stage
    ]
    G = len(base)
    return Ensemble(
        link="logistic" if G == 1 else "softmax",
        **_joined(trees),
        group=(np.arange(len(trees)) % G).astype(np.int32),
        base=base,
        scale=2.0 if model.loss == "exponential" else 1.0,
        cast=True,
    )


def _forest(model: Any, X: NDArray[Any]) -> Ensemble:
    del X  # it rounds every question
    return _averaged([(e, None) for e in model.estimators_], len(model.classes_))


def _bagging(model: Any, X: NDArray[Any]) -> Ensemble:
    del X  # it rounds every question
    if not all(hasattr(e, "tree_") for e in model.estimators_):
        raise UnreadableError("Bagging averages other models than trees")
    pairs = list(zip(model.estimators_, model.estimators_features_, strict=True))
    return _averaged(pairs, len(model.classes_))


def _averaged(pairs: Sequence[tuple[Any, Any]], K: int) -> Ensemble:
    trees = []
    for estimator, features in pairs:
        counts = np.asarray(estimator.tree_.value[:, 0, :], dtype=np.float64)
        share = counts / counts.sum(axis=1, keepdims=True)
        if share.shape[1] != K:  # a sample without some class: the forest's own labels are 0 .. K-1
            share, known = np.zeros((len(counts), K)), share
            share[:, np.asarray(estimator.classes_, dtype=np.int64)] = known
        feature, *rest = _sklearn_tree(estimator.tree_, share)
        if features is not None:
            feature = np.where(feature >= 0, np.asarray(features)[np.maximum(feature, 0)], -1)
        trees.append((feature, *rest))
    return Ensemble(
        link="mean",
        **_joined(trees),
        group=np.zeros(len(trees), dtype=np.int32),
        base=np.zeros(0),
        cast=True,
    )


def _single_tree(model: Any, X: NDArray[Any]) -> Ensemble:
    del X  # it rounds every question
    return _averaged([(model, None)], len(model.classes_))


def _floored(model: Any, X: NDArray[Any]) -> Ensemble:
    from dataclasses import replace

    inner = read(model.model_, X=X)
    if inner.link != "mean":
        raise UnreadableError("a floor is read where probabilities are means of leaves")
    return replace(inner, floor=float(model.floor))


#: read where values are missing
MISSING = ("LGBMClassifier", "XGBClassifier", "HistGradientBoostingClassifier")
READERS: dict[str, Callable[..., Ensemble]] = {
    "LGBMClassifier": _lightgbm,
    "XGBClassifier": _xgboost,
    "HistGradientBoostingClassifier": _histogram_boosting,
    "GradientBoostingClassifier": _gradient_boosting,
    "RandomForestClassifier": _forest,
    "ExtraTreesClassifier": _forest,
    "BaggingClassifier": _bagging,
    "DecisionTreeClassifier": _single_tree,
    "ExtraTreeClassifier": _single_tree,
    "Floored": _floored,
}
