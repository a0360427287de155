"""Our own classifiers: they behave as scikit-learn's would, where those exist, and travel as recipes."""

import json

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.neighbors import KNeighborsClassifier

from privgate import Recipe
from privgate.errors import SubjectError
from privgate.models import ContingencyTable, SmoothedNeighbors

ALL = [ContingencyTable(), SmoothedNeighbors(n_neighbors=3)]


@pytest.mark.parametrize("model", ALL, ids=lambda m: type(m).__name__)
def test_probabilities_sum_to_one_labels_follow_them_and_recipes_give_the_same_back(model):
    rng = np.random.default_rng(0)
    X, y = rng.integers(0, 3, (40, 2)), rng.choice(["a", "b", "c"], 40)
    fitted = clone(model).fit(X, y)
    p = fitted.predict_proba(np.concatenate([X, X + 100]))
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    assert (fitted.predict(X) == fitted.classes_[p[:40].argmax(axis=1)]).all()
    for made in (model, clone(model).set_params(classes=["a", "b", "é"])):
        again = Recipe.read(json.loads(json.dumps(dict(Recipe(made).payload))), None)
        assert type(again.library_estimator) is type(made)
        assert again.library_estimator.get_params() == made.get_params()


def test_a_snapshot_that_brings_its_own_module_of_the_name_is_not_believed(tmp_path):
    (tmp_path / "privgate").mkdir()
    (tmp_path / "privgate" / "models.py").write_text("raise SystemExit('must not run here')")
    assert Recipe.read(dict(Recipe(SmoothedNeighbors()).payload), tmp_path).library_estimator is None


def test_unsmoothed_neighbors_equal_the_library_where_nothing_ties():
    rng = np.random.default_rng(1)
    X, y, Q = rng.random((60, 3)), rng.integers(0, 3, 60), rng.random((40, 3))
    ours = SmoothedNeighbors(n_neighbors=5, alpha=0.0).fit(X, y).predict_proba(Q)
    np.testing.assert_allclose(ours, KNeighborsClassifier(5).fit(X, y).predict_proba(Q))


@pytest.mark.parametrize("order", ["C", "F"])
def test_answers_of_neighbors_depend_on_nobody_s_position_or_memory_order(order):
    """A tie that is broken by rounding, or by position, moves more votes than the record's own."""
    rng = np.random.default_rng(0)
    X, Q = rng.integers(0, 3, (60, 5)) * 0.1, rng.integers(0, 3, (40, 5)) * 0.1
    y = rng.integers(0, 3, 60)
    expected = SmoothedNeighbors(n_neighbors=3).fit(X, y).predict_proba(Q)
    for _ in range(5):
        shuffled = rng.permutation(60)
        got = SmoothedNeighbors(n_neighbors=3).fit(np.asarray(X[shuffled], order=order), y[shuffled])
        np.testing.assert_array_equal(got.predict_proba(np.asarray(Q, order=order)), expected)
    for x, labels in (([[1.0], [-1.0]], [0, 1]), ([[-1.0], [1.0]], [1, 0])):  # the order of their features decides
        model = SmoothedNeighbors(n_neighbors=1, alpha=0.0).fit(x, labels)
        np.testing.assert_array_equal(model.predict_proba([[0.0]]), [[0.0, 1.0]])


@pytest.mark.parametrize(
    ("use", "said"),
    [
        (lambda: SmoothedNeighbors(n_neighbors=0).fit([[0.0], [1.0]], [0, 1]), "n_neighbors"),
        (lambda: ContingencyTable().set_params(beta=1), "no parameter"),
    ],
)
def test_no_neighbors_and_unknown_parameters_are_refused(use, said):
    with pytest.raises((ValueError, SubjectError), match=said):
        use()


def test_an_empty_cell_answers_uniformly():
    unsmoothed = ContingencyTable(alpha=0.0).fit([[0], [0]], [0, 1])
    np.testing.assert_allclose(unsmoothed.predict_proba([[7]]), [[0.5, 0.5]])
