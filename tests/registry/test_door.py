"""The door out: while a command runs, nobody is asked but the registry, the operator's services and what was vetted."""

import http.client
import socket
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import mlflow
import pytest
import requests

from privgate import door
from privgate.errors import PrivgateError, RegistryError
from privgate.registry.client import connect


class Listener(ThreadingHTTPServer):
    """Remembers connections, paths and headers; ``/away`` leads wherever ``leads`` says."""

    def __init__(self):
        self.asked, self.connected, self.leads = [], 0, ""
        super().__init__(("127.0.0.1", 0), Handler)
        self.host = f"127.0.0.1:{self.server_port}"

    def get_request(self):
        self.connected += 1
        return super().get_request()


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.asked.append((self.path, dict(self.headers)))
        self.send_response(302 if self.server.leads else 200)
        self.send_header("Location", self.server.leads)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_):
        pass


@pytest.fixture
def listeners():
    made = [Listener(), Listener()]
    for one in made:
        threading.Thread(target=one.serve_forever, daemon=True).start()
    yield made
    for one in made:
        one.shutdown()
        one.server_close()


@pytest.fixture(autouse=True)
def plain(monkeypatch):
    for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", door.PLACES):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "checker")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "secret")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")


WAYS = {
    "requests": lambda host: requests.get(f"http://{host}/", timeout=5),
    "urllib": lambda host: urllib.request.urlopen(f"http://{host}/", timeout=5),
    "http.client": lambda host: http.client.HTTPConnection(host, timeout=5).request("GET", "/"),
    "socket": lambda host: socket.create_connection(tuple(host.split(":")), timeout=5),
    "name": lambda host: socket.create_connection(("localhost", int(host.split(":")[1])), timeout=5),
    "datagram": lambda host: socket.socket(type=socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", int(host[10:]))),
    "artifacts": lambda host: mlflow.artifacts.download_artifacts(f"mlflow-artifacts://{host}/x"),
    "http artifacts": lambda host: mlflow.artifacts.download_artifacts(f"http://{host}/x"),
}


@pytest.mark.attack("21 an address of an author's is asked", "any command", "refused")
@pytest.mark.parametrize("way", WAYS)
def test_nobody_else_is_asked(listeners, way):
    ours, evil = listeners
    with door.shut():
        connect(f"http://{ours.host}")
        with pytest.raises(PrivgateError):
            WAYS[way](evil.host)
    assert evil.connected == 0


def test_without_a_command_nothing_is_changed(listeners):
    WAYS["requests"](listeners[1].host)
    assert listeners[1].connected == 1


@pytest.mark.attack("21 a name of an author's is looked up", "any command", "refused")
def test_a_name_that_nobody_vetted_is_not_looked_up(monkeypatch):
    with door.shut(), pytest.raises(RegistryError, match=door.PLACES):
        socket.getaddrinfo("author.example", 443)


@pytest.mark.attack("21 the registry redirects elsewhere", "any command", "refused")
def test_a_redirect_of_the_registrys_leads_nowhere(listeners):
    ours, evil = listeners
    ours.leads = f"http://{evil.host}/"
    with door.shut():
        client = connect(f"http://{ours.host}")
        with pytest.raises(mlflow.MlflowException, match=door.PLACES):
            client.get_run("1" * 32)
    assert ours.asked[0][1]["Authorization"].startswith("Basic")
    assert evil.connected == 0


@pytest.mark.attack("21 the password goes to another host", "any command", "withheld")
def test_a_place_of_the_operators_is_asked_and_gets_no_password(listeners, monkeypatch):
    ours, other = listeners
    monkeypatch.setenv(door.PLACES, f"mlflow-artifacts://{other.host}/")
    with door.shut():
        connect(f"http://{ours.host}")
        mlflow.artifacts.list_artifacts(
            artifact_uri=f"mlflow-artifacts://{other.host}/x", tracking_uri=f"http://{ours.host}"
        )
    assert other.asked
    assert all("Authorization" not in headers for _, headers in other.asked)


@pytest.mark.attack("21 a proxy is told to ask an author", "any command", "refused")
def test_a_proxy_is_not_told_to_ask_anybody_else(listeners, monkeypatch):
    proxy, _ = listeners
    monkeypatch.setenv("http_proxy", f"http://{proxy.host}")
    with door.shut():
        for way in ("requests", "urllib"):
            with pytest.raises(PrivgateError):
                WAYS[way]("author.example:80")
    assert proxy.asked == []


@pytest.mark.parametrize("name", ["no_proxy", "NO_PROXY"])
def test_whom_no_proxy_asks_is_not_let_through_for_that(monkeypatch, name):
    monkeypatch.setenv(name, "169.254.169.254")
    with door.shut():
        assert not door._door.lets("169.254.169.254", 80)


@pytest.mark.attack("21 reports are written where an author says", "MLflow's client", "refused")
@pytest.mark.parametrize("place", ["file://{}", "mlflow-artifacts://evil:1/x", "s3://evil/x"])
def test_mlflow_writes_nowhere_that_nobody_vetted(tmp_path, place):
    from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

    (tmp_path / "registry").mkdir()
    (tmp_path / "registry" / "r.db").touch()
    (tmp_path / "away").mkdir()
    with door.shut():
        connect(f"sqlite:///{tmp_path}/registry/r.db")
        with pytest.raises(PrivgateError):
            get_artifact_repository(place.format(tmp_path / "away")).log_artifact(__file__)
    assert list((tmp_path / "away").iterdir()) == []


@pytest.mark.parametrize("place", ["file:///etc", "s3://evil/x", "mlflow-artifacts://evil:1/x"])
def test_where_no_registry_was_named_no_place_is_let_through(tmp_path, place):
    from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

    (tmp_path / "r.db").touch()
    with door.shut():
        connect(f"sqlite:///{tmp_path}/r.db")
    with door.shut(), pytest.raises(PrivgateError):
        get_artifact_repository(place)


def test_what_the_operator_named_himself_asks_whom_it_likes(listeners):
    with door.shut(), door.held_open():
        WAYS["socket"](listeners[1].host).close()


@pytest.mark.parametrize(("uri", "port"), [("mysql+pymysql://u@db/m", 3306), ("postgresql+pg8000://u@db/m", 5432)])
def test_a_database_is_asked_at_its_usual_port(monkeypatch, uri, port):
    monkeypatch.setattr(door, "_lookup", lambda *_, **__: [(2, 1, 6, "", ("127.0.0.1", 9))])
    with door.shut(), pytest.raises(RegistryError, match=f"127.0.0.1:{port}"), socket.socket() as asked:
        asked.connect(("127.0.0.1", port))
    with door.shut(), socket.socket() as asked:
        door.registry(uri)
        socket.getaddrinfo("db", port)
        with pytest.raises(ConnectionRefusedError):
            asked.connect(("127.0.0.1", port))


def test_a_databricks_registry_is_told_who_asks_by_either_of_mlflows_ways(monkeypatch):
    monkeypatch.setenv("DATABRICKS_HOST", "https://dbc-1.cloud.databricks.com")
    monkeypatch.setenv("DATABRICKS_TOKEN", "secret")
    monkeypatch.setenv("MLFLOW_ENABLE_DB_SDK", "false")
    headers = {"User-Agent": "mlflow-python-client/3.17", "Authorization": "Bearer secret"}
    told = {}
    with door.shut():
        monkeypatch.setattr(requests.Session, "send", lambda *_, **__: pytest.fail("the network was asked"))
        connect("databricks")
        for host in ("dbc-1", "dbc-2"):
            request = requests.Request("GET", f"https://{host}.cloud.databricks.com/api", headers=headers).prepare()
            door._vet(request)
            told[host] = "Authorization" in request.headers
    assert told == {"dbc-1": True, "dbc-2": False}
