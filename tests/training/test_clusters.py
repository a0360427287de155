"""Clusters that somebody else operates: a real Dask scheduler with workers as processes, and other backends."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from sklearn.naive_bayes import GaussianNB

from privgate import Policy, Subject, evaluate, log_model
from privgate.errors import UsageError
from privgate.evidence.verdict import Outcome
from privgate.run.refit import leave_out
from privgate.subject.data import TrainingData
from privgate.subject.recipe import Recipe
from privgate.theorems.closed_form import RefitRequest
from privgate.training import clusters
from privgate.training.fit import Fit
from privgate.training.fleet import Fleet

N = 60


def slowly(X, y, *, seed, pause=0.05):
    time.sleep(pause)
    return GaussianNB().fit(X, y)


def kills_without_seven(X, y, *, seed):
    if not (X[:, 0] == 7).any():
        os.kill(os.getpid(), signal.SIGKILL)
    return slowly(X, y, seed=seed, pause=0)


def subject(training=slowly, **params):
    X = np.column_stack([np.arange(N), np.sin(np.arange(N))])
    return Subject.local(
        Recipe(training, params=params, seed=1), TrainingData(X, np.arange(N) % 2, one_record_each=True)
    )


class Cluster:
    """A Dask scheduler on a loopback port and workers, each a process of its own."""

    def __init__(self, folder, workers=2):
        self.folder, self.env = folder, {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path.cwd())}
        self.file = folder / "scheduler.json"
        self.scheduler = self.start_scheduler(0)
        self.address = self.wait_for_file()["address"]
        self.workers = [self.start_worker() for _ in range(workers)]

    def run(self, *words):
        return subprocess.Popen(
            [sys.executable, "-m", *words],
            env=self.env,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def start_scheduler(self, port):
        self.file.unlink(missing_ok=True)
        words = ["--host", "127.0.0.1", "--port", str(port), "--no-dashboard", "--scheduler-file", str(self.file)]
        return self.run("distributed.cli.dask_scheduler", *words)

    def start_worker(self):
        words = [self.address, "--nthreads", "1", "--no-dashboard", "--local-directory", str(self.folder)]
        return self.run("distributed.cli.dask_worker", *words)

    def wait_for_file(self):
        for _ in range(300):
            if self.file.is_file() and self.file.read_text().strip():
                return json.loads(self.file.read_text())
            time.sleep(0.1)
        raise TimeoutError("no scheduler")

    def stop(self):
        for process in [*self.workers, self.scheduler]:
            kill(process)


def kill(process):
    """End a process and the worker that its nanny keeps."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@pytest.fixture
def cluster(tmp_path):
    made = Cluster(tmp_path)
    yield made
    made.stop()


def measure(fleet, **params):
    return leave_out(RefitRequest(subject(**params), np.arange(N), (1,), fleet))


@pytest.fixture
def registered(empty_database, tmp_path):
    """A naive Bayes model of 90 people in a registry of its own, and where it is."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(90, 2))
    data = TrainingData(X, (X[:, 0] + rng.logistic(size=90) > 0).astype(int), one_record_each=True)
    where = f"sqlite:///{shutil.copy(empty_database, tmp_path / 'registry.db')}"
    log_model(
        Recipe(GaussianNB(), seed=1), data, registered_model_name="m", tracking_uri=where, store=tmp_path / "data"
    )
    return Subject.load("models:/m/1", tracking_uri=where)


@pytest.mark.slow
def test_a_registered_model_is_judged_on_a_dask_cluster_as_at_home(cluster, registered):
    """Its stored files travel with the data: a worker on another machine has none of the parent's folders."""
    found = []
    for where in ({"cluster": cluster.address}, {"jobs": 1, "isolate": "none"}):
        with Fleet(ledger="none", **where) as fleet:
            found.append(evaluate(Policy.load("pdtp-1"), registered, fleet=fleet))

    assert found[0].findings == found[1].findings
    assert found[0].outcome == found[1].outcome == Outcome.PASSED


@pytest.mark.slow
def test_a_dask_scheduler_that_dies_is_said(cluster, tmp_path):
    def progress(done, _total, _left):
        if done > 10:
            kill(cluster.scheduler)

    with (
        Fleet(ledger=tmp_path / "ledger", cluster=cluster.address, progress=progress) as fleet,
        pytest.raises(UsageError, match="scheduler went away"),
    ):
        measure(fleet, pause=0.1)


@pytest.mark.slow
def test_a_unit_that_kills_dask_workers_is_named_and_costs_no_other(cluster, tmp_path):
    with Fleet(ledger=tmp_path / "ledger", cluster=cluster.address) as fleet:
        fits = [Fit(1, np.arange(2), left_out=np.array([i])) for i in range(5, 10)]
        answers = fleet.fits(subject(kills_without_seven), fits)

    assert [bool(a.problem) for a in answers] == [False, False, True, False, False]


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:9", "spark"])
def test_an_address_without_a_scheduler_is_said_so(tmp_path, monkeypatch, address):
    monkeypatch.setattr(clusters, "CONNECT_SECONDS", 1.0)
    with (
        Fleet(ledger=tmp_path, cluster=address) as fleet,
        pytest.raises(UsageError, match="no Dask scheduler"),
    ):
        fleet.fits(subject(), [Fit(1, np.arange(2), left_out=np.array([0]))])
