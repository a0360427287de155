"""Every way around the gate that is known, on one guarded server: refused, or detected afterwards.

Each way is a row: attack, what the refusal says, route. What came of each goes to ``build/released-is-approved.md``,
and, for all doors, to ``build/ways-around.md``.
"""

import base64
import contextlib
import dataclasses
import json
import os
import re
import shutil
import sqlite3
import time
import urllib.error
import urllib.request
from datetime import timedelta
from pathlib import Path

import mlflow
import pytest
from mlflow.exceptions import MlflowException

from privgate.errors import PolicyError, PrivgateError, UsageError
from privgate.guard import keys as trusted
from privgate.guard import statement
from privgate.guard import store as server
from privgate.guard.config import Guard
from privgate.guard.diagnosis import examine
from privgate.guard.keys import fresh_key
from privgate.guard.signing import TAG
from privgate.guard.verification import _hand_over, verify
from privgate.registry.files import FolderFiles
from tests import attack_table

pytestmark = [pytest.mark.server, pytest.mark.filterwarnings("ignore::FutureWarning")]

IS_PROMPT = "mlflow.prompt.is_prompt"
DOORS = Path(__file__).resolve().parents[3] / "build" / "ways-around.md"


def refused(call, *arguments, says="privgate", **keywords):
    with pytest.raises(MlflowException, match=says) as caught:
        call(*arguments, **keywords)
    assert "PERMISSION_DENIED" in str(caught.value)
    return str(caught.value)


def released(registry, name, alias="production"):
    try:
        return registry.client.get_model_version_by_alias(name, alias).version
    except MlflowException:
        return None


class Attacker:
    """Somebody with every right but the server's: an approved model, one that is not, and the approval's text."""

    def __init__(self, registry, tmp_path):
        self.registry, self.client, self.tmp_path = registry, registry.client, tmp_path
        self.good, self.bad = registry.log("credit"), registry.log("credit", payload="not approved")
        registry.release("credit", self.good, tmp_path)
        self.client.set_registered_model_alias("credit", "production", self.good)
        self.text = self.client.get_model_version("credit", self.good).tags[TAG]
        self.guard = Guard.load(registry.site.config)
        self.database = registry.folder / "tracking.db"

    def source(self, version):
        return self.client.get_model_version("credit", version).source

    def place(self, version):
        location = self.client.get_model_version_download_uri("credit", version)
        return self.registry.folder / "artifacts" / location.removeprefix("mlflow-artifacts:/")

    def promote(self, name, version="1", alias="production"):
        self.client.set_registered_model_alias(name, alias, version)

    def empty(self, name):
        """Return the name of a new model without versions."""
        self.client.create_registered_model(name)
        return name

    def named(self, name, source, tags=None):
        """Register a version under a name of its own and promote it."""
        self.client.create_registered_model(name)
        made = self.registry.create(name, source, tags=tags)
        self.promote(name, made.version)

    def rest(self, path, body, method="POST"):
        """Call the REST API itself; the answer of a refusal is raised as the client raises it."""
        status, answer = self.registry.post(path, body, method=method)
        if status >= 400:
            raise MlflowException(f"{answer.get('error_code')}: {answer.get('message')}")

    def tag(self, text, version=None):
        self.client.set_model_version_tag("credit", version or self.bad, TAG, text)

    def new(self, tags):
        return self.registry.create("credit", self.source(self.bad), tags).version

    def about_bad(self):
        return self.registry.claims("credit", self.bad, self.tmp_path)

    def resign(self, **changes):
        """Sign something else about the version that is released."""
        self.registry.sign("credit", self.good, self.tmp_path, **changes)

    def stage(self, version, stage="Production"):
        self.client.transition_model_version_stage("credit", version, stage)

    def alias(self, alias, version="2", name="credit"):
        """Set an alias past the client's own checks."""
        self.client._get_registry_client().store.set_registered_model_alias(name, alias, version)

    def forged(self, key_id=""):
        """Return an approval of the bad version by a stranger, perhaps under another's id."""
        raw = json.loads(self.registry.text(self.about_bad(), trusted.new_key()))
        raw["signatures"][0]["keyid"] = key_id or raw["signatures"][0]["keyid"]
        return json.dumps(raw)

    def edited(self):
        """Return a refusal that somebody made an approval."""
        no = self.registry.claims("credit", self.bad, self.tmp_path, passed=False, outcome="failed")
        raw = json.loads(self.registry.text(no))
        said = json.loads(base64.b64decode(raw["payload"]))
        said["predicate"]["verificationResult"] = "PASSED"
        said["predicate"][statement.EXTENSION]["outcome"] = "passed"
        return json.dumps({**raw, "payload": base64.b64encode(json.dumps(said).encode()).decode()})

    def replay(self, **changes):
        """Sign something else about the bad version than was found, and promote that."""
        self.registry.sign("credit", self.bad, self.tmp_path, **changes)
        self.promote("credit", self.bad)

    def raw_place(self):
        """Return the place of the bad version's files by a detour through the good one's."""
        good, bad = (self.client.get_model_version_download_uri("credit", v) for v in (self.good, self.bad))
        return f"{good}/../../{bad.split('/')[-2]}/artifacts"

    def rows(self, script):
        with sqlite3.connect(self.database, timeout=30) as past:
            past.executescript(script)

    def verify(self, uri="models:/credit@production", **options):
        return verify(uri, self.guard, tracking_uri=self.registry.address, **options)

    def wrong(self):
        return [a.text for a in examine(self.guard, tracking_uri=self.registry.address) if a.state == "wrong"]


API, UI = "/api/2.0/mlflow", "/ajax-api/2.0/mlflow"
ALIAS, STAGE, NEW = "registered-models/alias", "model-versions/transition-stage", "model-versions/create"
STAGED = {"name": "credit", "version": "2", "stage": "Production", "archive_existing_versions": True}
SPELLED = ("PRODUCTION", "\uff50\uff52oduction", "production\n")
DIGEST = "sha256:" + "c" * 64
LONG, EMPTY = "x" * 1_000_000, '{"payload": "", "payloadType": "", "signatures": []}'
ODD = (
    "credit\u200b",
    "cre\u0301dit",
    "credit@production",
    "[c]redit",
    "*",
    "-credit",
    "Kredit Pr\u00fcfung",
    "x" * 257,
)


def store(a):
    return a.client._get_registry_client().store


def body(a, alias="production", name="credit"):
    return {"name": name, "alias": alias, "version": a.bad}


def copied(a, name, tags=None, version=None):
    """Create a model and copy a version into it."""
    a.client.create_registered_model(name)
    return a.client.create_model_version(name, f"models:/credit/{version or a.bad}", tags=tags)


def prompt(a, name, *, version=True):
    """Let what is not approved call itself a prompt, by its version and its model."""
    a.registry.log(name, payload="a prompt")
    a.rest(f"{API}/registered-models/set-tag", {"name": name, "key": IS_PROMPT, "value": "true"})
    if version:
        a.rest(f"{API}/model-versions/set-tag", {"name": name, "version": "1", "key": IS_PROMPT, "value": "true"})
    store(a).set_registered_model_alias(name, "production", "1")


def prompt_into_protected(a):
    tags = [{"key": IS_PROMPT, "value": "true"}]
    a.rest(f"{API}/{NEW}", {"name": a.empty("prod.prompt"), "source": "dummy-source", "tags": tags})


def copy_in_the_same_model(a):
    made = a.client.create_model_version("credit", f"models:/credit/{a.bad}", tags={TAG: a.text})
    a.promote("credit", made.version)


def swapped_names(a):
    made = copied(a, "swap", {TAG: a.text})
    a.client.rename_registered_model("swap", "prod.credit")
    a.promote("prod.credit", made.version)


def earlier(a, by=timedelta(minutes=30)):
    early = a.registry.claims("credit", a.good, a.tmp_path).signed - by
    a.registry.sign("credit", a.good, a.tmp_path, signed=early, decided=early)


#: attack, what is said, how: each refused by the registry
WAYS = [
    ("alias", "there is no statement", lambda a: a.promote("credit", a.bad)),
    *(
        (f"alias by {api}, {path}", "", lambda a, p=f"{api}/{path}": a.rest(p, body(a)))
        for api, path in ((API, ALIAS), (UI, ALIAS), (f"/{API}", ALIAS), (API, ALIAS.replace("alias", "%61lias")))
    ),
    *(
        (f"alias {spelled!a} by {api}", "may be taken for",
         lambda a, s=spelled, p=api: a.rest(f"{p}/{ALIAS}", body(a, s)))
        for spelled in SPELLED
        for api in (API, UI)
    ),
    ("alias behind marks of direction", "", lambda a: a.alias("\u202eproduction")),
    ("alias by the interface of prompts", "", lambda a: store(a).set_prompt_alias("credit", "production", a.bad)),
    ("alias of a version in other digits", "", lambda a: a.promote("credit", "\uff12")),
    *((f"stage {s}", "", lambda a, s=s: a.stage(a.bad, s)) for s in ("Production", "PRODUCTION")),
    ("stage by the interface's own path", "", lambda a: a.rest(f"{UI}/{STAGE}", STAGED)),
    ("stage by an alias's statement", "", lambda a: a.stage(a.good)),
    ("another protected target", "", lambda a: a.promote("credit", a.good, "Production")),
    # names
    *(
        (f"name {odd[:20]!a}", "rename it|does not|characters",
         lambda a, n=odd: a.named(n, a.source(a.bad), {TAG: a.text}))
        for odd in ODD
    ),
    ("name in another case", "", lambda a: a.named("Credit", a.source(a.good), {TAG: a.text})),
    ("name of a logged model", "", lambda a: a.named(a.source(a.good)[8:], a.source(a.bad), {TAG: a.text})),
    ("name with a query", "", lambda a: a.named(f"{a.source(a.good)[8:]}?x", a.source(a.bad), {TAG: a.text})),
    *((f"name {n!a} of a protected model", "",
     lambda a, n=n: copied(a, n)) for n in ("PROD.credit", "\uff50rod.credit")),
    # what is too long is refused before anything is done
    ("a name of a million letters", "at most 256", lambda a: store(a).create_registered_model(LONG)),
    ("a new name of a million letters", "at most 256", lambda a: store(a).rename_registered_model("credit", LONG)),
    ("an alias of a million letters", "at most 256", lambda a: a.alias(LONG)),
    ("an alias of a name of a million letters", "at most 256",
     lambda a: store(a).delete_registered_model_alias(LONG, "any")),
    # prompts: what a subject says of itself excepts nothing
    ("a prompt's model", "there is no statement.*under 'except'", lambda a: prompt(a, "greeting", version=False)),
    ("a prompt", "there is no statement", lambda a: prompt(a, "greeting2")),
    ("a prompt into a protected model", "there is no statement", prompt_into_protected),
    # protected models, renames, copies
    ("the good one's statement on the bad one", "not about this version",
     lambda a: (a.tag(a.text), a.promote("credit", a.bad))),
    ("a copy of the bad one into a protected model", "", lambda a: copied(a, "prod.credit", {TAG: a.text})),
    ("a copy to another name than was signed", "", lambda a: copied(a, "prod.other", version=a.good)),
    ("a copy of the bad one in the same model", "", copy_in_the_same_model),
    ("a rename onto a protected name", "protected models are not renamed",
     lambda a: a.client.rename_registered_model(a.empty("plain"), "prod.plain")),
    ("swapped names", "", swapped_names),
    ("a rename of what is released", "holds protected alias",
     lambda a: a.client.rename_registered_model("credit", "moved")),
    ("a location by a detour", "", lambda a: a.named("raw", a.raw_place(), {TAG: a.text})),
    # statements and their terms
    *((f"a tag that is no statement: {t[:9]}", "", lambda a, t=t: a.tag(t)) for t in ("passed", "{}", EMPTY)),
    ("a stranger's statement", "no trusted key", lambda a: a.tag(a.forged())),
    ("a stranger's under a trusted id", "not valid", lambda a: a.tag(a.forged(a.guard.trust.keys[0].key_id))),
    ("a refusal edited into an approval", "not valid", lambda a: a.tag(a.edited())),
    ("a forged one with a new version", "no trusted key", lambda a: a.promote("credit", a.new({TAG: a.forged()}))),
    ("another version's on a released one", "", lambda a: a.tag(a.registry.text(a.about_bad()), a.good)),
    ("a released one's for another target", "not allow", lambda a: a.resign(targets=(("credit", "staging"),))),
    ("an older statement on a released version", "signed later", earlier),
    ("the statement of a released version deleted", "released on it",
     lambda a: a.client.delete_model_version_tag("credit", a.good, TAG)),
    ("another registry's statement", "for registry", lambda a: a.replay(registry="another-registry")),
    ("a refusal", "not an approval", lambda a: a.replay(passed=False, outcome="failed")),
    ("another policy's statement", "", lambda a: a.replay(policy_digest=DIGEST)),
    ("a statement for another target", "", lambda a: a.replay(targets=(("other", "production"),))),
    ("a statement about an earlier row", "", lambda a: a.replay(created=1)),
    ("an advisory statement", "", lambda a: a.replay(advisory=True)),
    ("a verdict of a time to come", "", lambda a: a.replay(decided=statement.now() + timedelta(days=1500))),
    ("an expired statement", "", lambda a: a.replay(expires=statement.now() - timedelta(seconds=1))),
]  # fmt: skip


def test_what_the_registry_sees_it_refuses(quiet, tmp_path):
    a, began, wrong = Attacker(quiet, tmp_path), time.monotonic(), []
    for attack, says, way in WAYS:
        try:
            way(a)
        except MlflowException as exc:
            if not re.search(says, str(exc)):
                wrong.append((attack, str(exc)[:300]))
        else:
            wrong.append((attack, "LET THROUGH"))
        attack_table.note(attack, "registry", "refused")
    assert wrong == []
    assert time.monotonic() - began < 120
    assert a.client.get_model_version_by_alias("credit", "production").version == a.good
    assert a.verify().claims.version == a.good
    assert a.wrong() == []


def test_every_way_is_refused_by_every_door(registry, name, tried):
    rows = tried(registry, name, registry.log(name))
    DOORS.parent.mkdir(exist_ok=True)
    lines = ["| way around | client | REST | UI path |", "| --- | --- | --- | --- |"]
    DOORS.write_text("\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)]) + "\n", encoding="utf-8")
    assert len(rows) == 8
    assert {outcome for row in rows for outcome in row[1:]} == {"refused", "refused (403)"}, rows
    assert dict(registry.client.get_registered_model(name).aliases) == {}
    assert registry.client.search_model_versions(f"name='prod.{name}'") == []


def test_what_was_signed_is_promoted_by_alias_stage_and_copy(registry, name, tmp_path):
    version, client = registry.log(name), registry.client
    client.set_registered_model_alias(name, "staging", version)  # unprotected
    registry.sign(name, version, tmp_path)
    client.delete_model_version_tag(name, version, TAG)  # not released yet
    registry.sign(name, version, tmp_path)
    client.set_registered_model_alias(name, "production", version)
    assert released(registry, name) == version
    client.create_registered_model("prod." + name)
    copy = client.copy_model_version(f"models:/{name}/{version}", "prod." + name)
    client.set_registered_model_alias("prod." + name, "production", copy.version)
    assert released(registry, "prod." + name) == copy.version
    registry.sign(name, version, tmp_path, targets=((name, "Production"), (name, "production")))
    assert client.transition_model_version_stage(name, version, "production").current_stage == "Production"
    client.delete_registered_model_alias(name, "production")
    refused(client.rename_registered_model, name, name + "-other", says="is in stage Production|is released on")


def test_the_gate_answers_the_probe_and_a_stock_client(registry, name, tmp_path):
    status, answer = registry.post(f"{API}/{ALIAS}", {"name": "privgate-probe", "alias": "x", "version": "1"})
    assert (status, answer["message"]) == (403, "privgate: probe: gate active")
    version = registry.log(name)
    mlflow.set_tracking_uri(registry.address)
    try:
        refused(mlflow.MlflowClient().set_registered_model_alias, name, "production", version)
    finally:
        mlflow.set_tracking_uri(None)


def test_only_the_operator_excepts_a_model(registry, name, site):
    client, prompts = registry.client, (f"prompt.{name}", name)
    for model in prompts:
        client.create_prompt(model)
        client.create_prompt_version(model, "Hello {{ name }}")
        refused(client.set_prompt_alias, model, "production", 1, says="there is no statement")
    text = site.config.read_text()
    try:
        site.config.write_text(text + '  except: ["prompt.*"]\n')
        client.set_prompt_alias(prompts[0], "production", 1)
        refused(client.set_prompt_alias, name, "production", 1)
        answers = [x for x in examine(Guard.load(site.config), tracking_uri=registry.address) if name in x.text]
    finally:
        site.config.write_text(text)
    assert [(x.state, "needs no statement" in x.text) for x in answers] == [("fine", True)]
    (wrong,) = [x.text for x in examine(Guard.load(site.config), tracking_uri=registry.address) if name in x.text]
    assert f"models:/{prompts[0]}/1 as 'production' is released but does not verify" in wrong
    client.delete_prompt_alias(prompts[0], "production")


def test_other_writes_of_odd_names_pass_and_the_doctor_lists_them(quiet):
    version = quiet.log("Kredit Pr\u00fcfung")
    source = quiet.client.get_model_version("Kredit Pr\u00fcfung", version).source
    for alias in ("staging", "pr0duction"):
        quiet.client.set_registered_model_alias("Kredit Pr\u00fcfung", alias, version)
    for other in ("PROD.credit", "pr0d.credit"):
        quiet.client.create_registered_model(other)
    quiet.create("pr0d.credit", source)
    long, database = "y" * 70_000, quiet.folder / "tracking.db"
    with sqlite3.connect(database, timeout=30) as past:  # as any server without a guard does
        past.execute("INSERT INTO registered_models (name, creation_time, workspace) VALUES (?, 1, 'default')", (long,))
        past.execute(
            "INSERT INTO registered_model_aliases (name, alias, version, workspace) "
            "VALUES (?, 'production', 1, 'default')",
            (long,),
        )
    answers = list(examine(Guard.load(quiet.site.config), tracking_uri=quiet.address))
    look = [x.text for x in answers if x.state == "look"]
    for name, says in (
        ("Kredit Pr\u00fcfung", "hold nothing that is"),
        (long[:80], "hold nothing"),
        ("PROD.credit", "another spelling"),
    ):
        assert [text for text in look if f"model {name!a}" in text and says in text]
    assert [x.text[:30] for x in answers if x.state == "wrong"] == [f"models:/{'y' * 22}"]
    assert max(len(x.text) for x in answers) < 4000


# 6: delete and create again


def test_a_recreated_row_does_not_inherit_an_approval(registry, name, tmp_path):
    version = registry.log(name)
    text = registry.sign(name, version, tmp_path)
    source = registry.client.get_model_version(name, version).source
    registry.client.delete_registered_model(name)
    assert registry.log(name, payload="stolen") == version  # numbers start again
    registry.client.set_model_version_tag(name, version, TAG, text)
    refused(registry.client.set_registered_model_alias, name, "production", version)

    registry.client.delete_registered_model(name)
    registry.client.create_registered_model(name)
    again = registry.create(name, source, tags={TAG: text})
    said = refused(registry.client.set_registered_model_alias, name, "production", again.version)
    assert "deleted and created again" in said


# every route and power of the installed server


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
        refused(says="", call=lambda made=made: a.client.set_model_version_tag("credit", made.version, TAG, "x"))
        body = {"name": "credit", "version": str(made.version), "key": TAG, "value": a.text}
        quiet.post("/api/2.0/mlflow/model-versions/set-tag", body)
        refused(says="", call=lambda made=made: a.promote("credit", made.version))
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


# what is done past the registry, and must be found by whoever deploys, and by the doctor


def storage_of_another(a):
    other = a.client.get_model_version_download_uri("credit", a.bad)
    a.rows(f"UPDATE model_versions SET storage_location = '{other}' WHERE version = {a.good}")


def source_of_another(a):
    a.rows(f"UPDATE model_versions SET source = '{a.source(a.bad)}' WHERE version = {a.good}")


def alias_to_another(a):
    a.rows(f"UPDATE registered_model_aliases SET version = {a.bad}")


def number_of_another(a):
    a.rows(
        f"UPDATE model_versions SET version = 77 WHERE version = {a.good};"
        f"UPDATE model_versions SET version = {a.good} WHERE version = {a.bad};"
    )


def link_to_elsewhere(a):
    place = a.place(a.good) / "weights.json"
    (a.tmp_path / "weights.json").write_bytes(place.read_bytes())
    place.unlink()
    place.symlink_to(a.tmp_path / "weights.json")


def file_in_privgates_folder(a):
    (a.place(a.good) / "privgate").mkdir()
    (a.place(a.good) / "privgate" / "extra.py").write_text("stolen = True")


def note_of_mlflow(a):
    (a.place(a.good) / "registered_model_meta").write_text("model_name: credit\nmodel_version: '1'\nmore: stolen\n")


def file_renamed(a):
    (a.place(a.good) / "weights.json").rename(a.place(a.good) / "Weights.json")


FOUND = [
    storage_of_another,
    source_of_another,
    alias_to_another,
    number_of_another,
    link_to_elsewhere,
    file_in_privgates_folder,
    note_of_mlflow,
    file_renamed,
]


def folder_that_is_a_link(a):
    (a.place(a.good) / "extra").symlink_to("/etc")


def pipe_among_the_files(a):
    os.mkfifo(a.place(a.good) / "pipe")


def evidence_replaced(a):
    for path in (a.registry.folder / "artifacts").rglob("evidence.dsse.json"):
        path.write_text(a.text)


def logged_model_deleted(a):
    a.client.delete_logged_model(a.source(a.good).rpartition("/")[2])


FOUND = [
    *FOUND,
    logged_model_deleted,
    folder_that_is_a_link,
    pipe_among_the_files,
    evidence_replaced,
]


@pytest.mark.quick(3)
@pytest.mark.parametrize("way", FOUND, ids=lambda way: way.__name__)
def test_what_goes_past_the_registry_is_found(quiet, tmp_path, way):
    attacker = Attacker(quiet, tmp_path)
    attacker.verify(to=tmp_path / "before")
    way(attacker)
    results = []
    for options in ({}, {"to": tmp_path / "after"}):
        try:
            attacker.verify(**options)
            results.append("LET THROUGH")
        except PrivgateError:
            results.append("refused")
    results.append("found" if attacker.wrong() else "NOT FOUND")
    assert results == ["refused", "refused", "found"]
    assert not (tmp_path / "after").exists()
    for path, result in zip(("verify", "verify --to", "doctor"), results, strict=True):
        attack_table.note(way.__name__.replace("_", " "), path, result)


def test_the_verified_files_are_handed_over_to_no_place_that_is_taken(quiet, tmp_path):
    attacker = Attacker(quiet, tmp_path)
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    (tmp_path / "file").write_text("")
    for taken in ("link", "file", "."):
        with pytest.raises(UsageError, match="exists"):
            attacker.verify(to=tmp_path / taken)
    assert not (tmp_path / "nowhere").exists()
    with pytest.raises(UsageError, match="cannot be handed over"):
        attacker.verify(to=tmp_path / "file" / "below")


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
        monkeypatch.setattr("privgate.registry.files.shutil.copytree", swap)
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
            refused(says="", call=lambda: a.promote("credit", a.good))
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
        said = refused(says="", call=lambda: a.client.set_model_version_tag("credit", a.good, TAG, a.text))
        assert "signed later" in said
        refused(says="", call=lambda: a.client.delete_model_version_tag("credit", a.good, TAG))
        made = quiet.create("credit", a.source(a.good), tags={TAG: a.text})
        assert "was refused since" in refused(says="", call=lambda: a.promote("credit", made.version))
    finally:
        quiet.site.save(before)
    attack_table.note("older approval after the refusal's key expired", "alias", "refused")


def test_the_doctor_says_nothing_is_wrong_where_nothing_is(quiet, tmp_path):
    Attacker(quiet, tmp_path)
    assert [a for a in examine(Guard.load(quiet.site.config), tracking_uri=quiet.address) if a.state == "wrong"] == []
