"""A training function of one's own, as a module that can be imported again."""

from sklearn.ensemble import GradientBoostingClassifier


def fit(X, y, *, seed, trees, depth):
    """Train boosted trees; every random number comes from ``seed``."""
    return GradientBoostingClassifier(n_estimators=trees, max_depth=depth, min_samples_leaf=40, random_state=seed).fit(
        X, y
    )
