"""The Action with the real privgate on a real registry: pass and block."""

import subprocess
import sys
from xml.etree import ElementTree as ET

import pytest

pytestmark = pytest.mark.slow

TRAIN = """
import mlflow, numpy as np, sys
from sklearn.naive_bayes import CategoricalNB
from privgate import Domain, Recipe, TrainingData, log_model

mlflow.set_tracking_uri(sys.argv[1])
rng = np.random.default_rng(0)
X = rng.integers(0, 3, (120, 4))
y = (X.sum(1) + rng.integers(0, 3, 120) > 5).astype(int)
data = TrainingData(X, y, domain=Domain(categories=(3,) * 4))
recipe = Recipe(CategoricalNB(alpha=5.0, min_categories=[3] * 4), seed=1)
log_model(recipe, data, registered_model_name="credit", store="artifacts")
"""
POLICY = """schema: privgate/policy/v1
name: {name}
version: "1"
rules:
  - metric: {metric}
    max: {limit}
"""


@pytest.fixture(scope="module")
def registry(tmp_path_factory):
    folder = tmp_path_factory.mktemp("registry")
    (folder / "train.py").write_text(TRAIN)
    uri = f"sqlite:///{folder}/registry.db"
    subprocess.run([sys.executable, "train.py", uri], cwd=folder, check=True, capture_output=True, timeout=200)
    return uri


@pytest.fixture
def run(workspace, registry, action, tmp_path):
    for name, metric, limit in (("generous", "dtp", 3), ("severe", "dtp", 0.001)):
        (workspace / f"{name}.yaml").write_text(POLICY.format(name=name, metric=metric, limit=limit))
    (tmp_path / "hash.key").write_text("k" * 64)

    def call(policy, model="models:/credit/1", **inputs):
        given = {"model": model, "policy": policy, "tracking-uri": registry, "python": sys.executable, **inputs}
        return action(workspace, given | {"hash-key-file": str(tmp_path / "hash.key"), "jobs": "1"})

    return call


def test_a_model_within_the_limit_passes_with_report_summary_and_junit(run, workspace):
    ended = run("generous.yaml")

    assert ended.code == 0, ended.log
    assert ended.outputs["verdict"] in ("passed", "warned")
    folder = workspace / ended.outputs["report-dir"]
    assert {"report.json", "report.html", "summary.md", "junit.xml"} <= {p.name for p in folder.iterdir()}
    assert ended.summary == (folder / "summary.md").read_text(encoding="utf-8")
    assert ET.parse(folder / "junit.xml").getroot().get("failures") == "0"


def test_a_model_beyond_the_limit_is_blocked(run):
    ended = run("severe.yaml")

    assert (ended.code, ended.outputs["verdict"]) == (1, "failed"), ended.log
    assert "::error title=privgate::the verdict is failed; the summary of this run says why" in ended.annotations
