"""A registry of its own for every test, and a small model that trains in milliseconds."""

import os
import shutil

import mlflow
import numpy as np
import pytest

from privgate import Domain, Recipe, TrainingData


@pytest.fixture
def registry(empty_database, tmp_path, monkeypatch):
    """A fresh SQLite registry whose artifacts lie in tmp_path; MLflow's process-wide address points at it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    shutil.copy(empty_database, tmp_path / "registry.db")
    uri = f"sqlite:///{tmp_path}/registry.db"
    mlflow.set_tracking_uri(uri)
    client = mlflow.MlflowClient(uri)
    experiment = client.create_experiment("tests", artifact_location=(tmp_path / "artifacts").as_uri())
    mlflow.set_experiment(experiment_id=experiment)
    return uri


@pytest.fixture(autouse=True)
def no_experiment_of_another_registry():
    """MLflow keeps the experiment's number when its address changes; forget it."""
    yield
    mlflow.tracking.fluent._active_experiment_id = None
    os.environ.pop("MLFLOW_EXPERIMENT_ID", None)
    mlflow.set_tracking_uri(None)


@pytest.fixture
def data():
    rng = np.random.default_rng(3)
    X = rng.integers(0, 3, size=(40, 4))
    return TrainingData(
        X, (X[:, 0] > 0).astype(int), candidates=(X[:10].copy(), np.ones(10, int)), domain=Domain(categories=(3,) * 4)
    )


@pytest.fixture
def recipe():
    from sklearn.naive_bayes import CategoricalNB

    return Recipe(CategoricalNB(alpha=5.0, min_categories=3))
