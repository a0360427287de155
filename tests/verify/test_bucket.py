"""Files in S3 as privgate reads them itself: the same digests as on disk, and one sentence for whatever goes wrong."""

import pytest

from privgate.errors import RegistryError, SubjectError
from privgate.registry.stored_files import BucketFiles, FolderFiles


@pytest.fixture(scope="module")
def endpoint():
    server = pytest.importorskip("moto.server", reason="moto, which stands in for S3, is not installed")
    running = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    yield "http://127.0.0.1:{1}".format(*running.get_host_and_port())
    running.stop()


@pytest.fixture
def bucket(endpoint, monkeypatch):
    import boto3

    for key in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(key, "of-this-test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("MLFLOW_S3_ENDPOINT_URL", endpoint)
    client = boto3.client("s3", endpoint_url=endpoint)
    client.create_bucket(Bucket="models")
    yield client
    for held in client.list_objects_v2(Bucket="models").get("Contents", []):
        client.delete_object(Bucket="models", Key=held["Key"])
    client.delete_bucket(Bucket="models")


def upload(client, folder, prefix):
    for path in folder.rglob("*"):
        if path.is_file():
            client.upload_file(str(path), "models", f"{prefix}/{path.relative_to(folder).as_posix()}")


def test_files_in_a_bucket_have_the_digests_of_those_on_disk(bucket, tmp_path):
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "MLmodel").write_text("flavors: {}\n")
    (tmp_path / "deep" / "er" / "ünï code (1) #?.bin").write_bytes(b"x" * 3_000_000)
    (tmp_path / "empty").write_text("")
    upload(bucket, tmp_path, "1/models/m-1/artifacts")
    upload(bucket, tmp_path, "1/models/m-1/artifacts-of-another")
    found = BucketFiles("s3://models/1/models/m-1/artifacts")
    assert found.digests() == FolderFiles(tmp_path).digests()
    assert found.read("MLmodel") == b"flavors: {}\n"
    bucket.put_object(Bucket="models", Key="1/models/m-1/artifacts/MLmodel", Body=b"stolen")
    assert BucketFiles("s3://models/1/models/m-1/artifacts").digests() != FolderFiles(tmp_path).digests()
    bucket.put_object(Bucket="models", Key="1/models/m-1/artifacts/added", Body=b"")
    assert "added" in BucketFiles("s3://models/1/models/m-1/artifacts").digests()


@pytest.mark.parametrize("key", ["a//b", "../up", "a/../b", "./a"])
def test_a_name_that_no_folder_holds_is_refused(bucket, key):
    bucket.put_object(Bucket="models", Key=f"m/{key}", Body=b"x")
    with pytest.raises(SubjectError, match="no file of a model"):
        BucketFiles("s3://models/m")


def test_what_is_not_there_or_not_allowed_is_one_sentence(bucket, monkeypatch):
    with pytest.raises(RegistryError, match="listing s3://absent/m"):
        BucketFiles("s3://absent/m")
    bucket.put_object(Bucket="models", Key="m/a", Body=b"x")
    found = BucketFiles("s3://models/m")
    bucket.delete_object(Bucket="models", Key="m/a")
    with pytest.raises(RegistryError, match="reading a at s3://models/m"):
        found.digests()
    monkeypatch.setenv("MLFLOW_S3_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    with pytest.raises(RegistryError, match="listing"):
        BucketFiles("s3://models/m")


def test_a_report_longer_than_any_is_not_read(bucket):
    bucket.put_object(Bucket="models", Key="m/a", Body=b"x" * (9 << 20))
    with pytest.raises(SubjectError, match="longer than any report"):
        BucketFiles("s3://models/m").read("a")
