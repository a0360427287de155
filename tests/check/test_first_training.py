"""What cannot be trained or asked says so at the first training, each in its own sentence."""

import numpy as np
import pytest
from sklearn.svm import LinearSVC

from privgate import Policy, Recipe, Subject, TrainingData, evaluate
from privgate.evidence.verdict import Outcome


def deaf(X, y, *, seed):
    """Return a model that raises when it is asked."""
    del X, y, seed
    return object.__new__(Deaf)


class Deaf:
    def predict_proba(self, X):
        raise RuntimeError(f"no {len(X)} answers")


def margins(X, y, *, seed):
    return LinearSVC(random_state=seed).fit(X, y)


def unlearning(X, y, *, seed):
    raise RuntimeError("no warehouse")


@pytest.mark.parametrize(
    ("trained", "said"),
    [
        (margins, "cannot be asked: LinearSVC has no predict_proba; give the recipe predict="),
        (deaf, "prediction raised RuntimeError (line "),
        (
            unlearning,
            "cannot be trained on its own complete data: training raised RuntimeError (line ",
        ),
    ],
)
def test_the_first_training_says_that_there_are_no_answers_and_nothing_else_is_trained(fleet, trained, said):
    before = fleet.calls
    X = np.arange(40.0).reshape(20, 2)
    subject = Subject.local(Recipe(trained, seed=1), TrainingData(X, np.arange(20) % 2, one_record_each=True))
    verdict = evaluate(Policy.load("pdtp-1"), subject, fleet=fleet)

    assert fleet.calls == before + 1
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert any(said in f.message for f in verdict.findings)
    assert not any("seed" in f.advice for f in verdict.findings)
