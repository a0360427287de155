"""A registry of its own for every test, and a small model that trains in milliseconds."""

import importlib
import os
import shutil
import sys

import mlflow
import pytest

from privgate import Fleet, Policy, Subject, evaluate, log_model, report
from privgate.guard import keys as truststore
from tests.guard.store.conftest import DATA, GOOD


@pytest.fixture
def registry(empty_database, tmp_path, monkeypatch):
    """A fresh SQLite registry whose artifacts lie in tmp_path; MLflow's process-wide address points at it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return fresh_registry(empty_database, tmp_path)


def fresh_registry(empty_database, folder):
    """Return the address of a registry whose artifacts lie in a folder, and log to it from now on."""
    shutil.copy(empty_database, folder / "registry.db")
    uri = f"sqlite:///{folder}/registry.db"
    mlflow.set_tracking_uri(uri)
    client = mlflow.MlflowClient(uri)
    experiment = client.create_experiment("tests", artifact_location=(folder / "artifacts").as_uri())
    mlflow.set_experiment(experiment_id=experiment)
    return uri


@pytest.fixture(scope="session")
def approved(empty_database, tmp_path_factory, data, recipe):
    """A registry in which ``models:/credit/1`` was approved: (address, policy, folder with the report in out)."""
    folder = tmp_path_factory.mktemp("approved")
    uri = fresh_registry(empty_database, folder)
    log_model(recipe, data, registered_model_name="credit", store="artifacts")
    policy = Policy.load("dtp-1")
    with Fleet(jobs=1, ledger=folder / "ledger") as fleet:
        verdict = evaluate(policy, Subject.load("models:/credit/1"), fleet=fleet)
    assert verdict.approved, verdict.findings
    report.write(verdict, folder / "out", hash_key=b"k" * 32)
    mlflow.set_tracking_uri(None)
    return uri, policy, folder


@pytest.fixture
def checked(approved, tmp_path, monkeypatch):
    """The policy, and a copy of the report that a test may change."""
    uri, policy, folder = approved
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    mlflow.set_tracking_uri(uri)
    shutil.copytree(folder / "out", tmp_path / "out")
    return policy, tmp_path / "out"


@pytest.fixture
def written(tmp_path, monkeypatch):
    """Return a function that writes a module of a user's own and imports it."""
    folder = tmp_path / "user"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    names = []

    def write(name, text):
        (folder / f"{name}.py").write_text(text)
        names.append(name)
        return importlib.import_module(name)

    yield write
    for name in names:
        sys.modules.pop(name, None)


@pytest.fixture
def by_mlflow(registry):
    """Return a function that logs and registers a model as MLflow does, and returns what MLflow calls it."""

    def log(model, name="m", **options):
        with mlflow.start_run():
            return mlflow.sklearn.log_model(
                model, name=name, registered_model_name=name, pip_requirements=[], **options
            )

    return log


@pytest.fixture
def signer():
    return truststore.new_key()


@pytest.fixture(autouse=True)
def no_experiment_of_another_registry():
    """MLflow keeps the experiment's number when its address changes; forget it."""
    yield
    mlflow.tracking.fluent._active_experiment_id = None
    os.environ.pop("MLFLOW_EXPERIMENT_ID", None)
    mlflow.set_tracking_uri(None)


@pytest.fixture(scope="session")
def data():
    return DATA


@pytest.fixture(scope="session")
def recipe():
    return GOOD
