"""The two controls catch every recipe whose leave-one-out numbers would be about something else."""

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.tree import DecisionTreeClassifier

from privgate.claim import Claim
from privgate.data import TrainingData
from privgate.recipe import Recipe
from privgate.retrain.controls import depends_on_data, reproduces, trainings
from privgate.retrain.fleet import Fleet
from privgate.subject import Subject

N = 160
RNG = np.random.default_rng(5)
X = RNG.normal(size=(N, 4))
Y = (X[:, 0] + 0.7 * RNG.normal(size=N) > 0).astype(int)
FITTED = GaussianNB().fit(X, Y)


def cached(X, y, *, seed):
    return FITTED


def partly(X, y, *, seed, part):
    n = len(X)
    kept = {
        "first half": np.arange(n) < n // 2,
        "second half": np.arange(n) >= n // 2,
        "every other": np.arange(n) % 2 == 0,
        "some half": np.random.default_rng(0).random(n) < 0.5,
        "last tenth": np.arange(n) < 0.875 * n,
        "all": np.ones(n, bool),
    }[part]
    return GaussianNB().fit(X[kept], y[kept])


def careless(X, y, *, seed):
    return GaussianNB().fit(X + 0.1 * np.random.default_rng().normal(size=X.shape), y)


def noisy(X, y, *, seed, learn=True):
    model = GaussianNB().fit(X, y if learn else np.arange(len(y)) % 2)
    model.theta_ = model.theta_ + 0.02 * np.random.default_rng().normal(size=model.theta_.shape)
    return model


class Stored:
    def __init__(self, model):
        self.model = model

    def load(self):
        return self.model


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    with Fleet(jobs=1, ledger=tmp_path_factory.mktemp("ledger")) as made:
        yield made


def local(training, *, model=None, seed=3, dp=None, y=Y, **params):
    subject = Subject.local(Recipe(training, params=params, seed=seed, dp=dp), TrainingData(X, y))
    if model is None:
        return subject
    return Subject(
        subject.recipe, subject.data, model=Stored(model), digests={**subject.digests, "model": f"sha256:{id(model):x}"}
    )


LEARNERS = [
    GaussianNB(),
    LogisticRegression(),
    KNeighborsClassifier(5),
    DecisionTreeClassifier(),
    DecisionTreeClassifier(min_samples_leaf=10),
    RandomForestClassifier(10),
]


@pytest.mark.parametrize("learner", LEARNERS, ids=str)
def test_honest_recipes_pass_both_controls(fleet, learner):
    subject = local(learner)

    assert reproduces(subject, fleet).outcome == "passed"
    found = depends_on_data(subject, fleet)
    assert found.outcome == "passed", found


def test_the_registered_model_is_compared_on_all_training_records(fleet):
    good = reproduces(local(GaussianNB(), model=FITTED), fleet)
    other = reproduces(local(GaussianNB(), model=GaussianNB().fit(X[1:], Y[1:])), fleet)

    assert (good.outcome, good.detail["records_compared"]) == ("passed", N)
    assert other.outcome == "inconclusive"
    assert "does not reproduce the registered model" in other.message


def test_cached_weights_are_caught(fleet):
    found = depends_on_data(local(cached), fleet)

    assert found.outcome == "inconclusive"
    assert found.message.startswith("the recipe does not depend on its data")


@pytest.mark.parametrize("part", ["first half", "second half", "every other", "some half"])
def test_an_ignored_half_is_caught(fleet, part):
    found = depends_on_data(local(partly, part=part), fleet)

    assert found.outcome == "inconclusive"
    assert "ignores about" in found.message
    if part == "first half":
        assert "rows 80 to 99" in found.message


def test_a_small_ignored_stretch_is_named_as_a_warning(fleet):
    found = depends_on_data(local(partly, part="last tenth"), fleet)

    assert found.outcome == "warned"
    assert found.message == "predictions do not depend on the records in rows 140 to 159"


def test_training_that_is_not_deterministic_given_its_seed_is_caught(fleet):
    found = reproduces(local(careless), fleet)

    assert found.outcome == "inconclusive"
    assert "not deterministic given its seed 3" in found.message


def test_an_open_random_state_is_caught(fleet):
    found = reproduces(local(RandomForestClassifier(5), seed=None), fleet)

    assert found.outcome == "inconclusive"
    assert "leaves random_state open" in found.message


def test_a_private_recipe_is_compared_in_distribution(fleet):
    claim = Claim("noise", "add_remove", epsilon=1.0, delta=1e-5)
    good = local(noisy, seed=None, dp=claim, model=noisy(X, Y, seed=None))
    far = local(noisy, seed=None, dp=claim, model=GaussianNB().fit(X, 1 - Y))

    assert reproduces(good, fleet).outcome == "passed"
    assert reproduces(far, fleet).outcome == "inconclusive"
    assert depends_on_data(good, fleet).outcome == "passed"
    assert depends_on_data(local(noisy, seed=None, dp=claim, learn=False), fleet).outcome == "inconclusive"


def test_controls_are_remembered(fleet):
    subject = local(GaussianNB())
    for control in (reproduces, depends_on_data):
        control(subject, fleet)
    calls = fleet.calls
    for control in (reproduces, depends_on_data):
        control(subject, fleet)

    assert fleet.calls == calls

