"""Where reports are written: to the registry's own artifacts, and nowhere that an experiment's maker names."""

import re

import mlflow
import pytest
from mlflow.tracking._tracking_service.client import TrackingServiceClient

from privgate import Subject, log_model
from privgate.__main__ import run
from privgate.errors import RegistryError, SubjectError
from privgate.registry import attachments
from privgate.registry.attachments import copy_to_run, refuse_elsewhere
from privgate.registry.files import PLACES, refuse_files, refuse_written
from privgate.registry.named import RUN_TAG

SERVER = "http://user:password@Registry:5000/mlflow"


@pytest.fixture(autouse=True)
def nothing_listed(monkeypatch):
    monkeypatch.delenv(PLACES, raising=False)


def written(uri, tracking_uri):
    try:
        refuse_written(uri, tracking_uri=tracking_uri)
    except RegistryError as exc:
        said = str(exc)
    else:
        return True
    assert PLACES in said
    assert "\n" not in said
    return False


LOCAL = "sqlite:////srv/registry/mlflow.db"
OWN = [
    ("mlflow-artifacts:/1/run/artifacts", SERVER),
    ("mlflow-artifacts://registry:5000/1", SERVER),
    ("https://registry/api/2.0/mlflow-artifacts/artifacts/1", "https://registry/"),
    ("/srv/registry/artifacts/1", LOCAL),
    ("file:///home/anna/notebooks/mlruns/12/run", LOCAL),
    ("/srv/store/1/run", "file:///srv/store"),
    ("/srv/store/1/run", "/srv/store"),
    ("dbfs:/databricks/mlflow-tracking/1/run", "databricks://profile"),
    ("dbfs:/databricks/mlflow-tracking/1/run", "databricks"),
]
ELSEWHERE = [
    *("mlflow-artifacts://evil:5000/1", "mlflow-artifacts://registry/1", "mlflow-artifacts://registry:5001/1"),
    *("mlflow-artifacts://registry:5000@evil/1", "mlflow-artifacts://registry:port/1", "mlflow-artifacts:/../../1"),
    *("MLFLOW-ARTIFACTS://evil:5000/1", "mlflow-artifacts://registry:0/1"),
    *("http://evil/api/2.0/mlflow-artifacts/artifacts/1",),
    *("https://registry:5000/mlflow/api/2.0/mlflow-artifacts/artifacts/1", "file:///srv/evil"),
    *("file:///home/anna/mlruns/12", "file://evil/share", "/srv/evil", "//evil/share", "s3://evil/1"),
    *("s3://bucket/base/1/run", "file:///srv/artifacts/1", "gs://evil/1", "dbfs:/databricks/mlflow-tracking/1"),
    *("hdfs://evil/mlflow/1", "runs:/0123/x", "/srv/registry/artifacts/%2e%2e/%2e%2e/evil"),
    *("/srv/base/1/%2E%2E/%2E%2E/%2E%2E/evil", "mlruns/1/%2e%2e/%2e%2e/evil"),
]  # MLflow decodes a plain path
ELSEWHERE += ["", "s3://[", "/srv/registry/a\x00b", "file:///srv/registry/a%00b", "~nobody-of-this-name/x"]


def test_the_registrys_own_places_are_written_to_and_no_other():
    assert [place for place in OWN if not written(*place)] == []
    assert [uri for uri in ELSEWHERE if written(uri, SERVER)] == []
    assert [uri for uri in ELSEWHERE if written(uri, LOCAL) and not re.search(r"/mlruns/[0-9]+$", uri)] == []


def test_an_operator_lists_other_places_exactly(monkeypatch):
    monkeypatch.setenv(PLACES, "s3://reports/mlflow mlflow-artifacts://artifacts:5500/ /srv/shared")
    for uri in ("s3://reports/mlflow/1", "mlflow-artifacts://artifacts:5500/1", "file:///srv/shared/1"):
        assert written(uri, SERVER)
    for uri in ("s3://reports/mlflows/1", "s3://reports2/mlflow", "mlflow-artifacts://artifacts:5501/", "/srv/shared2"):
        assert not written(uri, SERVER)
    monkeypatch.setenv(PLACES, "mlflow-artifacts:/ hdfs:///mlflow")  # no host: none but the usual one
    assert not written("mlflow-artifacts://evil:5000/1", SERVER)
    assert not written("hdfs://evil/mlflow/1", SERVER)


def as_older_servers(monkeypatch, experiment_id, place):
    """Let an experiment have its artifacts anywhere, which the server of MLflow 3.17 refuses to write down."""
    of_run, of_experiment = TrackingServiceClient.get_run, TrackingServiceClient.get_experiment

    def get_run(self, run_id):
        found = of_run(self, run_id)
        if found.info.experiment_id == experiment_id:
            found.info._artifact_uri = f"{place}/{run_id}/artifacts"
        return found

    def get_experiment(self, asked):
        found = of_experiment(self, asked)
        if asked == experiment_id:
            found._artifact_location = place
        return found

    monkeypatch.setattr(TrackingServiceClient, "get_run", get_run)
    monkeypatch.setattr(TrackingServiceClient, "get_experiment", get_experiment)


@pytest.mark.parametrize("how", ["source run", "tag", "experiment"])
def test_an_author_gets_no_report(registry, tmp_path, monkeypatch, how):
    client = mlflow.MlflowClient(registry)
    theirs = client.create_experiment("theirs")
    run_id = client.create_run(theirs).info.run_id
    logged = client._tracking_client.create_logged_model(
        theirs if how == "experiment" else "0",
        name="model",
        source_run_id=run_id if how == "source run" else None,
        tags={RUN_TAG: run_id} if how == "tag" else None,
    )
    away = tmp_path.parent / f"{tmp_path.name}-away"
    as_older_servers(monkeypatch, theirs, away.as_uri())
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "report.json").write_text("{}")
    with pytest.raises(RegistryError, match=PLACES):
        copy_to_run(client, logged.model_id, tmp_path / "files", "privgate_reports/x")
    if how != "experiment":
        as_older_servers(monkeypatch, theirs, "http://127.0.0.1:9/x")
        with pytest.raises(SubjectError, match="neither the registry's"):
            refuse_files(attachments.locate_reports(client, logged.model_id), tracking_uri=registry)
    assert not away.exists()
    assert len(client.search_runs([theirs])) == 1  # no run was made for them either


def test_a_check_says_so_before_it_trains(registry, recipe, data, tmp_path, capsys, monkeypatch):
    client = mlflow.MlflowClient(registry)
    away = tmp_path.parent / f"{tmp_path.name}-away"  # beside the registry's folder
    mlflow.set_experiment(experiment_id=client.create_experiment("away", artifact_location=away.as_uri()))
    log_model(recipe, data, registered_model_name="credit", store=tmp_path / "data")
    call = ["check", "models:/credit/1", "--policy", "dtp-1", "--report-dir", str(tmp_path / "out")]
    assert run([*call, "--isolation", "none"]) == 4
    said = capsys.readouterr()
    assert PLACES in said.err
    assert not (tmp_path / "out" / "report.json").exists()
    assert list(away.rglob("report.json")) == []
    monkeypatch.setenv(PLACES, str(away))
    refuse_elsewhere(client, Subject.load("models:/credit/1").detail["model_id"])
