"""Laws of the closed form of logistic regression, whatever the design; what every closed form and theorem must say."""

import numpy as np
import pytest
from sklearn.ensemble import AdaBoostClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from privgate.subject.data import TrainingData
from privgate.subject.recipe import Recipe
from privgate.subject.subject import Subject
from privgate.theorems.catalogue import CLOSED_FORMS as ALL
from privgate.theorems.closed_form import RefitRequest
from privgate.theorems.newton import LOGISTIC

ESTIMATOR = LogisticRegression(tol=1e-12, solver="newton-cholesky")
TOLERANCE = 1e-6  # nats


def spread(rng, n):
    return rng.normal(size=(n, 4)) * [1, 2, 3, 5]


def design(seed, n=60, K=3):
    rng = np.random.default_rng(seed)
    X = spread(rng, n)
    X[n // 2] = X[n // 2 + 1]
    y = rng.integers(0, K, n)
    y[n // 2] = y[n // 2 + 1]  # a duplicate, label and all
    return X, y, rng


def leave_out(subject, units=None, **more):
    units = np.arange(len(subject.data.units)) if units is None else units
    return LOGISTIC.answers(RefitRequest(subject, units, (None,), None, **more))


@pytest.mark.quick
@pytest.mark.parametrize("kind", ["records", "text labels", "groups", "class of one", "fewer records than features"])
def test_equals_direct_refits(direct, kind):
    X, y, rng = design(1, n=6 if kind[0] == "f" else 60, K=2 if kind[0] == "f" else 3)
    groups = rng.integers(0, 20, len(y)) if kind == "groups" else None
    y = np.array(["no", "perhaps", "yes"])[y] if kind == "text labels" else y
    if kind == "class of one":
        y[3] = 9
    subject = direct.subject(ESTIMATOR, X, y, groups=groups)

    assert LOGISTIC.supports(subject) == ""
    made, handed_on = leave_out(subject)

    assert sorted([*made.units, *handed_on]) == list(range(len(subject.data.units)))
    assert direct.worst_difference(made, ESTIMATOR, subject) <= TOLERANCE
    assert kind == "groups" or kind[0] == "f" or len(handed_on) <= 1
    if kind == "class of one":
        assert 3 in handed_on or made.status[list(made.units).index(3)] == "undefined"


@pytest.mark.quick(2)
@pytest.mark.parametrize("grouped", [False, True])
def test_answers_any_queries_of_the_pool(direct, grouped):
    X, y, rng = design(2)
    groups = rng.integers(0, 20, len(y)) if grouped else None
    subject = direct.subject(ESTIMATOR, X, y, groups=groups, candidates=(spread(rng, 15), y[:15]))
    units = rng.permutation(len(subject.data.units))[:15].astype(np.int64)
    made, handed_on = leave_out(subject, units, queries=(np.repeat(np.arange(15), 4), rng.integers(1, 75, 60)))
    assert len(handed_on) == 0
    assert direct.worst_difference(made, ESTIMATOR, subject) <= TOLERANCE


@pytest.mark.parametrize("engine", ALL, ids=[e.name for e in ALL])
def test_supports_says_why_for_what_it_does_not_cover(engine):
    rng = np.random.default_rng(0)
    X, y = rng.integers(0, 2, (30, 3)), rng.integers(0, 2, 30)
    estimator, data = ESTIMATOR if engine is LOGISTIC else SVC(), TrainingData(X, y, one_record_each=True)
    for recipe, records in [
        (Recipe(AdaBoostClassifier()), data),
        (Recipe(make_pipeline(StandardScaler(), estimator)), data),
        (Recipe(estimator, predict=own_predict), data),
        (Recipe(estimator), TrainingData(["a b", "c", "a"], [0, 1, 0], one_record_each=True)),
        (Recipe(estimator), TrainingData(np.where(X > 0, np.nan, 0.0), y, one_record_each=True)),
    ]:
        assert engine.supports(Subject.local(recipe, records)) != ""


def own_predict(model, X):
    return model.predict_proba(X)
