"""Ridge and least squares without each record: equal to refits through the declared release."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LinearRegression, Ridge, RidgeClassifier

from privgate.families.answering import answer
from privgate.families.engine import Asked, Declined
from privgate.families.ridge import ENGINE
from privgate.linear_scores import softmax_scores
from privgate.subject.data import TrainingData
from privgate.subject.recipe import Recipe
from privgate.subject.subject import Subject


def subject_of(estimator, X, y, **kwargs):
    return Subject.local(Recipe(estimator, predict=softmax_scores), TrainingData(X, y, **kwargs))


def difference(made, estimator, subject):
    worst = 0.0
    pool, _ = subject.data.pool()
    for k, u in enumerate(made.units):
        rows = made.row_unit == k
        keep = np.setdiff1d(np.arange(subject.data.n), subject.data.units[u])
        model = clone(estimator).fit(subject.data.X[keep], subject.data.y[keep])
        expected = np.log(softmax_scores(model, pool[made.row_query[rows]]))
        worst = max(worst, np.abs(expected - made.log_without[0, rows]).max())
    return worst


@pytest.mark.quick(3)
@pytest.mark.parametrize(
    ("estimator", "K"),
    [
        (RidgeClassifier(), 2),
        (RidgeClassifier(alpha=0.1, fit_intercept=False), 4),
        (RidgeClassifier(solver="svd"), 3),
        (Ridge(alpha=2.0), 2),
        (LinearRegression(), 2),
    ],
)
@pytest.mark.parametrize(("n", "d"), [(60, 5), (20, 35)])
def test_equals_refits_at_any_query(estimator, K, n, d, fleet):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(n, d)) + 3, rng.integers(0, K, n)
    y[: 2 * K] = np.tile(np.arange(K), 2)
    subject = subject_of(estimator, X, y, candidates=(rng.normal(size=(9, d)), np.zeros(9, dtype=int)))
    if isinstance(estimator, LinearRegression) and d > n:
        with pytest.raises(Declined):
            ENGINE.answers(Asked(subject, np.arange(n), (None,), None))
        return
    queries = np.repeat(np.arange(n), 2), rng.integers(0, n + 9, 2 * n)

    assert ENGINE.supports(subject) == ""
    own, rest = ENGINE.answers(Asked(subject, np.arange(n), (None,), None))
    elsewhere, _ = ENGINE.answers(Asked(subject, np.arange(n), (None,), None, queries=queries))

    assert len(rest) == 0
    assert difference(own, estimator, subject) <= 1e-9
    assert difference(elsewhere, estimator, subject) <= 1e-9
    assert answer(Asked(subject, np.arange(n), (None,), fleet)).rechecks[0].outcome == "passed"


def test_a_record_that_fits_itself_is_handed_on():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 4))
    X[:, 3] = 0
    X[7, 3] = 1e6  # its own coefficient
    subject = subject_of(RidgeClassifier(alpha=1e-3), X, rng.integers(0, 2, 40))

    made, handed_on = ENGINE.answers(Asked(subject, np.arange(40), (None,), None))

    assert handed_on.tolist() == [7]
    assert difference(made, RidgeClassifier(alpha=1e-3), subject) <= 1e-7


def test_nearly_singular_kernels_are_refits_work():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 40))
    X[15:] = X[:15] + 1e-6 * rng.normal(size=(15, 40))  # more features than records, and every record nearly twice
    subject = subject_of(RidgeClassifier(alpha=1e-12), X, np.tile([0, 1], 15))

    with pytest.raises(Declined, match="nearly singular"):
        ENGINE.answers(Asked(subject, np.arange(30), (None,), None))


def test_without_the_declared_release_there_are_no_probabilities_to_compare():
    X, y = np.random.default_rng(0).normal(size=(30, 2)), np.arange(30) % 2

    assert "softmax_scores" in ENGINE.supports(
        Subject.local(Recipe(RidgeClassifier()), TrainingData(X, y, one_record_each=True))
    )
    assert ENGINE.supports(subject_of(RidgeClassifier(solver="sag"), X, y)) != ""
    assert ENGINE.supports(subject_of(Ridge(), X, y + 1)) != ""
