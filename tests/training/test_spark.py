"""Spark as a cluster: the same answers, deaths named, what workers lack said in one sentence."""

import os
import shutil
import sys
import time

import numpy as np
import pytest
from sklearn.naive_bayes import GaussianNB

from privgate.errors import UsageError
from privgate.families.engine import Asked
from privgate.families.refit import ENGINE
from privgate.subject.data import TrainingData
from privgate.subject.recipe import Recipe
from privgate.subject.subject import Subject
from privgate.training import spark
from privgate.training.fit import Fit
from privgate.training.fleet import Fleet

N = 24


def training(X, y, *, seed, pause=0.0):
    time.sleep(pause)
    return GaussianNB().fit(X, y)


def kills_without_seven(X, y, *, seed):
    if not (X[:, 0] == 7).any():
        os.kill(os.getpid(), 9)
    return GaussianNB().fit(X, y)


def subject(function=training, **params):
    X = np.column_stack([np.arange(N), np.sin(np.arange(N))])
    return Subject.local(Recipe(function, params=params, seed=1), TrainingData(X, np.arange(N) % 2))


@pytest.fixture
def session(monkeypatch):
    """Spark on two cores of this machine, as a master's address."""
    pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'privgate[spark]'")
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java, and there is none")
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    return "local[2]"


@pytest.mark.slow
def test_spark_gives_the_same_table_and_stays_as_it_was(session, tmp_path, monkeypatch):
    from pyspark.sql import SparkSession

    with Fleet(jobs=1, ledger="none", isolate="none") as fleet:
        table = ENGINE.answers(Asked(subject(), np.arange(N), (1,), fleet))[0]
    with Fleet(ledger=tmp_path / "ledger", cluster=session) as fleet:
        found = ENGINE.answers(Asked(subject(), np.arange(N), (1,), fleet))[0]
        assert fleet.workers == 2
        assert fleet.calls == N + 1
        named = fleet.fits(subject(kills_without_seven), [Fit(1, np.arange(2), left_out=np.array([i])) for i in (6, 7)])
    np.testing.assert_array_equal(found.log_without, table.log_without)
    assert [a.problem[:23] for a in named] == ["", "the worker process died"]
    assert SparkSession.getActiveSession() is None  # it was ours

    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    theirs = SparkSession.builder.master(session).config("spark.ui.enabled", "false").getOrCreate()
    try:
        with Fleet(ledger=tmp_path / "ledger", cluster="spark") as fleet:
            ENGINE.answers(Asked(subject(), np.arange(N), (1,), fleet))
            assert fleet.calls == 0  # all remembered
            fleet.fits(subject(pause=0.01), [Fit(1, np.arange(2), left_out=np.array([0]))])
        assert theirs.range(3).count() == 3
    finally:
        theirs.stop()


@pytest.mark.slow
def test_workers_with_another_python_are_said_so(session, tmp_path, monkeypatch):
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')  # no site-packages: no privgate
    bare.chmod(0o755)
    monkeypatch.setenv("PYSPARK_PYTHON", str(bare))
    with (
        Fleet(ledger=tmp_path / "ledger", cluster=session) as fleet,
        pytest.raises(UsageError, match=r"workers cannot run privgate: ModuleNotFoundError.*PYSPARK_PYTHON"),
    ):
        fleet.fits(subject(), [Fit(1, np.arange(2), left_out=np.array([0]))])


@pytest.mark.parametrize(
    ("cluster", "is_spark"),
    [("spark", True), ("spark://host:7077", True), ("local[2]", True), ("tcp://host:8786", False), ("ray", False)],
)
def test_which_clusters_are_spark(cluster, is_spark):
    assert spark.is_master(cluster) is is_spark


def test_without_pyspark_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    with Fleet(ledger=tmp_path, cluster="spark") as fleet, pytest.raises(UsageError, match=r"privgate\[spark\]"):
        fleet.fits(subject(), [Fit(1, np.arange(2), left_out=np.array([0]))])
