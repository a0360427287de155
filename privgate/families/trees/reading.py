"""Reading fitted ensembles of every library into arrays; what they hold beyond plain trees is refused by name.

A split that is no single threshold becomes several: a set of categories is a run of numbers for each of them.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.arrays import Float, Index
from privgate.families.trees.covered_trees import MEANS
from privgate.families.trees.ensemble import Ensemble
from privgate.kernel.cells import SINGLE

#: a tree: feature, cut, left, right, value, child of a missing value
Tree = tuple[NDArray[Any], ...]
#: (node, feature, cuts, children between them, child of a missing value): what lies up to cut k goes to child k
Run = tuple[int, int, Float, Index, int]
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
    found = READERS[name](model, X)
    return replace(found if missing is None or not missing.any() else found.with_missing(missing), lost=None)


def joined(trees: Sequence[Tree], link: Any, base: Float, **more: Any) -> Ensemble:
    """Return trees, each counted from 0, as one table; they add to the scores in turn."""
    if not trees:
        raise UnreadableError("the ensemble has no tree")
    sizes = np.array([len(t[0]) for t in trees])
    start = np.append(0, np.cumsum(sizes))
    feature = np.concatenate([t[0] for t in trees]).astype(np.int32)
    inner, shift = feature >= 0, np.repeat(start[:-1], sizes)
    left, right, lost = (np.where(inner, np.concatenate([t[k] for t in trees]) + shift, 0) for k in (2, 3, 5))
    given = {"group": (np.arange(len(trees)) % max(1, len(base))).astype(np.int32), **more}
    return Ensemble(
        link=link,
        base=base,
        start=start.astype(np.int32),
        feature=feature,
        cut=np.where(inner, np.concatenate([t[1] for t in trees]).astype(np.float64), 0.0),
        left=left.astype(np.int32),
        right=right.astype(np.int32),
        value=np.concatenate([np.asarray(t[4], dtype=np.float64).reshape(len(t[0]), -1) for t in trees]),
        lost=lost.astype(np.int32),
        **given,
    )


def with_runs(tree: Tree, runs: list[Run]) -> Tree:
    """Return a tree whose categorical nodes are chains of thresholds; children may be reached in several ways.

    Parameters
    ----------
    tree : Tree
        What stands at the nodes of ``runs`` is replaced.
    runs : list of Run
        Of each categorical node: one child more than cuts.
    """
    columns = [list(np.asarray(c).tolist()) for c in tree]
    feature, _, _, _, _, _ = columns
    for node, f, cuts, children, missing in runs:
        at = np.flatnonzero(np.diff(children))  # the same child on both sides needs no cut
        ends, goes = np.asarray(cuts)[at].tolist(), [*np.asarray(children)[at].tolist(), int(children[-1])]
        here = node
        for k, end in enumerate(ends or [0.0]):
            last = k + 1 >= len(ends)
            after = goes[-1] if last else len(feature)
            for column, entry in zip(columns, (f, end, goes[k], after, 0.0, missing), strict=True):
                column[here] = entry
            if not last:
                here = after
                for column in columns:
                    column.append(0)
    return tuple(np.asarray(c) for c in columns)


def _members(bits: NDArray[Any], codes: Index) -> NDArray[np.bool_]:
    """Return which codes a set holds that is stored as bits of words."""
    return np.asarray(bits[codes // 32] >> (codes % 32).astype(np.uint32) & 1).astype(bool)


# -- scikit-learn -----------------------------------------------------------------------------------------------------


def _gradient_boosting(model: Any, X: NDArray[Any]) -> Ensemble:
    base = np.asarray(model._raw_predict_init(np.asarray(X[:1], dtype=np.float32)), dtype=np.float64)[0]  # noqa: SLF001  scikit-learn shows it nowhere else
    trees = [
        _sklearn_tree(e.tree_, model.learning_rate * e.tree_.value[:, 0, 0])
        for stage in model.estimators_
        for e in stage
    ]
    link = "logistic" if len(base) == 1 else "softmax"
    return joined(trees, link, base, scale=2.0 if model.loss == "exponential" else 1.0, cast=True)


def _averaged(model: Any, X: NDArray[Any]) -> Ensemble:
    """Read a tree, or trees whose shares are averaged, each on features of its own where it is bagged."""
    del X  # it rounds every question
    estimators = getattr(model, "estimators_", [model])
    if not all(hasattr(e, "tree_") for e in estimators):
        raise UnreadableError("Bagging averages other models than trees")
    K, trees = len(model.classes_), list[Tree]()
    own = getattr(model, "estimators_features_", [None] * len(estimators))
    for estimator, features in zip(estimators, own, strict=True):
        counts = np.asarray(estimator.tree_.value[:, 0, :], dtype=np.float64)
        share = counts / counts.sum(axis=1, keepdims=True)
        if share.shape[1] != K:  # a sample without some class: the forest's own labels are 0 .. K-1
            share, known = np.zeros((len(counts), K)), share
            share[:, np.asarray(estimator.classes_, dtype=np.int64)] = known
        feature, *rest = _sklearn_tree(estimator.tree_, share)
        if features is not None:
            feature = np.where(feature >= 0, np.asarray(features)[np.maximum(feature, 0)], -1)
        trees.append((feature, *rest))
    return joined(trees, "mean", np.zeros(0), cast=True)


def _sklearn_tree(tree: Any, value: Float) -> Tree:
    left, right = (np.asarray(c, dtype=np.int64) for c in (tree.children_left, tree.children_right))
    inner, threshold = left >= 0, np.asarray(tree.threshold, dtype=np.float64)
    with np.errstate(over="ignore"):
        near = threshold.astype(np.float32)
    # the largest number of single precision that is at most the threshold
    cut = np.where(near > threshold, np.nextafter(near, np.float32(-np.inf)), near).astype(np.float64)
    astray = tree.__getstate__()["nodes"]["missing_go_to_left"].astype(bool)  # it is shown nowhere else
    return np.where(inner, tree.feature, -1), cut, left, right, value, np.where(astray, left, right)


def _floored(model: Any, X: NDArray[Any]) -> Ensemble:
    inner = READERS[type(model.model_).__name__](model.model_, X)
    if inner.link != "mean":
        raise UnreadableError("a floor is read where probabilities are means of leaves")
    return replace(inner, floor=float(model.floor))


def _histogram(model: Any, X: NDArray[Any]) -> Ensemble:
    """Read ``HistGradientBoostingClassifier``, categories included."""
    del X  # it compares doubles whatever it is asked
    d, named, known = int(model.n_features_in_), model.is_categorical_, list[Float]()
    place = np.arange(d)
    if named is not None:
        place = np.append(np.flatnonzero(named), np.flatnonzero(~named))
        stored = model._preprocessor.named_transformers_["encoder"].categories_  # noqa: SLF001  scikit-learn shows its trees nowhere else
        if any(np.asarray(k).dtype.kind not in "iuf" for k in stored):
            raise UnreadableError("HistGradientBoosting's categories are no numbers")
        known = [np.asarray(k, dtype=np.float64) for k in stored]
    trees = [_histogram_tree(p, place, known) for stage in model._predictors for p in stage]  # noqa: SLF001  ditto
    base = np.asarray(model._baseline_prediction, dtype=np.float64).ravel()  # noqa: SLF001  ditto
    return joined(trees, "logistic" if len(base) == 1 else "softmax", base)


def _histogram_tree(predictor: Any, place: Index, known: list[Float]) -> Tree:
    nodes = predictor.nodes
    leaf, left, right = nodes["is_leaf"].astype(bool), nodes["left"].astype(np.int64), nodes["right"].astype(np.int64)
    named = nodes["is_categorical"].astype(bool) & ~leaf
    inside = np.where(leaf, 0, nodes["feature_idx"].astype(np.int64))
    lost = np.where(nodes["missing_go_to_left"].astype(bool), left, right)
    tree = (
        np.where(leaf, -1, place[inside]),
        np.where(leaf | named, 0.0, nodes["num_threshold"].astype(np.float64)),
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
        there = _members(bits, np.arange(len(values)))
        # exactly a known value, or else as if it were missing
        cuts = np.column_stack([np.nextafter(values, -np.inf), values]).ravel()
        away = np.full(len(values), lost[node])
        sides = np.column_stack([away, np.where(there, left[node], right[node])]).ravel()
        runs.append((node, int(place[inside[node]]), cuts, np.append(sides, lost[node]), int(lost[node])))
    return with_runs(tree, runs) if runs else tree


# -- XGBoost, from the JSON that it stores ----------------------------------------------------------------------------


def _xgboost(model: Any, X: NDArray[Any]) -> Ensemble:
    del X  # it rounds every question
    whole = json.loads(bytes(model.get_booster().save_raw("json")))["learner"]
    booster, objective = whole["gradient_booster"], whole["objective"]["name"]
    if booster["name"] != "gbtree":
        raise UnreadableError(f"XGBoost's booster is {booster['name']}")
    if objective not in ("binary:logistic", "multi:softprob"):
        raise UnreadableError(f"XGBoost's objective is {objective}")
    if "best_iteration" in whole.get("attributes", {}):
        raise UnreadableError("XGBoost stopped early and keeps trees that it does not use")
    logistic = objective == "binary:logistic"
    base, error = _xgboost_base(whole["learner_model_param"], logistic=logistic)
    trees, group = [_xgboost_tree(t) for t in booster["model"]["trees"]], booster["model"]["tree_info"]
    more = {"group": np.array(group, dtype=np.int32), "base_error": error, "single": True, "cast": True}
    return joined(trees, "logistic" if logistic else "softmax", base, **more)


def _xgboost_tree(tree: dict[str, Any]) -> Tree:
    if any(tree.get("split_type", [])) or tree.get("categories"):
        raise UnreadableError("XGBoost splits categories")
    if int(tree["tree_param"].get("size_leaf_vector", 1)) > 1:
        raise UnreadableError("XGBoost's leaves are vectors (multi_output_tree)")
    left, right = (np.array(tree[f"{side}_children"], dtype=np.int64) for side in ("left", "right"))
    number, inner = np.array(tree["split_conditions"], dtype=np.float32), left >= 0
    return (
        np.where(inner, np.array(tree["split_indices"], dtype=np.int64), -1),
        np.nextafter(number, np.float32(-np.inf)).astype(np.float64),  # it asks x < t
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
        return base, 2 * SINGLE * float(np.abs(base).max())
    p = float(stated[0])
    if not 0 < p < 1:
        raise UnreadableError(f"XGBoost's base score {p} is no probability")
    base = np.array([np.log(p) - np.log1p(-p)])
    return base, 4 * SINGLE * float(1 / (1 - p) + 1 / p + abs(base[0]))


# -- LightGBM, from the text that it stores ---------------------------------------------------------------------------


def _lightgbm(model: Any, X: NDArray[Any]) -> Ensemble:
    text = model.booster_.model_to_string()
    head, _, body = text.partition("\nTree=")
    said = _lines(head)
    if "average_output" in head.split():
        raise UnreadableError("LightGBM averages its trees (boosting rf)")
    objective = said.get("objective", "").split()
    if objective[:1] not in (["binary"], ["multiclass"]):
        raise UnreadableError(f"LightGBM's objective is {' '.join(objective) or 'unknown'}")
    blocks = body.partition("end of trees")[0].split("\nTree=") if body else []
    trees, two = [_lightgbm_tree(_lines(b)) for b in blocks], objective[0] == "binary"
    options = dict(o.split(":") for o in objective if ":" in o)
    base = np.zeros(int(said.get("num_tree_per_iteration", "1")))  # it is in the first trees
    cast = np.asarray(X).dtype != np.float64  # whole numbers become single precision, too
    scale = float(options.get("sigmoid", 1.0)) if two else 1.0
    return joined(trees, "logistic" if two else "softmax", base, scale=scale, cast=cast, rounds=True)


def _lines(text: str) -> dict[str, str]:
    return dict(line.partition("=")[::2] for line in text.splitlines() if "=" in line)


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
    threshold = np.array(said["threshold"].split(), dtype=np.float64)
    # it takes numbers up to this size for 0, so the lower of its two thresholds next to 0 lets that number right
    threshold = np.where((threshold >= -ZERO) & (threshold < 0), np.nextafter(-ZERO, -np.inf), threshold)
    child = [np.array(said[f"{side}_child"].split(), dtype=np.int64) for side in ("left", "right")]
    child = [np.where(c >= 0, c, len(feature) + ~c) for c in child]
    # without missing values in training, one is taken for 0; with them, a node has a default
    lost = np.where(np.where(kind >> 2 & 3 == 2, kind >> 1 & 1 == 1, threshold >= 0), child[0], child[1])
    none = np.zeros(len(value))
    inner = (np.append(c, none) for c in (threshold, *child))
    tree = (
        np.append(feature, none - 1).astype(np.int64),
        *inner,
        np.append(0.0 * feature, value),
        np.append(lost, none),
    )
    if not named.any():
        return tree
    edges = np.array(said["cat_boundaries"].split(), dtype=np.int64)
    words, runs = np.array(said["cat_threshold"].split(), dtype=np.uint32), list[Run]()
    for node in np.flatnonzero(named).tolist():
        at, ends = int(threshold[node]), int(child[1][node])
        bits = words[edges[at] : edges[at + 1]]
        codes = np.arange(32 * len(bits))
        sides = np.where(_members(bits, codes), child[0][node], ends)
        # it cuts fractions off towards 0, and sends what is below 0, unknown or missing right
        cuts = np.append(-1.0, np.nextafter(codes + 1.0, 0.0))
        runs.append((node, int(feature[node]), cuts, np.concatenate([[ends], sides, [ends]]), ends))
    return with_runs(tree, runs)


READERS: dict[str, Callable[[Any, NDArray[Any]], Ensemble]] = {
    "LGBMClassifier": _lightgbm,
    "XGBClassifier": _xgboost,
    "HistGradientBoostingClassifier": _histogram,
    "GradientBoostingClassifier": _gradient_boosting,
    **dict.fromkeys(MEANS, _averaged),
    "Floored": _floored,
}
