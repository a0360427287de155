"""What members' own answers say against a small influence: a recipe that knows its data by another way."""

from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.naive_bayes import GaussianNB
from sklearn.tree import DecisionTreeClassifier

from privgate import Policy, Recipe, Subject, TrainingData
from privgate.check.gate import evaluate
from privgate.families.retrained import Retrained, Shown
from privgate.influence import contradicted, left_out, modes, other_coins
from privgate.run.run import Budget
from privgate.verdict import Outcome
from tests.in_process import InProcess

N, OTHERS = 120, 150


def drawn(seed, size, noise=1.0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(size, 3))
    return X, (X[:, 0] + noise * rng.normal(size=size) > 0).astype(int)


def data(seed=0, noise=1.0):
    X, y = drawn(seed, N + OTHERS, noise)
    return TrainingData(X[:N], y[:N], candidates=(X[N:], y[N:]))


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
    "naive Bayes": GaussianNB(),
    "logistic": LogisticRegression(solver="newton-cholesky"),
    "a tree that memorises": DecisionTreeClassifier(),
    "a stump": DecisionTreeClassifier(max_depth=1),
    "a tree of few leaves": DecisionTreeClassifier(max_depth=2, min_samples_leaf=20),
    "a forest": RandomForestClassifier(10, min_samples_leaf=5),
    "ridge": Ridge(),
}


@pytest.mark.quick(1)
@pytest.mark.parametrize("kind", HONEST)
def test_honest_models_also_those_that_memorise_contradict_nothing(fleet, monkeypatch, kind):
    monkeypatch.setattr(other_coins, "PEOPLE", 1)  # what other coins show of people is no part of this, and takes long
    for seed in range(2):
        given, policy = data(seed, noise=0.5), "pdtp-1"
        if kind == "ridge":
            X, _ = drawn(seed, N + OTHERS)
            y = X[:, 0] + np.random.default_rng(seed).normal(size=N + OTHERS)
            given, policy = TrainingData(X[:N], y[:N], candidates=(X[N:], y[N:])), "regression-1"
        verdict = judged(fleet, Recipe(HONEST[kind], seed=1), given, policy)

        assert finding(verdict, "answers") is None, (kind, seed)


def looks_up(X, y, *, seed, table):
    return GaussianNB(var_smoothing=1.0).fit(X, y)


@pytest.mark.parametrize("written", [lambda X: X.tolist(), lambda X: [repr(v) for v in X.ravel().tolist()]])
def test_a_recipe_whose_parameters_hold_records_is_refused_before_anything_is_trained(fleet, written):
    given = data()
    before = fleet.calls
    verdict = judged(fleet, Recipe(looks_up, params={"table": written(given.X)}, seed=1), given)

    assert verdict.outcome is Outcome.FAILED
    assert "hold 120 records of the training data" in finding(verdict, "recipe").message
    assert fleet.calls == before


def test_parameters_without_records_are_no_matter(fleet):
    grid = np.linspace(-3, 3, 60).reshape(20, 3).tolist()
    verdict = judged(fleet, Recipe(looks_up, params={"table": grid}, seed=1), data())

    assert finding(verdict, "recipe") is None
    assert verdict.approved


def test_people_who_were_refitted_for_a_reason_are_no_sample_of_members(direct_fleet):
    """An engine hands on whose answers are extreme: next to candidates they would look like another population."""
    X, y = drawn(0, 800)
    subject = Subject.local(Recipe(GaussianNB(), seed=0), TrainingData(X[:400], y[:400], candidates=(X[400:], y[400:])))
    log_p = GaussianNB().fit(X[:400], y[:400]).predict_log_proba(X[:400])
    extreme = np.argsort(-np.abs(log_p[:, 0] - log_p[:, 1]))[:100]
    made = Retrained.of("k_nearest", np.arange(400), (0,), (np.arange(400), np.arange(400)), log_p[None], log_p[None])
    made.shown[np.random.default_rng(1).permutation(np.setdiff1d(np.arange(400), extreme))[:100]] = Shown.DRAWN
    made.shown[extreme] = Shown.LIMITED
    known = {
        left_out.retrained: made,
        left_out.found: SimpleNamespace(seeds=(0,)),
        modes.used: "all",
        left_out.left: [],
    }
    run = SimpleNamespace(subject=subject, fleet=direct_fleet, averaged=False, rehearsed=False, once=known.get)

    found = contradicted._answers(run)

    assert 115 < len(found.without) < 155  # of 100 who were handed on about a third, as of the others
    assert contradicted.of(run).preconditions == ()


@pytest.fixture
def direct_fleet():
    return InProcess()
