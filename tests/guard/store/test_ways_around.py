"""Every way around the gate that is known, on one guarded server of each kind: refused, or detected afterwards.

Each way is a row: attack, what the refusal says, route. `make test` runs one kind of server, `make test-slow` others.
"""

import base64
import contextlib
import dataclasses
import json
import os
import re
import shutil
import time
from datetime import timedelta

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
from privgate.guard.verification import _hand_over, verify
from privgate.registry.files import all_files
from privgate.registry.named import TAG
from tests.guard.store.conftest import HIDING, PASSWORD, Registry, send_as, want_passwords

pytestmark = [pytest.mark.server, pytest.mark.filterwarnings("ignore::FutureWarning")]

KINDS = ("uvicorn", "gunicorn", "uvicorn, passwords", "gunicorn, passwords")


@pytest.fixture(scope="module", params=[KINDS[0], *(pytest.param(k, marks=pytest.mark.slow) for k in KINDS[1:])])
def served(request, guarded_server, guarded_folder, site, running_guarded, tmp_path_factory):
    """A guarded registry on a server of each kind; one that wants passwords is asked by its administrator."""
    kind = request.param
    if kind == "uvicorn":
        yield Registry(guarded_server, site, guarded_folder)
        return
    folder = tmp_path_factory.mktemp("kind")
    options, env = want_passwords(folder) if "passwords" in kind else ((), {})
    options += ("--artifacts-destination", f"privgate:{folder}/artifacts")
    options += ("--gunicorn-opts", "--timeout 60") if "gunicorn" in kind else ()
    with running_guarded(folder, *options, env=env) as registry:
        registry.headers = send_as("admin") if "passwords" in kind else {}
        yield registry


@pytest.fixture
def registry(served, monkeypatch):
    if served.headers:
        monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "admin")
        monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", PASSWORD)
    return served


@pytest.fixture
def attacker(quiet, tmp_path):
    return Attacker(quiet, tmp_path)


def refused(call, *arguments, says="privgate"):
    with pytest.raises(MlflowException, match=says) as caught:
        call(*arguments)
    assert "PERMISSION_DENIED" in str(caught.value)
    return str(caught.value)


class Attacker:
    """Somebody with every right but the server's: an approved model, one that is not, and the approval's text."""

    def __init__(self, registry, tmp_path):
        self.registry, self.client, self.tmp_path = registry, registry.client, tmp_path
        self.good, self.bad = registry.log("credit"), registry.log("credit", payload="not approved")
        registry.release("credit", self.good, alias="production")
        self.text = registry.held_text("credit", self.good)
        self.guard = Guard.load(registry.site.config)
        self.store = self.client._get_registry_client().store

    def source(self, version):
        return self.client.get_model_version("credit", version).source

    def ids(self):
        """Return the ids of the logged models, the approved one first."""
        return [self.source(version).rpartition("/")[2] for version in (self.good, self.bad)]

    def place(self):
        """Return the folder of the approved files."""
        return self.registry.folder / "artifacts" / self.registry.place("credit", self.good)

    def promote(self, name, version="1", alias="production"):
        self.client.set_registered_model_alias(name, alias, version)

    def empty(self, name):
        """Return the name of a new model without versions."""
        self.client.create_registered_model(name)
        return name

    def named(self, name, source):
        """Register a version with the approval's text under a name of its own and promote it."""
        self.promote(name, self.registry.create(self.empty(name), source, {TAG: self.text}).version)

    def copied(self, name, *, version=None, text=""):
        """Create a model and copy a version into it."""
        source, tags = f"models:/credit/{version or self.bad}", {TAG: text} if text else None
        return self.client.create_model_version(self.empty(name), source, tags=tags).version

    def rest(self, path, body, method="POST"):
        """Call the REST API itself; the answer of a refusal is raised as the client raises it."""
        status, answer = self.registry.post(path, body, method)
        if status >= 400:
            raise MlflowException(f"{answer.get('error_code')}: {answer.get('message')}")

    def rest_alias(self, path, alias="production"):
        self.rest(path, {"name": "credit", "alias": alias, "version": self.bad})

    def tag(self, text, version=None):
        self.client.set_model_version_tag("credit", version or self.bad, TAG, text)

    def rename_hidden(self):
        version = self.registry.log("staged")
        self.registry.release("staged", version, targets=(("staged", "Production"),))
        self.client.transition_model_version_stage("staged", version, "Production")
        self.client.set_model_version_tag("staged", version, HIDING, "true")
        self.client.rename_registered_model("staged", "moved")

    def resign(self, **changes):
        """Sign something else about the version that is released."""
        self.registry.sign("credit", self.good, **changes)

    def resign_earlier(self):
        early = self.registry.claims("credit", self.good).signed - timedelta(minutes=30)
        self.resign(signed=early, decided=early)

    def replay(self, **changes):
        """Sign something else about the bad version than was found, and promote that."""
        self.registry.sign("credit", self.bad, **changes)
        self.promote("credit", self.bad)

    def stage(self, version, stage="Production"):
        self.client.transition_model_version_stage("credit", version, stage)

    def forged(self, key_id=""):
        """Return an approval of the bad version by a stranger, perhaps under another's id."""
        raw = json.loads(self.registry.text(self.registry.claims("credit", self.bad), trusted.new_key()))
        raw["signatures"][0]["keyid"] = key_id or raw["signatures"][0]["keyid"]
        return json.dumps(raw)

    def edited(self):
        """Return a refusal that somebody made an approval."""
        refusal = self.registry.claims("credit", self.bad, passed=False, outcome="failed")
        raw = json.loads(self.registry.text(refusal))
        content = json.loads(base64.b64decode(raw["payload"]))
        content["predicate"]["verificationResult"] = "PASSED"
        content["predicate"][statement.EXTENSION]["outcome"] = "passed"
        return json.dumps({**raw, "payload": base64.b64encode(json.dumps(content).encode()).decode()})

    def detour(self):
        """Return the place of the bad version's files by a detour through the good one's."""
        good, bad = (self.client.get_model_version_download_uri("credit", v) for v in (self.good, self.bad))
        return f"{good}/../../{bad.split('/')[-2]}/artifacts"

    def prompt(self, name, *, version=True):
        """Let what is not approved call itself a prompt, by its version and its model."""
        self.registry.log(name, payload="a prompt")
        self.rest(f"{API}/registered-models/set-tag", {"name": name, "key": HIDING, "value": "true"})
        if version:
            body = {"name": name, "version": "1", "key": HIDING, "value": "true"}
            self.rest(f"{API}/model-versions/set-tag", body)
        self.store.set_registered_model_alias(name, "production", "1")

    def swap_names(self):
        version = self.copied("swap", text=self.text)
        self.client.rename_registered_model("swap", "prod.credit")
        self.promote("prod.credit", version)

    def rows(self, script):
        with self.registry.past() as past:
            past.executescript(script)

    def verify(self, **options):
        return verify("models:/credit@production", self.guard, tracking_uri=self.registry.address, **options)

    def answers(self, state="wrong"):
        return [a.text for a in examine(self.guard, tracking_uri=self.registry.address) if a.state == state]


API, UI, FILES = "/api/2.0/mlflow", "/ajax-api/2.0/mlflow", "/api/2.0/mlflow-artifacts/artifacts"
ALIAS, STAGE, NEW = "registered-models/alias", "model-versions/transition-stage", "model-versions/create"
STAGED = {"name": "credit", "version": "2", "stage": "Production", "archive_existing_versions": True}
EMPTY = '{"payload": "", "payloadType": "", "signatures": []}'
ODD = (
    "credit\u200b", "cre\u0301dit", "credit@production", "[c]redit", "*", "-credit", "Kredit Pr\u00fcfung", "x" * 257,
)  # fmt: skip

#: the number of the version that is not approved, spelled otherwise
NUMBERS = ("\uff12", "02", "+2", " 2", "2 ", "2_", "2.0", "2e0", "2\0", "0x2")

#: attack, what is said, how: each refused by the registry
WAYS = [
    ("alias", "there is no statement", lambda a: a.promote("credit", a.bad)),
    *(
        (f"alias by {path}", "", lambda a, p=path: a.rest_alias(p))
        for path in (f"/{API}/{ALIAS}", f"{API}/registered-models/%61lias", f"{UI}/{ALIAS}")
    ),
    *(
        (f"alias {spelled!a} by {api}", "may be taken for", lambda a, s=spelled, p=api: a.rest_alias(f"{p}/{ALIAS}", s))
        for spelled in ("PRODUCTION", "\uff50\uff52oduction", "production\n")
        for api in (API, UI)
    ),
    ("alias behind marks of direction", "",
     lambda a: a.store.set_registered_model_alias("credit", "\u202eproduction", a.bad)),
    ("alias by the interface of prompts", "", lambda a: a.store.set_prompt_alias("credit", "production", a.bad)),
    *((f"alias of version {n!a}", "", lambda a, n=n: a.promote("credit", n)) for n in NUMBERS),
    *((f"stage {s}", "", lambda a, s=s: a.stage(a.bad, s)) for s in ("Production", "PRODUCTION")),
    ("stage by the interface's own path", "", lambda a: a.rest(f"{UI}/{STAGE}", STAGED)),
    ("stage by an alias's statement", "", lambda a: a.stage(a.good)),
    ("another protected target", "", lambda a: a.promote("credit", a.good, "Production")),
    # names
    *((f"name {n[:20]!a}", "rename it|does not|characters", lambda a, n=n: a.named(n, a.source(a.bad))) for n in ODD),
    ("name in another case", "", lambda a: a.named("Credit", a.source(a.good))),
    ("name of a logged model", "", lambda a: a.named(a.ids()[0], a.source(a.bad))),
    ("name with a query", "", lambda a: a.named(f"{a.ids()[0]}?x", a.source(a.bad))),
    *((f"name {n!a} of a protected one", "", lambda a, n=n: a.copied(n)) for n in ("PROD.credit", "\uff50rod.credit")),
    # prompts: what a subject says of itself excepts nothing
    ("a prompt's model", "there is no statement.*under 'except'", lambda a: a.prompt("greeting", version=False)),
    ("a prompt", "there is no statement", lambda a: a.prompt("greeting2")),
    ("a prompt into a protected model", "there is no statement",
     lambda a: a.rest(f"{API}/{NEW}", {"name": a.empty("prod.prompt"), "source": "dummy-source",
                                       "tags": [{"key": HIDING, "value": "true"}]})),
    # protected models, renames, copies
    ("the good one's statement on the bad one", "not about this version",
     lambda a: (a.tag(a.text), a.promote("credit", a.bad))),
    ("a copy of the bad one into a protected model", "", lambda a: a.copied("prod.credit", text=a.text)),
    ("a copy to another name than was signed", "", lambda a: a.copied("prod.other", version=a.good)),
    ("a copy of the bad one in the same model", "",
     lambda a: a.promote("credit", a.client.create_model_version(
         "credit", f"models:/credit/{a.bad}", tags={TAG: a.text}).version)),
    ("a rename onto a protected name", "protected models are not renamed",
     lambda a: a.client.rename_registered_model(a.empty("plain"), "prod.plain")),
    ("swapped names", "", Attacker.swap_names),
    ("a rename of what is released", "holds protected alias",
     lambda a: a.client.rename_registered_model("credit", "moved")),
    ("a rename of a stage that a search hides", "is in stage Production", Attacker.rename_hidden),
    ("a file of the released one", "which is released",
     lambda a: a.rest(f"{FILES}/{a.registry.place('credit', a.good)}/weights.json", {}, "PUT")),
    ("a location by a detour", "", lambda a: a.named("raw", a.detour())),
    # statements and their terms
    *((f"a tag that is no statement: {t[:9]}", "", lambda a, t=t: a.tag(t)) for t in ("passed", "{}", EMPTY)),
    ("a stranger's statement", "no trusted key", lambda a: a.tag(a.forged())),
    ("a stranger's under a trusted id", "not valid", lambda a: a.tag(a.forged(a.guard.trust.keys[0].key_id))),
    ("a refusal edited into an approval", "not valid", lambda a: a.tag(a.edited())),
    ("a forged one with a new version", "no trusted key",
     lambda a: a.promote("credit", a.registry.create("credit", a.source(a.bad), {TAG: a.forged()}).version)),
    ("another version's on a released one", "",
     lambda a: a.tag(a.registry.text(a.registry.claims("credit", a.bad)), a.good)),
    ("a released one's for another target", "not allow", lambda a: a.resign(targets=(("credit", "staging"),))),
    ("an older statement on a released version", "signed later", Attacker.resign_earlier),
    ("the statement of a released version deleted", "released on it",
     lambda a: a.client.delete_model_version_tag("credit", a.good, TAG)),
    ("another registry's statement", "for registry", lambda a: a.replay(registry="another-registry")),
    ("a refusal", "not an approval", lambda a: a.replay(passed=False, outcome="failed")),
    ("another policy's statement", "", lambda a: a.replay(policy_digest="sha256:" + "c" * 64)),
    ("a statement for another target", "", lambda a: a.replay(targets=(("other", "production"),))),
    ("a statement about an earlier row", "", lambda a: a.replay(created=1)),
    ("an advisory statement", "", lambda a: a.replay(advisory=True)),
    ("a verdict of a time to come", "", lambda a: a.replay(decided=statement.now() + timedelta(days=1500))),
    ("an expired statement", "", lambda a: a.replay(expires=statement.now() - timedelta(seconds=1))),
]  # fmt: skip


def test_what_the_registry_sees_it_refuses(attacker):
    began, wrong = time.monotonic(), []
    for attack, says, way in WAYS:
        try:
            way(attacker)
        except MlflowException as exc:
            if not re.search(says, str(exc)):
                wrong.append((attack, str(exc)[:300]))
        else:
            wrong.append((attack, "LET THROUGH"))
    assert wrong == []
    assert time.monotonic() - began < 120
    assert attacker.client.get_model_version_by_alias("credit", "production").version == attacker.good
    assert attacker.verify().claims.version == attacker.good
    assert attacker.answers() == []


def test_what_was_signed_is_promoted_by_alias_stage_and_copy(registry, name):
    version, client, protected = registry.log(name), registry.client, f"prod.{name}"
    client.set_registered_model_alias(name, "staging", version)  # unprotected
    registry.sign(name, version)
    client.delete_model_version_tag(name, version, TAG)  # not released yet
    registry.sign(name, version)
    client.create_registered_model(protected)
    copy = client.copy_model_version(f"models:/{name}/{version}", protected)
    for model, number in ((name, version), (protected, copy.version)):
        client.set_registered_model_alias(model, "production", number)
        assert client.get_model_version_by_alias(model, "production").version == number
    registry.sign(name, version, targets=((name, "Production"), (name, "production")))
    assert client.transition_model_version_stage(name, version, "production").current_stage == "Production"
    client.delete_registered_model_alias(name, "production")
    refused(client.rename_registered_model, name, name + "-other", says="is in stage Production|is released on")


def test_the_gate_answers_the_probe_and_a_stock_client_and_no_stranger(registry, name):
    body = {"name": "privgate-probe", "alias": "x", "version": "1"}
    status, answer = registry.post(f"{API}/{ALIAS}", body)
    assert (status, answer["message"]) == (403, "privgate: probe: gate active")
    if registry.headers:
        assert registry.post(f"{API}/{ALIAS}", body, headers={})[0] == 401
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

    def ask_doctor():
        return [x for x in examine(Guard.load(site.config), tracking_uri=registry.address) if name in x.text]

    with site.restored():
        site.config.write_text(site.config.read_text() + '  except: ["prompt.*"]\n')
        client.set_prompt_alias(prompts[0], "production", 1)
        refused(client.set_prompt_alias, name, "production", 1)
        answers = ask_doctor()
    assert [(x.state, "needs no statement" in x.text) for x in answers] == [("fine", True)]
    (wrong,) = ask_doctor()
    assert f"models:/{prompts[0]}/1 as 'production' is released but does not verify" in wrong.text
    client.delete_prompt_alias(prompts[0], "production")


def test_other_writes_of_odd_names_pass(quiet):
    version = quiet.log("Kredit Pr\u00fcfung")
    for alias in ("staging", "pr0duction"):
        quiet.client.set_registered_model_alias("Kredit Pr\u00fcfung", alias, version)
    quiet.client.create_registered_model("PROD.credit")


def test_a_recreated_row_does_not_inherit_an_approval(registry, name):
    version, client = registry.log(name), registry.client
    text = registry.sign(name, version)
    source = client.get_model_version(name, version).source
    client.delete_registered_model(name)
    assert registry.log(name, payload="stolen") == version  # numbers start again
    client.set_model_version_tag(name, version, TAG, text)
    refused(client.set_registered_model_alias, name, "production", version)

    client.delete_registered_model(name)
    client.create_registered_model(name)
    again = registry.create(name, source, tags={TAG: text}).version
    refused(client.set_registered_model_alias, name, "production", again, says="deleted and created again")


def test_a_row_that_mixes_the_good_and_the_bad_model_is_not_released(attacker):
    """MLflow takes source, model id and run of a new version from whoever asks, each by itself."""
    good, bad = attacker.ids()
    for source, model_id in ((f"models:/{bad}", good), (f"models:/{good}/../{bad}", good), (f"models:///{bad}", good)):
        try:
            version = attacker.store.create_model_version("credit", source, tags=[], model_id=model_id).version
        except MlflowException:
            continue
        refused(attacker.tag, "x", version)
        body = {"name": "credit", "version": str(version), "key": TAG, "value": attacker.text}
        attacker.registry.post(f"{API}/model-versions/set-tag", body)
        refused(attacker.promote, "credit", version)
    assert attacker.verify().claims.version == attacker.good


# every route of the installed server


CHANGING = {"POST", "PUT", "PATCH", "DELETE"}


def list_routes():
    """Return (method, path) of every route of the installed server that may change something."""
    from mlflow.server import app as flask
    from mlflow.server.fastapi_app import app

    routes = {(m, r.rule) for r in flask.url_map.iter_rules() for m in (r.methods or set()) & CHANGING}
    todo = [(route, "") for route in app.routes]
    while todo:
        route, prefix = todo.pop()
        if inner := getattr(route, "original_router", None):
            todo += [(r, prefix + getattr(route.include_context, "prefix", "")) for r in inner.routes]
        else:
            routes |= {(m, prefix + route.path) for m in (getattr(route, "methods", None) or set()) & CHANGING}
    return sorted(routes)


#: what must hold after each call, whatever it was
RELEASED = """
SELECT name, version FROM registered_model_aliases WHERE alias = 'production'
UNION ALL SELECT name, version FROM model_versions WHERE current_stage = 'Production' OR name LIKE 'prod.%'
"""


def test_no_route_of_the_server_releases_what_is_not_approved(attacker):
    """Each is called with everything that a release could be asked by; what a reader is given is looked at after it."""
    good, bad = attacker.ids()
    values = {"model_id": good, "name": "credit", "version": attacker.bad, "alias": "production", "tag_key": TAG}
    body = {
        **values, "new_name": "prod.credit", "stage": "Production", "archive_existing_versions": True,
        "source": f"models:/{bad}", "key": TAG, "value": attacker.text, "tags": [{"key": TAG, "value": attacker.text}],
        "aliases": ["production"], "storage_location": f"models:/{bad}", "status": "READY", "description": "x",
        "query": 'mutation { setAlias(name: "credit", alias: "production", version: "2") { ok } }',
    }  # fmt: skip
    called = 0
    for method, rule in list_routes():
        if "/mlflow-artifacts/" in rule or "registered-models/delete" in rule or "model-versions/delete" in rule:
            continue  # files are another matter, and what deletes leaves nothing to look at
        path = re.sub(r"[<{](?:[a-z]+:)?([a-z_]+)(?::[a-z]+)?[>}]", lambda m: values.get(m[1], "x"), rule)
        with contextlib.suppress(TimeoutError):  # it waits for what nobody sends
            attacker.registry.post(path, body, method=method, timeout=5)
        called += 1
        with attacker.registry.past() as past:
            assert set(past.execute(RELEASED)) <= {("credit", int(attacker.good))}, (method, rule)
    assert called > 150


def test_a_guarded_server_runs_no_command_for_whoever_connects_from_its_host(registry):
    """MLflow's assistant would: a client sets the address of a model of its own, whose answers are run."""
    pytest.importorskip("mlflow.server.assistant.api")
    config = {"providers": {"openai_compatible": {"base_url": "http://127.0.0.1:1/v1", "selected": True}}}
    for path, method in (("config", "PUT"), ("message", "POST"), ("skills/install", "POST"), ("config", "GET")):
        status, _ = registry.post(f"/ajax-api/3.0/mlflow/assistant/{path}", {**config, "message": "ls"}, method)
        assert status in {404, 405}, path


@pytest.mark.parametrize("variable", ["MLFLOW_SERVER_ENABLE_CUSTOM_SCORERS", "MLFLOW_ENABLE_WORKSPACES"])
def test_a_server_that_runs_clients_code_or_has_workspaces_is_not_guarded(monkeypatch, variable):
    server.check_runs_nothing()
    monkeypatch.setenv(variable, "true")
    with pytest.raises(PolicyError, match=r"run code as this server|workspaces hold models"):
        server.check_runs_nothing()


# what is done past the registry, and must be found by whoever deploys, and by the doctor


def write_at(a, name, text):
    path = a.place() / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)


def link_to_elsewhere(a):
    elsewhere = a.tmp_path / "weights.json"
    (a.place() / "weights.json").rename(elsewhere).touch()
    (a.place() / "weights.json").symlink_to(elsewhere)


def replace_evidence(a):
    for path in (a.registry.folder / "artifacts").rglob("evidence.dsse.json"):
        path.write_text(a.text)


VERSIONS, NOTE = "UPDATE model_versions SET", "model_name: credit\nmodel_version: '1'\nmore: stolen\n"
PAST = {
    "storage of another": lambda a: a.rows(
        f"{VERSIONS} storage_location = '{a.client.get_model_version_download_uri('credit', a.bad)}' "
        f"WHERE version = {a.good}"),
    "source of another": lambda a: a.rows(f"{VERSIONS} source = '{a.source(a.bad)}' WHERE version = {a.good}"),
    "alias to another": lambda a: a.rows(f"UPDATE registered_model_aliases SET version = {a.bad}"),
    "number of another": lambda a: a.rows(
        f"{VERSIONS} version = 77 WHERE version = {a.good}; {VERSIONS} version = {a.good} WHERE version = {a.bad};"),
    "link to elsewhere": link_to_elsewhere,
    "file in privgates folder": lambda a: write_at(a, "privgate/extra.py", "stolen = True"),
    "note of mlflow": lambda a: write_at(a, "registered_model_meta", NOTE),
    "file renamed": lambda a: (a.place() / "weights.json").rename(a.place() / "Weights.json"),
    "logged model deleted": lambda a: a.client.delete_logged_model(a.ids()[0]),
    "folder that is a link": lambda a: (a.place() / "extra").symlink_to("/etc"),
    "pipe among the files": lambda a: os.mkfifo(a.place() / "pipe"),
    "evidence replaced": replace_evidence,
}  # fmt: skip


@pytest.mark.quick(3)
@pytest.mark.parametrize("way", PAST)
def test_what_goes_past_the_registry_is_found(attacker, tmp_path, monkeypatch, way):
    if "pipe" in way:  # a worker of gunicorn waits at it until it is ended
        monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
    attacker.verify(to=tmp_path / "before")
    PAST[way](attacker)
    results = {}
    for path, options in (("verify", {}), ("verify --to", {"to": tmp_path / "after"})):
        try:
            attacker.verify(**options)
            results[path] = "LET THROUGH"
        except PrivgateError:
            results[path] = "refused"
    results["doctor"] = "found" if attacker.answers() else "NOT FOUND"
    assert results == {"verify": "refused", "verify --to": "refused", "doctor": "found"}
    assert not (tmp_path / "after").exists()


def test_the_verified_files_are_handed_over_to_no_place_that_is_taken(attacker, tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    (tmp_path / "file").write_text("")
    for taken, says in (("link", "exists"), ("file", "exists"), (".", "exists"), ("file/below", "cannot be handed")):
        with pytest.raises(UsageError, match=says):
            attacker.verify(to=tmp_path / taken)
    assert not (tmp_path / "nowhere").exists()


def test_files_that_change_while_they_are_handed_over_are_not_handed_over(attacker, tmp_path, monkeypatch):
    """What is compared is the copy: no swap before or after the copying, and no second name of a file."""
    place, to, copytree = attacker.place(), tmp_path / "to", shutil.copytree
    attacker.rows(f"{VERSIONS} storage_location = '{place}' WHERE version = {attacker.good}")
    claims = attacker.registry.claims("credit", attacker.good, storage=str(place))
    weights, kept = place / "weights.json", (place / "weights.json").read_bytes()
    os.link(weights, tmp_path / "second-name")

    def hand_over(*, before="", after=""):
        def swap(*args, **options):
            weights.write_text(before or weights.read_text())
            copy = copytree(*args, **options)
            weights.write_text(after or weights.read_text())
            return copy

        monkeypatch.setattr("privgate.guard.verification.shutil.copytree", swap)
        return _hand_over(claims, all_files(place), place, "models:/credit/1", to)

    with pytest.raises(PrivgateError, match="not those that were checked"):
        hand_over(before="stolen")
    assert not to.exists()
    weights.write_bytes(kept)
    assert hand_over(after="stolen") == len(all_files(to))
    (tmp_path / "second-name").write_text("stolen by its second name")
    assert (to / "weights.json").read_bytes() == kept
    with pytest.raises(PrivgateError):
        verify(
            "models:/credit@production",
            attacker.guard,
            tracking_uri=f"sqlite:///{attacker.registry.folder}/tracking.db",
        )


def test_a_refusal_outlives_the_key_that_signed_it(attacker, site):
    """An older approval by a key that still counts takes its place neither here nor on a copy."""
    client, registry, short = attacker.client, attacker.registry, trusted.new_key()
    with site.restored():
        site.save(site.trust.add(fresh_key(short.public_key, days=1, models=("*",))))
        later = registry.claims("credit", attacker.good).signed + timedelta(seconds=20)
        refusal = {"passed": False, "outcome": "failed", "signed": later, "decided": later}
        attacker.tag(registry.text(registry.claims("credit", attacker.good, **refusal), short), attacker.good)
        # the window of its key ends, as at every rotation
        ending = site.trust.key(short.public_key.keyid)
        ended = dataclasses.replace(ending, not_after=statement.stamp(later))
        keys = tuple(ended if key is ending else key for key in site.trust.keys)
        site.save(dataclasses.replace(site.trust, keys=keys))
        client.delete_registered_model_alias("credit", "production")
        refused(attacker.tag, attacker.text, attacker.good, says="signed later")
        refused(client.delete_model_version_tag, "credit", attacker.good, TAG)
        copy = registry.create("credit", attacker.source(attacker.good), tags={TAG: attacker.text})
        refused(attacker.promote, "credit", copy.version, says="was refused since")
