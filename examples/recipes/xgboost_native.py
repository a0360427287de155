"""``xgboost.train`` with early stopping on an inner split, and probabilities from the booster."""

import numpy as np
import xgboost
from sklearn.model_selection import train_test_split

from privgate import Recipe


def fit(X, y, *, seed, rounds=200, depth=3):
    """Train until the inner split improves no more; the split, too, comes from the seed."""
    classes, codes = np.unique(y, return_inverse=True)
    inner, outer, y_inner, y_outer = train_test_split(X, codes, test_size=0.2, random_state=seed, stratify=codes)
    params = {
        "objective": "multi:softprob", "num_class": len(classes), "max_depth": depth, "seed": seed, "nthread": 1,
        "tree_method": "hist",
    }  # fmt: skip
    return xgboost.train(
        params,
        xgboost.DMatrix(inner, y_inner),
        num_boost_round=rounds,
        evals=[(xgboost.DMatrix(outer, y_outer), "inner")],
        early_stopping_rounds=10,
        verbose_eval=False,
    )


def predict(model, X):
    """Return one column a class, in the order of the sorted labels, from the best round on."""
    return model.predict(xgboost.DMatrix(X), iteration_range=(0, model.best_iteration + 1))


RECIPE = Recipe(fit, params={"rounds": 200, "depth": 3}, seed=7, predict=predict)
