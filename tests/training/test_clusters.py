"""Clusters that somebody else operates: a real Dask scheduler with workers as processes, and other backends."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import joblib
import numpy as np
import pytest
from joblib._parallel_backends import LokyBackend
from sklearn.naive_bayes import GaussianNB

from privgate import Policy, Subject, evaluate, log_model
from privgate.errors import PrivgateWarning, UsageError
from privgate.families.engine import Asked
from privgate.families.refit import ENGINE
from privgate.subject.data import TrainingData
from privgate.subject.recipe import Recipe
from privgate.training import clusters, payload
from privgate.training.fit import Fit
from privgate.training.fleet import Fleet
from privgate.verdict import Outcome

N = 60


def slowly(X, y, *, seed, pause=0.05):
    time.sleep(pause)
    return GaussianNB().fit(X, y)


def spins(X, y, *, seed):
    while True:
        pass


def kills_without_seven(X, y, *, seed):
    if not (X[:, 0] == 7).any():
        os.kill(os.getpid(), signal.SIGKILL)
    return slowly(X, y, seed=seed, pause=0)


def subject(training=slowly, **params):
    X = np.column_stack([np.arange(N), np.sin(np.arange(N))])
    return Subject.local(Recipe(training, params=params, seed=1), TrainingData(X, np.arange(N) % 2))


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


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    with Fleet(jobs=1, ledger="none") as fleet:
        return ENGINE.answers(Asked(subject(pause=0.0), np.arange(N), (1,), fleet))[0]


def measure(fleet, **params):
    return ENGINE.answers(Asked(subject(**params), np.arange(N), (1,), fleet))[0]


@pytest.fixture
def registered(empty_database, tmp_path):
    """A naive Bayes model of 90 people in a registry of its own, and where it is."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(90, 2))
    data = TrainingData(X, (X[:, 0] + rng.logistic(size=90) > 0).astype(int))
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
    assert found[0].outcome == found[1].outcome == Outcome.WARNED  # nobody says whose the records are


def test_a_stored_model_is_opened_where_its_payload_was_unpacked(registered, tmp_path):
    made, data = payload.write(registered, tmp_path / "at home").pack(), registered.data
    shutil.rmtree(tmp_path / "at home")

    opened = payload.Opened(replace(made, owner=("elsewhere", 0)).unpack(tmp_path / "elsewhere"))

    assert (opened.model.predict(data.X) == GaussianNB().fit(data.X, data.y).predict(data.X)).all()


@pytest.mark.slow
def test_a_dask_worker_killed_midway_changes_nothing(cluster, tmp_path, table):
    victim = cluster.workers[0]
    killed = []

    def strike(done, _total, _left):
        if done > 10 and not killed:
            killed.append(done)
            kill(victim)

    with Fleet(ledger=tmp_path / "ledger", cluster=cluster.address, progress=strike) as fleet:
        found = measure(fleet, pause=0.05)

        assert killed
        assert fleet.calls == N + 1
    np.testing.assert_array_equal(found.log_without, table.log_without)


@pytest.mark.slow
def test_a_dask_scheduler_restarted_midway_changes_nothing(cluster, tmp_path, table):
    restarted = threading.Event()

    def restart():
        kill(cluster.workers[0])
        kill(cluster.scheduler)
        cluster.scheduler = cluster.start_scheduler(cluster.address.rpartition(":")[2])
        cluster.wait_for_file()
        kill(cluster.workers[1])  # it would wait for the old scheduler
        cluster.workers += [cluster.start_worker(), cluster.start_worker()]

    def progress(done, _total, _left):
        if done > 10 and not restarted.is_set():
            restarted.set()
            threading.Thread(target=restart).start()

    with Fleet(ledger=tmp_path / "ledger", cluster=cluster.address, progress=progress) as fleet:
        found = measure(fleet, pause=0.1)

    assert restarted.is_set()
    np.testing.assert_array_equal(found.log_without, table.log_without)


@pytest.mark.slow
def test_a_unit_that_kills_dask_workers_is_named_and_costs_no_other(cluster, tmp_path):
    with Fleet(ledger=tmp_path / "ledger", cluster=cluster.address) as fleet:
        fits = [Fit(1, np.arange(2), left_out=np.array([i])) for i in range(5, 10)]
        answers = fleet.fits(subject(kills_without_seven), fits)

    assert [bool(a.problem) for a in answers] == [False, False, True, False, False]


@pytest.mark.slow
def test_an_existing_client_is_used_and_left_open(tmp_path, table):
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as local,
        Client(local) as client,
        Fleet(ledger=tmp_path, cluster=client, time_limit=3) as fleet,
    ):
        found = measure(fleet, pause=0.0)
        hung = fleet.fits(subject(spins), [Fit(1, np.arange(2), left_out=np.array([0]))])
        stored = fleet.registered(with_model(subject(pause=0.0)), np.arange(3))
        assert fleet.pool.peak_memory() > 10 * 2**20
        fleet.close()
        assert client.status == "running"

    np.testing.assert_array_equal(found.log_without, table.log_without)
    assert hung[0].problem == "training did not end within 3 s"
    np.testing.assert_allclose(np.exp(stored.log_p), [[0.5, 0.5]] * 3)


class Half:
    classes_ = np.array([0, 1])

    def load(self):
        return self

    def predict_proba(self, X):
        return np.full((len(X), 2), 0.5)


def with_model(plain):
    return Subject(plain.recipe, plain.data, model=Half(), digests={**plain.digests, "model": "sha256:half"})


def test_workers_that_are_threads_of_this_process_are_refused(tmp_path):
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None) as local,
        Client(local) as client,
        Fleet(ledger=tmp_path, cluster=client) as fleet,
        pytest.raises(UsageError, match="threads of this process"),
    ):
        fleet.fits(subject(), [Fit(1, np.arange(2), left_out=np.array([0]))])


def test_threads_of_dask_workers_that_would_idle_are_said(tmp_path):
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=1, threads_per_worker=3, processes=False, dashboard_address=None) as local,
        Client(local) as client,
        Fleet(ledger=tmp_path, cluster=client) as fleet,
        pytest.warns(PrivgateWarning, match=r"3 threads in 1 worker processes.*--nworkers 3 --nthreads 1"),
    ):
        assert fleet.workers == 1


def test_an_address_without_a_scheduler_is_said_so(tmp_path, monkeypatch):
    monkeypatch.setattr(clusters, "CONNECT_SECONDS", 1.0)
    with (
        Fleet(ledger=tmp_path, cluster="tcp://127.0.0.1:9") as fleet,
        pytest.raises(UsageError, match="no Dask scheduler"),
    ):
        fleet.fits(subject(), [Fit(1, np.arange(2), left_out=np.array([0]))])


@pytest.mark.slow
def test_another_joblib_backend_gives_the_same_table(tmp_path, table, monkeypatch):
    class Registered(LokyBackend):
        """What a team's own scheduler would register."""

    monkeypatch.setitem(joblib.parallel.BACKENDS, "registered", Registered)
    with Fleet(jobs=2, ledger=tmp_path, cluster="registered") as fleet:
        found = measure(fleet, pause=0.0)

    np.testing.assert_array_equal(found.log_without, table.log_without)


@pytest.mark.parametrize(
    ("backend", "word"),
    [
        ("threading", "in this process"),
        ("sequential", "in this process"),
        ("multiprocessing", "a fork of it"),
        ("nosuch", "neither"),
    ],
)
def test_backends_that_cannot_isolate_are_refused(tmp_path, backend, word):
    with Fleet(ledger=tmp_path, cluster=backend) as fleet, pytest.raises(UsageError, match=word):
        fleet.fits(subject(), [Fit(1, np.arange(2), left_out=np.array([0]))])
