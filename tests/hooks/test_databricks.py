"""The deployment job of the page, whose approval task is run against a stub of the workspace's API."""

import re
import runpy
import threading
from pathlib import Path

import flask
import pytest
from mlflow.exceptions import RestException
from ruamel.yaml import YAML
from werkzeug.serving import make_server

PAGE = (Path(__file__).parents[2] / "docs" / "ci.md").read_text(encoding="utf-8").partition("## Databricks")[2]
JOB, SCRIPT = (re.search(rf"```{kind}\n(.*?)```", PAGE, re.DOTALL)[1] for kind in ("yaml", "python"))
SET_TAG = "/api/2.0/mlflow/unity-catalog/model-versions/set-tag"


@pytest.fixture
def workspace_api(monkeypatch):
    """A workspace that keeps the tags of versions, and has one model that nobody may tag."""
    app, tags = flask.Flask("workspace"), {}

    @app.get(SET_TAG.replace("set-tag", "get"))
    def get():
        return {"error_code": "RESOURCE_DOES_NOT_EXIST", "message": f"no version {flask.request.args['version']}"}, 404

    @app.post(SET_TAG)
    def keep():
        asked = flask.request.get_json()
        if asked["name"] == "main.risk.locked" or flask.request.headers["Authorization"] != "Bearer t0k3n":
            return {"error_code": "PERMISSION_DENIED", "message": "no APPLY TAG"}, 403
        tags[asked["name"], asked["version"], asked["key"]] = asked["value"]
        return {}

    server = make_server("127.0.0.1", 0, app)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    monkeypatch.setenv("DATABRICKS_HOST", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("DATABRICKS_TOKEN", "t0k3n")
    yield tags
    server.shutdown()


@pytest.fixture
def approve(workspace_api, workspace, fake, monkeypatch):
    """Run the approval task as the job calls it; returns whether what depends on it runs, and the tags."""
    (workspace / "approve.py").write_text(SCRIPT)
    monkeypatch.chdir(workspace)
    for name, value in {"MLFLOW_TRACKING_URI": "databricks", **fake}.items():
        monkeypatch.setenv(name, value)

    def call(model, version):
        task, deployment = YAML(typ="safe").load(JOB)["tasks"]
        assert [d["task_key"] for d in deployment["depends_on"]] == [task["task_key"]]
        known = {"job.parameters.model_name": model, "job.parameters.model_version": version}
        known["task.name"] = task["task_key"]
        given = [known[p.strip("{}")] for p in task["spark_python_task"]["parameters"]]
        monkeypatch.setattr("sys.argv", [task["spark_python_task"]["python_file"], *given])
        try:
            runpy.run_path("approve.py")
        except (SystemExit, RestException) as exc:
            return str(exc).removeprefix("privgate ended with exit code "), workspace_api
        return "deploys", workspace_api

    return call


@pytest.mark.parametrize(
    ("version", "ended", "tag"),
    [("passed", "deploys", "Approved"), ("inconclusive", "5", "Rejected")],
)
def test_only_an_approved_version_is_tagged_so_and_deployed(approve, version, ended, tag):
    assert approve("main.risk.credit", version) == (ended, {("main.risk.credit", version, "Approval_privgate"): tag})


def test_what_cannot_be_tagged_is_not_deployed(approve):
    ended, tags = approve("main.risk.locked", "passed")
    assert ("PERMISSION_DENIED" in ended, tags) == (True, {})


def test_the_check_itself_asks_unity_catalog_for_the_version(approve, monkeypatch, capfd):
    monkeypatch.delenv("PYTHONPATH")  # privgate itself
    assert approve("main.risk.credit", "3") == ("4", {("main.risk.credit", "3", "Approval_privgate"): "Rejected"})
    assert "RESOURCE_DOES_NOT_EXIST: no version 3" in capfd.readouterr().err
