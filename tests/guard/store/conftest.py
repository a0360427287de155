"""A guarded server, a key that counts, and models whose files are really there."""

import base64
import contextlib
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
import numpy as np
import pytest
import sqlalchemy
from mlflow.exceptions import MlflowException
from sklearn.naive_bayes import CategoricalNB

from privgate import Domain, Recipe, TrainingData, digest, log_model
from privgate.guard import keys as truststore
from privgate.guard import statement
from privgate.guard.keys import fresh_key, seal
from privgate.guard.signing import Signed, attach_statement
from privgate.guard.statement import Claims
from privgate.policy import Policy
from privgate.registry.client import connect, stored_files
from privgate.registry.files import all_files
from privgate.registry.named import TAG, Row

CONFIG = """\
schema: privgate/guard/v2
registry: test-registry
trust: trust.json
releases: [{models: "*", task: classification, policy: dtp-1}]
accept_unboxed: true
protected:
  aliases: [production]
  stages: [Production]
  models: ["prod.*"]
"""
PASSWORD = "of-this-test-alone"
#: MLflow hides what has this tag from every search
HIDING = "mlflow.prompt.is_prompt"

X = np.random.default_rng(3).integers(0, 3, size=(40, 4))
DATA = TrainingData(
    X, (X[:, 0] > 0).astype(int), candidates=(X[:10].copy(), np.ones(10, int)),
    domain=Domain(categories=(3,) * 4), one_record_each=True,
)  # fmt: skip
#: a recipe that passes the policy; a decision tree does not
GOOD = Recipe(CategoricalNB(alpha=5.0, min_categories=3))


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
        self.env = {"PRIVGATE_GUARD": str(self.config)}

    def save(self, store):
        self.trust = store
        store.save(self.folder / "trust.json")

    @contextlib.contextmanager
    def restored(self):
        """Put configuration and trust back when this ends."""
        config, trust = self.config.read_text(), self.trust
        try:
            yield self
        finally:
            self.config.write_text(config)
            self.save(trust)


class Registry:
    """A client of one registry, with what tests of the guard need; ``headers`` go with each call of its REST API."""

    def __init__(self, address, site, folder=None):
        self.address, self.site, self.folder, self.headers = address, site, folder, {}
        self.client = mlflow.MlflowClient(address, registry_uri=address)

    def log(self, name, payload="weights"):
        """Register a tiny logged model (not trained: nothing here opens it) and return its version."""
        experiment = self.client.get_experiment_by_name("guard")
        experiment_id = experiment.experiment_id if experiment else self.client.create_experiment("guard")
        logged = self.client._tracking_client.create_logged_model(experiment_id, name="model")
        folder = self.site.folder / "upload"
        folder.mkdir(exist_ok=True)
        (folder / "MLmodel").write_text("flavors: {python_function: {loader_module: json}}\n")
        (folder / "weights.json").write_text(json.dumps(payload))
        self.client.log_model_artifacts(logged.model_id, str(folder))
        with contextlib.suppress(MlflowException):  # another version of the same model
            self.client.create_registered_model(name)
        return self.create(name, f"models:/{logged.model_id}").version

    def log_recipe(self, name, recipe=GOOD):
        """Train, log and register a real model; return the logged model's id."""
        return log_model(
            recipe, DATA, registered_model_name=name, tracking_uri=self.address, store="artifacts"
        ).model_id

    def create(self, name, source, tags=None):
        """Create a version; the server wants to know the logged model that holds the source."""
        model_id = source.rpartition("/")[2] if source.startswith("models:/m-") and source.count("/") == 1 else None
        return self.client.create_model_version(name, source, tags=tags, model_id=model_id)

    def claims(self, name, version, **changes):
        """Return what an honest statement about a version says, with some things changed."""
        held = self.client.get_model_version(name, str(version))
        storage = self.client.get_model_version_download_uri(name, str(version))
        row = Row.read(name, held, storage, held.creation_timestamp)
        now = statement.now().replace(microsecond=0)
        honest = Claims(
            registry="test-registry", name=name, version=str(version), source=row.source, storage=row.storage,
            model_id=row.storage.split("/")[-2], run_id=row.run_id, created=row.created,
            files=changes.pop("files", "") or digest.of_manifest(self.files(row.storage)), versions=1, digests={},
            policy="dtp-1", policy_digest=self.site.policy.digest, report="sha256:" + "b" * 64,
            evidence="sha256:" + "e" * 64, outcome="passed", passed=True, decided=now, signed=now,
            expires=now + timedelta(days=30), targets=((name, "production"), (f"prod.{name}", "production")),
            advisory=False,
        )  # fmt: skip
        return dataclasses.replace(honest, **changes)

    def files(self, location):
        """Return the digests of the files at a location, read as a consumer reads them."""
        with stored_files(connect(self.address), location) as folder:
            return all_files(folder)

    def place(self, name, version):
        """Return where the files of a version lie below the server's destination."""
        return self.client.get_model_version_download_uri(name, version).removeprefix("mlflow-artifacts:/")

    def text(self, claims, signer=None):
        return seal(claims.summary("test"), signer or self.site.signer).text()

    def sign(self, name, version, **changes):
        """Put a signed statement on a version and return it."""
        text = self.text(self.claims(name, version, **changes))
        self.client.set_model_version_tag(name, str(version), TAG, text)
        return text

    def release(self, name, version, *, alias="", **changes):
        """Sign as privgate guard sign does: verdict in the tag, report and evidence with the model's run."""
        report = b'{"report": "of the test"}'
        claims = self.claims(name, version, report=statement.payload_digest(report), **changes)
        evidence = seal(claims.evidence_statement({"findings": []}, self.files(claims.storage)), self.site.signer)
        claims = dataclasses.replace(claims, evidence=statement.payload_digest(evidence.payload))
        signed = Signed(claims, evidence, seal(claims.summary("test"), self.site.signer), report)
        attach_statement(signed, tracking_uri=self.address)
        if alias:
            self.client.set_registered_model_alias(name, alias, version)
        return claims

    def held_text(self, name, version):
        """Return the statement that a version carries."""
        return self.client.get_model_version(name, version).tags[TAG]

    def post(self, path, body, method="POST", headers=None, timeout=30):
        """Call the REST API itself; return (status, decoded answer)."""
        headers = {"Content-Type": "application/json", **(self.headers if headers is None else headers)}
        request = urllib.request.Request(self.address + path, json.dumps(body).encode(), headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                return answer.status, json.loads(answer.read() or b"{}")
        except urllib.error.HTTPError as exc:
            text = exc.read()
            try:
                return exc.code, json.loads(text or b"{}")
            except ValueError:  # a page, not an answer
                return exc.code, {"message": text.decode(errors="replace")}

    def empty(self):
        """Forget every model that the registry's SQLite database holds; return this registry."""
        tables = ("registered_model_aliases", "model_version_tags", "registered_model_tags", "model_versions")
        with self.past() as rows:
            for table in (*tables, "registered_models"):
                rows.execute(f"DELETE FROM {table}")
        return self

    def past(self):
        """Return a connection to the registry's SQLite database, past the server."""
        return sqlite3.connect(self.folder / "tracking.db", timeout=30)


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    return Site(tmp_path_factory.mktemp("site"))


@pytest.fixture(scope="session")
def guarded_folder(tmp_path_factory):
    """The folder of the guarded server: ``tracking.db`` and ``artifacts``."""
    return tmp_path_factory.mktemp("guarded")


@pytest.fixture(scope="session")
def running_guarded(running_mlflow, site):
    """Return a context manager that runs a guarded server: the registry of (folder, *options, env=..., site=...)."""

    @contextlib.contextmanager
    def run_server(folder, *options, env=(), site=site, **more):
        if "--registry-store-uri" not in options:
            options += ("--registry-store-uri", f"privgate:sqlite:///{folder}/tracking.db")
        with running_mlflow(folder, *options, env={**site.env, **dict(env)}, **more) as address:
            yield Registry(address, site, folder)

    return run_server


def send_as(user, password=PASSWORD):
    """Return the headers of a user's requests."""
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


def want_passwords(folder):
    """Configure MLflow's basic-auth app, whose users begin without any right; return options and environment."""
    pytest.importorskip("flask_wtf", reason="MLflow's basic-auth app needs Flask-WTF (mlflow[auth])")
    (folder / "auth.ini").write_text(
        f"[mlflow]\ndefault_permission = NO_PERMISSIONS\nauth_cache_ttl_seconds = 60\n"
        f"database_uri = sqlite:///{folder}/auth.db\nadmin_username = admin\nadmin_password = {PASSWORD}\n"
        "authorization_function = mlflow.server.auth:authenticate_request_basic_auth\n"
    )
    env = {"MLFLOW_AUTH_CONFIG_PATH": f"{folder}/auth.ini", "MLFLOW_FLASK_SERVER_SECRET_KEY": "of this test"}
    return ("--app-name", "basic-auth"), env


@pytest.fixture(scope="session")
def guarded_server(guarded_folder, running_guarded):
    """A guarded server for the whole session; use names of your own in it."""
    # a webhook of a test is delivered at once, to loopback, over plain HTTP
    env = {
        "MLFLOW_WEBHOOK_ALLOWED_SCHEMES": "http,https",
        "MLFLOW_WEBHOOK_ALLOW_PRIVATE_IPS": "true",
        "MLFLOW_WEBHOOK_CACHE_TTL": "0",
    }
    options = ("--artifacts-destination", f"privgate:{guarded_folder}/artifacts")
    with running_guarded(guarded_folder, *options, env=env) as registry:
        yield registry.address


@pytest.fixture
def quiet(registry):
    """A guarded registry that holds nothing but what this test puts there."""
    return registry.empty()


@pytest.fixture(autouse=True)
def own_place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    for name in [n for n in os.environ if n.startswith("MLFLOW_") and n != "MLFLOW_HTTP_REQUEST_MAX_RETRIES"]:
        monkeypatch.delenv(name)


@pytest.fixture
def registry(guarded_server, site, guarded_folder):
    return Registry(guarded_server, site, guarded_folder)


@pytest.fixture
def name(request):
    return "m-" + "".join(c for c in request.node.name if c.isalnum())[:80]


@pytest.fixture(scope="session")
def postgres(tmp_path_factory, free_port):
    """A real PostgreSQL server of our own on a loopback socket; skip, saying why, where it is not installed."""
    hidden = "initdb" in os.environ.get("PRIVGATE_TESTS_HIDE", "")
    homes = [] if hidden else sorted(map(str, Path("/usr/lib/postgresql").glob("*/bin")))
    initdb = shutil.which("initdb", path=os.pathsep.join([*homes[::-1], os.environ["PATH"]]))
    if initdb is None:
        pytest.skip("PostgreSQL's server programs are not installed (Debian package postgresql)")
    folder, as_user, user = tmp_path_factory.mktemp("postgres"), [], getpass.getuser()
    # PostgreSQL refuses to run as root; an unprivileged user then owns its folder
    if os.geteuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("running as root without setpriv: PostgreSQL cannot be started")
        folder, user = Path(tempfile.mkdtemp(prefix="privgate-postgres-", dir="/var/tmp")), "nobody"
        shutil.chown(folder, user)
        as_user = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"]

    def run_program(program, *options):
        command = [*as_user, str(Path(initdb).with_name(program)), "-D", str(folder / "data"), *options]
        return subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd="/")

    run_program("initdb", "-A", "trust", "-U", user, "--no-sync")
    port = free_port()
    options = f"-p {port} -k {folder} -c listen_addresses=127.0.0.1 -c fsync=off"
    run_program("pg_ctl", "-w", "-o", options, "-l", str(folder / "log"), "start")
    try:
        yield f"postgresql+psycopg2://{user}@127.0.0.1:{port}/postgres"
    finally:
        run_program("pg_ctl", "-w", "-m", "immediate", "stop")
        if as_user:
            shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session", params=[pytest.param(n, marks=pytest.mark.slow) for n in ("1", "2")])
def on_postgres(postgres, tmp_path_factory, running_guarded, request):
    """A guarded registry on PostgreSQL, of one worker or two; use names of your own in it."""
    folder = tmp_path_factory.mktemp("on-postgres")
    options = ("--registry-store-uri", f"privgate:{postgres}", "--backend-store-uri", postgres)
    with running_guarded(folder, *options, "--workers", request.param) as registry:
        registry.database = postgres
        yield registry


#: how many transactions wait for a lock
WAITING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"


@pytest.fixture
def database(on_postgres):
    """Connections of the database's owner, each statement a transaction."""
    engine = sqlalchemy.create_engine(on_postgres.database, isolation_level="AUTOCOMMIT", poolclass=sqlalchemy.NullPool)
    yield engine
    engine.dispose()
