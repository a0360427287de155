"""People with several records without each of them: one removal of many records, answered in closed form."""

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression, Ridge, RidgeClassifier

from privgate.linear_scores import softmax_scores
from privgate.models import ContingencyTable
from privgate.subject.data import TrainingData
from privgate.subject.recipe import Recipe
from privgate.subject.subject import Subject
from privgate.theorems.catalogue import CLOSED_FORMS as ALL
from privgate.theorems.closed_form import Asked
from privgate.theorems.hypotheses import vanishing
from tests.leaving_out import answer

BY_NAME = {engine.name: engine for engine in ALL}


def families(rng, n, K, d=4):
    """Units of 1 to 12 records of all classes, records of one unit alike, and far from the origin."""
    y = rng.integers(0, K, n)
    groups = rng.permutation(np.repeat(np.arange(n), 1 + np.arange(n) % 12)[:n])
    X = rng.normal(size=(n, d)) + rng.normal(size=(K, d))[y] + rng.normal(size=(n, d))[groups] * 0.5
    return X * [1, 10, 0.1, 3] + [5, 0, 100, -2], y, groups


@pytest.mark.parametrize("estimator", [RidgeClassifier(alpha=0.1), Ridge(), LinearRegression(fit_intercept=False)])
@pytest.mark.parametrize("wide", [False, True])
def test_every_person_equals_a_refit_of_ridge(estimator, wide):
    rng = np.random.default_rng(4)
    K = 3 if isinstance(estimator, RidgeClassifier) else 2
    X, y, groups = families(rng, 90, K)
    if wide:
        if isinstance(estimator, LinearRegression):
            return  # no penalty: declined
        X = rng.normal(size=(90, 120))
    subject = Subject.local(
        Recipe(estimator, predict=softmax_scores), TrainingData(X, y, groups=groups, one_record_each=groups is None)
    )

    made, handed_on = BY_NAME["ridge"].answers(Asked(subject, np.arange(len(subject.data.units)), (None,), None))

    assert len(handed_on) == 0
    for k, u in enumerate(made.units):
        keep = np.setdiff1d(np.arange(90), subject.data.units[u])
        rows = made.row_unit == k
        expected = softmax_scores(
            type(estimator)(**estimator.get_params()).fit(X[keep], y[keep]), X[~np.isin(np.arange(90), keep)]
        )
        assert np.abs(np.log(expected) - made.log_without[0, rows]).max() <= 1e-9


@pytest.mark.parametrize("case", ["scales", "twins"])
def test_what_scikit_learn_itself_computes_to_few_digits_is_left_to_refits(direct, fleet, case):
    rng = np.random.default_rng(11)
    X, y = rng.normal(size=(60, 3)), rng.integers(0, 2, 60)
    if case == "twins":
        X[:, 0] = X[:, 1] + 1e-5 * X[:, 0]
    X = X * [1e3, 1, 1e-4] if case == "scales" else X
    estimator = {
        "scales": LinearRegression(),  # drops singular values below 1e-6 of the largest
        "twins": Ridge(alpha=1e-9),
    }[case]
    subject = Subject.local(Recipe(estimator, predict=softmax_scores), TrainingData(X, y, one_record_each=True))

    got = answer(Asked(subject, np.arange(60), (None,), fleet))

    assert set(got.retrained.engine) == {"refit"}
    assert got.rechecks == []  # refused beforehand, not found out afterwards


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("declared", [None, ["a", "b", "c", "d"]])
def test_a_class_vanishes_with_whoever_leaves_none_of_it_behind(grouped, declared):
    rng = np.random.default_rng(12)
    y = np.array(["a", "b", "c"])[np.minimum(rng.integers(0, 9, 40), 1)]
    y[:3] = "c"
    groups = np.where(np.arange(40) < 3, 7, rng.integers(0, 20, 40)) if grouped else None
    data = TrainingData(rng.normal(size=(40, 1)), y if grouped else np.append(y[2:], ["b", "b"]), groups=groups)
    subject = Subject.local(Recipe(ContingencyTable(classes=declared)), data)
    units = rng.permutation(len(data.units))

    left = [set(np.delete(data.y, data.units[u])) for u in units]
    expected = [declared is None and len(kept) < len(set(data.y)) for kept in left]

    assert vanishing(subject, units).tolist() == expected
    assert any(expected) == (declared is None)
