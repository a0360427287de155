"""What a check trained is remembered for the next command, by a ledger that only its own key and sandbox can fill."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np

from privgate import Recipe, TrainingData, log_model, registry
from privgate.__main__ import run

N = 40


SLOWLY = """
import time

from sklearn.linear_model import LogisticRegression


def slowly(X, y, *, seed, pause=0.03):
    time.sleep(pause)
    return LogisticRegression(C=0.1).fit(X, y)
"""


def test_a_killed_check_goes_on_and_a_second_policy_trains_nothing(tmp_path, monkeypatch):
    (tmp_path / "trained_slowly.py").write_text(SLOWLY)
    monkeypatch.syspath_prepend(tmp_path)
    from trained_slowly import slowly

    uri, rng = registry.local_registry(tmp_path), np.random.default_rng(3)
    X = rng.uniform(-1, 1, size=(N, 2))
    data = TrainingData(X, (X[:, 0] + rng.logistic(size=N) > 0).astype(int), groups=np.arange(N))
    log_model(Recipe(slowly, seed=1), data, registered_model_name="m", tracking_uri=uri, store=tmp_path / "data")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    for name in ("PRIVGATE_LEDGER", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))

    def words(policy, folder):
        asked = ["check", "models:/m/1", "--policy", policy, "--no-attach", "--full", "--report-dir", folder]
        return [*asked, "--jobs", "1", "--quiet", "--isolation", "none"]

    def report(folder, policy):
        assert run(words(policy, folder)) in (0, 1, 5)
        return json.loads((tmp_path / folder / "report.json").read_text())["evidence"]["run"]

    def answers():
        return [p for p in (tmp_path / "PRIVGATE_LEDGER").rglob("*") if p.is_file()]

    command = [sys.executable, "-m", "privgate", *words("pdtp-1", "killed")]
    killed = subprocess.Popen(command, stderr=subprocess.PIPE, start_new_session=True)
    while len(answers()) < 20:
        assert killed.poll() is None, killed.communicate()
        time.sleep(0.05)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.communicate()
    before = len(answers())
    resumed = report("resumed", "pdtp-1")["remembered"]
    assert resumed["remembered"] >= before - 4  # what was read for one person is read once
    assert resumed["trained"] > 0

    own = 'schema: privgate/policy/v1\nname: own\nversion: "1"\nrules: [{metric: pdtp, max: 3.0}]\n'
    (tmp_path / "own.yaml").write_text(own)
    second = report("second", "own.yaml")
    assert (second["trace"]["training_calls"], second["remembered"]["trained"]) == (0, 0)
    assert second["remembered"]["remembered"] > N
