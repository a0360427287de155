"""Reading fitted ensembles of XGBoost from the JSON that it stores."""

import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.families.trees.branches import Tree
from privgate.families.trees.ensemble import Ensemble, Float, Index
from privgate.families.trees.joined import UnreadableError, joined
from privgate.kernel.cells import SINGLE


def xgboost(model: Any, X: NDArray[Any], lost: list[Index] | None = None) -> Ensemble:
    """Return the trees of ``XGBClassifier``."""
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
        **joined([_xgboost_tree(t) for t in trees], lost),
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
        np.where(inner, below, 0.0),
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
