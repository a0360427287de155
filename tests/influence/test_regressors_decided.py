"""A regressor is refused once the verdict is decided, not when all are done: folds say what strangers are missed by."""

import numpy as np
import pytest
from sklearn.neighbors import KNeighborsRegressor
from sklearn.tree import DecisionTreeRegressor

from privgate import Recipe, Subject, TrainingData, evaluate
from privgate.evidence.verdict import Outcome
from privgate.training.fleet import Fleet


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, 3))
    return TrainingData(X, X @ [1.0, -2.0, 0.5] + 2 * rng.normal(size=150), one_record_each=True)


def subject(estimator, data):
    return Subject.local(Recipe(estimator, seed=0), data)


@pytest.mark.parametrize("model", [DecisionTreeRegressor(random_state=0), KNeighborsRegressor(1)], ids=str)
def test_it_is_refused_before_everybody_is_left_out(model, data, tmp_path):
    with Fleet(jobs=1, ledger=tmp_path / "ledger") as fleet:
        verdict = evaluate("regression-1", subject(model, data), fleet=fleet)
    (found,) = (f for f in verdict.findings if f.metric == "sensitivity")

    assert found.outcome is Outcome.FAILED
    assert found.high == np.inf
    assert found.low > 0.5
    assert "of 150 people" in found.message
    assert "(estimate; " in found.message  # the unit is one
    X, y = data.X, data.y
    whole = model.fit(X, y).predict(X)
    left = np.array([model.fit(np.delete(X, i, 0), np.delete(y, i)).predict(X[[i]])[0] for i in range(len(y))])
    true = np.abs(whole - left).max() / np.sqrt(np.mean((y - left) ** 2))
    assert found.low <= true + 1e-9
