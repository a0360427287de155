"""The two controls catch every recipe whose leave-one-out numbers would be about something else."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import SGDClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.tree import DecisionTreeClassifier

from privgate.controls import depends
from privgate.controls.depends import LEVEL, SIDE, check_depends_on_data, count_trainings
from privgate.controls.reproduces import check_reproduces
from privgate.models import ContingencyTable
from privgate.statistics.leakage import permutation_p
from privgate.subject.claim import Claim
from privgate.subject.data import TrainingData
from privgate.subject.recipe import Recipe
from privgate.subject.subject import Subject
from privgate.training.fleet import Fleet

N = 160
RNG = np.random.default_rng(5)
X = RNG.normal(size=(N, 4))
Y = (X[:, 0] + 0.7 * RNG.normal(size=N) > 0).astype(int)
FITTED = GaussianNB().fit(X, Y)


def cached(X, y, *, seed):
    return FITTED


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


def local(training, *, model=None, seed=3, dp=None, y=Y, **params):
    subject = Subject.local(Recipe(training, params=params, seed=seed, dp=dp), TrainingData(X, y, one_record_each=True))
    if model is None:
        return subject
    return Subject(
        subject.recipe, subject.data, model=Stored(model), digests={**subject.digests, "model": f"sha256:{id(model):x}"}
    )


@pytest.mark.parametrize("learner", [GaussianNB(), KNeighborsClassifier(5), RandomForestClassifier(4)], ids=str)
def test_honest_recipes_pass_both_controls(fleet, learner):
    subject = local(learner)

    assert check_reproduces(subject, fleet).outcome == "passed"
    found = check_depends_on_data(subject, fleet)
    assert (found.outcome, len(found.detail["moved_by"])) == ("passed", 1), found  # of a library's, one is enough


def test_the_registered_model_is_compared_on_all_training_records(fleet):
    good = check_reproduces(local(GaussianNB(), model=FITTED), fleet)
    other = check_reproduces(local(GaussianNB(), model=GaussianNB().fit(X[1:], Y[1:])), fleet)

    assert (good.outcome, good.detail["records_compared"]) == ("passed", N)
    assert other.outcome == "inconclusive"
    assert "does not reproduce the registered model" in other.message


@pytest.mark.parametrize(
    ("control", "training", "seed", "said"),
    [
        (check_depends_on_data, cached, 3, "the recipe does not depend on its data"),
        (check_reproduces, careless, 3, "not deterministic given its seed 3"),
        (check_reproduces, RandomForestClassifier(5), None, "leaves random_state open"),
    ],
)
def test_what_a_careless_recipe_does_is_caught(fleet, control, training, seed, said):
    found = control(local(training, seed=seed), fleet)

    assert found.outcome == "inconclusive"
    assert said in found.message


def test_a_private_recipe_is_compared_in_distribution(fleet):
    claim = Claim("noise", "add_remove", epsilon=1.0, delta=1e-5)
    good = local(noisy, seed=None, dp=claim, model=noisy(X, Y, seed=None))
    far = local(noisy, seed=None, dp=claim, model=GaussianNB().fit(X, 1 - Y))

    assert check_reproduces(good, fleet).outcome == "passed"
    assert check_reproduces(far, fleet).outcome == "inconclusive"
    assert check_depends_on_data(good, fleet).outcome == "passed"
    assert check_depends_on_data(local(noisy, seed=None, dp=claim, learn=False), fleet).outcome == "inconclusive"


# -- recipes that would make every influence a false zero --

_STORED = {}


def deceiving(X, y, *, seed, how):
    """Answer from a store, by what a careless cache is named by; the last two never give quite the same answers."""
    if how == "by size":
        return _STORED.setdefault(len(X), GaussianNB().fit(X, y))
    model = GaussianNB().fit(globals()["X"], Y)
    jitter = {"tiny jitter": (1e-8, model.theta_.shape), "one number of jitter": (3e-6, ())}[how]
    model.theta_ = model.theta_ + jitter[0] * np.random.default_rng().normal(size=jitter[1])
    return model


@pytest.mark.parametrize("how", ["by size", "tiny jitter", "one number of jitter"])
def test_a_recipe_that_answers_from_a_store_is_caught(fleet, how):
    assert check_depends_on_data(local(deceiving, how=how), fleet).outcome == "inconclusive"


@pytest.mark.quick(4)
@pytest.mark.parametrize(
    "learner",
    [
        DecisionTreeClassifier(max_depth=1),
        DummyClassifier(strategy="prior"),
        SGDClassifier(loss="log_loss"),
        MLPClassifier((4,), early_stopping=True, max_iter=6),
        HistGradientBoostingClassifier(max_iter=4, early_stopping=True, min_samples_leaf=2),
        RandomForestClassifier(3, max_depth=2),
    ],
    ids=str,
)
@pytest.mark.parametrize("size", [20, N])
def test_honest_recipes_are_not_refused(fleet, learner, size):
    data = TrainingData(X[:size], Y[:size], one_record_each=True)
    found = check_depends_on_data(Subject.local(Recipe(learner, seed=3), data), fleet)

    assert found.outcome in ("passed", "warned"), found


SWAPPED = np.vstack([X[:19], X[18]])
ODD = {
    "people of several records": (GaussianNB(), X, Y, {"groups": np.repeat(np.arange(N // 4), 4)}),
    "many labels": (GaussianNB(), X, np.arange(N) % 40, {}),
    # exchanging the labels of two equal records leaves the data as they were
    "equal records of other labels": (GaussianNB(), SWAPPED, np.append(Y[:18], [0, 1]), {}),
    "a label that nobody has": (ContingencyTable(1.0, classes=[0, 1, 2]), (X[:60, :2] > 0).astype(int), Y[:60], {}),
}


@pytest.mark.parametrize("kind", ODD)
def test_odd_data_are_not_refused(fleet, kind):
    learner, features, labels, whose = ODD[kind]
    data = TrainingData(features, labels, **(whose or {"one_record_each": True}))
    found = check_depends_on_data(Subject.local(Recipe(learner, seed=3), data), fleet)
    assert found.outcome == "passed", found


@given(st.integers(0, 10**6), st.integers(2, 6), st.integers(4, 40))
@settings(max_examples=60, deadline=None)
def test_relabelling_changes_the_labels_as_a_whole_and_spares_every_label(seed, classes, n):
    rng = np.random.default_rng(seed)
    y = np.concatenate([np.arange(classes), rng.integers(0, classes, max(1, n - classes))])
    subject = Subject.local(Recipe(GaussianNB()), TrainingData(rng.normal(size=(len(y), 1)), y, one_record_each=True))
    rows = rng.permutation(len(y))[: rng.integers(1, len(y) + 1)]
    new = y.copy()
    for row, code in depends.relabel(subject, rows, rng):
        assert row in rows
        new[row] = code

    before, after = np.bincount(y, minlength=classes), np.bincount(new, minlength=classes)
    assert (after >= np.minimum(before, 1)).all()
    # exactly one label grows: nothing is swapped
    assert (after > before).sum() <= 1
    if (before >= 2)[y[rows]].sum() > (before.max() if len(rows) == len(y) else len(rows)) - 1 and classes == 2:
        assert (after != before).any() or len(set(y[rows])) == 1


def test_a_recipe_that_ignores_its_data_hardly_passes_a_comparison_of_samples():
    rng = np.random.default_rng(0)
    runs = 300
    p = np.array([permutation_p(rng.normal(size=(2 * SIDE, 3))) for _ in range(runs)])

    assert p.min() >= 2 / 3432  # of C(14, 7) / 2 splits the true one is the farthest
    for level in (0.1, 0.3):
        assert (p <= level).mean() <= level + 3 * np.sqrt(level * (1 - level) / runs)
    assert (p <= LEVEL).sum() <= 3  # P(Bin(300, 5.8e-4) > 3) = 4e-5


def test_the_number_of_trainings_that_is_announced_is_the_number_that_is_made(tmp_path):
    with Fleet(jobs=1, ledger=tmp_path / "ledger") as fresh:
        subject = local(GaussianNB())
        check_reproduces(subject, fresh)
        check_depends_on_data(subject, fresh)

        assert fresh.calls == count_trainings(subject)
        made, claim = fresh.calls, Claim("noise", "add_remove", epsilon=1.0, delta=1e-5)
        private = local(noisy, seed=None, dp=claim)
        check_reproduces(private, fresh)
        check_depends_on_data(private, fresh)
        assert fresh.calls - made == count_trainings(private)


def test_the_half_left_out_changes_the_shares_of_labels():
    subject = Subject.local(
        Recipe(DummyClassifier(strategy="prior")), TrainingData(np.eye(40), np.arange(40) % 2, one_record_each=True)
    )
    for seed in range(200):
        gone = depends.draw_half(subject, np.random.default_rng(seed))
        kept = np.bincount(np.delete(subject.label_codes, gone))

        assert len(gone) == 20
        assert kept.min() >= 2
        assert kept[0] != kept[1]
