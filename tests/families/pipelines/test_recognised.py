"""Training functions are recognised only where they fit one estimator to exactly their records, and are re-checked."""

from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from privgate import Fleet, Recipe, Subject, TrainingData
from privgate.families import answering as families
from privgate.families import bound, catalogue
from privgate.families.engine import Asked
from privgate.families.pipelines import recognised
from privgate.training import recognition
from privgate.training.fit import Rows
from privgate.training.task_limits import Clock

rng = np.random.default_rng(0)
X = rng.normal(size=(160, 3))
Y = (X[:, 0] + rng.normal(size=160) > 0).astype(int)


def piped(X, y, *, seed, C=1.0):
    last = LogisticRegression(C=C, solver="newton-cholesky", tol=1e-8, random_state=seed)
    return make_pipeline(StandardScaler(), last).fit(X, y)


def alone(X, y, *, seed, C=1.0):
    return LogisticRegression(C=C, solver="newton-cholesky", tol=1e-8, random_state=seed).fit(X, y)


def bare(X, y, *, seed):
    model = LogisticRegression(class_weight="balanced")
    return model.fit(X, y)


def scaled_first(X, y, *, seed):
    return LogisticRegression().fit(StandardScaler().fit_transform(X), y)


def weighted(X, y, *, seed):
    return LogisticRegression().fit(X, y, sample_weight=y + 1.0)


def chosen(X, y, *, seed):
    return LogisticRegression(C=float(X[:, 0].std())).fit(X, y)


def fewer(X, y, *, seed):
    return LogisticRegression().fit(X[1:], y[1:])


def changed(X, y, *, seed):
    model = LogisticRegression().fit(X, y)
    model.coef_ *= 2
    return model


def searched(X, y, *, seed):
    cross_val_score(LogisticRegression(), X, y, cv=2)
    return LogisticRegression().fit(X, y)


def in_place(X, y, *, seed):
    X -= X.mean(axis=0)
    return LogisticRegression().fit(X, y)


def raises(X, y, *, seed):
    raise ValueError("not today")


def looked_at(function, **params):
    opened = SimpleNamespace(n=160, recipe=Recipe(function, params, seed=3), X=X.copy())
    with Clock(60.0) as clock:
        return recognition._recognised(opened, Rows(opened.X, Y, 160, np.unique(Y)), clock, np.random.default_rng(0))


@pytest.mark.parametrize(("function", "params"), [(piped, {"C": 0.5}), (bare, {})])
def test_a_function_that_fits_one_estimator_is_recognised_with_its_parameters(function, params):
    found = looked_at(function, **params)
    payload = {**Recipe(function, params, seed=3).payload, "kind": "estimator", "estimator": found["estimator"]}
    assert repr(Recipe.read(payload, None).library_estimator) == repr(
        Recipe(function(X, Y, seed=3, **params), seed=3).library_estimator
    )


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (scaled_first, "fits 2 estimators"),
        (searched, "fits 3 estimators"),
        (weighted, "not what LogisticRegression makes"),
        (fewer, "not what LogisticRegression makes"),
        (changed, "not what LogisticRegression makes"),
        (in_place, "not what LogisticRegression makes"),
        (chosen, "depend on the data"),
    ],
)
def test_a_function_that_does_anything_else_is_not(function, said):
    assert said in looked_at(function)["why"]


def test_a_recognised_function_has_an_engine_and_no_theorem():
    subject = Subject.local(Recipe(alone, seed=3), TrainingData(X, Y, domain=[(-9, 9)] * 3))
    assert catalogue.first(subject)[0].name == "refit"
    with Fleet(jobs=1, ledger="none", isolate="none") as fleet:
        (found,) = [recognised.recognise(subject, fleet)]
        assert "LogisticRegression" in found.message
        assert fleet.calls == recognition.TRAININGS
        assert catalogue.first(subject)[0].name == "logistic"
        got = families.answer(Asked(subject, np.arange(160), (3,), fleet))
        assert [c.outcome for c in got.rechecks] == ["passed"]
        assert set(got.retrained.engine) == {"logistic"}
        assert fleet.calls < 90
        failing = Subject.local(Recipe(raises), subject.data)
        assert "ValueError" in recognised.recognise(failing, fleet).message
        assert catalogue.first(failing)[0].name == "refit"
    theorems, notes = bound.applicable(subject)
    assert not theorems
    recognised._KNOWN[subject.recipe] = Recipe(LogisticRegression(solver="newton-cholesky", tol=1e-8))
    theorems, notes = bound.applicable(subject)
    assert not theorems
    assert any("a theorem needs the estimator itself" in why for why in bound.reasons(notes))


def test_few_people_are_refitted_sooner_than_a_function_is_watched():
    assert recognised.recognise(Subject.local(Recipe(piped), TrainingData(X[:50], Y[:50])), None) is None
    assert recognised.recognise(Subject.local(Recipe(LogisticRegression()), TrainingData(X, Y)), None) is None
