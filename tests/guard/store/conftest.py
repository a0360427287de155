"""A guarded server, a key that counts, and models whose files are really there."""

import dataclasses
import getpass
import json
import os
import shutil
import sqlite3
import subprocess
import tempfile
import urllib.error
import urllib.request
from datetime import timedelta
from pathlib import Path

import mlflow
import pytest
from mlflow.exceptions import MlflowException

from privgate import digest
from privgate.guard import keys as truststore
from privgate.guard import statement
from privgate.guard.keys import fresh_key, seal
from privgate.guard.signing import TAG, Signed, attach_statement, row_and_statement
from privgate.guard.statement import Claims
from privgate.policy import Policy
from privgate.registry.client import connect, stored_files

CONFIG = """\
schema: privgate/guard/v1
registry: test-registry
trust: trust.json
policy: dtp-1
accept_unboxed: true
protected:
  aliases: [production]
  stages: [Production]
  models: ["prod.*"]
"""


class Site:
    """An operator's folder: configuration, trust store and signing key."""

    def __init__(self, folder: Path):
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.signer = truststore.new_key()
        self.save(truststore.TrustStore((fresh_key(self.signer.public_key, days=90, models=("*",)),)))
        self.config = folder / "guard.yaml"
        self.config.write_text(CONFIG)
        self.policy = Policy.load("dtp-1")

    def save(self, store):
        self.trust = store
        store.save(self.folder / "trust.json")

    @property
    def env(self):
        return {"PRIVGATE_GUARD": str(self.config)}


class Registry:
    """A client of one registry, with what tests of the guard need."""

    def __init__(self, address, site):
        self.address, self.site = address, site
        self.client = mlflow.MlflowClient(address, registry_uri=address)

    def log(self, name, payload="weights"):
        """Register a tiny logged model (not trained: nothing here opens it) and return its version."""
        experiment = self.client.get_experiment_by_name("guard")
        experiment_id = experiment.experiment_id if experiment else self.client.create_experiment("guard")
        made = self.client._tracking_client.create_logged_model(experiment_id, name="model")
        folder = self.site.folder / "upload"
        folder.mkdir(exist_ok=True)
        (folder / "MLmodel").write_text("flavors: {python_function: {loader_module: json}}\n")
        (folder / "weights.json").write_text(json.dumps(payload))
        self.client.log_model_artifacts(made.model_id, str(folder))
        try:
            self.client.create_registered_model(name)
        except mlflow.MlflowException as exc:
            if exc.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
        return self.create(name, f"models:/{made.model_id}").version

    def create(self, name, source, tags=None):
        """Create a version; the server wants to know the logged model that holds the source."""
        model_id = source.rpartition("/")[2] if source.startswith("models:/m-") and source.count("/") == 1 else None
        return self.client.create_model_version(name, source, tags=tags, model_id=model_id)

    def claims(self, name, version, tmp_path, **changes):
        """Return what an honest statement about a version says, with some things changed."""
        row, _ = row_and_statement(self.client, name, str(version))
        now = statement.now().replace(microsecond=0)
        made = Claims(
            registry="test-registry",
            name=name,
            version=str(version),
            source=row.source,
            storage=row.storage,
            model_id=row.storage.split("/")[-2],
            run_id=row.run_id,
            created=row.created,
            files=digest.of_manifest(self.files(row.storage)),
            versions=1,
            digests={},
            policy="dtp-1",
            policy_digest=self.site.policy.digest,
            report="sha256:" + "b" * 64,
            evidence="sha256:" + "e" * 64,
            outcome="passed",
            passed=True,
            decided=now,
            signed=now,
            expires=now + timedelta(days=30),
            targets=((name, "production"), (f"prod.{name}", "production")),
            advisory=False,
        )
        return dataclasses.replace(made, **changes)

    def files(self, location):
        """Return the digests of the files at a location, read as a consumer reads them."""
        with stored_files(connect(self.address), location) as stored:
            return stored.digests()

    def text(self, claims, signer=None):
        return seal(claims.summary("test"), signer or self.site.signer).text()

    def sign(self, name, version, tmp_path, **changes):
        """Put a signed statement on a version and return it."""
        text = self.text(self.claims(name, version, tmp_path, **changes))
        self.client.set_model_version_tag(name, str(version), TAG, text)
        return text

    def release(self, name, version, tmp_path, **changes):
        """Sign as privgate guard sign does: verdict in the tag, report and evidence with the model's run."""
        report = b'{"report": "of the test"}'
        claims = self.claims(name, version, tmp_path, report=statement.payload_digest(report), **changes)
        evidence = seal(claims.evidence_statement({"findings": []}, self.files(claims.storage)), self.site.signer)
        claims = dataclasses.replace(claims, evidence=statement.payload_digest(evidence.payload))
        signed = Signed(claims, evidence, seal(claims.summary("test"), self.site.signer), report)
        attach_statement(signed, tracking_uri=self.address)
        return claims

    def post(self, path, body, method="POST", headers=None, timeout=30):
        """Call the REST API itself; return (status, decoded answer)."""
        request = urllib.request.Request(
            self.address + path,
            data=json.dumps(body).encode(),
            method=method,
            headers={"Content-Type": "application/json", **(headers or {})},
        )
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                return answer.status, json.loads(answer.read() or b"{}")
        except urllib.error.HTTPError as exc:
            text = exc.read()
            try:
                return exc.code, json.loads(text or b"{}")
            except ValueError:  # a page, not an answer
                return exc.code, {"message": text.decode(errors="replace")}


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    return Site(tmp_path_factory.mktemp("site"))


@pytest.fixture(scope="session")
def guarded_folder(tmp_path_factory):
    """The folder of the guarded server: ``tracking.db`` and ``artifacts``."""
    return tmp_path_factory.mktemp("guarded")


@pytest.fixture(scope="session")
def guarded_server(guarded_folder, site, running_mlflow):
    """A guarded server for the whole session; use names of your own in it."""
    options = ("--registry-store-uri", f"privgate:sqlite:///{guarded_folder}/tracking.db")
    options += ("--artifacts-destination", f"privgate:{guarded_folder}/artifacts")
    # a webhook of a test is delivered at once, to loopback, over plain HTTP
    env = {
        "MLFLOW_WEBHOOK_ALLOWED_SCHEMES": "http,https",
        "MLFLOW_WEBHOOK_ALLOW_PRIVATE_IPS": "true",
        "MLFLOW_WEBHOOK_CACHE_TTL": "0",
    }
    with running_mlflow(guarded_folder, *options, env={**site.env, **env}) as address:
        yield address


@pytest.fixture
def quiet(guarded_server, site, guarded_folder):
    """A guarded registry that holds nothing but what this test puts there; ``folder`` is its server's."""
    with sqlite3.connect(guarded_folder / "tracking.db", timeout=30) as rows:
        for table in ("registered_model_aliases", "model_version_tags", "registered_model_tags", "model_versions"):
            rows.execute(f"DELETE FROM {table}")
        rows.execute("DELETE FROM registered_models")
    made = Registry(guarded_server, site)
    made.folder = guarded_folder
    return made


@pytest.fixture(autouse=True)
def own_place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    for name in [n for n in os.environ if n.startswith("MLFLOW_") and n != "MLFLOW_HTTP_REQUEST_MAX_RETRIES"]:
        monkeypatch.delenv(name)


@pytest.fixture
def registry(guarded_server, site):
    return Registry(guarded_server, site)


@pytest.fixture
def name(request):
    return "m-" + "".join(c for c in request.node.name if c.isalnum())[:80]


@pytest.fixture(scope="session")
def registry_type():
    return Registry


def ways(registry, name, version):
    """Give (way, method of the client and arguments, REST path and body)."""
    client = registry.client
    source = client.get_model_version(name, version).source
    model_id = source.rpartition("/")[2]
    alias = "registered-models/alias"
    for spelling in ("production", "PRODUCTION", "ｐｒｏｄｕｃｔｉｏｎ"):
        body = {"name": name, "alias": spelling, "version": version}
        yield f"alias {spelling}", (client.set_registered_model_alias, name, spelling, version), (alias, body)
    body = {"name": name, "version": version, "stage": "Production", "archive_existing_versions": False}
    stage = (client.transition_model_version_stage, name, version, "Production")
    yield "stage Production", stage, ("model-versions/transition-stage", body)
    body = {"name": f"prod.{name}", "source": source, "model_id": model_id}
    yield "new version of prod.*", (registry.create, f"prod.{name}", source), ("model-versions/create", body)
    copied = f"models:/{name}/{version}"
    body = {"name": f"prod.{name}", "source": copied}
    yield "copy into prod.*", (client.copy_model_version, copied, f"prod.{name}"), ("model-versions/create", body)
    body = {"name": name, "new_name": f"prod.{name}-2"}
    yield (
        "rename onto prod.*",
        (client.rename_registered_model, name, f"prod.{name}-2"),
        ("registered-models/rename", body),
    )
    body = {"name": name, "version": version, "key": "privgate.statement", "value": "passed"}
    forged = (client.set_model_version_tag, name, version, "privgate.statement", "passed")
    yield "forged statement tag", forged, ("model-versions/set-tag", body)


def by_client(call):
    try:
        call[0](*call[1:])
    except MlflowException as exc:
        return "refused" if "privgate" in str(exc) and "PERMISSION_DENIED" in str(exc) else f"error: {exc}"
    return "LET THROUGH"


def by_rest(registry, api, path, body):
    status, answer = registry.post(f"/{api}/2.0/mlflow/{path}", body)
    if status == 403 and "privgate" in answer["message"]:
        return "refused (403)"
    return "LET THROUGH" if status == 200 else f"{status} {answer}"


@pytest.fixture(scope="session")
def tried():
    """Return a function that tries every way around for an unsigned version: rows of (way, client, REST, UI path)."""

    def rows(registry, name, version):
        registry.client.create_registered_model(f"prod.{name}")
        return [
            (way, by_client(call), *(by_rest(registry, api, path, body) for api in ("api", "ajax-api")))
            for way, call, (path, body) in ways(registry, name, version)
        ]

    return rows


@pytest.fixture(scope="session")
def site_type():
    return Site


@pytest.fixture(scope="session")
def postgres(tmp_path_factory, free_port):
    """A real PostgreSQL server of our own on a loopback socket; skip, saying why, where it is not installed."""
    hidden = "initdb" in os.environ.get("PRIVGATE_TESTS_HIDE", "")
    homes = [] if hidden else sorted(map(str, Path("/usr/lib/postgresql").glob("*/bin")))
    found = shutil.which("initdb", path=os.pathsep.join([*homes[::-1], os.environ["PATH"]]))
    if found is None:
        pytest.skip("PostgreSQL's server programs are not installed (Debian package postgresql)")
    home = Path(found).parent
    folder = tmp_path_factory.mktemp("postgres")
    # PostgreSQL refuses to run as root; an unprivileged user then owns its folder
    as_user = []
    if os.geteuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("running as root without setpriv: PostgreSQL cannot be started")
        folder = Path(tempfile.mkdtemp(prefix="privgate-postgres-", dir="/var/tmp"))
        shutil.chown(folder, "nobody")
        as_user = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"]
    user = "nobody" if as_user else getpass.getuser()
    data = folder / "data"
    subprocess.run(
        [*as_user, found, "-D", str(data), "-A", "trust", "-U", user], check=True, capture_output=True, cwd="/"
    )
    port = free_port()
    options = f"-p {port} -k {folder} -c listen_addresses=127.0.0.1 -c fsync=off"
    control = [*as_user, str(home / "pg_ctl"), "-D", str(data), "-w"]
    subprocess.run(
        [*control, "-o", options, "-l", str(folder / "log"), "start"], check=True, stdout=subprocess.DEVNULL, cwd="/"
    )
    try:
        yield f"postgresql+psycopg2://{user}@127.0.0.1:{port}/postgres"
    finally:
        subprocess.run([*control, "-m", "immediate", "stop"], check=False, stdout=subprocess.DEVNULL, cwd="/")
        if as_user:
            shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session", params=["1", pytest.param("2", marks=pytest.mark.slow)])
def on_postgres(postgres, tmp_path_factory, site, running_mlflow, request):
    """A guarded registry on PostgreSQL, of one worker or two; use names of your own in it."""
    folder = tmp_path_factory.mktemp("on-postgres")
    options = ("--registry-store-uri", f"privgate:{postgres}", "--backend-store-uri", postgres)
    options += ("--workers", request.param)
    with running_mlflow(folder, *options, env=site.env) as address:
        made = Registry(address, site)
        made.database, made.folder = postgres, folder
        yield made
