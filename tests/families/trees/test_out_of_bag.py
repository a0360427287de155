"""Trees that did not draw a person are those of a forest trained without them; the re-check sees where not."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.ensemble import (
    BaggingClassifier,
    BaggingRegressor,
    ExtraTreesClassifier,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

from privgate.families import recheck
from privgate.families.answering import answer
from privgate.families.engine import Asked, Declined
from privgate.families.trees import out_of_bag
from privgate.families.trees.out_of_bag import ENGINE
from privgate.subject.data import TrainingData
from privgate.subject.recipe import Recipe
from privgate.subject.subject import Subject
from privgate.training.fit import Answer
from tests.in_process import InProcess

SEEDS = tuple(range(10))
SMALL = {"n_estimators": 8, "max_depth": 3, "min_samples_leaf": 4}


class Numbers(InProcess):
    """Trains regressors, which answer one number."""

    def _fit(self, subject, fit):
        self.calls += 1
        X, y = subject.data.pool()
        rows = fit.members if fit.left_out is None else np.setdiff1d(np.arange(subject.data.n), fit.left_out)
        model = subject.recipe.train(X[rows], y[rows], seed=fit.seed)
        mean, deviation = subject.scale
        return Answer(((model.predict(X[fit.queries]) - mean) / deviation)[:, None])


def made_of(estimator, n=120, d=4, seed=0, groups=None, task=None):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    y = (X[:, 0] + rng.normal(size=n) > 0).astype(int) if task is None else X[:, 0] + rng.normal(size=n)
    recipe = Recipe(estimator) if task is None else Recipe(estimator, task=task)
    return Subject.local(recipe, TrainingData(X, y, groups=groups))


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    "estimator",
    [
        RandomForestClassifier(**SMALL, random_state=0),
        ExtraTreesClassifier(**SMALL, bootstrap=True, max_samples=0.6, class_weight="balanced_subsample"),
        BaggingClassifier(DecisionTreeClassifier(max_depth=3, min_samples_leaf=4), n_estimators=8, max_features=0.5),
    ],
    ids=["forest", "extra-share", "bagging-columns"],
)
def test_answers_without_a_person_are_draws_of_what_real_trainings_give(estimator):
    subject, units = made_of(estimator), np.arange(120)
    fleet = InProcess()

    got = answer(Asked(subject, units, SEEDS, fleet))

    assert set(got.retrained.engine) == {"out_of_bag"}
    assert [(c.name, c.outcome) for c in got.rechecks] == [("recheck_out_of_bag", "passed")]
    assert got.rechecks[0].detail["tolerance"] < 0.3
    assert "independent, not paired" in got.rechecks[0].detail["estimates"]
    assert fleet.calls < 120 < 10 * 120  # refits of everybody would be 1,200


@pytest.mark.slow
def test_the_mean_of_many_draws_is_that_of_many_real_trainings_without_bias():
    # 16 records, where drawing n times instead of n - 1 would already show
    X = np.repeat(np.arange(8.0), 2)[:, None]
    y = np.array([0, 1] * 4 + [1] * 8)
    forest = RandomForestClassifier(3, max_depth=2, random_state=0)
    subject = Subject.local(Recipe(forest), TrainingData(X, y))
    many = tuple(range(100))

    made, handed_on = ENGINE.answers(Asked(subject, np.arange(16), many, InProcess()))

    assert len(handed_on) == 0
    for u in (0, 9):
        p = np.exp(made.log_without[:, u, 1])
        rest = np.delete(np.arange(16), u)
        real = [
            RandomForestClassifier(3, max_depth=2, random_state=s).fit(X[rest], y[rest]).predict_proba(X[[u]])[0, 1]
            for s in many
        ]
        error = np.sqrt((p.var() + np.var(real)) / 100)
        assert abs(p.mean() - np.mean(real)) < 4 * error
        assert abs(p.std() - np.std(real)) < 0.3 * np.std(real)


def test_each_answer_is_a_forest_of_the_released_size_and_no_tree_serves_twice(monkeypatch):
    subject, kept, honest = made_of(RandomForestClassifier(**SMALL), n=60), [], out_of_bag._one
    monkeypatch.setattr(out_of_bag, "_one", lambda *a: kept.extend(found := honest(*a)) or found)

    made, _ = ENGINE.answers(Asked(subject, np.arange(60), SEEDS, InProcess()))

    for u in (0, 17, 59):
        own = [answers[np.flatnonzero(out).tolist().index(u)] for out, answers in kept if out[u]]
        expected = np.array(own[: 10 * 8]).reshape(10, 8, 2).mean(axis=1)
        np.testing.assert_allclose(np.exp(made.log_without[:, u]), expected, rtol=0, atol=1e-12)


def test_the_recheck_sees_trees_that_did_draw_the_person(monkeypatch):
    honest = out_of_bag._one

    def drawn(work, seed):
        everybody = [(out | True, np.zeros(0)) for out, _ in honest(work, seed)]
        forest = clone(work.estimator).set_params(random_state=seed).fit(work.X, work.y)
        asked = work.questions[work.rows]
        return [(out, t.predict_proba(asked)) for (out, _), t in zip(everybody, forest.estimators_, strict=True)]

    monkeypatch.setattr(out_of_bag, "_one", drawn)
    subject = made_of(RandomForestClassifier(8, random_state=0), n=90)
    made, _ = ENGINE.answers(Asked(subject, np.arange(90), SEEDS, InProcess()))

    found = ENGINE.compared(Asked(subject, made.units, made.seeds, InProcess(), limits=(1.0,)), made)

    assert found.outcome == "warned"
    assert found.detail["wrong"]


def test_the_tests_of_the_recheck_keep_their_level_and_see_a_shift():
    rng, false, seen, spread = np.random.default_rng(0), 0, 0, 0
    for _ in range(400):
        drawn = rng.normal(size=(20, 59)) + 0.5 * rng.normal(size=(20, 1))  # people share the engine's draws
        false += bool(recheck.alike(drawn, rng.normal(size=59) * np.sqrt(1.25), rng)[2])
        seen += bool(recheck.alike(drawn, rng.normal(size=59) * np.sqrt(1.25) + 2.5, rng)[2])

        wide = 4 * rng.normal(size=59)
        spread += bool(recheck.alike(drawn, wide, rng)[2])

    assert false <= 6
    assert min(seen, spread) >= 390


def test_an_answer_of_nought_ranks_like_any_other():
    rng = np.random.default_rng(1)
    drawn = np.where(rng.random((20, 50)) < 0.5, -np.inf, 0.0)

    gap, allowed, wrong = recheck.alike(drawn, np.where(rng.random(50) < 0.5, -np.inf, 0.0), rng)
    _, _, never = recheck.alike(drawn, np.zeros(50), rng)

    assert (gap, allowed, wrong) == (0.0, np.inf, [])
    assert never


@pytest.mark.parametrize(
    ("estimator", "why"),
    [
        (ExtraTreesClassifier(5), "bootstrap=False"),
        (RandomForestClassifier(5, warm_start=True), "goes on from another model"),
        (RandomForestClassifier(5, class_weight="balanced"), "did not draw"),
        (RandomForestClassifier(5, min_samples_leaf=0.1), "share of all records"),
        (RandomForestClassifier(5, min_samples_split=0.1), "share of all records"),
        (BaggingClassifier(LogisticRegression()), "averages LogisticRegression"),
        (BaggingClassifier(DecisionTreeClassifier(class_weight="balanced")), "did not draw"),
        (DecisionTreeClassifier(), "not a bagged forest"),
        (RandomForestClassifier(5, min_samples_leaf=np.float32(0.1)), "share of all records"),
        (RandomForestClassifier(10**7), "trained in a box"),
        (RandomForestClassifier(0), "grows no forest"),
        (RandomForestClassifier("5"), "grows no forest"),
        (RandomForestClassifier(5, max_samples=10**6), "that are left of some"),
        (BaggingClassifier(None, 5, max_samples=10**6), "that are left of some"),
    ],
)
def test_what_reads_records_that_were_not_drawn_is_refused(estimator, why):
    assert why in ENGINE.supports(made_of(estimator))


def test_as_many_draws_as_records_are_no_draws_of_what_is_left():
    """The library refuses more draws than records: with everybody there are enough, without one there are not."""
    X, y = np.random.default_rng(0).normal(size=(40, 3)), np.arange(40) % 2
    most, fewer = (
        Subject.local(Recipe(RandomForestClassifier(5, max_samples=m)), TrainingData(X, y)) for m in (40, 39)
    )
    pairs = Subject.local(
        Recipe(RandomForestClassifier(5, max_samples=39)), TrainingData(X, y, groups=np.arange(40) // 2)
    )

    assert "39 records that are left" in ENGINE.supports(most)
    assert ENGINE.supports(fewer) == ""
    assert "38 records that are left" in ENGINE.supports(pairs)


@pytest.mark.parametrize("samples", [None, 0.5, 7])
@pytest.mark.parametrize("kind", [RandomForestClassifier, BaggingClassifier])
def test_draws_are_those_of_a_forest_on_fewer_records(kind, samples):
    forest = kind(n_estimators=2, max_samples=samples)
    X, y = np.random.default_rng(0).normal(size=(99, 3)), np.arange(99) % 2

    assert out_of_bag.draws(forest, 99, 3) == len(forest.fit(X, y).estimators_samples_[0])


@pytest.mark.slow
def test_people_with_a_rare_number_of_records_are_handed_on():
    groups = np.concatenate([np.arange(60), np.repeat(np.arange(60, 85), 2), np.full(10, 99)])
    subject = made_of(RandomForestClassifier(**SMALL), groups=groups)
    units = np.arange(len(subject.data.units))

    made, handed_on = ENGINE.answers(Asked(subject, units, SEEDS, InProcess()))

    assert [len(subject.data.units[u]) for u in handed_on] == [10]
    assert sorted(np.concatenate([made.units, handed_on]).tolist()) == units.tolist()
    pair = np.flatnonzero(np.diff(np.searchsorted(made.row_unit, np.arange(len(made.units) + 1))) == 2)
    assert len(pair) == 25
    assert np.isfinite(made.log_without).all()


@pytest.mark.slow
@pytest.mark.parametrize("kind", [RandomForestRegressor, BaggingRegressor])
def test_regressors_are_answered_in_deviations_of_their_targets(kind):
    size = SMALL if kind is RandomForestRegressor else {"n_estimators": 8}
    subject, fleet = made_of(kind(**size, random_state=0), task="regression"), Numbers()

    got = answer(Asked(subject, np.arange(120), SEEDS, fleet))

    assert set(got.retrained.engine) == {"out_of_bag"}
    assert got.rechecks[0].outcome == "passed"
    assert np.abs(got.retrained.log_without).max() < 4


def test_few_seeds_and_theorems_are_left_to_refits():
    subject = made_of(RandomForestClassifier(**SMALL))

    with pytest.raises(Declined, match="fewer than 10 seeds"):
        ENGINE.answers(Asked(subject, np.arange(120), SEEDS[:9], InProcess()))
    with pytest.raises(Declined, match="only estimated"):
        ENGINE.answers(Asked(subject, np.arange(120), SEEDS, InProcess(), changes=True))


def test_a_person_without_whom_a_class_vanishes_is_without_limit():
    subject = made_of(RandomForestClassifier(**SMALL))
    y = subject.data.y.copy()
    y[3] = 7
    subject = subject.with_data(replace(subject.data, y=y))

    got = answer(Asked(subject, np.arange(120), SEEDS, InProcess()))

    assert got.retrained.status[3] == "undefined"
    assert got.rechecks[0].outcome == "passed"
