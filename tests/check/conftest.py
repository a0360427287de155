"""A registry of small models, made once, that the gate is run against as its user would."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from privgate import Recipe, TrainingData
from privgate.subject.domain import Domain

SIZES = [3, 4, 2]


def small_data(n: int = 60, seed: int = 4) -> TrainingData:
    rng = np.random.default_rng(seed)
    y = np.where(rng.random(2 * n) < 0.4, "yes", "no")
    X = np.column_stack([(rng.integers(0, v, 2 * n) + (y == "yes")) % v for v in SIZES])
    return TrainingData(
        X[:n], y[:n], candidates=(X[n:], y[n:]), domain=Domain(categories=tuple(SIZES)), one_record_each=True
    )


@pytest.fixture(scope="session")
def models() -> dict[str, Recipe]:
    """Recipes by name: what each must end as is said in the tests."""
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.naive_bayes import CategoricalNB
    from sklearn.tree import DecisionTreeClassifier

    return {
        "smoothed": Recipe(CategoricalNB(alpha=5.0, min_categories=SIZES), seed=1),
        "memory": Recipe(DecisionTreeClassifier(), seed=1),
        "regression": Recipe(LogisticRegression(C=0.1, tol=1e-10, solver="newton-cholesky"), seed=1),
        "forest": Recipe(RandomForestClassifier(n_estimators=5, max_depth=2, min_samples_leaf=8), seed=1),
    }


@pytest.fixture(scope="session")
def registry_of_models(tmp_path_factory: pytest.TempPathFactory, models: dict[str, Recipe]) -> tuple[str, Path]:
    """Return (tracking URI, folder) of an SQLite registry with one version of each of ``models``."""
    from privgate import registry

    folder = tmp_path_factory.mktemp("gate-registry")
    uri = registry.local_registry(folder)
    for name, recipe in models.items():
        registry.log_model(recipe, small_data(), registered_model_name=name, tracking_uri=uri, store="artifacts")
    return uri, folder


@pytest.fixture
def inside(tmp_path, registry_of_models, monkeypatch, capsys):
    """Run the command in this process, which has imported everything, in a folder of its own; return how it ended."""
    uri, folder = registry_of_models
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        from privgate.__main__ import run

        settings = {
            "MLFLOW_TRACKING_URI": uri,
            "PRIVGATE_LEDGER": folder / "ledger",
            "XDG_CONFIG_HOME": folder / "config",
        }
        for name, value in settings.items():
            monkeypatch.setenv(name, str(value))
        capsys.readouterr()
        code = run(list(arguments))
        return subprocess.CompletedProcess(arguments, code, *capsys.readouterr())

    return run


@pytest.fixture
def privgate(tmp_path, registry_of_models):
    """Run the real command in a folder of its own and return the finished process."""
    uri, folder = registry_of_models

    def run(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        environment = {
            **os.environ,
            "MLFLOW_TRACKING_URI": uri,
            "PRIVGATE_LEDGER": str(folder / "ledger"),
            "XDG_CONFIG_HOME": str(folder / "config"),
            **env,
        }
        command = [sys.executable, "-m", "privgate", *arguments]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    return run
