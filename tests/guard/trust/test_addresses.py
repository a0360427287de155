"""A recipe's author chooses an address; the gate, outside any box, asks there only if its operator says so."""

import pytest

from privgate.errors import SubjectError
from privgate.registry.files import VARIABLE, refuse_data, refuse_files


@pytest.fixture(autouse=True)
def nothing_listed(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


ELSEWHERE = [
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


def test_data_on_the_web_are_not_read_even_where_the_web_is_listed(monkeypatch):
    monkeypatch.setenv(VARIABLE, "https://example.org/")
    with pytest.raises(SubjectError, match="is on the web"):
        refuse_data("HTTPS://example.org/people.csv")
