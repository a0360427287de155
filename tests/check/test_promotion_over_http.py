"""The whole path against a real MLflow server: log, promote, compare, index; what was refused stays where it was."""

import json

import numpy as np
import pytest

from privgate import TrainingData, registry
from privgate.__main__ import run
from privgate.subject.domain import Domain

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def server(mlflow_server, models, tmp_path_factory):
    """Return the address of a server that holds two versions of one model: smoothed, then a decision tree."""
    from mlflow import MlflowClient

    rng, sizes = np.random.default_rng(4), [3, 4, 2]
    y = rng.integers(0, 2, 60)
    X = np.column_stack([(rng.integers(0, v, 60) + y) % v for v in sizes])
    training = TrainingData(X, y, domain=Domain(categories=tuple(sizes)), one_record_each=True)
    for recipe in (models["smoothed"], models["memory"]):
        registry.log_model(
            recipe, training, registered_model_name="over-http", tracking_uri=mlflow_server, store="artifacts"
        )
    return mlflow_server, MlflowClient(tracking_uri=mlflow_server), tmp_path_factory.mktemp("http")


@pytest.mark.slow
def test_approved_is_promoted_blocked_is_not_and_both_are_compared(server, capsys, monkeypatch):
    address, client, folder = server
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
    common = ["--policy", "dtp-1", "--tracking-uri", address, "--ledger", str(folder / "ledger"), "--quiet"]

    to = ["--to", "production"]
    good = run(["promote", "models:/over-http/1", *to, "--report-dir", str(folder / "one"), *common])
    common += ["--budget", "100 trainings"]
    bad = run(["promote", "models:/over-http/2", *to, "--report-dir", str(folder / "two"), *common])

    assert (good, bad) == (0, 1)
    assert str(client.get_model_version_by_alias("over-http", "production").version) == "1"
    tags = client.get_model_version("over-http", "2").tags
    assert tags["privgate.outcome"] == "failed"
    assert json.loads((folder / "two" / "report.json").read_text())["comparison"]["old"]["version"] == "1"
    capsys.readouterr()

    assert run(["compare", "models:/over-http/1", "models:/over-http/2", "--tracking-uri", address]) == 0
    assert "blocked" in capsys.readouterr().out
    assert run(["report", "index", "--html", str(folder / "index.html"), "--tracking-uri", address]) == 0
    page = (folder / "index.html").read_text()
    assert "over-http" in page
    assert "http://" not in page.replace("http://www.w3.org", "")


@pytest.mark.slow
def test_a_registry_that_is_gone_leaves_the_report_and_ends_with_4(server, capsys, monkeypatch):
    address, _, folder = server
    from privgate.errors import RegistryError

    def gone(*_, **__):
        raise RegistryError("attaching the report: connection refused")

    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
    monkeypatch.setattr("privgate.registry.attachments.attach", gone)
    monkeypatch.setattr("privgate.registry.attach", gone, raising=False)
    out = folder / "gone"
    where = ["--tracking-uri", address, "--report-dir", str(out), "--ledger", str(folder / "ledger"), "--quiet"]
    code = run(["check", "models:/over-http/1", "--policy", "dtp-1", *where])

    assert code == 4
    assert (out / "report.html").is_file()
    assert "connection refused" in capsys.readouterr().err
