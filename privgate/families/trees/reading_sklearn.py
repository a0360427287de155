"""Reading single trees, forests and gradient boosting of scikit-learn."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.families.trees.ensemble import Ensemble, Float, Index
from privgate.families.trees.joined import UnreadableError, at_most, joined


def gradient_boosting(model: Any, X: NDArray[Any], lost: list[Index] | None = None) -> Ensemble:
    """Return the trees of ``GradientBoostingClassifier``, each times the learning rate."""
    base = np.asarray(model._raw_predict_init(np.asarray(X[:1], dtype=np.float32)), dtype=np.float64)[0]  # noqa: SLF001  scikit-learn shows it nowhere else
    trees = [
        _sklearn_tree(e.tree_, model.learning_rate * e.tree_.value[:, 0, 0])
        for stage in model.estimators_
        for e in stage
    ]
    G = len(base)
    return Ensemble(
        link="logistic" if G == 1 else "softmax",
        **joined(trees, lost),
        group=(np.arange(len(trees)) % G).astype(np.int32),
        base=base,
        scale=2.0 if model.loss == "exponential" else 1.0,
        cast=True,
    )


def forest(model: Any, X: NDArray[Any], lost: list[Index] | None = None) -> Ensemble:
    """Return the trees of a forest, whose shares are averaged."""
    del X  # it rounds every question
    return _averaged([(e, None) for e in model.estimators_], len(model.classes_), lost)


def bagging(model: Any, X: NDArray[Any], lost: list[Index] | None = None) -> Ensemble:
    """Return the trees of ``BaggingClassifier``, each on features of its own."""
    del X  # it rounds every question
    if not all(hasattr(e, "tree_") for e in model.estimators_):
        raise UnreadableError("Bagging averages other models than trees")
    pairs = list(zip(model.estimators_, model.estimators_features_, strict=True))
    return _averaged(pairs, len(model.classes_), lost)


def single_tree(model: Any, X: NDArray[Any], lost: list[Index] | None = None) -> Ensemble:
    """Return one tree as the mean of one."""
    del X  # it rounds every question
    return _averaged([(model, None)], len(model.classes_), lost)


def _averaged(pairs: Sequence[tuple[Any, Any]], K: int, lost: list[Index] | None) -> Ensemble:
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
        **joined(trees, lost),
        group=np.zeros(len(trees), dtype=np.int32),
        base=np.zeros(0),
        cast=True,
    )


def _sklearn_tree(tree: Any, value: Float) -> tuple[NDArray[Any], ...]:
    left, right = (np.asarray(c, dtype=np.int64) for c in (tree.children_left, tree.children_right))
    inner = left >= 0
    astray = tree.__getstate__()["nodes"]["missing_go_to_left"].astype(bool)  # it is shown nowhere else
    return (
        np.where(inner, tree.feature, -1),
        np.where(inner, at_most(np.asarray(tree.threshold, dtype=np.float64)), 0.0),
        left,
        right,
        value,
        np.where(astray, left, right),
    )
