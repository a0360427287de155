"""Where reports are written: to the registry's own artifacts, and nowhere that an experiment's maker names."""

import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import mlflow
import pytest
from mlflow.tracking._tracking_service.client import TrackingServiceClient

from privgate import Subject, log_model
from privgate.__main__ import run
from privgate.errors import RegistryError, SubjectError
from privgate.registry import attachments
from privgate.registry.attachments import copy_to_run, refuse_elsewhere
from privgate.registry.files import PLACES, refuse_written
from privgate.registry.named import RUN_TAG
from tests import attack_table

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


@pytest.fixture
def evil():
    """An author's host on loopback, which remembers every request and its password."""
    asked = []

    class Handler(BaseHTTPRequestHandler):
        def handle_one_request(self):
            self.raw_requestline = self.rfile.readline(65537)
            if self.raw_requestline and self.parse_request():
                asked.append((self.command, self.path, self.headers.get("Authorization")))
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                self.send_response(200)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")
            self.close_connection = True

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{server.server_port}", asked
    server.shutdown()
    server.server_close()


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


@pytest.mark.server
@pytest.mark.parametrize(
    ("place", "how"),
    [
        ("mlflow-artifacts://{host}/x", "source run"),
        ("mlflow-artifacts://{host}/x", "tag"),
        ("mlflow-artifacts://{host}/x", "experiment"),
        ("http://{host}/x", "source run"),
        ("file://{folder}/away", "source run"),
        ("s3://evil/x", "source run"),
    ],
)
def test_an_author_gets_neither_report_nor_password(mlflow_server, evil, tmp_path, monkeypatch, request, place, how):
    host, asked = evil
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "checker")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "secret")
    client = mlflow.MlflowClient(mlflow_server)
    theirs = client.create_experiment(request.node.name.replace("/", "_").replace(":", "_"))
    run_id = client.create_run(theirs).info.run_id
    made = client._tracking_client.create_logged_model(
        theirs if how == "experiment" else "0",
        name="model",
        source_run_id=run_id if how == "source run" else None,
        tags={RUN_TAG: run_id} if how == "tag" else None,
    )
    as_older_servers(monkeypatch, theirs, place.format(host=host, folder=tmp_path))
    asked.clear()
    files = tmp_path / "files"
    files.mkdir()
    (files / "report.json").write_text("{}")
    with pytest.raises(RegistryError, match=PLACES):
        copy_to_run(client, made.model_id, files, "privgate_reports/x")
    if place.startswith(("http", "mlflow")) and how != "experiment":
        with pytest.raises(SubjectError, match="neither the registry's"):
            attachments._locate_readable_reports(client, made.model_id, "models:/credit/1")
    assert asked == []
    assert not (tmp_path / "away").exists()
    assert len(client.search_runs([theirs])) == 1  # no run was made for them either
    attack_table.note(f"reports of an experiment at {place.partition('{')[0]}, by {how}", "check, sign", "refused")


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
