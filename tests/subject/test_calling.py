"""Ways to write training down, each recorded as JSON and trained again from it."""

import enum
import functools
import json
from dataclasses import dataclass, field
from pathlib import Path

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


class Kind(enum.Enum):
    WIDE = 3
    NARROW = 4


@dataclass(frozen=True)
class Setup:
    smoothing: float
    kind: Kind = Kind.WIDE


@dataclass(frozen=True, slots=True)
class Slotted:
    smoothing: float


@dataclass
class Trainer:
    smoothing: float
    notes: dict = field(default_factory=dict)

    def __call__(self, X, y, *, seed):
        return self.train_it(X, y, seed=seed)

    def train_it(self, X, y, *, seed):
        self.notes["trained"] = True
        return fit(X, y, seed=seed, smoothing=self.smoothing)


class Inherits(Trainer):
    def __init__(self, smoothing):
        super().__init__(smoothing / 2)


class Fits:
    """What keeps its model in itself and returns nothing."""

    def __init__(self, smoothing=1e-9, seed=None):
        self.smoothing, self.seed = smoothing, seed

    def fit(self, X, y):
        self.model = GaussianNB(var_smoothing=self.smoothing).fit(X, y)

    def predict_proba(self, X):
        return self.model.predict_proba(X)


class FitsSeeded:
    def fit(self, X, y, seed):
        self.model = GaussianNB(var_smoothing=0.5).fit(X, y)

    def predict_proba(self, X):
        return self.model.predict_proba(X)


def with_params(X, y, *, seed, path, table, setup, slotted, kind):
    assert path == Path("a") / "b"
    pd.testing.assert_frame_equal(table, TABLE)
    assert kind is Kind.NARROW
    assert setup.kind is Kind.WIDE
    assert slotted == Slotted(0.5)
    return fit(X, y, seed=seed, smoothing=setup.smoothing)


TABLE = pd.DataFrame({"bin": [0.5, 1.5], "name": ["low", "high"]})
PARAMS = {"path": Path("a/b"), "table": TABLE, "setup": Setup(0.5), "slotted": Slotted(0.5), "kind": Kind.NARROW}
WAYS = {
    "function": Recipe(fit, params={"smoothing": 0.5}),
    "partial": Recipe(functools.partial(fit, smoothing=0.5)),
    "partial of partial": Recipe(functools.partial(functools.partial(fit, smoothing=3), smoothing=0.5)),
    "callable object": Recipe(Trainer(0.5)),
    "method": Recipe(Trainer(0.5).train_it),
    "inherited method": Recipe(Inherits(1.0).train_it),
    "class": Recipe(Fits, params={"smoothing": 0.5}),
    "class seeded by fit": Recipe(FitsSeeded),
    "object with fit": Recipe(FitsSeeded()),
    "estimator class": Recipe(GaussianNB, params={"var_smoothing": 0.5}),
    "parameters": Recipe(with_params, params=PARAMS),
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


def test_training_leaves_the_object_as_it_was():
    trainer = Trainer(0.5)
    recipe = Recipe(trainer)
    recipe.train(X, Y, seed=1)
    assert trainer.notes == {}
    assert recipe.digest == Recipe(trainer).digest != Recipe(Trainer(0.25)).digest


def no_seed(X, y, *, smoothing=1.0):
    return None


class Unfit:
    pass


class Unseeded:
    def fit(self, X, y):
        return self


@pytest.mark.parametrize(
    ("training", "params", "words"),
    [
        (no_seed, {}, "no_seed takes no argument 'seed'"),
        (Unseeded, {}, "neither Unseeded.. nor its fit takes a seed"),
        (Unseeded(), {}, "takes no argument 'seed'"),
        (Unfit, {}, "class without fit"),
        (Trainer(1.0).train_it, {"depth": 3}, "unexpected keyword argument 'depth'"),
        (Fits, {"depth": 3}, "unexpected keyword argument 'depth'"),
        (functools.partial(fit, 1), {}, "by position"),
        (fit, {"self": 1}, "called 'self'"),
        (3, {}, "not int"),
    ],
)
def test_what_cannot_be_trained_again_is_refused_where_it_is_written(training, params, words):
    with pytest.raises(SubjectError, match=words):
        Recipe(training, params=params)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (pd.DataFrame(np.zeros((200, 100))), "stored with the model"),
        (pd.DataFrame({"when": pd.date_range("2024", periods=2)}), "small table of numbers and text"),
        (pd.DataFrame({"rate": [0.5, 0.7]}, index=["Bern", "Basel"]), "use reset_index"),
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
    assert Recipe.read(payload, None).library_estimator is None
    payload["estimator"]["params"]["class_weight"] = None
    assert Recipe.read(payload, None).library_estimator is not None
