"""A second policy on the same subject, whatever it asks: nothing is trained where nothing has to be signed."""

import numpy as np
from sklearn.svm import SVC

from privgate import Budget, Domain, Policy, Recipe, Subject, TrainingData, evaluate
from privgate.training.fleet import Fleet

N = 40
RNG = np.random.default_rng(3)
X = RNG.uniform(-1, 1, size=(N, 2))
Y = (X[:, 0] + RNG.logistic(size=N) > 0).astype(int)


def test_a_policy_about_all_questions_after_one_about_own_records_trains_nothing(tmp_path):
    made = calibrated
    data = TrainingData(X, Y, domain=Domain(box=((-1.0, 1.0),) * 2))
    limits = Budget(seeds=2)
    with Fleet(jobs=1, ledger=tmp_path / "ledger") as fleet:
        first = evaluate(Policy.load("pdtp-1"), Subject.local(Recipe(made, seed=1), data), fleet=fleet, limits=limits)
        assert fleet.calls > 50
    with Fleet(jobs=1, ledger=tmp_path / "ledger") as second:
        subject = Subject.local(Recipe(made, seed=1), data)
        verdict = evaluate(Policy.load("dtp-1"), subject, fleet=second, limits=limits)
        assert second.freshness.trained == second.calls == 0
    searched = verdict.evidence.influence.indirect_queries
    assert searched.searched > 0
    assert searched.queries > 100
    assert first.evidence.influence.indirect_queries is None


def calibrated(X, y, *, seed):
    """Scores of a support vector machine, squeezed into probabilities."""
    del seed
    return Squeezed(SVC(kernel="linear", C=0.1).fit(X, y))


class Squeezed:
    """Probabilities from scores; opened again by name."""

    def __init__(self, model):
        self.model, self.classes_ = model, model.classes_

    def predict_proba(self, X):
        p = 1 / (1 + np.exp(-self.model.decision_function(X)))
        return np.column_stack([1 - p, p])
