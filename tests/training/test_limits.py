"""Limits hold even where Python cannot interrupt; nothing of a run outlives it."""

import os
import time

import numpy as np
import pytest
from sklearn.naive_bayes import GaussianNB

from privgate.subject.data import TrainingData
from privgate.subject.recipe import Recipe
from privgate.subject.subject import Subject
from privgate.training.fleet import Fleet
from privgate.training.pools import DEATHS
from tests.training.conftest import out

N = 30


def stuck(X, y, *, seed, how):
    """Train, unless record 7 is missing: then never come back."""
    if not (X[:, 0] == 7).any():
        if how == "swallows":
            while True:
                try:
                    time.sleep(60)
                except Exception:  # noqa: BLE001  some training code does
                    continue
        # holds the interpreter lock inside C for hours
        sum(range(10**14))
    return GaussianNB().fit(X, y)


def deadly(X, y, *, seed):
    os.abort()


def chatty(X, y, *, seed):
    print("secret feature value 42")
    os.system("echo from a child process")
    return GaussianNB().fit(X, y)


def greedy(X, y, *, seed):
    from joblib import effective_n_jobs
    from threadpoolctl import threadpool_info

    threads = max(lib["num_threads"] for lib in threadpool_info())
    assert (effective_n_jobs(-1), threads) == (1, 1), (effective_n_jobs(-1), threads)
    return GaussianNB().fit(X, y)


def subject(training, **params):
    X = np.column_stack([np.arange(N), np.cos(np.arange(N))]).astype(float)
    return Subject.local(
        Recipe(training, params=params, seed=1), TrainingData(X, np.arange(N) % 2, one_record_each=True)
    )


def test_training_that_swallows_exceptions_is_ended_at_the_limit(tmp_path):
    # the others need milliseconds; seconds, because the machine may be busy
    with Fleet(jobs=1, ledger=tmp_path, time_limit=5) as fleet:
        answers = fleet.fits(subject(stuck, how="swallows"), out(6, 7, 8))

    assert [a.problem for a in answers] == ["", "training did not end within 5 s", ""]


@pytest.mark.slow
def test_c_code_that_holds_the_interpreter_is_ended_with_its_worker(tmp_path):
    started = time.monotonic()
    with Fleet(jobs=2, ledger=tmp_path, time_limit=0.5) as fleet:
        answers = fleet.fits(subject(stuck, how="regex"), out(*range(12)))

    assert [i for i, a in enumerate(answers) if a.problem] == [7]
    assert answers[7].problem.startswith("the worker process died")
    assert time.monotonic() - started < 60


@pytest.mark.slow
def test_a_recipe_that_kills_every_worker_is_given_up_after_a_while(tmp_path):
    with Fleet(jobs=2, ledger=tmp_path) as fleet:
        answers = fleet.fits(subject(deadly), out(*range(N)))

    assert all("died while training" in a.problem for a in answers)
    assert sum(str(DEATHS) in a.problem for a in answers) > 0


def test_what_training_prints_reaches_the_log_and_nothing_else(tmp_path, capfd):
    fleet = Fleet(jobs=1, ledger=tmp_path / "ledger")
    fleet.logs = tmp_path / "logs"
    with fleet:
        answers = fleet.fits(subject(chatty), out(1))

    printed = "".join(p.read_text() for p in (tmp_path / "logs").iterdir())
    assert "secret feature value 42" in printed
    assert "from a child process" in printed
    assert answers[0].problem == ""
    assert "secret" not in "".join(capfd.readouterr())
    assert not any(b"secret" in p.read_bytes() for p in (tmp_path / "ledger").rglob("*") if p.is_file())


def test_a_silent_run_of_one_thread_leaves_no_log_and_no_copy_of_the_data(tmp_path):
    fleet = Fleet(jobs=1, ledger=tmp_path / "ledger")
    fleet.logs = tmp_path / "logs"
    with fleet:
        assert not fleet.fits(subject(greedy), out(1))[0].problem
        assert fleet._spool.is_dir()

    assert not (tmp_path / "logs").exists()
    assert not fleet._spool.exists()


def test_answers_that_depend_on_the_machine_are_not_remembered(tmp_path):
    with Fleet(jobs=1, ledger=tmp_path, time_limit=0.3) as fleet:
        assert fleet.fits(subject(stuck, how="swallows"), out(7))[0].problem
        assert not any(map(fleet.ledger.read, fleet.names(subject(stuck, how="swallows"), out(7))))
