"""Bounds that hold whatever the data are: never broken on hostile small data sets, and never claimed for others."""

import itertools
from functools import partial

import numpy as np
import pytest
from sklearn.naive_bayes import GaussianNB
from sklearn.tree import DecisionTreeClassifier

from privgate import Recipe, Subject, TrainingData
from privgate.evidence import CertificateNote
from privgate.models import ContingencyTable, Sharded, SmoothedNeighbors
from privgate.report import sections
from privgate.theorems import catalogue

CASES = {
    "contingency_table": ContingencyTable(alpha=1.0, classes=[0, 1]),
    "smoothed_neighbors": SmoothedNeighbors(n_neighbors=3, alpha=1.0, classes=[0, 1]),
    "sharded": Sharded(DecisionTreeClassifier(random_state=0), shards=4, classes=[0, 1]),
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
    epsilon = catalogue.THEOREMS[name].every_data_set(subject_of(estimator, [[0], [1], [2]], [0, 1, 0]))
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
    estimator, certificate = CASES[name], catalogue.THEOREMS[name]
    X, y = np.arange(6.0)[:, None] % 3, np.array([0, 1, 0, 1, 0, 1])
    several = subject_of(estimator, X, y, groups=np.array([0, 0, 1, 2, 3, 4]))
    assert certificate.every_data_set(several) == np.inf
    if name != "sharded":
        undeclared = subject_of(type(estimator)(**{**estimator.get_params(), "classes": None}), X, y)
        assert certificate.every_data_set(undeclared) == np.inf


def test_theorems_that_look_at_the_data_promise_nothing_for_other_data():
    silent = set(catalogue.THEOREMS) - set(CASES)
    X, y = np.random.default_rng(0).normal(size=(20, 2)), np.arange(20) % 2
    subject = subject_of(GaussianNB(), X, y)
    assert all(catalogue.THEOREMS[name].every_data_set(subject) == np.inf for name in silent)


def test_evidence_and_report_say_for_which_data_a_bound_holds():
    note = partial(CertificateNote, name="sharded", applies=True)
    said = sections.describe_guarantee(note(guarantee="every data set", epsilon=1.0))
    assert "every data set" in said
    assert "ε = 1 a query" in said
    assert note().guarantee == "these data"
    # never less than it is
    assert "ε = 1.001 a query" in sections.describe_guarantee(note(guarantee="every data set", epsilon=1.0004))
