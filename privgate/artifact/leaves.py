"""Trees: leaves that one record alone made, in scikit-learn's, LightGBM's, XGBoost's and our own trees.

A leaf of one record holds its exact target, and the path to it a box around its features. Trees grown on all records
with counts in their leaves give the whole training set away where there are enough of them (Ferry et al., 2024).
"""

from collections.abc import Iterator
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.artifact.carried import Carried, Context

Mask = NDArray[np.bool_]
#: trees grown on all records, fewer of which are no forest
_FOREST = 10
#: leaves of fewer records than this are small
FEW = 5


def of(thing: Any, about: Context) -> Iterator[Carried]:
    """Give what the trees of one object carry."""
    home, name = type(thing).__module__, type(thing).__name__
    if hasattr(thing, "tree_") and hasattr(thing.tree_, "n_node_samples"):
        yield from _single(thing.tree_, f"{name}.tree_", None, about.matrix(thing), about.n)
    if home.startswith("sklearn.ensemble") and isinstance(getattr(thing, "estimators_", None), list):
        yield from _reconstructed(thing, about)
    stages = getattr(thing, "_predictors", None)
    if isinstance(stages, list):
        nodes = [p.nodes for stage in stages for p in stage]
        sizes = [t["count"][t["is_leaf"].astype(bool)] for t in nodes]
        yield from _counted(sizes, f"{name}._predictors", about.n)
    if home == "lightgbm.basic" and name == "Booster":
        trees = thing.dump_model()["tree_info"]
        yield from _counted([_leaves(t["tree_structure"]) for t in trees], "Booster", about.n)
    if home == "xgboost.core" and name == "Booster":
        yield from _xgboost(thing, about)
    if type(thing).__module__ == "privgate.models" and hasattr(thing, "parts_"):
        counts = [np.bincount(p.tree[_alone(p)], minlength=1).max(initial=0) for p in thing.parts_]
        most = sum(int(_alone(p).sum()) for p in thing.parts_)
        if most:
            yield Carried("single_leaf", f"{name}.parts_", least=int(max(counts)), most=most)


def _alone(part: Any) -> Mask:
    """Return which nodes are leaves that one record of weight one made."""
    return np.asarray((part.feature < 0) & (part.counts.sum(axis=1) == 1))


def in_bag(thing: Any, about: Context, bag: Mask) -> Iterator[Carried]:
    """Give what one tree of a forest carries whose records are known."""
    if hasattr(thing, "tree_"):
        yield from _single(thing.tree_, f"{type(thing).__name__}.tree_", bag, about.matrix(thing), about.n)


def inside(forest: Any, about: Context) -> Iterator[tuple[Any, Mask]]:
    """Give each tree of a forest with the records in its bag."""
    samples = getattr(forest, "estimators_samples_", None)
    for k, tree in enumerate(forest.estimators_):
        bag = np.zeros(about.n, dtype=bool)
        if samples is None:
            bag[:] = True
        else:
            bag[np.asarray(samples[k], dtype=np.int64)] = True
        yield tree, bag


def _single(tree: Any, where: str, bag: Mask | None, X: NDArray[np.float64] | None, n: int) -> Iterator[Carried]:
    """Give the leaves of one record, and whose they are where that can be told."""
    leaf = tree.children_left == -1
    if small := _small(tree.n_node_samples[leaf]):
        yield Carried("small_leaf", where, beside=min(n, small))
    alone = leaf & (tree.n_node_samples == 1)
    if not alone.any():
        return
    many = int(alone.sum())
    rows = np.zeros(n, dtype=bool)
    if X is not None and X.shape == (n, tree.n_features):
        reached = tree.apply(np.ascontiguousarray(X, dtype=np.float32))
        among = np.ones(n, dtype=bool) if bag is None else bag
        counts = np.bincount(reached[among], minlength=tree.node_count)
        # a tree of a bag or a fold that nobody names: who reaches the leaf alone may not have made it
        if (counts[leaf] == tree.n_node_samples[leaf]).all():
            rows = among & alone[reached]
    yield Carried("single_leaf", where, rows if rows.any() else None, min(many, n), min(many, n))


def _reconstructed(forest: Any, about: Context) -> Iterator[Carried]:
    whole = not getattr(forest, "bootstrap", True) and len(forest.estimators_) >= _FOREST
    if whole and hasattr(forest.estimators_[0], "tree_") and "Boosting" not in type(forest).__name__:
        yield Carried("reconstruction", type(forest).__name__, most=about.n)


def _counted(sizes: list[NDArray[Any]], where: str, n: int) -> Iterator[Carried]:
    """Give one-record leaves that nobody is named for: different records within a tree, perhaps the same over trees."""
    alone = [int((t == 1).sum()) for t in sizes]
    if any(alone):
        yield Carried("single_leaf", where, least=min(n, max(alone)), most=min(n, sum(alone)))
    if small := max((_small(t) for t in sizes), default=0):
        yield Carried("small_leaf", where, beside=min(n, small))


def _small(sizes: NDArray[Any]) -> int:
    """Return how many records share a leaf with fewer than ``FEW``, those that are alone left out."""
    return int(sizes[(sizes > 1) & (sizes < FEW)].sum())


def _leaves(tree: Any) -> NDArray[np.int64]:
    """Return how many records made each leaf of a tree of LightGBM's."""
    waiting, found = [tree], []
    while waiting:
        at = waiting.pop()
        if "left_child" in at:
            waiting += [at["left_child"], at["right_child"]]
        else:
            found.append(int(at.get("leaf_count", 0)))
    return np.array(found, dtype=np.int64)


def _xgboost(booster: Any, about: Context) -> Iterator[Carried]:
    """Give leaves that one training record reaches; without the records, leaves that could be of one."""
    xgboost: Any = import_module("xgboost")  # installed, or there were no booster

    X = about.matrix(booster)
    if X is None:
        yield Carried("single_leaf", "Booster", most=about.n)
        return
    names = booster.feature_names
    reached = booster.predict(xgboost.DMatrix(X, feature_names=names), pred_leaf=True).reshape(about.n, -1)
    rows = np.zeros(about.n, dtype=bool)
    for column in reached.T:
        _, place, counts = np.unique(column, return_inverse=True, return_counts=True)
        rows |= counts[place] == 1
    if rows.any():
        yield Carried("single_leaf", "Booster", rows)
