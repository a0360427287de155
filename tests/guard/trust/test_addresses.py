"""A recipe's author chooses an address; the gate, outside any box, asks there only if its operator says so."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from privgate.errors import SubjectError
from privgate.registry.files import VARIABLE, fetch_address, refuse_data, refuse_files


@pytest.fixture(autouse=True)
def nothing_listed(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


@pytest.fixture
def web():
    """A server of this machine that remembers who asked for what; ``/away`` leads wherever ``leads`` says."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.server.paths.append(self.path)
            away = self.path.startswith("/away")
            self.send_response(302 if away else 200)
            self.send_header("Location", self.server.leads if away else "")
            self.end_headers()
            if not away:
                self.wfile.write(b"x,y\n1,0\n2,1\n")

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.paths, server.leads, server.url = [], "", f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


ELSEWHERE = [
    "http://127.0.0.1:1/x",
    "ftp://example.org/data",
    "hdfs://namenode:8020/data",
    "/dev",
    "/srv/../proc/1",
    "s3://user:key@bucket/x",
    "s3://bucket/a/../../b",
    "wasbs://box@10.0.0.1/x",
    "s3://bucket/people.parquet?endpoint_override=10.0.0.1:9000&scheme=http",
]


@pytest.mark.parametrize("uri", ELSEWHERE)
def test_an_address_that_nobody_listed_is_not_asked(uri):
    with pytest.raises(SubjectError, match=VARIABLE) as caught:
        refuse_data(uri)
    assert "\n" not in str(caught.value)
    with pytest.raises(SubjectError, match=VARIABLE):  # nor do files of a model or run lie there
        refuse_files(uri, tracking_uri="http://tracking:5000")


@pytest.mark.parametrize(
    "uri", ["s3://bucket/x", "gs://bucket/x", "abfss://box@account.dfs.core.windows.net/x", "/srv/x"]
)
def test_stores_and_files_are_read_unless_a_list_leaves_them_out(uri, monkeypatch):
    refuse_data(uri)
    refuse_files(uri, tracking_uri=None)
    for listed in ("", "s3://other/ /elsewhere"):
        monkeypatch.setenv(VARIABLE, listed)
        with pytest.raises(SubjectError, match="may not read"):
            refuse_data(uri)
        refuse_files(uri, tracking_uri=None)
    monkeypatch.setenv(VARIABLE, f"/elsewhere {uri}/")
    refuse_data(uri + "/below")
    with pytest.raises(SubjectError, match="may not read"):
        refuse_data(uri + "y")


def test_the_tracking_servers_own_artifacts_are_read():
    for uri in ("mlflow-artifacts:/1/models", "mlflow-artifacts://tracking:5000/1", "http://tracking:5000/api/2.0/x"):
        refuse_files(uri, tracking_uri="http://tracking:5000")
    with pytest.raises(SubjectError, match="neither the registry's"):
        refuse_files("http://tracking:5001/api/2.0/x", tracking_uri="http://tracking:5000")


def test_a_listed_address_is_read_and_nothing_that_it_leads_to(web, tmp_path, monkeypatch):
    with pytest.raises(SubjectError, match=VARIABLE):
        fetch_address(f"{web.url}/data.csv", tmp_path / "data")
    assert web.paths == []
    monkeypatch.setenv(VARIABLE, f"{web.url}/open")
    assert fetch_address(f"{web.url}/open/data.csv", tmp_path / "data").read_bytes().startswith(b"x,y")
    with pytest.raises(SubjectError, match="may not read"):
        fetch_address(f"{web.url}/opened", tmp_path / "other")

    monkeypatch.setenv(VARIABLE, f"{web.url}/away {web.url}/open")
    for leads in ("file:///etc/passwd", f"{web.url}/secret", "/open/data.csv"):
        web.leads, web.paths[:] = leads, []
        with pytest.raises(SubjectError, match="leads to another address"):
            fetch_address(f"{web.url}/away", tmp_path / "other")
        assert web.paths == ["/away"]
