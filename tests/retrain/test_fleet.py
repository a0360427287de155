"""The map: same answers as a plain loop, each call made once, every failure named."""

import numpy as np
import pytest

from privgate.retrain.fit import Fit
from privgate.retrain.fleet import Fleet


def out(*rows, seed=1, queries=(0, 1), **extra):
    return Fit(seed, np.array(queries, dtype=np.int64), left_out=np.array(rows, dtype=np.int64), **extra)


def test_answers_are_those_of_the_training_function(fleet, subject):
    answers = fleet.fits(subject(), [out(0), out(1), out(0, 1, 2)])

    expected = [[10 / 21, 11 / 21], [11 / 21, 10 / 21], [9 / 19, 10 / 19]]
    for answer, p in zip(answers, expected, strict=True):
        assert answer.problem == ""
        np.testing.assert_allclose(np.exp(answer.log_p), [p, p], rtol=1e-15)


def test_a_call_is_made_once_and_remembered(fleet, subject):
    fleet.fits(subject(), [out(0), out(1), out(0)])
    assert fleet.calls == 2

    with Fleet(jobs=1, ledger=fleet.ledger.place.folder) as second:
        again = second.fits(subject(), [out(1), out(0)])
        assert second.calls == 0
    assert all(not a.problem for a in again)


def test_another_parameter_seed_or_repetition_is_another_call(fleet, subject):
    fleet.fits(subject(), [out(0), out(0, seed=2), out(0, repeat=1), out(0, queries=(0,)), out(0, relabel=((3, 0),))])
    fleet.fits(subject(other=1), [out(0)])

    assert fleet.calls == 6


@pytest.mark.parametrize(
    ("trouble", "sentence"),
    [
        ("raises", "training raised ArithmeticError: cannot do without '…'"),
        ("nan", "the model returned NaN probabilities"),
        ("classes", "the model returned shape (2, 3) for 2 classes; it must give one column a class"),
        ("exits", "training raised SystemExit: 3"),
        ("memory", "training needs more memory than 2 GiB"),
    ],
)
def test_trouble_with_one_unit_is_named_and_loses_nothing_else(tmp_path, subject, trouble, sentence):
    with Fleet(jobs=1, ledger=tmp_path, memory_limit=2**31) as fleet:
        answers = fleet.fits(subject(trouble=trouble), [out(6), out(7), out(8)])

    assert [a.problem for a in answers] == ["", sentence, ""]


def test_a_worker_that_dies_costs_only_the_unit_that_killed_it(tmp_path, subject):
    with Fleet(jobs=2, ledger=tmp_path) as fleet:
        answers = fleet.fits(subject(trouble="dies"), [out(i) for i in range(20)])

    assert [i for i, a in enumerate(answers) if a.problem] == [7]
    assert answers[7].problem.startswith("the worker process died")


def test_a_training_that_hangs_is_ended_at_the_limit(tmp_path, subject):
    with Fleet(jobs=1, ledger=tmp_path, time_limit=0.5) as fleet:
        answers = fleet.fits(subject(trouble="hangs"), [out(7), out(8)])

    assert [a.problem for a in answers] == ["training did not end within 0.5 s", ""]


def test_training_code_sees_no_credentials(tmp_path, subject, monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hidden")
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "hidden")
    with Fleet(jobs=1, ledger=tmp_path) as fleet:
        answer = fleet.fits(subject(trouble="secrets"), [out(0)])[0]

    np.testing.assert_array_equal(np.exp(answer.log_p), 0.5)
