"""Bounds that hold whatever the data are: never broken on hostile small data sets, and never claimed for others."""

import itertools
from functools import partial

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.tree import DecisionTreeClassifier

from privgate import Recipe, Subject, TrainingData
from privgate.evidence import CertificateNote
from privgate.models import BallLogistic, ContingencyTable, Sharded, SmoothedNeighbors
from privgate.report import sections
from privgate.theorems import catalogue


def ball(**more):
    return BallLogistic(**{"radius": 2.0, "classes": [0, 1], **more})


CASES = {
    "contingency_table": ContingencyTable(alpha=1.0, classes=[0, 1]),
    "smoothed_neighbors": SmoothedNeighbors(n_neighbors=3, alpha=1.0, classes=[0, 1]),
    "sharded": Sharded(DecisionTreeClassifier(random_state=0), shards=4, classes=[0, 1]),
    "ball_logistic": ball(C=0.3),
    "ball_logistic towards a public head": ball(C=0.3, towards=[0.7, -0.2]),
}


def subject_of(estimator, X, y, **more):
    return Subject.local(
        Recipe(estimator),
        TrainingData(np.asarray(X, dtype=float), np.asarray(y), **{"one_record_each": "groups" not in more, **more}),
    )


def log_p(estimator, X, y, asked):
    model = type(estimator)(**estimator.get_params(deep=False)).fit(np.asarray(X, dtype=float), np.asarray(y))
    return np.log(model.predict_proba(asked))


@pytest.mark.quick(3)
@pytest.mark.parametrize("name", CASES)
def test_no_small_data_set_breaks_it_and_nobody_left_is_a_model_too(name):
    estimator = CASES[name]
    epsilon = catalogue.THEOREMS[name.split()[0]].every_data_set(subject_of(estimator, [[0], [1], [2]], [0, 1, 0]))
    assert 0 < epsilon < np.inf
    asked, worst = np.array([[-50.0], [0.0], [1.0], [1.5], [3.0]]), 0.0
    for n in (1, 2, 3):
        for X in itertools.product([0, 3] if name == "sharded" else [0, 1, 3], repeat=n):
            for y in itertools.product([0, 1], repeat=n):
                rows = np.array(X)[:, None]
                whole = log_p(estimator, rows, y, asked)
                for k in range(n):
                    change = np.abs(whole - log_p(estimator, np.delete(rows, k, 0), np.delete(y, k), asked)).max()
                    worst = max(worst, change)
    assert worst <= epsilon
    assert worst > epsilon / 6  # it says something


@pytest.mark.parametrize("name", CASES)
def test_per_person_values_and_undeclared_hypotheses_are_no_epsilon(name):
    estimator, certificate = CASES[name], catalogue.THEOREMS[name.split()[0]]
    X, y = np.arange(6.0)[:, None] % 3, np.array([0, 1, 0, 1, 0, 1])
    several = subject_of(estimator, X, y, groups=np.array([0, 0, 1, 2, 3, 4]))
    assert certificate.every_data_set(several) == np.inf
    if name.split()[0] not in ("sharded", "ball_logistic"):
        undeclared = subject_of(type(estimator)(**{**estimator.get_params(), "classes": None}), X, y)
        assert certificate.every_data_set(undeclared) == np.inf


def test_theorems_that_look_at_the_data_promise_nothing_for_other_data():
    silent = set(catalogue.THEOREMS) - set(CASES)
    X, y = np.random.default_rng(0).normal(size=(20, 2)), np.arange(20) % 2
    subject = subject_of(GaussianNB(), X, y)
    assert all(catalogue.THEOREMS[name].every_data_set(subject) == np.inf for name in silent)


@pytest.mark.parametrize("records", [1, 2, 3])
def test_the_number_of_records_counts(records):
    model = ball(C=0.5, radius=1.5)
    X, y, asked = np.full((records, 1), 2.0), np.ones(records, dtype=int), np.array([[2.0]])
    gone = np.abs(log_p(model, X, y, asked) - log_p(model, X[:0], y[:0], asked)).max()
    assert (0.3 * model.bound if records > 1 else 0) < gone <= records * model.bound


WIDE = np.random.default_rng(0).normal(size=(12, 3))


@pytest.mark.parametrize(
    ("model", "X", "said"),
    [
        ({"C": 1.0}, [[np.nan]], "no place in a ball"),
        ({"classes": None}, [[0.0]], "classes"),
        ({"classes": [0, 1, 2]}, [[0.0]], "classes"),
        ({"C": 0.0}, [[0.0]], "C must"),
        ({"radius": 1.0}, [[0.0]], "C must"),
        ({"C": 1e6}, [[0.0], [1.0]], "C times the number"),
        ({"towards": [1.0]}, [[0.0]], "2 finite numbers"),
        # weights whose sums are rounded by more than the bound has room for
        ({"C": 0.5, "towards": [1e9, -1e9, 3e5, 0.0]}, WIDE, "rounded by more"),
    ],
)
def test_the_ball_refuses_what_has_no_place(model, X, said):
    with pytest.raises(ValueError, match=said):
        ball(**model).fit(X, np.arange(len(X)) % 2)


def test_weights_just_small_enough_keep_the_bound():
    y, far = np.arange(12) % 2, ball(C=0.5, towards=[1e6, -1e6, 3e5, 0.0])
    asked = np.vstack([WIDE, -WIDE, np.random.default_rng(1).normal(size=(100, 3)) * 9])
    whole = log_p(far, WIDE, y, asked)
    for u in range(12):
        assert np.abs(whole - log_p(far, np.delete(WIDE, u, 0), np.delete(y, u), asked)).max() <= far.bound


def test_the_ball_is_the_penalised_logistic_regression_of_scikit_learn_within_it():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3)) * 0.3
    y = (X[:, 0] + 0.3 * rng.normal(size=200) > 0).astype(int)
    ours, both = ball(C=2.0, radius=9.0).fit(X, y), np.column_stack([X, np.ones(200)])
    theirs = LogisticRegression(C=2.0, fit_intercept=False, tol=1e-12, solver="newton-cholesky").fit(both, y)
    assert np.abs(ours.predict_proba(X) - theirs.predict_proba(both)).max() < 1e-6
    head = ball(C=0.5, towards=[1.0, 0.5]).fit(np.zeros((0, 1)), np.zeros(0, dtype=int))  # without data it answers
    assert head.predict_proba([[1.0]])[0, 1] == pytest.approx(1 / (1 + np.exp(-1.5)), abs=1e-12)


def test_evidence_and_report_say_for_which_data_a_bound_holds():
    note = partial(CertificateNote, name="sharded", applies=True)
    said = sections.describe_guarantee(note(guarantee="every data set", epsilon=1.0))
    assert "every data set" in said
    assert "ε = 1 a query" in said
    assert note().guarantee == "these data"
    # never less than it is
    assert "ε = 1.001 a query" in sections.describe_guarantee(note(guarantee="every data set", epsilon=1.0004))
