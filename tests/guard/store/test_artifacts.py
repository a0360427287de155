"""The files of a released version: no client writes or deletes them, by whatever route; all others are free."""

import sqlite3
import urllib.error
import urllib.request
from dataclasses import replace
from datetime import timedelta

import pytest

from privgate.guard.diagnosis import _look_at_lock
from privgate.guard.signing import TAG
from privgate.guard.writes import HIDING

API = "/api/2.0/mlflow-artifacts"


def send(registry, method, path, body=b"EVIL"):
    """Return the status of a request to the server's artifact routes, and what it says."""
    data = body if method in {"PUT", "POST"} else None
    headers = {"Content-Type": "application/json"} if method == "POST" else {}
    request = urllib.request.Request(registry.address + path, data=data, method=method, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as exc:
        return exc.code, exc.read().decode()


def place_of(registry, name, version):
    return registry.client.get_model_version_download_uri(name, version).removeprefix("mlflow-artifacts:/")


#: request, and its answers where nothing is released there and where something is
ROUTES = {
    "put a file": ("PUT", "{api}/artifacts/{place}/weights.json", {200}, {403}),
    "put a new file": ("PUT", "{api}/artifacts/{place}/more/new.json", {200}, {403}),
    "put by the ajax route": ("PUT", "/ajax-api/2.0/mlflow-artifacts/artifacts/{place}/weights.json", {200}, {403}),
    "put encoded": ("PUT", "{api}/artifacts/{encoded}/weights.json", {200}, {403}),
    "put in capitals": ("PUT", "{api}/artifacts/{capitals}/weights.json", {200}, {403}),
    "put by two slashes": ("PUT", "{api}/artifacts/{doubled}/weights.json", {500}, {403, 500}),
    "put by a step up": ("PUT", "{api}/artifacts/x/%2e%2e/{place}/weights.json", {400}, {400, 403}),
    "parts": ("POST", "{api}/mpu/create/{place}", {501, 500, 400, 404}, {403, 501, 500, 400, 404}),
    "delete a file": ("DELETE", "{api}/artifacts/{place}/weights.json", {200}, {403}),
    "delete what does not exist": ("DELETE", "{api}/artifacts/{place}/none-such", {200, 404, 500}, {403}),
    "delete the folder": ("DELETE", "{api}/artifacts/{place}", {200}, {403}),
    "delete the folder above": ("DELETE", "{api}/artifacts/{parent}", {200}, {403}),
}


def spelled(path, place):
    return path.format(
        api=API, place=place, parent=place.rpartition("/")[0], capitals=place.upper(),
        encoded=place.replace("m-", "%6d-", 1), doubled=place.replace("/", "//", 1),
    )  # fmt: skip


@pytest.mark.parametrize("way", ROUTES)
def test_files_below_a_released_version_stay_and_others_are_written(registry, name, tmp_path, way):
    method, path, free, refused = ROUTES[way]
    version = registry.log(name)
    registry.sign(name, version)
    other, target = registry.log(name, payload="other"), place_of(registry, name, version)
    before = registry.files(f"mlflow-artifacts:/{target}")
    status, said = send(registry, method, spelled(path, target), b'{"path": "weights.json", "num_parts": 2}')
    assert status in refused, said
    if status == 403:
        assert f"models:/{name}/{version}, which is released" in said
    assert registry.files(f"mlflow-artifacts:/{target}") == before

    status, said = send(registry, method, spelled(path, place_of(registry, name, other)))
    assert status in free, said


def test_what_freezes_files_is_an_alias_or_a_statement_that_counts(registry, guarded_folder, name, tmp_path):
    version = registry.log(name)
    path = f"{API}/artifacts/{place_of(registry, name, version)}/weights.json"
    ended = registry.claims(name, version)
    ended = replace(ended, signed=ended.signed - timedelta(days=40), decided=ended.decided - timedelta(days=40),
                    expires=ended.expires - timedelta(days=40))  # fmt: skip
    other = registry.log(name, payload="other")
    registry.sign(name, other)
    copied = registry.client.get_model_version(name, other).tags[TAG]
    for text in ("approved", registry.text(ended), copied):
        with sqlite3.connect(guarded_folder / "tracking.db", timeout=30) as rows:  # the guard takes no such tag
            rows.execute("REPLACE INTO model_version_tags (key, value, name, version) VALUES (?, ?, ?, ?)",
                         (TAG, text, name, version))  # fmt: skip
        assert send(registry, "PUT", path)[0] == 200, text[:40]

    registry.client.set_registered_model_alias(name, "production", other)
    path = f"{API}/artifacts/{place_of(registry, name, other)}/weights.json"
    registry.client.delete_registered_model_alias(name, "production")
    assert send(registry, "DELETE", path)[0] == 403  # its statement still lets it be released
    registry.client.delete_model_version_tag(name, other, TAG)
    assert send(registry, "DELETE", path)[0] == 200


OF_DATABASE = "privgate:sqlite:///{folder}/tracking.db"


@pytest.mark.parametrize(
    ("registry_uri", "options", "frozen", "free"),
    [
        ("{server}", ["--artifacts-only"], 403, 200),
        pytest.param(OF_DATABASE, ["--artifacts-only"], 403, 200, marks=pytest.mark.slow),
        ("http://127.0.0.1:9", ["--artifacts-only"], 503, 503),
        pytest.param("", ["--artifacts-only"], 503, 503, marks=pytest.mark.slow),
        ("", ["--registry-store-uri", OF_DATABASE, "--gunicorn-opts", "--timeout 60"], 403, 200),
    ],
)
def test_every_kind_of_server_asks_the_registry_before_it_writes(
    registry, guarded_folder, guarded_server, running_mlflow, name, tmp_path, registry_uri, options, frozen, free
):
    released, other = registry.log(name), registry.log(name, payload="other")
    registry.sign(name, released)
    config = registry.site.folder / "other-server.yaml"
    uri = registry_uri.format(server=guarded_server, folder=guarded_folder)
    config.write_text(registry.site.config.read_text() + (f"registry_uri: {uri}\n" if uri else ""))
    options = [o.format(folder=guarded_folder) for o in options]
    options += ["--artifacts-destination", f"privgate:{guarded_folder}/artifacts"]
    with running_mlflow(tmp_path, *options, env={"PRIVGATE_GUARD": str(config)}) as address:
        there = type(registry)(address, registry.site)
        for version, answer in ((released, frozen), (other, free)):
            path = f"{API}/artifacts/{place_of(registry, name, version)}/weights.json"
            assert send(there, "GET", path)[0] == 200
            assert [send(there, method, path)[0] for method in ("PUT", "DELETE")] == [answer, answer]


def test_no_client_reads_a_folder_of_the_server_by_the_scheme(registry, name):
    experiment = registry.client.create_experiment(name, artifact_location="privgate:/etc")
    run = registry.client.create_run(experiment).info.run_id
    for path in (f"/get-artifact?path=passwd&run_uuid={run}", f"/api/2.0/mlflow/artifacts/list?run_id={run}"):
        status, said = send(registry, "GET", path)
        assert (status, "below this server's destination" in said) == (403, True)


@pytest.mark.parametrize(
    "location", ["file://{released}", "{released}", "privgate:file://{released}?z=1", "file://{away}"]
)
def test_no_location_of_an_experiment_goes_past_the_guard(registry, guarded_folder, name, tmp_path, location):
    version = registry.log(name)
    registry.sign(name, version)
    places = {"released": guarded_folder / "artifacts" / place_of(registry, name, version), "away": tmp_path / "away"}
    named = location.format(**places)
    before = [len(list(place.rglob("*"))) for place in places.values()]
    experiment = registry.client.create_experiment(f"{name} {named}", artifact_location=named)
    run = registry.client.create_run(experiment).info.run_id
    status, said = send(registry, "POST", f"/ajax-api/2.0/mlflow/upload-artifact?run_uuid={run}&path=t.txt")
    assert (status, "privgate: " in said) == (403, True)
    assert [len(list(place.rglob("*"))) for place in places.values()] == before


def test_no_tag_hides_a_release_from_who_looks_for_it(registry, name, tmp_path):
    released, other = registry.log(name), registry.log(name, payload="other")
    registry.sign(name, released)
    registry.client.set_registered_model_alias(name, "production", released)
    for api, body in (("registered-models", {}), ("model-versions", {"version": released})):
        said = {"name": name, "key": HIDING, "value": "true", **body}
        assert registry.post(f"/api/2.0/mlflow/{api}/set-tag", said)[0] == 403, api
    assert registry.client.search_model_versions(f"name='{name}'")
    said = {"name": name, "key": HIDING, "value": "true", "version": other}
    assert registry.post("/api/2.0/mlflow/model-versions/set-tag", said)[0] == 403  # one version hides all others
    registry.client.delete_registered_model_alias(name, "production")
    assert registry.post("/api/2.0/mlflow/model-versions/set-tag", said)[0] == 200


def test_an_address_that_nothing_opens_stops_nobody(registry, name):
    registry.log(name)
    registry.client.create_registered_model(f"{name}-odd")
    registry.client.create_model_version(f"{name}-odd", "foo:/bar?%00", tags={TAG + ".note": "x"})
    registry.client.set_registered_model_alias(f"{name}-odd", "other", "1")
    assert registry.log(name, payload="more")


@pytest.mark.parametrize(("mode", "state"), [("COMPLIANCE", "fine"), ("GOVERNANCE", "wrong"), ("", "wrong")])
def test_the_doctor_looks_at_the_lock_of_a_bucket(monkeypatch, mode, state):
    moto = pytest.importorskip("moto", reason="moto, which stands for S3, is not installed")
    import boto3

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    with moto.mock_aws():
        s3 = boto3.client("s3")
        s3.create_bucket(Bucket="models", ObjectLockEnabledForBucket=bool(mode))
        if mode:
            rule = {"DefaultRetention": {"Mode": mode, "Days": 30}}
            held = {"ObjectLockEnabled": "Enabled", "Rule": rule}
            s3.put_object_lock_configuration(Bucket="models", ObjectLockConfiguration=held)
        assert _look_at_lock("models").state == state
