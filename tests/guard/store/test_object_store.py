"""Files in an object store: written by multipart and presigned upload after the approval."""

import urllib.request

import pytest

from privgate.errors import DigestMismatchError
from privgate.guard.config import Guard
from privgate.guard.verification import verify
from privgate.registry.files import PLACES

pytestmark = [pytest.mark.slow, pytest.mark.server]

BUCKET = "models"


@pytest.fixture(scope="module")
def bucket():
    """A bucket of a stand-in for S3 on loopback: (endpoint, environment that reaches it)."""
    pytest.importorskip("boto3", reason="boto3 is not installed")
    server = pytest.importorskip("moto.server", reason="moto, which stands in for S3, is not installed")
    running = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    _, port = running.get_host_and_port()
    endpoint = f"http://127.0.0.1:{port}"
    yield {
        "MLFLOW_S3_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "of-this-test",
        "AWS_SECRET_ACCESS_KEY": "of-this-test",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    running.stop()


@pytest.fixture
def stored(bucket, tmp_path, running_guarded, monkeypatch):
    """A guarded registry whose server keeps files in the bucket; clients may reach the bucket, too."""
    import boto3

    for key, value in bucket.items():
        monkeypatch.setenv(key, value)
    client = boto3.client("s3", endpoint_url=bucket["MLFLOW_S3_ENDPOINT_URL"])
    client.create_bucket(Bucket=BUCKET)
    with running_guarded(tmp_path, "--artifacts-destination", f"s3://{BUCKET}/proxied", env=bucket) as registry:
        yield registry
    for held in client.list_objects_v2(Bucket=BUCKET).get("Contents", []):
        client.delete_object(Bucket=BUCKET, Key=held["Key"])
    client.delete_bucket(Bucket=BUCKET)


def put(url, content, headers=()):
    """Upload to a presigned address and return the part's tag."""
    headers = {"Content-Type": "application/octet-stream", **dict(headers)}
    with urllib.request.urlopen(urllib.request.Request(url, content, headers, method="PUT"), timeout=30) as answer:
        assert answer.status == 200
        return answer.headers["ETag"]


def released(registry, name):
    """Return the logged model of a version in production that verifies."""
    version = registry.log(name)
    registry.release(name, version, alias="production")
    return registry.client.get_logged_model(registry.client.get_model_version(name, version).source.rpartition("/")[2])


def upload_in_parts(stored, model):
    where = f"/api/2.0/mlflow-artifacts/mpu/{{}}/{model.artifact_location.removeprefix('mlflow-artifacts:/')}"
    status, upload = stored.post(where.format("create"), {"path": "weights.json", "num_parts": 1})
    assert status == 200, upload
    (part,) = upload["credentials"]
    parts = [{"part_number": part["part_number"], "etag": put(part["url"], b'"stolen"')}]
    done = {"path": "weights.json", "upload_id": upload["upload_id"], "parts": parts}
    status, answer = stored.post(where.format("complete"), done)
    assert status == 200, answer  # MLflow lets anybody do this


def upload_presigned(stored, model):
    body = {"model_id": model.model_id, "path": "weights.json"}
    status, upload = stored.post("/api/2.0/mlflow/artifacts/presigned-upload-url", body)
    assert status == 200, upload
    put(upload["presigned_url"], b'"stolen"', upload.get("headers", {}))


@pytest.mark.parametrize("upload", [upload_in_parts, upload_presigned])
def test_an_upload_after_the_approval_does_not_verify(stored, site, name, monkeypatch, upload):
    if upload is upload_presigned:  # such files lie there without the server in between
        monkeypatch.setenv(PLACES, f"s3://{BUCKET}/direct")
        stored.client.create_experiment("guard", artifact_location=f"s3://{BUCKET}/direct")
    guard, model = Guard.load(site.config), released(stored, name)
    assert verify(f"models:/{name}@production", guard, tracking_uri=stored.address)
    upload(stored, model)
    with pytest.raises(DigestMismatchError, match="not those that were checked"):
        verify(f"models:/{name}@production", guard, tracking_uri=stored.address)
