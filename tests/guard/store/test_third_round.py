"""Ways tried by somebody who looked afresh: every route of the installed server, its own powers, files under way.

The table goes to ``build/released-is-approved.md``: way, path, result.
"""

import contextlib
import dataclasses
import json
import os
import re
import shutil
import sqlite3
import urllib.error
import urllib.request
from datetime import timedelta

import pytest
from mlflow.exceptions import MlflowException

from privgate.errors import PolicyError, PrivgateError
from privgate.guard import keys as trusted
from privgate.guard import statement
from privgate.guard import store as server
from privgate.guard.config import Guard
from privgate.guard.doctor import examine
from privgate.guard.keys import fresh_key
from privgate.guard.verify import _hand_over, verify
from privgate.registry.stored_files import FolderFiles
from tests import attack_table
from tests.guard.store.test_twenty_attacks import Attacker

pytestmark = [pytest.mark.server, pytest.mark.filterwarnings("ignore::FutureWarning")]

TAG = "privgate.statement"


def refused_by_registry(way):
    with pytest.raises(MlflowException) as said:
        way()
    return str(said.value)


# names


def test_a_model_named_like_a_logged_model_is_released_as_nothing_else(quiet, tmp_path):
    attacker = Attacker(quiet, tmp_path)
    name = attacker.source(attacker.good).rpartition("/")[2]
    refused_by_registry(lambda: attacker.named(name, attacker.source(attacker.bad), {TAG: attacker.text}))
    assert attacker.verify().claims.version == attacker.good
    attack_table.note("model named m-<id of the good one>", "alias", "refused")


def test_a_row_that_mixes_the_good_and_the_bad_model_is_not_released(quiet, tmp_path):
    """MLflow takes source, model id and run of a new version from whoever asks, each by itself."""
    a = Attacker(quiet, tmp_path)
    good, bad = (a.source(v).rpartition("/")[2] for v in (a.good, a.bad))
    store = a.client._get_registry_client().store
    for source, model_id in ((f"models:/{bad}", good), (f"models:/{good}/../{bad}", good), (f"models:///{bad}", good)):
        try:
            made = store.create_model_version("credit", source, tags=[], model_id=model_id)
        except MlflowException:
            continue
        refused_by_registry(lambda made=made: a.client.set_model_version_tag("credit", made.version, TAG, "x"))
        body = {"name": "credit", "version": str(made.version), "key": TAG, "value": a.text}
        quiet.post("/api/2.0/mlflow/model-versions/set-tag", body)
        refused_by_registry(lambda made=made: a.promote("credit", made.version))
    assert a.verify().claims.version == a.good
    attack_table.note("source of one model, id of another", "alias", "refused")


# every route of the installed server


CHANGING = {"POST", "PUT", "PATCH", "DELETE"}


def routes():
    """Return (method, path) of every route of the installed server that may change something."""
    from mlflow.server import app as flask

    found = {(m, r.rule) for r in flask.url_map.iter_rules() for m in (r.methods or set()) & CHANGING}
    try:
        from mlflow.server.fastapi_app import app
    except ImportError:
        return sorted(found)
    todo = [(route, "") for route in app.routes]
    while todo:
        route, prefix = todo.pop()
        inner = getattr(route, "original_router", None)
        if inner is not None:
            todo += [(r, prefix + getattr(route.include_context, "prefix", "")) for r in inner.routes]
        else:
            found |= {(m, prefix + route.path) for m in (getattr(route, "methods", None) or set()) & CHANGING}
    return sorted(found)


def test_no_route_of_the_server_releases_what_is_not_approved(quiet, tmp_path):
    """Each is called with everything that a release could be asked by; what a reader is given is looked at after it."""
    a = Attacker(quiet, tmp_path)
    good, bad = (a.source(v).rpartition("/")[2] for v in (a.good, a.bad))
    body = {
        "name": "credit",
        "new_name": "prod.credit",
        "alias": "production",
        "version": str(a.bad),
        "stage": "Production",
        "archive_existing_versions": True,
        "source": f"models:/{bad}",
        "model_id": good,
        "key": TAG,
        "value": a.text,
        "tags": [{"key": TAG, "value": a.text}],
        "aliases": ["production"],
        "storage_location": f"models:/{bad}",
        "status": "READY",
        "description": "x",
        "query": 'mutation { setAlias(name: "credit", alias: "production", version: "2") { ok } }',
    }
    values = {"model_id": good, "name": "credit", "version": str(a.bad), "alias": "production", "tag_key": TAG}
    called = 0
    for method, rule in routes():
        if "/mlflow-artifacts/" in rule or "registered-models/delete" in rule or "model-versions/delete" in rule:
            continue  # files are another matter, and what deletes leaves nothing to look at
        path = re.sub(r"[<{](?:[a-z]+:)?([a-z_]+)(?::[a-z]+)?[>}]", lambda m: values.get(m[1], "x"), rule)
        with contextlib.suppress(TimeoutError):  # it waits for what nobody sends
            quiet.post(path, body, method=method, timeout=5)
        called += 1
        with sqlite3.connect(a.database, timeout=30) as past:
            held = past.execute("SELECT name, version FROM registered_model_aliases WHERE alias = 'production'")
            assert set(held) <= {("credit", int(a.good))}, (method, rule)
            staged = past.execute("SELECT name, version FROM model_versions WHERE current_stage = 'Production'")
            assert not list(staged), (method, rule)
            protected = past.execute("SELECT name FROM model_versions WHERE name LIKE 'prod.%'")
            assert not list(protected), (method, rule)
    assert called > 150
    attack_table.note(f"each of {called} changing routes of the server", "REST", "refused")


def test_a_guarded_server_runs_no_command_for_whoever_connects_from_its_host(quiet):
    """MLflow's assistant would: a client sets the address of a model of its own, whose answers are run."""
    pytest.importorskip("mlflow.server.assistant.api")
    config = {"providers": {"openai_compatible": {"base_url": "http://127.0.0.1:1/v1", "selected": True}}}
    for path, method in (("config", "PUT"), ("message", "POST"), ("skills/install", "POST"), ("config", "GET")):
        body = None if method == "GET" else json.dumps({**config, "message": "ls"}).encode()
        request = urllib.request.Request(
            f"{quiet.address}/ajax-api/3.0/mlflow/assistant/{path}",
            body,
            {"Content-Type": "application/json"},
            method=method,
        )
        with pytest.raises(urllib.error.HTTPError) as said:
            urllib.request.urlopen(request, timeout=30)
        assert said.value.code in {404, 405}, path
    attack_table.note("commands by MLflow's assistant", "REST over loopback", "refused")


def test_a_server_that_runs_clients_code_is_not_guarded(monkeypatch):
    server.check_runs_nothing()
    monkeypatch.setenv("MLFLOW_SERVER_ENABLE_CUSTOM_SCORERS", "true")
    with pytest.raises(PolicyError, match="run code as this server"):
        server.check_runs_nothing()
    attack_table.note("code by custom scorers", "start of the server", "refused")


# files


def overwritten_by_the_artifact_interface(a):
    place = a.client.get_model_version_download_uri("credit", a.good).removeprefix("mlflow-artifacts:/")
    request = urllib.request.Request(
        f"{a.registry.address}/api/2.0/mlflow-artifacts/artifacts/{place.lstrip('/')}/weights.json", b"{}", method="PUT"
    )
    urllib.request.urlopen(request, timeout=30)


def added_as_an_artifact_of_the_logged_model(a):
    (a.tmp_path / "more").mkdir()
    (a.tmp_path / "more" / "more.py").write_text("stolen = True")
    a.client.log_model_artifacts(a.source(a.good).rpartition("/")[2], str(a.tmp_path / "more"))


def folder_that_is_a_link(a):
    (a.place(a.good) / "extra").symlink_to("/etc")


def pipe_among_the_files(a):
    os.mkfifo(a.place(a.good) / "pipe")


def evidence_replaced(a):
    for path in (a.registry.folder / "artifacts").rglob("evidence.dsse.json"):
        path.write_text(a.text)


def logged_model_deleted(a):
    a.client.delete_logged_model(a.source(a.good).rpartition("/")[2])


FOUND = (
    overwritten_by_the_artifact_interface,
    added_as_an_artifact_of_the_logged_model,
    folder_that_is_a_link,
    pipe_among_the_files,
    evidence_replaced,
)


@pytest.mark.quick(2)
@pytest.mark.parametrize("way", FOUND, ids=lambda way: way.__name__)
def test_what_is_done_to_files_is_found(quiet, tmp_path, way):
    a = Attacker(quiet, tmp_path)
    way(a)
    for options in ({}, {"to": tmp_path / "after"}):
        with pytest.raises(PrivgateError):
            a.verify(**options)
    assert a.wrong()
    assert not (tmp_path / "after").exists()
    for path in ("verify", "verify --to", "doctor"):
        attack_table.note(way.__name__.replace("_", " "), path, "refused" if path != "doctor" else "found")


def test_a_deleted_logged_model_releases_nothing_else(quiet, tmp_path):
    """Whether its files still count is the same question as before: what is handed over is what was signed."""
    a = Attacker(quiet, tmp_path)
    logged_model_deleted(a)
    try:
        a.verify(to=tmp_path / "after")
    except PrivgateError:
        assert not (tmp_path / "after").exists()
    else:
        assert FolderFiles(tmp_path / "after").digests() == quiet.files(
            a.client.get_model_version_download_uri("credit", a.good)
        )
    attack_table.note("logged model deleted after its approval", "verify --to", "refused or the signed files")


def test_files_that_change_while_they_are_handed_over_are_not_handed_over(quiet, tmp_path, monkeypatch):
    """What is compared is the copy: no swap before or after the copying, and no second name of a file."""
    a = Attacker(quiet, tmp_path)
    direct, place = f"sqlite:///{a.database}", a.place(a.good)
    a.rows(f"UPDATE model_versions SET storage_location = '{place}' WHERE version = {a.good}")
    claims = quiet.claims("credit", a.good, tmp_path, storage=str(place))
    guard = Guard.load(quiet.site.config)
    weights, kept = place / "weights.json", (place / "weights.json").read_bytes()
    outside = tmp_path / "second-name"
    os.link(weights, outside)
    copied = shutil.copytree

    def handed(swap):
        monkeypatch.setattr("privgate.registry.stored_files.shutil.copytree", swap)
        signed = FolderFiles(place).digests()
        return _hand_over(claims, signed, FolderFiles(place), "models:/credit/1", tmp_path / "to")

    def before(*args, **options):
        weights.write_text("stolen")
        return copied(*args, **options)

    def after(*args, **options):
        done = copied(*args, **options)
        weights.write_text("stolen")
        return done

    with pytest.raises(PrivgateError, match="not those that were checked"):
        handed(before)
    assert not (tmp_path / "to").exists()
    weights.write_bytes(kept)
    assert handed(after) == len(FolderFiles(tmp_path / "to").digests())
    outside.write_text("stolen by its second name")
    assert (tmp_path / "to" / "weights.json").read_bytes() == kept
    with pytest.raises(PrivgateError):
        verify("models:/credit@production", guard, tracking_uri=direct)
    for when in ("before", "after", "by a hard link"):
        attack_table.note(f"file swapped while it is handed over, {when}", "verify --to", "refused or the signed files")


# keys and time


def test_a_revocation_counts_for_the_very_next_promotion(quiet, tmp_path):
    a = Attacker(quiet, tmp_path)
    trust = quiet.site.trust
    digest = statement.payload_digest(statement.Envelope.parse(a.text).payload)
    try:
        for _ in range(5):
            a.client.delete_registered_model_alias("credit", "production")
            quiet.site.save(trust.revoke_statement(digest, at=statement.now()))
            refused_by_registry(lambda: a.promote("credit", a.good))
            quiet.site.save(trust)
            a.promote("credit", a.good)
    finally:
        quiet.site.save(trust)
    attack_table.note("promotion in the moment of a revocation", "alias", "refused")


def test_a_refusal_outlives_the_key_that_signed_it(quiet, tmp_path):
    """An older approval by a key that still counts takes its place neither here nor on a copy."""
    a = Attacker(quiet, tmp_path)
    before = quiet.site.trust
    short = trusted.new_key()
    try:
        quiet.site.save(before.add(fresh_key(short.public_key, days=1, models=("*",))))
        later = quiet.claims("credit", a.good, tmp_path).signed + timedelta(seconds=20)
        no = quiet.claims("credit", a.good, tmp_path, passed=False, outcome="failed", signed=later, decided=later)
        a.client.set_model_version_tag("credit", a.good, TAG, quiet.text(no, short))
        # the window of its key ends, as at every rotation
        held = quiet.site.trust.key(short.public_key.keyid)
        ended = statement.stamp(later)
        keys = [dataclasses.replace(k, not_after=ended) if k is held else k for k in quiet.site.trust.keys]
        quiet.site.save(dataclasses.replace(quiet.site.trust, keys=tuple(keys)))
        a.client.delete_registered_model_alias("credit", "production")
        said = refused_by_registry(lambda: a.client.set_model_version_tag("credit", a.good, TAG, a.text))
        assert "signed later" in said
        refused_by_registry(lambda: a.client.delete_model_version_tag("credit", a.good, TAG))
        made = quiet.create("credit", a.source(a.good), tags={TAG: a.text})
        assert "was refused since" in refused_by_registry(lambda: a.promote("credit", made.version))
    finally:
        quiet.site.save(before)
    attack_table.note("older approval after the refusal's key expired", "alias", "refused")


def test_the_doctor_says_nothing_is_wrong_where_nothing_is(quiet, tmp_path):
    Attacker(quiet, tmp_path)
    assert [a for a in examine(Guard.load(quiet.site.config), tracking_uri=quiet.address) if a.state == "wrong"] == []
