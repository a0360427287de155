"""The search for indirect queries, on models whose worst query is known."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import CategoricalNB

from privgate import Domain, Recipe, Subject, TrainingData
from privgate.influence import question_search
from privgate.theorems import catalogue
from privgate.training.fleet import Fleet


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


@pytest.fixture(scope="module")
def fleet():
    with Fleet(jobs=1, ledger="none") as made:
        yield made


def run(subject, fleet, units, rounds=3, records=200, queries=256):
    effort, rng = (rounds, records, queries), np.random.default_rng(0)
    return question_search.search(subject, np.asarray(units), fleet, rng, effort=effort)


def test_the_planted_classifier_is_found_when_its_input_is_in_the_declared_domain(fleet):
    rng = np.random.default_rng(1)
    X = rng.integers(0, 3, (20, 3))
    X[7] = (3, 3, 3)
    subject = Subject.local(
        Recipe(planted),
        TrainingData(X, rng.permutation([0, 1] * 10), domain=Domain(categories=(5, 5, 5)), one_record_each=True),
    )
    found = run(subject, fleet, [6, 7], rounds=1)
    np.testing.assert_allclose(found.lower, [0.0, np.log(10)])
    assert found.rows[1].tolist() == [4, 0, 1]
    assert found.kinds[1] == "domain"


def test_a_planted_input_outside_the_domain_is_not_found_and_nothing_is_claimed(fleet):
    rng = np.random.default_rng(1)
    X = rng.integers(0, 4, (20, 3))
    X[7] = (3, 3, 3)
    domain = Domain(categories=(4, 4, 4))
    subject = Subject.local(
        Recipe(planted), TrainingData(X, rng.permutation([0, 1] * 10), domain=domain, one_record_each=True)
    )
    assert run(subject, fleet, [7], rounds=2).lower[0] == 0


def test_the_effect_on_a_neighbor_is_found_where_the_own_answer_never_changes(fleet):
    """A record among its like: leaving it out changes nothing there, but at the border it does."""
    X = np.array([[0.0], [0.1], [0.2], [0.3], [0.4], [1.0], [1.1], [1.2], [1.3], [1.4]])
    y = np.repeat([0, 1], 5)
    subject = Subject.local(
        Recipe(neighbors), TrainingData(X, y, domain=Domain.read([(0, 1.5)] * 1), one_record_each=True)
    )
    found = run(subject, fleet, [4, 2], rounds=2, queries=64)
    own = run(subject, fleet, [4], rounds=1, records=1)
    assert own.lower[0] <= found.lower[0]
    # at the border one of three votes changes hands: ln(1 + 1/a) with a = 1 and one vote left
    assert found.lower[0] == pytest.approx(np.log(2.0))
    assert found.kinds[0] in {"record", "domain", "between", "around"}


def test_a_declared_small_domain_is_asked_completely_and_gives_the_exact_value(fleet):
    X = np.array([(0, 0)] * 4 + [(0, 1)] + [(1, 1)] * 3)
    y = np.repeat([0, 1], 4)
    subject = Subject.local(
        Recipe(CategoricalNB(min_categories=[2, 2])),
        TrainingData(X, y, domain=Domain(categories=(2, 2)), one_record_each=True),
    )
    found = run(subject, fleet, np.arange(8), rounds=1)
    exact, _, _ = catalogue.bound(subject, np.arange(8), None)
    np.testing.assert_allclose(found.lower, exact.upper, atol=1e-9)
    assert found.lower[4] == pytest.approx(np.log(1304 / 729))


def test_ascent_comes_near_the_certificate_of_a_linear_model_and_never_above(fleet):
    rng = np.random.default_rng(3)
    X = rng.random((60, 4))
    y = (X[:, 0] + 0.3 * rng.normal(size=60) > 0.5).astype(int)
    model = LogisticRegression(C=1.0, tol=1e-10, solver="newton-cholesky")
    subject = Subject.local(Recipe(model), TrainingData(X, y, domain=Domain.read([(0, 1)] * 4), one_record_each=True))
    exact, _, _ = catalogue.bound(subject, np.arange(6), None)
    found = run(subject, fleet, np.arange(6), rounds=4)
    assert (found.lower <= exact.upper + 1e-9).all()
    assert np.median(found.lower / exact.lower) > 0.9


def test_queries_stay_inside_the_declared_domain():
    rng = np.random.default_rng(0)
    box = Domain(box=((-1.0, 2.0), (0.0, 0.5)))
    rows = question_search.choose_around(
        np.array([1.0, 0.1]), np.array([[0.0, 0.2]]), box, 200, rng, uphill=np.array([1.0, -3.0])
    )
    assert len(rows) > 100
    assert (rows >= (-1.0, 0.0)).all()
    assert (rows <= (2.0, 0.5)).all()


def test_the_estimated_slope_points_uphill():
    rng = np.random.default_rng(0)
    points = rng.random((200, 3))
    direction = question_search.estimate_slope(points, points @ np.array([1.0, -2.0, 0.0]))
    assert direction[0] > 0
    assert direction[1] < 0
    assert abs(direction[2]) < abs(direction[0])
