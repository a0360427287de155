"""What an earlier version wrote is loaded, checked, verified and signed again: a registry, reports, a ledger.

``data/earlier.tar.xz`` was written by commit ead5284: a guarded registry on SQLite with two models of 600 people of UCI
Adult, one approved, signed and released, one refused; the report of the approved one, and a part of the ledger.
"""

import datetime as dt
import json
import shutil
import tarfile
from pathlib import Path

import numpy as np
import pytest

from privgate import Subject, registry
from privgate.__main__ import run
from privgate.errors import PrivgateWarning
from privgate.guard import statement
from privgate.report.schema import read
from privgate.training.ledger import VARIABLE

KEPT = Path(__file__).parent / "data" / "earlier.tar.xz"
#: within the year for which it was approved
THEN = dt.datetime(2026, 12, 1, tzinfo=dt.UTC)


@pytest.fixture(scope="module")
def earlier(tmp_path_factory, running_mlflow):
    """Unpack it, and start a guarded server of today's code on it."""
    folder = tmp_path_factory.mktemp("earlier")
    with tarfile.open(KEPT) as archive:
        archive.extractall(folder, filter="data")
    folder /= "kept"
    guard = folder / "guard.yaml"  # which names the policy as it was
    row = 'releases: [{models: "*", task: classification, policy: dtp-1@1}]\n'
    guard.write_text(guard.read_text().replace("policy: dtp-1\n", row).replace("guard/v1", "guard/v2"))
    store = f"sqlite:///{folder / 'mlflow.db'}"
    options = ["--backend-store-uri", store, "--registry-store-uri", f"privgate:{store}"]
    with running_mlflow(folder, *options, env={"PRIVGATE_GUARD": str(folder / "guard.yaml")}) as address:
        yield folder, address


@pytest.fixture(autouse=True)
def then(monkeypatch):
    monkeypatch.setattr(statement, "now", lambda: THEN)
    monkeypatch.setenv(VARIABLE, "earlier" * 6)


def test_what_was_released_still_verifies(earlier):
    folder, address = earlier
    where = ["--config", str(folder / "guard.yaml"), "--tracking-uri", address]

    assert run(["verify", "models:/income@production", *where]) == 0
    assert run(["verify", "models:/rare/1", *where]) == 4  # it was refused, and nothing was signed


def test_models_and_reports_are_loaded(earlier):
    _, address = earlier
    for name, approved in (("income", True), ("rare", False)):
        subject = Subject.load(f"models:/{name}/1", tracking_uri=address)
        attached = registry.attached(f"models:/{name}/1", tracking_uri=address)

        assert subject.data.n == 600
        assert read(attached).approved is approved
        assert attached["subject"]["digests"]["data"] == subject.digests["data"]


def test_a_report_is_signed_again_and_told_again(earlier, tmp_path, capsys):
    folder, address = earlier
    key = ["--key", str(folder / "signing-key.pem"), "--config", str(folder / "guard.yaml"), "--policy", "dtp-1@1"]
    key += ["--no-attach", "--tracking-uri", address]  # the server has a clock of its own

    assert run(["guard", "sign", str(folder / "report-income"), *key, "--to", str(tmp_path / "signed")]) == 0
    assert {f.name for f in (tmp_path / "signed").iterdir()} >= {"evidence.dsse.json", "verdict.dsse.json"}
    assert run(["report", str(folder / "report-income" / "report.json"), "--format", "markdown"]) == 0
    assert "approved" in capsys.readouterr().out.lower()


@pytest.mark.slow  # a whole check of 600 people
@pytest.mark.parametrize("name", ["income", "rare"])
def test_the_check_comes_to_the_same_end_and_ignores_the_old_ledger_by_one_sentence(earlier, tmp_path, name):
    folder, address = earlier
    ledger = shutil.copytree(folder / "ledger", tmp_path / "ledger")
    options = ["--policy", "dtp-1@1", "--ledger", str(ledger), "--no-attach", "--jobs", "1"]

    with pytest.warns(PrivgateWarning, match=r"written by privgate 0\.1, whose answers are not read") as told:
        ended = run(["check", f"models:/{name}/1", *options, "--report-dir", str(tmp_path), "--tracking-uri", address])

    before = registry.attached(f"models:/{name}/1", tracking_uri=address)
    now = json.loads((tmp_path / "report.json").read_text())
    assert ended == (0 if before["approved"] else 1)
    dtp = [next(m for m in d["evidence"]["measurements"] if m["request"]["metric"] == "dtp") for d in (before, now)]
    assert dtp[1]["low"] <= dtp[0]["low"] * (1 + 1e-9)  # 0.1.0 also put questions that its theorems made up
    if before["approved"]:  # who refuses alone is the only one left out
        np.testing.assert_allclose(dtp[1]["high"], dtp[0]["high"], rtol=1e-6)
    assert now["evidence"]["run"]["remembered"]["remembered"] == 0
    assert len({str(w.message) for w in told if "whose answers are not read" in str(w.message)}) == 1
