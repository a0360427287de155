"""Ways to write training down, each recorded as JSON and trained again from it."""

import functools
import json

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB

from privgate.errors import SubjectError
from privgate.subject.recipe import Recipe

X = np.random.default_rng(2).normal(size=(20, 2))
Y = np.arange(20) % 2


def fit(X, y, *, seed, smoothing=1e-9, **more):
    return GaussianNB(var_smoothing=smoothing).fit(X, y)


WAYS = {
    "function": Recipe(fit, params={"smoothing": 0.5}),
    "partial": Recipe(functools.partial(fit, smoothing=0.5)),
    "partial of partial": Recipe(functools.partial(functools.partial(fit, smoothing=3), smoothing=0.5)),
    "estimator": Recipe(GaussianNB(), params={"var_smoothing": 0.5}),
}
SMOOTHED = GaussianNB(var_smoothing=0.5).fit(X, Y).predict_proba(X)


@pytest.mark.parametrize("way", WAYS)
def test_training_comes_back_from_json(way):
    recipe = WAYS[way]
    read = Recipe.read(json.loads(json.dumps(recipe.payload)), None)

    for one in (recipe, read, recipe):
        model = one.train(X, Y, seed=1)
        assert np.array_equal(one.probabilities(model, X, np.array([0, 1])), SMOOTHED)
    assert read.payload == json.loads(json.dumps(recipe.payload))


def no_more(X, y, *, seed):
    return None


def no_seed(X, y, *, smoothing=1.0):
    return None


class Fits:
    def fit(self, X, y, *, seed):
        return self


@pytest.mark.parametrize(
    ("training", "params", "words"),
    [
        (no_seed, {}, "no_seed takes no argument 'seed'"),
        (Fits, {}, "Fits is a class, a method or an object; a recipe needs a function"),
        (Fits(), {}, "or an estimator, not Fits"),
        (Fits().fit, {}, "Fits.fit is a class, a method"),
        (no_more, {"depth": 3}, "unexpected keyword argument 'depth'"),
        (functools.partial(fit, 1), {}, "by position"),
        (3, {}, "not int"),
    ],
)
def test_what_cannot_be_trained_again_is_refused_where_it_is_written(training, params, words):
    with pytest.raises(SubjectError, match=words):
        Recipe(training, params=params)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (pd.DataFrame({"rate": [0.5]}), "of type DataFrame cannot be recorded"),
        (np.random.default_rng(0), "cannot be recorded"),
        (lambda: 0, "^a lambda has no importable name; define it at the top level"),
    ],
)
def test_parameters_that_cannot_be_recorded_are_refused(value, words):
    with pytest.raises(SubjectError, match=words):
        _ = Recipe(fit, params={"thing": value}).payload


def test_no_object_is_put_together_in_the_process_that_asks():
    """Attributes set by name could make an estimator that its constructor never makes."""
    payload = json.loads(json.dumps(Recipe(LogisticRegression()).payload))
    hidden = {"!": "instance", "class": "sklearn.naive_bayes:GaussianNB", "params": {"theta_": 3}}
    payload["estimator"]["params"]["class_weight"] = hidden
    with pytest.raises(SubjectError, match="unknown kind of parameter 'instance'"):
        _ = Recipe.read(payload, None).library_estimator
    payload["estimator"]["params"]["class_weight"] = None
    assert Recipe.read(payload, None).library_estimator is not None
