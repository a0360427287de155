"""Servers of other MLflow versions, each in an environment of its own: the gate holds, and what is signed gets through.

The environments take minutes to make. ``PRIVGATE_TEST_ENVIRONMENTS`` names a folder that keeps them; they hold this
checkout as an editable installation, so a kept one tests the present code.
"""

import contextlib
import os
import subprocess
import venv
from pathlib import Path

import pytest
from mlflow.exceptions import MlflowException

from tests.guard.store.test_ways_around import WAYS, Attacker

pytestmark = [
    pytest.mark.slow,
    pytest.mark.server,
    pytest.mark.timeout(3000),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]

ROOT = Path(__file__).resolve().parents[3]
VERSIONS = ("3.10", "3.14", "3.17")


@pytest.fixture(scope="module", params=VERSIONS)
def older(request, tmp_path_factory, running_guarded):
    """A guarded registry on a server of another version, in whose environment privgate is installed from here."""
    version, folder = request.param, tmp_path_factory.mktemp("older")
    kept = os.environ.get("PRIVGATE_TEST_ENVIRONMENTS")
    home = (Path(kept) if kept else tmp_path_factory.mktemp("environments")) / version
    python = str(home / "bin" / "python")
    if not (home / "complete").exists():
        venv.create(home, with_pip=True, clear=True)
        wanted = [f"mlflow=={version}.*", "--editable", str(ROOT)]
        subprocess.run([python, "-m", "pip", "install", "--quiet", *wanted], check=True)
        (home / "complete").touch()
    command = [python, "-c", "import mlflow; print(mlflow.__version__)"]
    installed = subprocess.run(command, capture_output=True, text=True, check=True, env=alone())
    assert installed.stdout.startswith(f"{version}.")
    options = ("--artifacts-destination", f"privgate:{folder}/artifacts")
    with running_guarded(folder, *options, python=python) as registry:
        registry.python = python
        yield registry


def alone():
    """Return an environment in which nothing of this one's packages is found."""
    return {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "MLFLOW_", "COVERAGE_"))}


def run_privgate(registry, *arguments, **environment):
    """Run the command line in the server's own environment; return exit code and words."""
    command = [registry.python, "-m", "privgate", *arguments, "--tracking-uri", registry.address]
    env = {**alone(), "OMP_NUM_THREADS": "1", **environment}
    ran = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    return ran.returncode, ran.stdout + ran.stderr


def test_every_way_around_is_refused(older, tmp_path):
    attacker, through = Attacker(older.empty(), tmp_path), []
    for attack, _, way in WAYS:
        with contextlib.suppress(MlflowException):
            way(attacker)
            through.append(attack)
    assert through == []
    assert attacker.client.get_model_version_by_alias("credit", "production").version == attacker.good


RELEASE = """
import sys
import numpy as np
from sklearn.naive_bayes import CategoricalNB
from privgate import Domain, Recipe, TrainingData, log_model
rng = np.random.default_rng(3)
X = rng.integers(0, 3, size=(40, 4))
data = TrainingData(
    X, (X[:, 0] > 0).astype(int), candidates=(X[:10].copy(), np.ones(10, int)), domain=Domain(categories=(3,) * 4),
    one_record_each=True,
)
recipe = Recipe(CategoricalNB(alpha=5.0, min_categories=3))
log_model(recipe, data, registered_model_name=sys.argv[1], tracking_uri=sys.argv[2], store="artifacts")
"""


def test_a_whole_release_by_this_versions_own_client(older, site, name, tmp_path):
    command = [older.python, "-c", RELEASE, name, older.address]
    ran = subprocess.run(command, env=alone(), capture_output=True, text=True, check=False, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    out, key, config = str(tmp_path / "out"), tmp_path / "key.pem", ("--config", str(site.config))
    key.write_bytes(site.signer.private_bytes)
    key.chmod(0o600)

    def release(*arguments):
        code, said = run_privgate(older, *arguments, PRIVGATE_LEDGER=str(tmp_path / "ledger"))
        assert code == 0, said

    policy = ("--policy", "dtp-1")
    release("check", f"models:/{name}/1", *policy, "--report-dir", out, "--jobs", "1", "--quiet")
    release("guard", "sign", out, *policy, *config, "--key", str(key), "--checked-elsewhere")
    older.client.set_registered_model_alias(name, "production", "1")
    release("verify", f"models:/{name}@production", *config)
