"""The map: same answers as a plain loop, each call made once, every failure named."""

import os

import numpy as np
import pytest

from privgate.errors import UsageError
from privgate.training.fit import Fit
from privgate.training.fleet import Fleet


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

    with Fleet(jobs=1, ledger=fleet.ledger.folder) as second:
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
        ("raises", "training raised ArithmeticError ("),
        ("nan", "the model returned NaN probabilities"),
        ("infinite", "the model returned negative or infinite probabilities"),
        ("classes", "the model returned shape (2, 3) for 2 classes, not one column a class"),
        ("exits", "training raised SystemExit ("),
        ("memory", "training needs more memory than 2 GiB"),
    ],
)
def test_trouble_with_one_unit_is_named_and_loses_nothing_else(tmp_path, subject, trouble, sentence):
    with Fleet(jobs=1, ledger=tmp_path, memory_limit=2**31) as fleet:
        answers = fleet.fits(subject(trouble=trouble), [out(6), out(7), out(8)])

    assert [a.problem[: len(sentence)] for a in answers] == ["", sentence, ""]


def test_a_worker_that_dies_costs_only_the_unit_that_killed_it(tmp_path, subject):
    with Fleet(jobs=2, ledger=tmp_path) as fleet:
        answers = fleet.fits(subject(trouble="dies"), [out(i) for i in range(20)])

    assert [i for i, a in enumerate(answers) if a.problem] == [7]
    assert answers[7].problem.startswith("the worker process died")


def test_training_code_sees_no_credentials(tmp_path, subject, monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hidden")
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "hidden")
    with Fleet(jobs=1, ledger=tmp_path) as fleet:
        answer = fleet.fits(subject(trouble="secrets"), [out(0)])[0]

    np.testing.assert_array_equal(np.exp(answer.log_p), 0.5)


def test_a_failed_training_is_held_in_its_run_and_never_remembered(fleet, subject):
    trouble = subject(trouble="raises")
    first, again = fleet.fits(trouble, [out(7)])[0], fleet.fits(trouble, [out(7)])[0]
    assert first.problem == again.problem != ""
    assert fleet.calls == 1
    assert not any(map(fleet.ledger.read, fleet.names(trouble, [out(7)])))

    with Fleet(jobs=1, ledger=fleet.ledger.folder) as second:
        second.fits(trouble, [out(7)])
        assert second.calls == 1  # its place may be mended


def test_what_was_trained_alone_is_remembered_apart_from_the_others(fleet, subject):
    fleet.fits(subject(), [out(1)])
    fresh = fleet.alone(subject(), out(1))
    assert (fleet.calls, fresh.problem) == (2, "")
    with Fleet(jobs=1, ledger=fleet.ledger.folder) as second:
        np.testing.assert_array_equal(second.alone(subject(), out(1)).log_p, fresh.log_p)
        assert (second.calls, second.recalled) == (0, 1)


def test_progress_is_told_with_the_time_that_is_left(tmp_path, subject):
    told = []
    with Fleet(jobs=1, ledger=tmp_path, progress=lambda *now: told.append(now)) as fleet:
        fleet.fits(subject(pause=0.05), [out(i) for i in range(8)], label="some work")
        assert fleet.activity == "some work"

    assert told[0][:2] == (0, 8)
    assert told[-1] == (8, 8, 0.0)
    assert any(0 < left < np.inf for _, _, left in told)


def test_what_a_worker_cannot_compute_is_computed_here(fleet, subject, tmp_path):
    assert fleet.compute(subject(), os.getpid) != os.getpid()

    unseen = tmp_path / "numbers"  # no sandbox sees it, and the worker dies of that
    unseen.write_text("123")
    assert fleet.compute(subject(), os.path.getsize, str(unseen)) == 3


def test_copies_of_data_that_a_killed_run_left_are_deleted_by_the_next(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "privgate-fleet-99999999-abc").mkdir()
    (tmp_path / "privgate-fleet-1-alive").mkdir()
    with Fleet(ledger="none"):
        left = sorted(p.name.split("-")[2] for p in tmp_path.glob("privgate-fleet-*"))

    assert left == sorted(["1", str(os.getpid())])


@pytest.mark.parametrize(("arguments", "word"), [({"jobs": 0}, "jobs"), ({"time_limit": 0}, "time limit")])
def test_settings_that_mean_nothing_are_refused(arguments, word):
    with pytest.raises(UsageError, match=word):
        Fleet(ledger="none", **arguments)
