"""Servers of other MLflow versions, each in an environment of its own: the gate holds, and what is signed gets through.

The environments take minutes to make. ``PRIVGATE_TEST_ENVIRONMENTS`` names a folder that keeps them; they hold this
checkout as an editable installation, so a kept one tests the present code.
"""

import os
import subprocess
import venv
from pathlib import Path

import pytest
from mlflow.exceptions import MlflowException

from privgate.guard.config import Guard
from privgate.guard.diagnosis import examine

pytestmark = [
    pytest.mark.slow,
    pytest.mark.server,
    pytest.mark.timeout(3000),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]

ROOT = Path(__file__).resolve().parents[3]
VERSIONS = ("3.10", "3.14", "3.17")


@pytest.fixture(scope="module", params=VERSIONS)
def python(request, tmp_path_factory):
    return interpreter(request.param, tmp_path_factory)


def interpreter(version, tmp_path_factory):
    """Return the interpreter of an environment with this version of MLflow and privgate from the checkout."""
    kept = os.environ.get("PRIVGATE_TEST_ENVIRONMENTS")
    home = (Path(kept) if kept else tmp_path_factory.mktemp("environments")) / version
    if not (home / "complete").exists():
        venv.create(home, with_pip=True, clear=True)
        wanted = [f"mlflow=={version}.*", "--editable", str(ROOT)]
        subprocess.run([home / "bin" / "python", "-m", "pip", "install", "--quiet", *wanted], check=True)
        (home / "complete").touch()
    found = subprocess.run(
        [home / "bin" / "python", "-c", "import mlflow; print(mlflow.__version__)"],
        capture_output=True, text=True, check=True, env=alone(),
    )  # fmt: skip
    assert found.stdout.startswith(f"{version}.")
    return str(home / "bin" / "python")


@pytest.fixture(scope="module")
def older(python, tmp_path_factory, site, running_mlflow, registry_type):
    folder = tmp_path_factory.mktemp("older")
    options = ("--registry-store-uri", f"privgate:sqlite:///{folder}/tracking.db")
    with running_mlflow(folder, *options, env=site.env, python=python) as address:
        made = registry_type(address, site)
        made.python = python
        yield made


def alone():
    """Return an environment in which nothing of this one's packages is found."""
    return {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "MLFLOW_", "COVERAGE_"))}


def command(registry, *arguments, **environment):
    """Run the command line in the server's own environment; return exit code and words."""
    done = subprocess.run(
        [registry.python, "-m", "privgate", *arguments, "--tracking-uri", registry.address],
        env={**alone(), "OMP_NUM_THREADS": "1", **environment}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def test_every_way_around_is_refused_by_every_door(older, name, tried):
    rows = tried(older, name, older.log(name))
    assert {outcome for row in rows for outcome in row[1:]} == {"refused", "refused (403)"}, rows
    assert dict(older.client.get_registered_model(name).aliases) == {}


def test_a_signed_version_is_promoted_copied_verified_and_kept_from_being_replaced(older, site, name, tmp_path):
    version = older.log(name)
    older.release(
        name, version, tmp_path, targets=((name, "production"), (f"prod.{name}", "production"), (name, "Production"))
    )
    older.client.set_registered_model_alias(name, "production", version)
    older.client.transition_model_version_stage(name, version, "Production")
    older.client.create_registered_model(f"prod.{name}")
    copy = older.client.copy_model_version(f"models:/{name}/{version}", f"prod.{name}")
    older.client.set_registered_model_alias(f"prod.{name}", "production", copy.version)
    assert older.client.get_model_version_by_alias(f"prod.{name}", "production").version == copy.version
    with pytest.raises(MlflowException, match="holds protected alias"):
        older.client.rename_registered_model(name, f"{name}-other")
    with pytest.raises(MlflowException, match="released on it"):
        older.client.delete_model_version_tag(name, version, "privgate.statement")
    wrong = [a.text for a in examine(Guard.load(site.config), tracking_uri=older.address) if a.state == "wrong"]
    assert not [text for text in wrong if name in text]

    verify = ("verify", f"models:/{name}@production", "--config", str(site.config))
    for route in ({}, {"MLFLOW_REGISTRY_URI": f"{older.address}/"}):  # by plain HTTP, and by this version's own client
        code, said = command(older, *verify, **route)
        assert (code, "verified: " in said) == (0, True), said
    location = older.client.get_logged_model(older.client.get_model_version(name, version).source.rpartition("/")[2])
    older.client.log_model_artifacts(location.model_id, str(_changed(tmp_path)))
    for route in ({}, {"MLFLOW_REGISTRY_URI": f"{older.address}/"}):
        code, said = command(older, *verify, **route)
        assert (code, "not those that were checked" in said) == (4, True), said


def _changed(tmp_path):
    folder = tmp_path / "changed"
    folder.mkdir()
    (folder / "weights.json").write_text('"stolen"')
    return folder


def test_a_recreated_row_inherits_nothing(older, name, tmp_path):
    version = older.log(name)
    text = older.sign(name, version, tmp_path)
    older.client.delete_registered_model(name)
    older.log(name)
    older.client.set_model_version_tag(name, version, "privgate.statement", text)
    with pytest.raises(MlflowException, match="refused"):
        older.client.set_registered_model_alias(name, "production", version)


def test_webhooks_and_prompts_are_as_without_the_gate(older, name):
    from mlflow.entities.webhook import WebhookAction, WebhookEntity, WebhookEvent

    event = WebhookEvent(WebhookEntity.MODEL_VERSION_TAG, WebhookAction.SET)
    made = older.client.create_webhook("wake", "https://93.184.216.34/hook", [event])
    older.client.delete_webhook(made.webhook_id)
    older.client.create_prompt(name)
    older.client.create_prompt_version(name, "Hello {{ name }}")
    older.client.set_prompt_alias(name, "production", 1)
    assert older.client.get_prompt_version_by_alias(name, "production").template == "Hello {{ name }}"


RELEASE = """
import sys
import numpy as np
from sklearn.naive_bayes import CategoricalNB
from privgate import Domain, Recipe, TrainingData, log_model
rng = np.random.default_rng(3)
X = rng.integers(0, 3, size=(40, 4))
data = TrainingData(
    X, (X[:, 0] > 0).astype(int), candidates=(X[:10].copy(), np.ones(10, int)), domain=Domain(categories=(3,) * 4)
)
recipe = Recipe(CategoricalNB(alpha=5.0, min_categories=3))
log_model(recipe, data, registered_model_name=sys.argv[1], tracking_uri=sys.argv[2], store="artifacts")
"""


def test_a_whole_release_by_this_versions_own_client(older, site, name, tmp_path):
    done = subprocess.run(
        [older.python, "-c", RELEASE, name, older.address],
        env=alone(), capture_output=True, text=True, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    out, key = tmp_path / "out", tmp_path / "key.pem"
    key.write_bytes(site.signer.private_bytes)
    key.chmod(0o600)
    check = ("check", f"models:/{name}/1", "--policy", "dtp-1", "--report-dir", str(out), "--jobs", "1", "--quiet")
    code, said = command(older, *check, PRIVGATE_LEDGER=str(tmp_path / "ledger"))
    assert code == 0, said
    sign = ("sign", str(out), "--policy", "dtp-1", "--config", str(site.config), "--key", str(key))
    code, said = command(older, *sign, "--checked-elsewhere")
    assert code == 0, said
    older.client.set_registered_model_alias(name, "production", "1")
    code, said = command(older, "verify", f"models:/{name}@production", "--config", str(site.config))
    assert code == 0, said
