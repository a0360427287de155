"""``lightgbm.train`` with early stopping on an inner split."""

import lightgbm
import numpy as np
from sklearn.model_selection import train_test_split

from privgate import Recipe


def fit(X, y, *, seed, rounds=200, leaves=15):
    """Train until the inner split improves no more. Without ``force_row_wise`` it times both ways and takes one."""
    classes, codes = np.unique(y, return_inverse=True)
    inner, outer, y_inner, y_outer = train_test_split(X, codes, test_size=0.2, random_state=seed, stratify=codes)
    params = {
        "objective": "multiclass", "num_class": len(classes), "num_leaves": leaves, "seed": seed, "num_threads": 1,
        "deterministic": True, "force_row_wise": True, "verbosity": -1,
    }  # fmt: skip
    known = lightgbm.Dataset(inner, y_inner)
    return lightgbm.train(
        params,
        known,
        num_boost_round=rounds,
        valid_sets=[lightgbm.Dataset(outer, y_outer, reference=known)],
        callbacks=[lightgbm.early_stopping(10, verbose=False)],
    )


def predict(model, X):
    """Return one column a class, in the order of the sorted labels."""
    return model.predict(X, num_iteration=model.best_iteration, num_threads=1)


RECIPE = Recipe(fit, params={"rounds": 200, "leaves": 15}, seed=7, predict=predict)
