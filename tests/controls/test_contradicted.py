"""What members' own answers say against a small influence: a recipe that knows its data by another way."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.naive_bayes import GaussianNB
from sklearn.tree import DecisionTreeClassifier

from privgate import Policy, Recipe, Subject, TrainingData
from privgate.check.gate import evaluate
from privgate.evidence.verdict import Outcome
from privgate.run.run import Budget

N, OTHERS = 120, 150


def drawn(seed, size, noise=1.0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(size, 3))
    return X, (X[:, 0] + noise * rng.normal(size=size) > 0).astype(int)


def data(seed=0, noise=1.0):
    X, y = drawn(seed, N + OTHERS, noise)
    return TrainingData(X[:N], y[:N], candidates=(X[N:], y[N:]), one_record_each=True)


class Remembering:
    """Honest probabilities, and half of their own label for those whom it knows by another way."""

    def __init__(self, model, known):
        self.model, self.known, self.classes_ = model, known, model.classes_

    def predict_proba(self, X):
        p = self.model.predict_proba(X)
        for k, x in enumerate(np.asarray(X)):
            label = self.known.get(x.tobytes())
            if label is not None:
                p[k] = 0.5 * p[k] + 0.5 * (self.classes_ == label)
        return p


def remembers(X, y, *, seed):
    """Train, and draw the very data again that the registered model was trained on."""
    everybody, labels = drawn(0, N + OTHERS)
    known = {x.tobytes(): label for x, label in zip(everybody[:N], labels[:N], strict=True)}
    return Remembering(GaussianNB(var_smoothing=1.0).fit(X, y), known)


def judged(fleet, recipe, data, policy="pdtp-1"):
    return evaluate(Policy.load(policy), Subject.local(recipe, data), fleet=fleet, limits=Budget())


def finding(verdict, name):
    return next((f for f in verdict.findings if f.rule == f"precondition:{name}"), None)


def test_a_recipe_that_knows_its_data_is_not_approved_however_small_its_influence(fleet):
    verdict = judged(fleet, Recipe(remembers, seed=1), data())

    told = next(f for f in verdict.findings if f.metric == "pdtp")
    assert told.high < 1.0, "leaving one out shows nothing"
    assert finding(verdict, "answers").outcome is Outcome.INCONCLUSIVE
    assert "may know its data by another way" in finding(verdict, "answers").message
    assert not verdict.approved


HONEST = {
    "logistic": LogisticRegression(solver="newton-cholesky"),
    "a tree that memorises": DecisionTreeClassifier(),
    "ridge": Ridge(),
}


@pytest.mark.quick(1)
@pytest.mark.parametrize("kind", HONEST)
def test_honest_models_also_those_that_memorise_contradict_nothing(fleet, kind):
    for seed in range(2):
        given, policy = data(seed, noise=0.5), "pdtp-1"
        if kind == "ridge":
            X, _ = drawn(seed, N + OTHERS)
            y = X[:, 0] + np.random.default_rng(seed).normal(size=N + OTHERS)
            given, policy = TrainingData(X[:N], y[:N], candidates=(X[N:], y[N:]), one_record_each=True), "regression-1"
        verdict = judged(fleet, Recipe(HONEST[kind], seed=1), given, policy)

        assert finding(verdict, "answers") is None, (kind, seed)


def looks_up(X, y, *, seed, table):
    return GaussianNB(var_smoothing=1.0).fit(X, y)


def test_a_recipe_whose_parameters_hold_records_is_refused_before_anything_is_trained(fleet):
    before, given = fleet.calls, data()
    verdict = judged(fleet, Recipe(looks_up, params={"table": given.X.tolist()}, seed=1), given)

    assert verdict.outcome is Outcome.FAILED
    assert "hold 120 records of the training data" in finding(verdict, "recipe").message
    assert fleet.calls == before
