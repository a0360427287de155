"""Trees without each record: every answer equals scikit-learn's own refit, and ties are handed on."""

import numpy as np
import pytest
from sklearn.tree import DecisionTreeClassifier

from privgate.demo import adult
from privgate.families.answering import answer
from privgate.families.engine import Asked
from privgate.families.trees import decision_tree, tree_splits
from privgate.families.trees.decision_tree import ENGINE, Falls, falls, growth_of


def continuous(rng, n):
    y = rng.integers(0, 3, n)
    return np.round(rng.normal(size=(n, 5)) + rng.normal(size=(3, 5))[y], 4), y


def coarse(rng, n):
    X, y = continuous(rng, n)
    return np.round(X), y


def binary(rng, n):
    y = rng.integers(0, 3, n)
    return (rng.random((n, 12)) < rng.random((3, 12))[y]).astype(float), y


def mixed(rng, n):
    X, y = continuous(rng, n)
    X[:, 0] = X[:, 0] > 0
    X[:, 1] = np.round(X[:, 1])
    X[:, 2] = 7
    return X, y


SETTINGS = [
    {},
    {"max_depth": 3},
    {"min_samples_leaf": 4},
    {"min_samples_split": 9, "max_depth": 6},
    {"max_depth": 1, "min_samples_leaf": 20},
]


@pytest.mark.quick(8)
@pytest.mark.parametrize("make", [continuous, coarse, binary, mixed])
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_equals_refits_wherever_it_answers(direct, fleet, make, settings):
    X, y = make(np.random.default_rng(0), 120)
    estimator = DecisionTreeClassifier(random_state=0, **settings)
    subject = direct.subject(estimator, X, y)

    made, handed_on = ENGINE.answers(Asked(subject, np.arange(120), (None,), fleet))

    assert len(made.units) + len(handed_on) == 120
    assert len(made.units) > 60
    assert direct.worst_difference(made, estimator, subject) == pytest.approx(0, abs=1e-12)


def test_on_adult_every_answer_equals_a_refit_and_the_tied_share_is_known(direct, fleet):
    data = adult.load()
    estimator = DecisionTreeClassifier(max_depth=5, min_samples_leaf=10, random_state=0)
    subject = direct.subject(estimator, data.X, data.y)

    made, handed_on = ENGINE.answers(Asked(subject, np.arange(1000), (None,), fleet))

    assert len(handed_on) < 100
    assert direct.worst_difference(made, estimator, subject, every=3) == pytest.approx(0, abs=1e-12)


def test_ties_that_lead_elsewhere_are_handed_on_and_would_be_wrong_otherwise(direct, fleet, monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.integers(0, 2, (60, 8)).astype(float)
    y = rng.integers(0, 2, 60)  # noise: many splits are equally good
    estimator = DecisionTreeClassifier(random_state=0)
    subject = direct.subject(estimator, X, y)

    made, handed_on = ENGINE.answers(Asked(subject, np.arange(60), (None,), fleet))
    whole = answer(Asked(subject, np.arange(60), (None,), fleet)).retrained
    monkeypatch.setattr(Falls, "reach", noted_without_comparing)
    careless, _ = ENGINE.answers(Asked(subject, np.arange(60), (None,), fleet))

    assert len(handed_on) > 5
    assert direct.worst_difference(made, estimator, subject) == pytest.approx(0, abs=1e-12)
    assert direct.worst_difference(whole, estimator, subject) == pytest.approx(0, abs=1e-12)
    assert set(whole.engine) == {"decision_tree", "refit"}
    assert direct.worst_difference(careless, estimator, subject) > 0.1


def test_ties_below_the_limit_are_bounded_for_every_seed_and_refit_where_they_could_be_above(direct, fleet):
    rng = np.random.default_rng(3)
    X = rng.integers(0, 2, (400, 6)).astype(float)
    y = (X[:, 0] + X[:, 1] + rng.normal(0, 1.2, 400) > 1).astype(int)
    estimator = DecisionTreeClassifier(min_samples_leaf=12, random_state=0)
    subject, seeds, units = direct.subject(estimator, X, y), (0, 1, 2), np.arange(400)

    _, plain = ENGINE.answers(Asked(subject, units, seeds, fleet))
    made, handed_on = ENGINE.answers(Asked(subject, units, seeds, fleet, limits=(2.0, 1.0)))
    _, narrow = ENGINE.answers(Asked(subject, units, seeds, fleet, limits=(1e-6,)))
    bounded = made.select(np.isin(made.units, plain))

    assert len(plain) > 10
    assert len(handed_on) < len(plain) / 2
    assert narrow.tolist() == plain.tolist()
    assert (bounded.error > 0).all()
    assert (np.delete(made.error, np.searchsorted(made.units, bounded.units)) == 0).all()
    beyond = 0.0
    for k, u in enumerate(bounded.units):
        keep = np.delete(units, u)
        for seed in range(8):
            refit = DecisionTreeClassifier(min_samples_leaf=12, random_state=seed).fit(X[keep], y[keep])
            gap = np.abs(np.log(refit.predict_proba(X[u : u + 1])) - bounded.log_without[0, k]).max()
            assert gap <= bounded.error[k] + 1e-12
            beyond = max(beyond, gap / bounded.error[k])
    assert beyond > 0.9  # the bound is what some seed really does


def noted_without_comparing(found, member, counts):
    found.counts[member] = counts


@pytest.mark.parametrize("make", [continuous, coarse, binary, mixed])
def test_splits_that_are_never_looked_at_again_change_nothing(direct, monkeypatch, make):
    X, y = make(np.random.default_rng(1), 150)
    growth = growth_of(direct.subject(DecisionTreeClassifier(min_samples_leaf=2, max_depth=6), X, y))
    quick = falls(growth, np.arange(150))

    for module in (decision_tree, tree_splits):
        monkeypatch.setattr(module, "SLACK", 1e9)  # no split is beaten
    every = falls(growth, np.arange(150))
    monkeypatch.setattr(tree_splits, "CHUNK", 100)  # node by node, feature by feature
    small = falls(growth, np.arange(150))

    assert np.array_equal(quick.tied, every.tied)
    assert np.array_equal(quick.counts[~quick.tied], every.counts[~quick.tied])
    assert np.array_equal(every.tied, small.tied)
    assert np.array_equal(every.counts, small.counts)
    assert quick.nodes == every.nodes == small.nodes > 10


def test_a_record_next_to_a_threshold_falls_by_the_threshold_drawn_without_it(direct):
    X, y = np.array([[0.0], [1.0], [4.0], [5.0], [9.0]]), np.array([0, 0, 0, 1, 1])
    subject = direct.subject(DecisionTreeClassifier(random_state=0), X, y)
    found = falls(growth_of(subject), np.arange(5))

    # without the record at 4 the threshold is 3, so the record falls on the other side
    assert found.counts[2].tolist() == [0, 2]
    assert found.counts[3].tolist() == [3, 0] or found.counts[3].tolist() == [0, 1]
    assert not found.tied.any()


def test_people_with_several_records_and_other_queries_are_handed_on(direct, fleet):
    X, y = continuous(np.random.default_rng(0), 60)
    groups = np.arange(60) // 2
    groups[50:] = np.arange(100, 110)
    subject = direct.subject(DecisionTreeClassifier(random_state=0), X, y, groups=groups)
    plain = direct.subject(DecisionTreeClassifier(random_state=0), X, y)

    made, handed_on = ENGINE.answers(Asked(subject, np.arange(35), (None,), fleet))
    elsewhere, others = ENGINE.answers(
        Asked(plain, np.arange(60), (None,), fleet, queries=(np.arange(60), np.roll(np.arange(60), 1)))
    )

    assert set(range(25)) <= set(handed_on)
    assert direct.worst_difference(made, DecisionTreeClassifier(random_state=0), subject) < 1e-12
    assert len(elsewhere.units) == 0
    assert others.tolist() == list(range(60))


@pytest.mark.parametrize(
    "settings",
    [
        {"criterion": "entropy"},
        {"splitter": "random"},
        {"max_features": 2},
        {"max_leaf_nodes": 5},
        {"ccp_alpha": 0.1},
        {"class_weight": "balanced"},
        {"min_samples_leaf": 0.1},
        {"min_impurity_decrease": 0.1},
        {"monotonic_cst": [1, 0, 0, 0, 0]},
    ],
    ids=str,
)
def test_other_trees_are_not_covered(direct, settings):
    X, y = continuous(np.random.default_rng(0), 60)

    assert ENGINE.supports(direct.subject(DecisionTreeClassifier(**settings), X, y)) != ""


def crowded(rng, n):
    """Many neighbouring values lie closer than scikit-learn's threshold, some a little farther apart."""
    X, y = continuous(rng, n)
    X = X * 0.2 + (rng.random(X.shape) < 0.5)  # half of them all different
    apart = rng.permuted(np.resize([0, 0.6e-7, 1.5e-7, 3e-7], X.shape), axis=0)
    X = np.where(rng.random(X.shape) < 0.4, np.round(X * 4) / 8 + apart, X)
    X[:, 4] = np.where(X[:, 4] > 0, 0.3, 0.3 + 3e-8)  # two values that are one
    return X, y


@pytest.mark.parametrize("settings", [{}, {"max_depth": 4, "min_samples_leaf": 2}], ids=str)
def test_values_between_which_no_threshold_is_drawn(direct, fleet, settings):
    X, y = crowded(np.random.default_rng(2), 150)
    estimator = DecisionTreeClassifier(random_state=0, **settings)
    subject = direct.subject(estimator, X, y)
    growth = growth_of(subject)

    made, handed_on = ENGINE.answers(Asked(subject, np.arange(150), (None,), fleet))

    assert growth.far is not growth.codes
    assert set(np.flatnonzero(growth.squeezed)) <= set(handed_on)
    assert 0 < growth.squeezed.sum() < 110
    assert len(made.units) > 20
    assert direct.worst_difference(made, estimator, subject) == pytest.approx(0, abs=1e-12)
