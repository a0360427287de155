"""A floor under every answer: max(floor, c p), with the one c that makes the sum 1."""

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression, Ridge

from privgate import Recipe, Release, Subject, TrainingData
from privgate.controls.served import describe_release
from privgate.errors import SubjectError
from privgate.subject.accepted_questions import AcceptedQuestions
from privgate.subject.release import floored


@pytest.mark.parametrize("K", [2, 3, 10, 100])
def test_answers_keep_order_and_sum_and_move_by_little_more(K):
    rng, floor = np.random.default_rng(K), min(0.01, 1 / (20 * K))
    p = rng.dirichlet(np.full(K, 0.2), 2_000)
    q = p * np.exp(rng.uniform(-0.5, 0.5, p.shape))
    q /= q.sum(axis=1, keepdims=True)
    one, other = (floored(v, np.full(K, floor)) for v in (p, q))
    np.testing.assert_allclose(one.sum(axis=1), 1)
    assert one.min() == floor
    order = np.argsort(p, axis=1)
    assert (np.diff(np.take_along_axis(one, order, axis=1), axis=1) >= 0).all()
    more = 0.0 if K == 2 else -np.log1p(-(K - 1) * floor)
    raw, moved = (np.abs(np.log(a) - np.log(b)).max(axis=1) for a, b in ((p + 1e-300, q + 1e-300), (one, other)))
    assert (moved <= raw + more + 1e-12).all()


def test_ties_at_none_and_a_label_that_takes_all():
    even = np.r_[np.full(72, 1 / 72), np.zeros(28)][None]
    assert floored(even, np.full(100, 1 / 2000)).min() > 0
    np.testing.assert_allclose(floored(np.array([[0.0, 1.0]]), np.array([0.01, 0.01])), [[0.01, 0.99]])


def test_a_floor_for_each_label_is_told_to_whoever_serves_it():
    made = Release(floor={"rare": 0.0001}).resolved(["common", "rare"])
    assert made.floor == (0.01, 0.0001)
    assert Release.from_payload(made.payload()) == made
    assert Release(floor=True).resolved(range(10)).floor == (0.005,) * 10
    assert "0.0001 or more" in describe_release(made)
    assert "floor" not in Release().payload()
    np.testing.assert_array_equal(made.shown(np.array([[1.0, 0.0]])), [[0.9999, 0.0001]])


@pytest.mark.parametrize(
    ("floor", "said"),
    [
        (0.2, "at most 0.05 each and .1 in all but one"),
        (-0.1, "above 0"),
        ({"c": 0.01}, "a label 'c'"),
        ({0: 0.09, 1: 0.09}, "at most 0.05"),
        ("0.01", "a number or a mapping, not '0.01'"),
        ({}, "not {}"),
    ],
)
def test_a_floor_of_too_much_or_of_nobody_is_an_error(floor, said):
    with pytest.raises(ValueError, match=said):
        Release(floor=floor).resolved([0, 1, 2])


def test_only_probabilities_have_a_floor():
    with pytest.raises(ValueError, match="neither rounded"):
        Release("rounded", floor=0.01)
    data = TrainingData(np.eye(4), [0.0, 1.0, 2.0, 3.0], one_record_each=True)
    with pytest.raises(SubjectError, match="regressor releases its numbers"):
        Subject.local(Recipe(Ridge(), task="regression"), data, release=Release(floor=0.01))
    data = TrainingData(np.eye(4), [0, 1, 0, 1], one_record_each=True)
    assert Subject.local(Recipe(LogisticRegression()), data, release=Release(floor=True)).release.floor == (0.01, 0.01)


def test_who_logs_a_model_cannot_state_that_nobody_gets_its_file():
    logged = Release(floor=0.01, alone=True).resolved(range(2))
    assert not Release.from_payload(json.loads(json.dumps(logged.payload()))).alone
    for floors in ((0.4, 0.5), (-0.4, 0.05), (0.01, 0.01, 0.01)):
        with pytest.raises(ValueError, match="floors are above 0, one a label"):
            Release(floor=floors).resolved(range(2))


@pytest.mark.parametrize(("kind", "accepted"), [(np.float64, True), (np.int64, True), (np.float32, False)])
def test_a_question_of_another_precision_lies_outside(kind, accepted):
    stated = {"box": [[0, 1]], "double": True}
    assert AcceptedQuestions(stated).holds(np.array([[1]], dtype=kind)).all() == accepted
    assert AcceptedQuestions(stated).holds(pd.DataFrame({"a": np.array([1], dtype=kind)})).all() == accepted
