"""The models whose way out is searched: each as its owner would write it, and the policy that blocks it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kinds import data as tables
from papers import datasets
from privgate import Domain, Recipe, TrainingData

Made = tuple[Recipe, TrainingData]


@dataclass(frozen=True)
class Case:
    """One model.

    Parameters
    ----------
    make : callable
        ``make(n)``: recipe and data of n people.
    n : int
        People, as the question is asked.
    small : int
        People where less time is given.
    policy : str
    """

    make: Callable[[int], Made]
    n: int
    small: int
    policy: str


def logistic(n: int) -> Made:
    """Return the first script of a data scientist."""
    from sklearn.datasets import load_breast_cancer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    X, y = load_breast_cancer(return_X_y=True)
    return Recipe(make_pipeline(StandardScaler(), LogisticRegression()), seed=0), TrainingData(
        X[:n], y[:n], one_record_each=True
    )


def scaled(n: int) -> Made:
    """Return the same on columns scaled beforehand, as if by public constants: a scaler that learns has no theorem."""
    from sklearn.datasets import load_breast_cancer
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    X, y = load_breast_cancer(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    domain = Domain(box=[(float(low), float(high)) for low, high in zip(X.min(0) - 1, X.max(0) + 1, strict=True)])
    return Recipe(LogisticRegression(), seed=0), TrainingData(X[:n], y[:n], domain=domain, one_record_each=True)


def boosting(n: int) -> Made:
    """Return XGBoost as it comes, on the numeric columns of Adult."""
    from xgboost import XGBClassifier

    found = tables.adult_numbers(n)
    y = (found.y == ">50K").astype(np.int64)
    return Recipe(XGBClassifier(n_jobs=1), seed=0), TrainingData(np.asarray(found.X)[:n], y[:n], one_record_each=True)


def forest(n: int) -> Made:
    """Return a forest as it comes, on the numeric columns of Adult."""
    from sklearn.ensemble import RandomForestClassifier

    found = tables.adult_numbers(n)
    return Recipe(RandomForestClassifier(), seed=0), TrainingData(
        np.asarray(found.X)[:n], found.y[:n], one_record_each=True
    )


def bayes(n: int) -> Made:
    """Return naive Bayes that smooths next to nothing, on the text columns of Adult."""
    from sklearn.naive_bayes import CategoricalNB

    found, sizes = tables.adult_codes(n)
    domain = Domain(categories=tuple(sizes))
    data = TrainingData(np.asarray(found.X)[:n], found.y[:n], domain=domain, one_record_each=True)
    return Recipe(CategoricalNB(alpha=0.01, min_categories=sizes), seed=0), data


def census(n: int) -> Made:
    """Return naive Bayes that smooths next to nothing, on a synthetic census: age, marital status, race and sex.

    After Long et al. (2017), section 8: like the American Community Survey there, restricted to four attributes.
    """
    from sklearn.naive_bayes import CategoricalNB

    rng, sizes = np.random.default_rng(0), [100, 7, 5, 2]
    age = np.clip(rng.normal(40, 18, n), 0, 99).astype(int)
    marital = rng.choice(7, n, p=[0.4, 0.3, 0.15, 0.08, 0.04, 0.02, 0.01])
    race, sex = rng.choice(5, n, p=[0.7, 0.15, 0.1, 0.04, 0.01]), rng.integers(0, 2, n)
    y = np.where(rng.random(n) < 1 / (1 + np.exp(-(age - 45) / 15 - (marital == 1))), ">50K", "<=50K")
    data = TrainingData(
        np.column_stack([age, marital, race, sex]), y, domain=Domain(categories=tuple(sizes)), one_record_each=True
    )
    return Recipe(CategoricalNB(alpha=0.01, min_categories=sizes), seed=0), data


def ridge(n: int) -> Made:
    """Return ridge with next to no penalty on products of the columns of diabetes: more than they can bear."""
    from sklearn.datasets import load_diabetes
    from sklearn.linear_model import Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import PolynomialFeatures

    X, y = load_diabetes(return_X_y=True)
    recipe = Recipe(make_pipeline(PolynomialFeatures(2), Ridge(alpha=1e-6)), seed=0)
    return recipe, TrainingData(X[:n] * 10, y[:n], one_record_each=True)


def digits(n: int) -> Made:
    """Return a small network on the digits of scikit-learn."""
    from recipes import torch_loop

    recipe = Recipe(torch_loop.fit, params={"width": 64, "epochs": 15}, seed=0, predict=torch_loop.predict)
    return recipe, tables.digits(n)


def location(n: int) -> Made:
    """Return a perceptron on the check-ins of Shokri et al."""
    from recipes import torch_loop

    found = datasets.location(Path(tables.FOLDER))
    found = found.sample(min(2 * n, len(found.y)), np.random.default_rng(0))
    data = TrainingData(found.X[:n], found.y[:n], candidates=(found.X[n:], found.y[n:]), one_record_each=True)
    recipe = Recipe(torch_loop.fit, params={"width": 64, "epochs": 20}, seed=0, predict=torch_loop.predict)
    return recipe, data


CASES: Mapping[str, Case] = {
    "logistic, breast cancer": Case(logistic, 569, 569, "pdtp-1"),
    "scaled logistic, breast cancer": Case(scaled, 569, 569, "dtp-1"),
    "naive Bayes, Adult": Case(bayes, 5000, 1000, "dtp-1"),
    "ridge, diabetes": Case(ridge, 442, 442, "regression-1"),
    "boosting, Adult": Case(boosting, 5000, 300, "pdtp-1"),
    "forest, Adult": Case(forest, 5000, 300, "pdtp-1"),
    "perceptron, Location": Case(location, 1000, 300, "pdtp-1"),
    "convolutional network, digits": Case(digits, 1000, 200, "pdtp-1"),
}
