"""Estimators that are said to read no seed have none, or give the same model whatever it is."""

import inspect

import numpy as np
import pytest
from sklearn.linear_model import ElasticNet, Lasso, LogisticRegression, Ridge
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import QuantileTransformer, StandardScaler
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils import all_estimators

from privgate import models
from privgate.controls.seeds import _READS_NONE, _READS_NONE_WHERE, reads_no_seed
from privgate.subject.recipe import Recipe

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 4))
Y = (X[:, 0] + RNG.normal(size=60) > 0).astype(int)
CLASSES = _READS_NONE | set(_READS_NONE_WHERE)
#: those that have the parameter and do not read it
HAVE_ONE = {
    "LogisticRegression": [LogisticRegression(solver=s) for s in ("lbfgs", "newton-cg", "newton-cholesky")],
    "Ridge": [Ridge(solver=s) for s in ("auto", "svd", "cholesky", "lsqr", "sparse_cg")],
    "Lasso": [Lasso(0.01)],
    "ElasticNet": [ElasticNet(0.01)],
}


class Own(GaussianNB):
    """A class of the user's, whatever it is derived from."""


def test_a_class_that_has_no_seed_has_no_parameter_for_it():
    known = {name: cls for name, cls in all_estimators() if name in CLASSES}
    ours = {name: getattr(models, name) for name in CLASSES - set(known)}

    for name, cls in (known | ours).items():
        assert ("random_state" in inspect.signature(cls).parameters) == (name in HAVE_ONE), name


@pytest.mark.parametrize("estimator", [e for several in HAVE_ONE.values() for e in several], ids=str)
def test_a_seed_that_is_not_read_changes_no_bit(estimator):
    assert reads_no_seed(Recipe(estimator, seed=1))
    fits = [estimator.set_params(random_state=s).fit(X, Y).coef_ for s in range(5)]

    assert all(np.array_equal(fits[0], f) for f in fits)


@pytest.mark.parametrize(
    "estimator",
    [
        LogisticRegression(solver="sag"),
        Lasso(selection="random"),
        DecisionTreeClassifier(),
        make_pipeline(QuantileTransformer(), GaussianNB()),
        make_pipeline(StandardScaler(), LinearSVC()),
        Own(),
    ],
    ids=lambda e: str(e).replace("\n", ""),
)
def test_what_may_read_one_is_compared(estimator):
    assert not reads_no_seed(Recipe(estimator, seed=1))


def test_a_pipeline_reads_none_where_no_step_does():
    assert reads_no_seed(Recipe(make_pipeline(StandardScaler(), LogisticRegression()), seed=1))
