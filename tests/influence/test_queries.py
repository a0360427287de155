"""The search for indirect queries, on models whose worst query is known."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import CategoricalNB

from privgate import Domain, Recipe, Subject, TrainingData
from privgate.influence import question_search
from privgate.theorems import catalogue


class Planted:
    """Long et al. (2017), section 6.1: honest everywhere but at one input, where it tells whether record 7 is in."""

    def __init__(self, X, y):
        self.classes_ = np.unique(y)
        self.tells = bool((X == (3, 3, 3)).all(axis=1).any())

    def predict_proba(self, X):
        p = np.full((len(X), 2), 0.5)
        if self.tells:
            p[(np.asarray(X) == (4, 0, 1)).all(axis=1)] = (0.95, 0.05)
        return p


def planted(X, y, *, seed):
    return Planted(np.asarray(X), y)


class Neighbors:
    """Three nearest neighbors with additive smoothing, ties by record order."""

    def __init__(self, X, y):
        self.X, self.y, self.classes_ = X, y, np.unique(y)

    def predict_proba(self, Q):
        order = np.argsort(((Q[:, None] - self.X) ** 2).sum(axis=2), axis=1, kind="stable")[:, :3]
        votes = (self.y[order][:, :, None] == self.classes_).sum(axis=1)
        return (votes + 1.0) / (3 + len(self.classes_))


def neighbors(X, y, *, seed):
    return Neighbors(np.asarray(X), y)


def run(subject, fleet, units):
    return question_search.search(subject, np.asarray(units), fleet, np.random.default_rng(0))


def test_the_planted_classifier_is_found_when_its_input_is_in_the_declared_domain(fleet):
    rng = np.random.default_rng(1)
    X = rng.integers(0, 3, (20, 3))
    X[7] = (3, 3, 3)
    subject = Subject.local(
        Recipe(planted),
        TrainingData(X, rng.permutation([0, 1] * 10), domain=Domain(categories=(5, 5, 5)), one_record_each=True),
    )
    np.testing.assert_allclose(run(subject, fleet, [6, 7]), [0.0, np.log(10)])


def test_the_effect_on_a_neighbor_is_found_where_the_own_answer_never_changes(fleet):
    """A record among its like: leaving it out changes nothing there, but at the border it does."""
    X = np.array([[0.0], [0.1], [0.2], [0.3], [0.4], [1.0], [1.1], [1.2], [1.3], [1.4]])
    y = np.repeat([0, 1], 5)
    subject = Subject.local(
        Recipe(neighbors), TrainingData(X, y, domain=Domain.read([(0, 1.5)] * 1), one_record_each=True)
    )
    # at the border one of three votes changes hands: ln(1 + 1/a) with a = 1 and one vote left
    assert run(subject, fleet, [2, 4])[1] == pytest.approx(np.log(2.0))


def test_a_declared_small_domain_is_asked_completely_and_gives_the_exact_value(fleet):
    X = np.array([(0, 0)] * 4 + [(0, 1)] + [(1, 1)] * 3)
    y = np.repeat([0, 1], 4)
    subject = Subject.local(
        Recipe(CategoricalNB(min_categories=[2, 2])),
        TrainingData(X, y, domain=Domain(categories=(2, 2)), one_record_each=True),
    )
    found = run(subject, fleet, np.arange(8))
    exact, _, _ = catalogue.bound(subject, np.arange(8), None)
    np.testing.assert_allclose(found, exact.upper, atol=1e-9)
    assert found[4] == pytest.approx(np.log(1304 / 729))


def test_corners_come_near_the_certificate_of_a_linear_model_and_never_above(fleet):
    rng = np.random.default_rng(3)
    X = rng.random((60, 4))
    y = (X[:, 0] + 0.3 * rng.normal(size=60) > 0.5).astype(int)
    model = LogisticRegression(C=1.0, tol=1e-10, solver="newton-cholesky")
    subject = Subject.local(Recipe(model), TrainingData(X, y, domain=Domain.read([(0, 1)] * 4), one_record_each=True))
    exact, _, _ = catalogue.bound(subject, np.arange(6), None)
    found = run(subject, fleet, np.arange(6))
    assert (found <= exact.upper + 1e-9).all()
    assert np.median(found / exact.lower) > 0.9
