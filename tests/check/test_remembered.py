"""What a check trained is remembered for the next command, by a ledger that only its own key and sandbox can fill."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from privgate import Recipe, TrainingData, log_model, registry

N = 40


SLOWLY = """
import time

from sklearn.linear_model import LogisticRegression


def slowly(X, y, *, seed, pause=0.03):
    time.sleep(pause)
    return LogisticRegression(C=0.1).fit(X, y)
"""


@pytest.fixture
def command(tmp_path, monkeypatch):
    """Start the installed command on a registered model whose training takes a moment."""
    (tmp_path / "trained_slowly.py").write_text(SLOWLY)
    monkeypatch.syspath_prepend(tmp_path)
    from trained_slowly import slowly

    uri, rng = registry.local_registry(tmp_path), np.random.default_rng(3)
    X = rng.uniform(-1, 1, size=(N, 2))
    data = TrainingData(X, (X[:, 0] + rng.logistic(size=N) > 0).astype(int), groups=np.arange(N))
    log_model(Recipe(slowly, seed=1), data, registered_model_name="m", tracking_uri=uri, store=tmp_path / "data")

    def start(policy, folder, *options, ledger="ledger"):
        words = ["check", "models:/m/1", "--policy", policy, "--no-attach", "--full", "--report-dir", folder, *options]
        environment = {**os.environ, "MLFLOW_TRACKING_URI": uri, "PRIVGATE_LEDGER": str(tmp_path / ledger)}
        environment |= {"XDG_CONFIG_HOME": str(tmp_path / "config"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
        return subprocess.Popen([sys.executable, "-m", "privgate", *words, "--jobs", "1", "--quiet"], cwd=tmp_path,
                                env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                start_new_session=True)  # fmt: skip

    return start


def report(tmp_path, folder):
    return json.loads((tmp_path / folder / "report.json").read_text())["evidence"]


def ended(process, *codes):
    out, errors = process.communicate(timeout=250)
    assert process.returncode in codes, out + errors
    return errors


def answers(place):
    return [p for p in place.rglob("*") if p.is_file()]


@pytest.mark.parametrize("isolation", ["none", pytest.param("auto", marks=pytest.mark.slow)])
def test_a_killed_check_goes_on_beside_a_ledger_of_before_and_a_second_policy_trains_nothing(
    command, tmp_path, isolation
):
    way = ("--isolation", isolation)
    killed = command("pdtp-1", "killed", *way)
    while len(answers(tmp_path / "ledger")) < 20:
        assert killed.poll() is None, killed.communicate()
        time.sleep(0.05)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.communicate()
    before = len(answers(tmp_path / "ledger"))
    (tmp_path / "ledger" / "00000-1-abc.seg").write_bytes(b"PRIVGATE")
    errors = ended(command("pdtp-1", "resumed", *way), 0, 1, 5)
    assert errors.count("written by privgate 0.1, whose answers are not read; delete its *.seg files") == 1
    assert "Traceback" not in errors
    resumed = report(tmp_path, "resumed")
    assert resumed["run"]["remembered"]["remembered"] >= before - 4  # what was read for one person is read once
    assert resumed["run"]["remembered"]["trained"] > 0

    own = 'schema: privgate/policy/v1\nname: own\nversion: "1"\nrules: [{metric: pdtp, max: 3.0}]\n'
    (tmp_path / "own.yaml").write_text(own)
    ended(command("own.yaml", "second", *way), 0, 1, 5)
    second = report(tmp_path, "second")["run"]
    assert (second["trace"]["training_calls"], second["remembered"]["trained"]) == (0, 0)
    assert second["remembered"]["remembered"] > N

    # without a sandbox answers have other names: nothing is read of a run with one, and the numbers are the same
    if second["isolation"] != "none":
        ended(command("pdtp-1", "open", "--isolation", "none"), 0, 1, 5)
        again = report(tmp_path, "open")
        assert again["run"]["remembered"]["remembered"] == 0
        assert [m["value"] for m in again["measurements"]] == [m["value"] for m in resumed["measurements"]]
