"""A recipe's author chooses an address; the gate, outside any box, asks there only if its operator says so."""

import json
import os
import shutil
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import mlflow
import numpy as np
import pytest
from sklearn.naive_bayes import GaussianNB

from privgate import Recipe, TrainingData, digest, log_model
from privgate.errors import PrivgateError, SubjectError
from privgate.registry import addresses, load, training_data
from privgate.registry.client import connect
from tests import attack_table

LISTED = addresses.VARIABLE


@pytest.fixture(autouse=True)
def nothing_listed(monkeypatch):
    monkeypatch.delenv(LISTED, raising=False)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


@pytest.fixture
def web():
    """A server of this machine that remembers who asked for what; ``/away`` leads wherever ``leads`` says."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.server.asked.append(self.path)
            away = self.path.startswith("/away")
            self.send_response(302 if away else 200)
            self.send_header("Location", self.server.leads if away else "")
            self.end_headers()
            if not away:
                self.wfile.write(self.server.files.get(self.path, b"x,y\n1,0\n2,1\n"))

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.asked, server.leads, server.files = [], "", {}
    server.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(scope="module")
def logged(empty_database, tmp_path_factory):
    """A logged model in a registry of its own; returns (address, uri, folder of everything)."""
    folder = tmp_path_factory.mktemp("registry")
    address = f"sqlite:///{folder}/tracking.db"
    shutil.copy(empty_database, folder / "tracking.db")
    mlflow.set_tracking_uri(address)
    place = (folder / "artifacts").as_uri()
    mlflow.set_experiment(
        experiment_id=mlflow.MlflowClient(address).create_experiment("tests", artifact_location=place)
    )
    data = TrainingData(np.arange(20.0).reshape(10, 2), np.arange(10) % 2, one_record_each=True)
    log_model(Recipe(GaussianNB()), data, registered_model_name="credit", store=folder / "data")
    mlflow.set_tracking_uri(None)
    mlflow.tracking.fluent._active_experiment_id = None
    os.environ.pop("MLFLOW_EXPERIMENT_ID", None)
    return address, "models:/credit/1", folder


ELSEWHERE = [
    "http://127.0.0.1:1/x",
    "https://169.254.169.254/latest/meta-data",
    "http://metadata.google.internal/computeMetadata/v1",
    "HTTP://example.org/data",
    "ftp://example.org/data",
    "sftp://example.org/data",
    "hdfs://namenode:8020/data",
    "mlflow-artifacts://10.0.0.1:5000/x",
    "file:///proc/self",
    "/dev",
    "/srv/../proc/1",
    "file://otherhost/share",
    "s3://user:key@bucket/x",
    "s3://bucket/a/../../b",
    "zip://x.csv::http://10.0.0.1/a.zip",
    "filecache::http://10.0.0.1/a",
    "wasbs://box@10.0.0.1/x",
    "wasbs://box@evil.example/blob.core.windows.net",
    "jdbc:postgresql://db/people",
    "s3://bucket\\@10.0.0.1/x",
    "s3://bucket/people.parquet?endpoint_override=10.0.0.1:9000&scheme=http",
    "s3://bucket:9000/x",
]


@pytest.mark.parametrize("uri", ELSEWHERE)
def test_an_address_that_nobody_listed_is_not_asked(uri):
    with pytest.raises(SubjectError, match=LISTED) as said:
        addresses.refuse_data(uri)
    assert "\n" not in str(said.value)
    attack_table.note(f"data at {uri.replace('|', '')}", "check", "refused")


@pytest.mark.parametrize("uri", [u for u in ELSEWHERE if not u.startswith("HTTP")])
def test_files_of_a_model_or_run_lie_at_no_such_address_either(uri):
    with pytest.raises(SubjectError, match=LISTED):
        addresses.refuse_files(uri, tracking_uri="http://tracking:5000")


@pytest.mark.parametrize(
    "uri", ["s3://bucket/x", "gs://bucket/x", "abfss://box@account.dfs.core.windows.net/x", "/srv/x"]
)
def test_stores_and_files_are_read_unless_a_list_leaves_them_out(uri, monkeypatch):
    addresses.refuse_data(uri)
    addresses.refuse_files(uri, tracking_uri=None)
    for said in ("", "s3://other/ /elsewhere"):
        monkeypatch.setenv(LISTED, said)
        with pytest.raises(SubjectError, match="may not read"):
            addresses.refuse_data(uri)
        addresses.refuse_files(uri, tracking_uri=None)
    monkeypatch.setenv(LISTED, f"/elsewhere {uri}/")
    addresses.refuse_data(uri + "/below")
    with pytest.raises(SubjectError, match="may not read"):
        addresses.refuse_data(uri + "y")


def test_the_tracking_servers_own_artifacts_are_read():
    for uri in ("mlflow-artifacts:/1/models", "mlflow-artifacts://tracking:5000/1", "http://tracking:5000/api/2.0/x"):
        addresses.refuse_files(uri, tracking_uri="http://tracking:5000")
    with pytest.raises(SubjectError, match="neither the registry's"):
        addresses.refuse_files("http://tracking:5001/api/2.0/x", tracking_uri="http://tracking:5000")


def test_a_listed_address_is_read_and_nothing_that_it_leads_to(web, tmp_path, monkeypatch):
    with pytest.raises(SubjectError, match=LISTED):
        addresses.fetch(f"{web.url}/data.csv", tmp_path / "data")
    assert web.asked == []
    monkeypatch.setenv(LISTED, f"{web.url}/open")
    assert addresses.fetch(f"{web.url}/open/data.csv", tmp_path / "data").read_bytes().startswith(b"x,y")
    with pytest.raises(SubjectError, match="may not read"):
        addresses.fetch(f"{web.url}/opened", tmp_path / "other")

    monkeypatch.setenv(LISTED, f"{web.url}/away {web.url}/open")
    for leads in ("http://169.254.169.254/latest", "file:///etc/passwd", f"{web.url}/secret", "//127.0.0.1:1/"):
        web.leads, web.asked[:] = leads, []
        with pytest.raises(SubjectError, match="may not read"):
            addresses.fetch(f"{web.url}/away", tmp_path / "other")
        assert web.asked == ["/away"]
        attack_table.note(f"redirect to {leads.rpartition(':')[0] or leads} from a listed address", "check", "refused")
    web.leads = "/open/data.csv"
    assert addresses.fetch(f"{web.url}/away", tmp_path / "other").is_file()
    web.leads = "/away"
    with pytest.raises(SubjectError, match="on and on"):
        addresses.fetch(f"{web.url}/away", tmp_path / "other")


@pytest.mark.parametrize(
    ("address", "listed", "fine"),
    [
        ("127.0.0.1", "https://", False),
        ("127.0.0.1", "https://data.example/", False),  # a public name that leads here
        ("169.254.169.254", "https://data.example/", False),
        ("::ffff:169.254.169.254", "https://data.example/", False),
        ("64:ff9b::a9fe:a9fe", "https://data.example/", False),
        ("10.0.0.7", "https://", False),
        ("100.64.0.1", "https://", False),
        ("fd00::1", "https://", False),
        ("0.0.0.0", "https://data.example/", False),
        ("10.0.0.7", "https://data.example/", True),  # an internal host, named
        ("93.184.216.34", "https://", True),
    ],
)
def test_a_name_that_leads_into_this_machine_or_network_is_not_followed(address, listed, fine, monkeypatch):
    monkeypatch.setenv(LISTED, listed)
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [(family, 0, 0, "", (address, 443))])
    if fine:
        assert addresses.reachable("https://data.example/x") == [address]
        return
    with pytest.raises(SubjectError, match=r"an address of this (machine|network)"):
        addresses.reachable("https://data.example/x")


def with_data(folder, reference):
    """Write another reference into the stored recipe, as its author may; return what undoes that."""
    (path,) = folder.glob("artifacts/**/recipe.json")
    before = path.read_bytes()
    document = json.loads(before)
    document["data"] = {**document["data"], **reference}
    document.pop("digest")
    document["digest"] = digest.of_json(document)
    path.write_text(json.dumps(document))
    return lambda: path.write_bytes(before)


def test_end_to_end_a_recipe_makes_the_gate_ask_nobody(logged, web, monkeypatch):
    address, uri, folder = logged
    source = {"uri": f"{web.url}/x.csv", "format": "csv", "columns": {"target": "y"}, "candidates": None, "options": {}}
    source |= {"domain": None, "sensitive": []}
    for reference in (
        {"kind": "uri", "uri": f"{web.url}/people"},
        {"kind": "file", "source": source},
        {"kind": "file", "source": {**source, "uri": f"{folder}/x.csv", "candidates": f"{web.url}/x.csv"}},
        {"kind": "uri", "uri": f"mlflow-artifacts://127.0.0.1:{web.server_port}/x"},
    ):
        undo = with_data(folder, reference)
        try:
            with pytest.raises(PrivgateError, match=LISTED):
                load.load_subject(uri, tracking_uri=address)
        finally:
            undo()
    assert web.asked == []
    # a run whose artifacts lie where its author said
    client = connect(address)
    run = client.create_run(client.create_experiment("elsewhere", artifact_location=f"{web.url}/runs"))
    undo = with_data(folder, {"kind": "run", "run_id": run.info.run_id, "path": "privgate/data/x"})
    try:
        with pytest.raises(PrivgateError, match="neither the registry's"):
            load.load_subject(uri, tracking_uri=address)
    finally:
        undo()
    assert web.asked == []
    # a version whose files are said to lie there
    client.create_registered_model("away")
    client.create_model_version("away", f"{web.url}/model")
    with pytest.raises(PrivgateError):
        load.load_subject("models:/away/1", tracking_uri=address)
    assert web.asked == []
    assert load.load_subject(uri, tracking_uri=address).data.n == 10
    monkeypatch.setenv(LISTED, "")
    with pytest.raises(SubjectError, match="may not read"):
        load.load_subject(uri, tracking_uri=address)


def test_data_at_a_listed_address_are_read_and_verified(logged, web, tmp_path, monkeypatch):
    address, _, folder = logged
    document = json.loads(next(folder.glob("artifacts/**/recipe.json")).read_text())
    place = next((folder / "data").iterdir())
    web.files = {f"/people/{name}": (place / name).read_bytes() for name in document["data"]["files"]}
    monkeypatch.setenv(LISTED, f"{web.url}/people")
    reference = {**document["data"], "uri": f"{web.url}/people"}
    read = training_data.read(connect(address), reference, tmp_path / "read", tracking_uri=address)
    assert read.digest == document["data"]["digest"]
    web.files[f"/people/{min(document['data']['files'])}"] += b" "
    with pytest.raises(PrivgateError):
        training_data.read(connect(address), reference, tmp_path / "again", tracking_uri=address)


def test_serve_checks_for_anybody_and_so_reads_what_is_listed_only(monkeypatch):
    from privgate.serve.work import environment

    assert environment()[LISTED] == ""
    monkeypatch.setenv(LISTED, "/srv/people")
    assert environment()[LISTED] == "/srv/people"


@pytest.mark.parametrize(
    "address", ["::127.0.0.1", "::ffff:0:7f00:1", "64:ff9b:1::7f00:1", "fd00::1", "::ffff:10.0.0.1"]
)
def test_older_ways_to_carry_an_address_are_not_the_worlds(address):
    assert addresses._inside(address)
    assert addresses._inside("2001:4860:4860::8888") == ""


def test_a_step_up_with_a_parameter_is_one(monkeypatch):
    monkeypatch.setenv("PRIVGATE_DATA_SOURCES", "https://data.example/ok/")
    addresses.refuse_data("https://data.example/ok/a;v=1")
    with pytest.raises(SubjectError):
        addresses.refuse_data("https://data.example/ok/..;/x")
