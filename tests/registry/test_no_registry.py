"""A registry that does not exist is refused in a sentence, and none is made where somebody mistyped an address."""

from pathlib import Path

import mlflow
import pytest

from privgate.__main__ import run
from privgate.registry import local_registry
from privgate.registry.client import connect, tracking_at

COMMANDS = (
    ["check", "models:/credit/1", "--policy", "dtp-1", "--report-dir", "out", "--ledger", "none"],
    ["report", "models:/credit/2", "--compare", "models:/credit/1"],
    ["report", "models:/credit/1", "--html", "page.html"],
)


@pytest.fixture(autouse=True)
def nowhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    mlflow.set_tracking_uri(None)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda c: c[0])
@pytest.mark.parametrize("address", ["sqlite:///typo.db", "sqlite:////tmp/no/such/typo.db", "typo", None])
def test_a_mistyped_address_makes_no_registry(capsys, command, address):
    given = ["--tracking-uri", address] if address else []

    assert run([*command, *given]) == 4

    said = capsys.readouterr().err
    error = said[said.index("error: ") :]  # behind what is said before anything is read
    assert error.startswith("error: there is no registry at ")
    assert error.count("\n") == 1
    assert "MLFLOW_TRACKING_URI" in error or address in error
    assert not [p for p in Path().iterdir() if p.suffix == ".db" or p.name in ("mlruns", "typo")]


def test_one_that_exists_is_opened_and_one_of_our_own_is_made(tmp_path):
    uri = local_registry(tmp_path / "own dir")

    assert connect(uri).search_registered_models() == []
    with tracking_at(uri):
        assert mlflow.get_tracking_uri() == uri
    assert mlflow.get_tracking_uri() != uri  # put back for whoever asks next
    assert connect("http://127.0.0.1:9")  # asked only when something is wanted of it


def test_a_registered_model_without_a_version_asks_for_one(tmp_path, capsys):
    uri = local_registry(tmp_path / "own")
    client = connect(uri)
    client.create_registered_model("income-tree")

    assert run([*COMMANDS[0][:1], "models:/income-tree", *COMMANDS[0][2:], "--tracking-uri", uri]) == 4
    assert "name a version: models:/NAME/VERSION" in capsys.readouterr().err
