"""Reading histogram gradient boosting of scikit-learn, categories included."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.families.trees import branches
from privgate.families.trees.branches import Run, Tree
from privgate.families.trees.ensemble import Ensemble, Float, Index
from privgate.families.trees.joined import UnreadableError, joined


def histogram_boosting(model: Any, X: NDArray[Any], lost: list[Index] | None = None) -> Ensemble:
    """Return the trees of ``HistGradientBoostingClassifier``."""
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
        **joined(trees, lost),
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
        codes = np.arange(len(values))
        there = (bits[codes // 32] >> (codes % 32).astype(np.uint32) & 1).astype(bool)
        # exactly a known value, or else as if it were missing
        cuts = np.column_stack([np.nextafter(values, -np.inf), values]).ravel()
        away = np.full(len(values), lost[node])
        sides = np.column_stack([away, np.where(there, left[node], right[node])]).ravel()
        runs.append((node, int(place[inside[node]]), cuts, np.append(sides, lost[node]), int(lost[node])))
    return branches.with_runs(tree, runs) if runs else tree
