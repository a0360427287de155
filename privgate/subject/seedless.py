"""Estimators of which no part reads a seed: scikit-learn's documentation and source say so of these classes alone.

Where nothing reads it, a training with another seed is the same call again, and the controls have repeated that one.
"""

from collections.abc import Callable
from typing import Any

from privgate.subject.recipe import Recipe


def _never(_: Any) -> bool:
    return True


def _without_sampling(solver: Any) -> bool:
    return solver.solver in ("lbfgs", "newton-cg", "newton-cholesky", "cholesky", "svd", "lsqr", "sparse_cg", "auto")


def _in_turn(descent: Any) -> bool:
    return bool(descent.selection == "cyclic")


#: class -> whether it reads no seed with its parameters
_READS_NONE: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("GaussianNB", "CategoricalNB", "BernoulliNB", "MultinomialNB", "ComplementNB"), _never),
    **dict.fromkeys(("KNeighborsClassifier", "KNeighborsRegressor", "NearestCentroid", "LinearRegression"), _never),
    **dict.fromkeys(("LinearDiscriminantAnalysis", "QuadraticDiscriminantAnalysis", "KernelRidge"), _never),
    **dict.fromkeys(("Pipeline", "ColumnTransformer", "FeatureUnion", "FixedScaler", "FixedOneHot"), _never),
    **dict.fromkeys(("StandardScaler", "MinMaxScaler", "MaxAbsScaler", "RobustScaler", "Normalizer"), _never),
    **dict.fromkeys(("OneHotEncoder", "OrdinalEncoder", "SimpleImputer", "Binarizer", "PolynomialFeatures"), _never),
    **dict.fromkeys(("CountVectorizer", "TfidfVectorizer", "TfidfTransformer", "HashingVectorizer"), _never),
    # random_state is read "when solver == 'sag', 'saga' or 'liblinear'"; of Ridge by 'sag' and 'saga'
    **dict.fromkeys(("LogisticRegression", "Ridge"), _without_sampling),
    # it is read where selection is 'random'
    **dict.fromkeys(("Lasso", "ElasticNet"), _in_turn),
}


def reads_no_seed(recipe: Recipe) -> bool:
    """Return whether the recipe is an estimator made of classes alone that are known to read no seed as they are set.

    A function may draw from its seed whatever it is called, and a class that is derived from one of these is another.
    """
    estimator = recipe.library_estimator
    if estimator is None:
        return False
    parts = [estimator, *(p for p in estimator.get_params(deep=True).values() if hasattr(p, "get_params"))]
    return all(type(p).__name__ in _READS_NONE and _READS_NONE[type(p).__name__](p) for p in parts)
