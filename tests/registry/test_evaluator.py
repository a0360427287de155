"""``mlflow.models.evaluate(…, evaluators="privgate")``: metrics, report and inputs where MLflow shows them."""

import importlib
import json
import tomllib
from pathlib import Path

import mlflow
import pytest
from mlflow.models import MetricThreshold
from mlflow.models.evaluation.evaluator_registry import _model_evaluation_registry as evaluators
from mlflow.models.evaluation.validation import ModelValidationFailedException

from privgate import log_model
from privgate.errors import PolicyError
from privgate.evaluation import notebook
from privgate.evidence import Evidence
from privgate.evidence.verdict import Verdict
from privgate.training.fleet import Fleet

#: what keeps a check of forty people quick
QUICK = {"policy": "dtp-1", "jobs": 1, "ledger": "none"}


@pytest.fixture(autouse=True)
def named(tmp_path, monkeypatch):
    """The evaluator as the package's entry point names it."""
    declared = tomllib.loads(Path(__file__).parents[2].joinpath("pyproject.toml").read_text())["project"][
        "entry-points"
    ]
    module, _, name = declared["mlflow.model_evaluator"]["privgate"].partition(":")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setitem(evaluators._registry, "privgate", getattr(importlib.import_module(module), name))


def evaluated(model, data, **config):
    """Evaluate as a user does, in a run of its own."""
    with mlflow.start_run():
        return mlflow.models.evaluate(
            model, data.X, targets=data.y, model_type="classifier", evaluators="privgate", evaluator_config=config
        )


def test_an_evaluation_logs_metrics_and_report(registry, recipe, data):
    info = log_model(recipe, data, registered_model_name="credit", store="artifacts")

    settings = {"uri": "models:/credit/1", "purpose": "tests", "owner": "the team", **QUICK}
    found = evaluated("models:/credit/1", data, privgate=settings)  # as MLflow documents it

    client = mlflow.MlflowClient()
    run = client.get_run(found.run_id)
    assert found.run_id != client.get_logged_model(info.model_id).source_run_id
    assert found.metrics["privgate/outcome"] <= 1
    assert run.data.metrics["privgate/dtp_capped"] == found.metrics["privgate/dtp_capped"] <= 1
    held = {f.path for f in client.list_artifacts(found.run_id, "privgate")}
    assert held == {f"privgate/{n}" for n in ("report.json", "report.html", "summary.md", "junit.xml")}
    kept = json.loads(mlflow.artifacts.load_text(found.artifacts["privgate_report"].uri))
    assert kept == found.artifacts["privgate_report"].content
    assert (kept["context"]["purpose"], kept["context"]["owner"]) == ("tests", "the team")
    version = client.get_model_version("credit", "1")
    assert version.tags["privgate"].startswith("approved, with 2 warnings, dtp-1, ")

    at_most = {"privgate/outcome": MetricThreshold(threshold=1, greater_is_better=False)}
    mlflow.validate_evaluation_results(at_most, found)
    worse = {"privgate/dtp_capped": MetricThreshold(threshold=0.001, greater_is_better=False)}
    with pytest.raises(ModelValidationFailedException, match="dtp_capped"):
        mlflow.validate_evaluation_results(worse, found)


def test_an_evaluation_without_a_policy_trains_nothing(registry, recipe, data, monkeypatch):
    log_model(recipe, data, registered_model_name="credit", store="artifacts")
    monkeypatch.setattr(Fleet, "__init__", lambda *_, **__: pytest.fail("a fleet was made"))

    with pytest.raises(mlflow.MlflowException, match="could not be evaluated"):
        evaluated("models:/credit/1", data)
    with pytest.raises(mlflow.MlflowException, match="unknown keys polcy"):
        evaluated("models:/credit/1", data, polcy="x", **QUICK)
    with pytest.raises(mlflow.MlflowException, match="unknown keys polcy"):
        evaluated("models:/credit/1", data, privgate={"polcy": "x", **QUICK})
    with pytest.raises(PolicyError, match="dpt-1"):
        evaluated("models:/credit/1", data, **{**QUICK, "policy": "dpt-1"})


@pytest.mark.parametrize(
    ("environ", "who"),
    [
        ({"GITHUB_RUN_ID": "7", "GITHUB_ACTOR": "ada", "GITHUB_SERVER_URL": "https://github.com",
          "GITHUB_REPOSITORY": "a/b"}, {"run_by": "ada", "run_on": "https://github.com/a/b/actions/runs/7"}),
        ({"CI_JOB_URL": "https://gitlab.com/j/1", "GITLAB_USER_LOGIN": "bob"},
         {"run_by": "bob", "run_on": "https://gitlab.com/j/1"}),
    ],
)  # fmt: skip
def test_a_workflow_says_who_started_it(environ, who):
    assert notebook.ran(environ) == who


def test_what_nobody_states_stays_empty():
    given = Verdict({}, (), Evidence({}, (), {}))

    context = notebook.with_context(given, {"purpose": " credit\n scoring "}).detail["context"]

    assert (context["purpose"], context["owner"]) == ("credit scoring", "")
    assert context["run_by"]
    assert context["run_on"]
