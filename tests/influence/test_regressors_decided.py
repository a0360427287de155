"""A regressor whose answers lie among its targets is refused once the verdict is decided, not when all are done."""

import numpy as np
import pytest
from sklearn.ensemble import GradientBoostingRegressor, RandomForestRegressor
from sklearn.linear_model import Ridge
from sklearn.neighbors import KNeighborsRegressor
from sklearn.tree import DecisionTreeRegressor

from privgate import Recipe, Subject, TrainingData, evaluate
from privgate.evidence.verdict import Outcome
from privgate.influence import per_person
from privgate.training.fleet import Fleet


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, 3))
    return TrainingData(X, X @ [1.0, -2.0, 0.5] + 2 * rng.normal(size=150), one_record_each=True)


def subject(estimator, data):
    return Subject.local(Recipe(estimator, seed=0), data)


@pytest.mark.parametrize("model", [DecisionTreeRegressor(), RandomForestRegressor(5), KNeighborsRegressor(1)], ids=str)
def test_residuals_of_people_left_out_are_no_larger_than_is_said(model, data):
    X, y = data.X, data.y
    mean, deviation = subject(model, data).scale
    missed = [y[i] - model.fit(np.delete(X, i, 0), np.delete(y, i)).predict(X[[i]])[0] for i in range(0, len(y), 5)]
    ends = np.maximum(y - y.min(), y.max() - y)

    assert (np.abs(missed) <= ends[::5] + 1e-9).all()
    assert per_person.limit_residuals(subject(model, data)) == pytest.approx(np.sqrt((ends**2).mean()) / deviation)
    assert np.isfinite(mean)


@pytest.mark.parametrize("model", [Ridge(), GradientBoostingRegressor()], ids=lambda m: type(m).__name__)
def test_answers_that_may_leave_the_targets_have_no_such_limit(model, data):
    assert per_person.limit_residuals(subject(model, data)) is None


def test_a_whole_tree_is_refused_before_everybody_is_left_out(data, tmp_path):
    with Fleet(jobs=1, ledger=tmp_path / "ledger") as fleet:
        verdict = evaluate("regression-1", subject(DecisionTreeRegressor(random_state=0), data), fleet=fleet)
    (found,) = (f for f in verdict.findings if f.metric == "sensitivity")

    assert found.outcome is Outcome.FAILED
    assert found.high == np.inf
    assert found.low > 0.5
    assert "of 150 people" in found.message
    tree, X, y = DecisionTreeRegressor(random_state=0), data.X, data.y
    whole = tree.fit(X, y).predict(X)
    left = np.array([tree.fit(np.delete(X, i, 0), np.delete(y, i)).predict(X[[i]])[0] for i in range(len(y))])
    true = np.abs(whole - left).max() / np.sqrt(np.mean((y - left) ** 2))
    assert found.low <= true + 1e-9
