"""Verifying by plain HTTP and by MLflow's own client: the same answers, and nothing is believed that is odd."""

import json
import sys
import threading
import urllib.parse
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import pytest
import requests

from privgate.errors import PrivgateError, RegistryError
from privgate.guard.config import Guard
from privgate.guard.verification import verify
from privgate.registry import client, rest
from privgate.registry.named import locate_reports
from tests.guard.store.conftest import send_as


@pytest.fixture
def guard(site):
    return Guard.load(site.config)


def outcome(uri, guard, address, **options):
    """Return what a verification says, or why not."""
    try:
        verified = verify(uri, guard, tracking_uri=address, **options)
    except PrivgateError as exc:
        return type(exc).__name__, str(exc)
    return verified.uri, verified.n_files, verified.claims


@pytest.fixture
def both(registry, guard, monkeypatch):
    """Return a function that verifies both ways, asserts that they agree, and returns what both said."""

    def verified(uri, **options):
        with monkeypatch.context() as patch:
            patch.setattr(client, "connect", refuse)
            quick = outcome(uri, guard, registry.address, **options)
        with monkeypatch.context() as patch:
            patch.setattr(rest, "address_for", lambda _: None)
            slow = outcome(uri, guard, registry.address, **options)
        assert quick == slow
        return quick

    return verified


def refuse(*_, **__):
    raise AssertionError("MLflow's client was asked")


def change(registry, location, file, content=b"x"):
    """Write into the artifact store behind the registry's back, or delete, as MLflow lets anybody do."""
    path = urllib.parse.quote(f"{location.removeprefix('mlflow-artifacts:/')}/{file}")
    address = f"{registry.address}/api/2.0/mlflow-artifacts/artifacts/{path}"
    request = urllib.request.Request(address, content, method="DELETE" if content is None else "PUT")
    with urllib.request.urlopen(request, timeout=30) as answer:
        assert answer.status == 200


@pytest.mark.server
def test_both_ways_say_the_same_of_what_is_released_changed_unsigned_and_absent(registry, both, name):
    version, unsigned = registry.log(name), registry.log(name, payload="other")
    place = registry.place(name, version)
    for file in ("deep/er/ünï code (1).bin", "deep/a b.txt", "empty.txt"):
        change(registry, place, file, b"" if file == "empty.txt" else b"x" * 3_000_000)
    registry.release(name, version, alias="production")
    uri, n_files, claims = both(f"models:/{name}@production")
    assert (uri, n_files, claims.version) == (f"models:/{name}/{version}", 5, version)
    assert both(f"models:/{name}/{version}", target="staging")[0] == "StatementError"
    for uri, why in (
        (f"models:/{name}/{unsigned}", "StatementError"),
        (registry.client.get_model_version(name, version).source, "StatementError"),
        (f"models:/{name}@absent", "RegistryError"),
        (f"models:/{name}/77", "RegistryError"),
        ("models:/no such model/1", "RegistryError"),
    ):
        assert both(uri)[0] == why, uri
    (registry.folder / "artifacts" / place / "deep" / "a b.txt").write_bytes(b"stolen")  # past the server
    assert both(f"models:/{name}@production")[0] == "DigestMismatchError"


@pytest.mark.server
def test_both_ways_want_the_evidence(registry, both, name):
    version = registry.log(name)
    claims = registry.release(name, version)
    location = locate_reports(registry.client, claims.model_id)
    place = f"dtp-1/signed/{claims.report.removeprefix('sha256:')[:16]}"
    for file, content, words in (
        ("report.json", b"{}", "not the one that was signed"),
        ("evidence.dsse.json", b"{", "no DSSE envelope"),
        ("evidence.dsse.json", None, "evidence behind the statement"),
    ):
        change(registry, location, f"{place}/{file}", content)
        assert words in both(f"models:/{name}/{version}", target="production")[1]


# servers that answer something else


class Answering(BaseHTTPRequestHandler):
    """Answers by path and remembers the headers that it was asked with."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.server.seen.append(dict(self.headers))
        status, body = self.server.answer(urllib.parse.urlsplit(self.path))
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        pass


@pytest.fixture
def serving():
    """Return a function that starts a loopback server from how it answers; it knows ``address`` and ``seen``."""
    running = []

    def start(answer):
        server = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
        server.answer, server.seen = answer, []
        server.address = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        running.append(server)
        return server

    yield start
    for server in running:
        server.shutdown()
        server.server_close()


ROW = {"name": "m", "version": "1", "source": "models:/m-1", "creation_timestamp": 5,
       "tags": [{"key": "a", "value": "b"}]}  # fmt: skip


@pytest.mark.quick(3)
@pytest.mark.parametrize(
    ("status", "body", "says"),
    [
        (404, {"error_code": "RESOURCE_DOES_NOT_EXIST", "message": "no m"}, "RESOURCE_DOES_NOT_EXIST: no m"),
        (403, b"<html>", "HTTP 403"),
        (302, b"", "HTTP 302"),
        (200, b"<html>", "reading"),
        (200, {"model_version": {**ROW, "creation_timestamp": "soon"}}, "not MLflow's"),
        (200, {"model_version": {**ROW, "tags": 3}}, "not MLflow's"),
        (200, {"model_version": "m"}, "not MLflow's"),
        (200, {}, "not MLflow's"),
        (500, {}, "500"),
    ],
)
def test_an_answer_that_is_not_mlflows_verifies_nothing(serving, guard, status, body, says, monkeypatch):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR", "0")
    server = serving(lambda _: (status, body))
    with pytest.raises(RegistryError, match=says):
        verify("models:/m/1", guard, tracking_uri=server.address)


def test_credentials_are_those_that_mlflows_client_would_send(serving, monkeypatch, tmp_path):
    def headers(**environment):
        """Return the headers of a request under an environment."""
        for key, value in environment.items():
            monkeypatch.setenv(f"MLFLOW_{key}", value)
        server = serving(lambda _: (200, {"model_version": ROW}))
        assert rest.RestClient(server.address).get_model_version("m", "1").tags == {"a": "b"}
        return server.seen[0]

    monkeypatch.setenv("HOME", str(tmp_path))
    assert "Authorization" not in headers()
    file = tmp_path / ".mlflow" / "credentials"
    file.parent.mkdir()
    file.write_text("[mlflow]\nmlflow_tracking_username = u\nmlflow_tracking_password = p%1\n")
    kept = send_as("u", "p%1")["Authorization"]
    assert headers()["Authorization"] == kept
    sent = headers(TRACKING_TOKEN="of this test", WORKSPACE="team")
    assert (sent["Authorization"], sent["X-MLFLOW-WORKSPACE"]) == (kept, "team")
    other = headers(TRACKING_USERNAME="other", TRACKING_PASSWORD="word")
    assert other["Authorization"] == send_as("other", "word")["Authorization"]
    monkeypatch.delenv("MLFLOW_TRACKING_USERNAME")
    file.write_text("no section\n")
    with pytest.raises(RegistryError, match="credentials cannot be read"):
        rest.RestClient("http://127.0.0.1:1")
    file.unlink()
    assert headers()["Authorization"] == "Bearer of this test"


@pytest.mark.parametrize("loaded", [True, False])
def test_what_needs_mlflow_is_done_by_mlflow(monkeypatch, loaded):
    import mlflow

    mlflow.set_tracking_uri(None)
    if not loaded:
        monkeypatch.delitem(sys.modules, "mlflow")
    assert rest.address_for("http://127.0.0.1:1") == "http://127.0.0.1:1"
    assert rest.address_for("sqlite:///x.db") is None
    assert rest.address_for("databricks") is None
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "https://there")
    assert rest.address_for(None) == "https://there"
    for environment in (
        {"MLFLOW_TRACKING_AUTH": "kerberos"},
        {"MLFLOW_TRACKING_AWS_SIGV4": "true"},
        {"MLFLOW_REGISTRY_URI": "http://127.0.0.1:2"},
        {"MLFLOW_TRACKING_INSECURE_TLS": "true", "MLFLOW_TRACKING_SERVER_CERT_PATH": "/x"},
    ):
        with monkeypatch.context() as patch:
            for key, value in environment.items():
                patch.setenv(key, value)
            assert rest.address_for("http://127.0.0.1:1") is None, environment
        assert rest.address_for("http://127.0.0.1:1") is not None


@pytest.mark.parametrize(
    ("environment", "verify"),
    [({}, True), ({"SERVER_CERT_PATH": "/ca.pem"}, "/ca.pem"), ({"INSECURE_TLS": "true"}, False)],
    ids=str,
)
def test_certificates_count_as_for_mlflows_client(monkeypatch, environment, verify):
    for variable, value in environment.items():
        monkeypatch.setenv(f"MLFLOW_TRACKING_{variable}", value)
    sent = {}

    def answer(self, method, url, **options):
        sent.update(options)
        return SimpleNamespace(ok=True, status_code=200, json=lambda: {"model_version": ROW})

    monkeypatch.setattr(requests.Session, "request", answer)
    assert rest.RestClient("https://registry").get_model_version("m", "1").version == "1"
    assert sent["verify"] == verify
