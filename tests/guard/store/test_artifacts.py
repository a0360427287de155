"""The files of a released version: no client writes or deletes them, by whatever route; all others are free."""

import urllib.error
import urllib.parse
import urllib.request
from datetime import timedelta

import pytest

from privgate.guard import statement
from privgate.guard.diagnosis import _look_at_lock
from privgate.guard.signing import TAG
from privgate.guard.writes import HIDING
from tests.guard.store.conftest import Registry

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


def test_files_below_a_released_version_stay_and_others_are_written(registry, name):
    version = registry.log(name)
    registry.sign(name, version)
    target, wrong = registry.place(name, version), []
    before = registry.files(f"mlflow-artifacts:/{target}")
    for way, (method, path, free, refused) in ROUTES.items():
        other = registry.place(name, registry.log(name, payload="other"))
        status, said = send(registry, method, spelled(path, target), b'{"path": "weights.json", "num_parts": 2}')
        if status not in refused or (status == 403 and f"models:/{name}/{version}, which is released" not in said):
            wrong.append((way, status, said))
        assert registry.files(f"mlflow-artifacts:/{target}") == before, way
        status, said = send(registry, method, spelled(path, other))
        if status not in free:
            wrong.append((way, "of another", status, said))
    assert wrong == []


def test_what_freezes_files_is_an_alias_or_a_statement_that_counts(registry, name):
    version, other = registry.log(name), registry.log(name, payload="other")
    long_ago = statement.now().replace(microsecond=0) - timedelta(days=40)
    moments = {"signed": long_ago, "decided": long_ago, "expires": long_ago + timedelta(days=30)}
    ended = registry.text(registry.claims(name, version, **moments))
    copied = registry.sign(name, other)
    path = f"{API}/artifacts/{registry.place(name, version)}/weights.json"
    for text in ("approved", ended, copied):
        with registry.past() as rows:  # the guard takes no such tag
            columns = "model_version_tags (key, value, name, version) VALUES (?, ?, ?, ?)"
            rows.execute(f"REPLACE INTO {columns}", (TAG, text, name, version))
        assert send(registry, "PUT", path)[0] == 200, text[:40]

    registry.client.set_registered_model_alias(name, "production", other)
    path = f"{API}/artifacts/{registry.place(name, other)}/weights.json"
    registry.client.delete_registered_model_alias(name, "production")
    assert send(registry, "DELETE", path)[0] == 403  # its statement still lets it be released
    registry.client.delete_model_version_tag(name, other, TAG)
    assert send(registry, "DELETE", path)[0] == 200


@pytest.mark.slow  # a server of its own
def test_a_server_of_artifacts_alone_asks_the_registry_before_it_writes(registry, running_mlflow, name, tmp_path):
    """It reads which one at each write: a server, a database, one that does not answer, and none."""
    released, other = registry.log(name), registry.log(name, payload="other")
    registry.sign(name, released)
    config = registry.site.folder / "other-server.yaml"
    config.write_text(registry.site.config.read_text())
    options = ("--artifacts-only", "--artifacts-destination", f"privgate:{registry.folder}/artifacts")
    env = {"PRIVGATE_GUARD": str(config), "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0"}
    with running_mlflow(tmp_path, *options, env=env) as address:
        there = Registry(address, registry.site)
        for uri, frozen, free in (
            ("", 503, 503),
            (registry.address, 403, 200),
            ("http://127.0.0.1:9", 503, 503),
            (f"privgate:sqlite:///{registry.folder}/tracking.db", 403, 200),
        ):
            config.write_text(registry.site.config.read_text() + (f"registry_uri: {uri}\n" if uri else ""))
            for version, answer in ((released, frozen), (other, free)):
                path = f"{API}/artifacts/{registry.place(name, version)}/weights.json"
                sent = [send(there, method, path)[0] for method in ("GET", "PUT", "DELETE", "PUT")]
                assert sent == [200, answer, answer, answer], (uri, version)


def test_no_client_reads_a_folder_of_the_server_by_the_scheme(registry, name):
    experiment = registry.client.create_experiment(name, artifact_location="privgate:/etc")
    run = registry.client.create_run(experiment).info.run_id
    for path in (f"/get-artifact?path=passwd&run_uuid={run}", f"/api/2.0/mlflow/artifacts/list?run_id={run}"):
        status, said = send(registry, "GET", path)
        assert (status, "below this server's destination" in said) == (403, True)


#: where an experiment's artifacts may be said to lie, and what may be uploaded there; some the server itself refuses
LOCATIONS = ("{}", "file://{}", "{}/..", "FILE://{}", "{}/%2e%2e", "{}/linked", "privgate:file://{}?z=1")
UPLOADS = ("t.txt", "guard.yaml", "../../guard.yaml", "%2e%2e/%2e%2e/guard.yaml")


def test_no_location_of_an_experiment_goes_past_the_guard(registry, site, name, tmp_path):
    version = registry.log(name)
    registry.sign(name, version)
    (site.folder / "linked").symlink_to(site.folder)
    places = registry.folder / "artifacts" / registry.place(name, version), tmp_path, site.folder
    before = [{path: path.stat().st_mtime_ns for path in place.rglob("*")} for place in places]
    sent = []
    for location in (spelled.format(place) for place in places for spelled in LOCATIONS):
        body = {"name": f"{name} {location}", "artifact_location": location}
        status, experiment = registry.post("/api/2.0/mlflow/experiments/create", body)
        if status != 200:
            continue
        run = registry.client.create_run(experiment["experiment_id"]).info.run_id
        for path in UPLOADS:
            query = urllib.parse.urlencode({"run_uuid": run, "path": path})
            answer = send(registry, "POST", f"/ajax-api/2.0/mlflow/upload-artifact?{query}")
            sent.append((urllib.parse.unquote(location), urllib.parse.unquote(path), *answer))
    (site.folder / "linked").unlink()
    del before[2][site.folder / "linked"]
    plain = [row for row in sent if ".." not in row[0] + row[1]]  # by two dots is a place between, or nowhere
    assert len(plain) > 20
    assert [row for row in plain if row[2] != 403 or "privgate: " not in row[3]] == []
    assert [{path: path.stat().st_mtime_ns for path in place.rglob("*")} for place in places] == before


def test_no_tag_hides_a_release_from_who_looks_for_it(registry, name):
    released, other = registry.log(name), registry.log(name, payload="other")
    registry.sign(name, released)
    registry.client.set_registered_model_alias(name, "production", released)
    hide_one = {"version": other}  # one version hides all others
    for api, body in (
        ("registered-models", {}),
        ("model-versions", {"version": released}),
        ("model-versions", hide_one),
    ):
        said = {"name": name, "key": HIDING, "value": "true", **body}
        assert registry.post(f"/api/2.0/mlflow/{api}/set-tag", said)[0] == 403, (api, body)
    assert registry.client.search_model_versions(f"name='{name}'")
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
