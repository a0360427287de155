"""Several labels a record and scores of anomalies: recognised and refused in one sentence."""

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import IsolationForest

from privgate import Recipe, TrainingData
from privgate.errors import SubjectError

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(50, 3)), [0, 1] * 25


@pytest.mark.parametrize(
    "labels",
    [
        [["a", "b"] if i % 2 else ["a"] for i in range(50)],
        [{"a", "b"} if i % 2 else {"a"} for i in range(50)],
        [("a", "b")] * 50,
        pd.DataFrame({"a": Y, "b": Y}),
        np.eye(50, 4),
    ],
    ids=["lists", "sets", "tuples", "frame", "array"],
)
def test_several_labels_a_record_are_refused_in_one_sentence(labels):
    with pytest.raises(SubjectError, match="not judged together; log one model a"):
        TrainingData(X, labels, one_record_each=True)


def score(model, x):
    return model.score_samples(x)


def test_scores_of_anomalies_predict_no_target():
    for recipe in (Recipe(IsolationForest()), Recipe(IsolationForest(), predict=score, task="regression")):
        assert "gives anomaly scores" in recipe.refusal
