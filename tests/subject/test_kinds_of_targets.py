"""Several labels a record, scores of anomalies, and data with an order: recognised and refused in one sentence."""

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import IsolationForest

from privgate import Recipe, TrainingData
from privgate.errors import SubjectError

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(50, 3)), [0, 1] * 25
DAYS = pd.date_range("2020", periods=50, freq="D")


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
        TrainingData(X, labels)


@pytest.mark.parametrize(
    "frame",
    [pd.DataFrame(X, index=DAYS), pd.DataFrame(X).assign(day=DAYS), pd.DataFrame(X).assign(day=DAYS.astype(str))],
    ids=["index", "column", "text"],
)
def test_equal_steps_of_time_are_no_people_unless_blocks_are_named(frame):
    with pytest.raises(SubjectError, match="runs through time in equal steps"):
        TrainingData(frame, Y)

    assert len(TrainingData(frame, Y, groups=np.arange(50) // 10).units) == 5


def test_windows_over_one_series_are_no_people_unless_blocks_are_named():
    series = np.cumsum(RNG.normal(size=60))
    lagged = np.lib.stride_tricks.sliding_window_view(series, 4)[:50].copy()

    for windows in (lagged, lagged[:, ::-1], pd.DataFrame(lagged)):
        with pytest.raises(SubjectError, match="windows over one series"):
            TrainingData(windows, Y)
    assert TrainingData(lagged, Y, groups=np.arange(50) // 10).n == 50
    assert TrainingData(RNG.permutation(lagged), Y).n == 50  # an order that nobody sees


def test_codes_that_repeat_and_dates_of_people_are_people():
    flags = np.zeros((50, 4), dtype=int)
    born = pd.DataFrame(X).assign(born=RNG.permutation(DAYS.astype(str))).iloc[::-1]
    born.loc[3, "born"] = born.loc[4, "born"]

    assert TrainingData(flags, Y).n == TrainingData(born, Y).n == 50


def score(model, x):
    return model.score_samples(x)


def test_scores_of_anomalies_predict_no_target():
    for recipe in (Recipe(IsolationForest()), Recipe(IsolationForest(), predict=score, task="regression")):
        assert "gives anomaly scores" in recipe.refusal
