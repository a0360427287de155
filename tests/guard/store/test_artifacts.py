"""The files of a released version: no client writes or deletes them, by whatever route; all others are free."""

import urllib.error
import urllib.parse
import urllib.request
from datetime import timedelta

from privgate.guard import statement
from privgate.registry.named import TAG

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


def test_an_address_that_nothing_opens_stops_nobody(registry, name):
    registry.log(name)
    registry.client.create_registered_model(f"{name}-odd")
    registry.client.create_model_version(f"{name}-odd", "foo:/bar?%00", tags={TAG + ".note": "x"})
    registry.client.set_registered_model_alias(f"{name}-odd", "other", "1")
    assert registry.log(name, payload="more")
