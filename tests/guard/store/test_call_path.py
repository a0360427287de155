"""The guarded store in this process: races and failing databases, made to happen exactly when they hurt."""

import contextlib
import os
import shutil
import sqlite3
import threading

import mlflow
import pytest
import sqlalchemy
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import TEMPORARILY_UNAVAILABLE
from mlflow.store.model_registry.sqlalchemy_store import SqlAlchemyStore

from privgate.guard import config, rows, statement, writes
from privgate.guard import store as guard
from privgate.policy import Policy
from privgate.registry.named import TAG
from tests.guard.store.conftest import Registry

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")


class Own(Registry):
    """A guarded store over a database of this test's own, with a signed version; no server."""

    def __init__(self, site, folder):
        self.path, address = folder / "own.db", f"sqlite:///{folder}/own.db"
        super().__init__(address, site, folder)
        mlflow.set_tracking_uri(address)  # a database has no experiment service in between
        self.client.create_experiment("guard", artifact_location=(folder / "artifacts").as_uri())
        self.version = self.log("m")
        self.sign("m", self.version, targets=(("m", "production"), ("m", "Production")))
        self.store = guard.guarded_store(f"privgate:{address}")

    def promote(self):
        return self.store.set_registered_model_alias("m", "production", self.version)

    def stage(self):
        return self.store.transition_model_version_stage("m", self.version, "Production", False)

    @property
    def released(self):
        staged = self.client.get_model_version("m", self.version).current_stage == "Production"
        return dict(self.client.get_registered_model("m").aliases).get("production", staged or None)


@pytest.fixture
def own(empty_database, tmp_path, site, monkeypatch):
    monkeypatch.setenv("PRIVGATE_GUARD", str(site.config))
    shutil.copy(empty_database, tmp_path / "own.db")
    yield Own(site, tmp_path)
    mlflow.set_tracking_uri(None)


def not_answering(*_):
    raise MlflowException("database is locked", TEMPORARILY_UNAVAILABLE)


def broken(*_):
    raise AttributeError("another MLflow")


#: what is said, and its status; clients try again after a 503
SAID = {not_answering: ("the database did not answer; try again", 503), broken: ("could not be verified", 403)}


@pytest.mark.parametrize("read", ["_get_sql_model_version", "_privgate_read_row"])  # before the write, and after it
@pytest.mark.parametrize("target", ["promote", "stage"])
@pytest.mark.parametrize("failure", SAID)
def test_what_cannot_be_looked_at_was_never_written(own, monkeypatch, read, target, failure):
    monkeypatch.setattr(own.store, read, failure)
    with pytest.raises(MlflowException, match=r"did not answer; try again|could not be verified") as caught:
        getattr(own, target)()
    if target == "promote" and read == "_get_sql_model_version":
        assert (SAID[failure][0] in str(caught.value), caught.value.get_http_status_code()) == (True, SAID[failure][1])
    assert own.released is None


def from_outside(path, script, wait=0.2):
    """Write into the database past the store; return whether it let us."""
    other = sqlite3.connect(path, timeout=wait)
    try:
        with other:
            other.executescript(f"PRAGMA foreign_keys = ON; {script}")
    except sqlite3.OperationalError as exc:
        if "locked" not in str(exc):
            raise
        return False
    finally:
        other.close()
    return True


WRITES = {"promote": "set_registered_model_alias", "stage": "transition_model_version_stage"}
SCRIPTS = (
    "UPDATE model_versions SET storage_location = 'elsewhere' WHERE name = 'm'",
    "UPDATE registered_models SET name = 'n' WHERE name = 'm'",
    "DELETE FROM model_version_tags WHERE name = 'm'",
)


@pytest.mark.parametrize("target", WRITES)
def test_nothing_comes_between_a_promotion_and_its_check(own, monkeypatch, target):
    """Not even a writer past the guard: the database makes it wait until both are done."""
    plain, let = getattr(SqlAlchemyStore, WRITES[target]), []

    def late(self, *arguments):
        let.extend(from_outside(own.path, script) for script in SCRIPTS)
        done = plain(self, *arguments)
        let.extend(from_outside(own.path, script) for script in SCRIPTS)
        return done

    monkeypatch.setattr(SqlAlchemyStore, WRITES[target], late)
    getattr(own, target)()
    assert let == [False] * 6
    assert all(from_outside(own.path, script) for script in SCRIPTS)  # afterwards they may, and verify finds it


def test_a_renaming_from_outside_before_the_promotion_leaves_nothing_to_promote(own):
    assert from_outside(own.path, SCRIPTS[1])
    with pytest.raises(MlflowException, match="not found"):
        own.promote()
    assert dict(own.client.get_registered_model("n").aliases) == {}


def test_many_promotions_and_withdrawals_at_once_leave_what_was_signed(own):
    """Threads of one server: the alias is always at the signed version, or nowhere, and no call ends oddly."""
    unsigned = own.create("m", own.client.get_model_version("m", own.version).source).version
    ends = []

    def promote(version):
        for _ in range(10):
            try:
                own.store.set_registered_model_alias("m", "production", version)
                ends.append((version, "set"))
            except MlflowException as exc:
                ends.append((version, "refused" if "no statement" in str(exc) else str(exc)))
            if version == own.version:
                own.store.delete_registered_model_alias("m", "production")

    threads = [threading.Thread(target=promote, args=(v,)) for v in (own.version, unsigned) * 3]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(ends) == {(own.version, "set"), (unsigned, "refused")}
    assert own.released in {None, own.version}


def test_the_guard_does_not_believe_a_replica_that_lags_behind(own, tmp_path):
    """The replica still has the signed version; the primary has another of the same number and the same statement."""
    replica = tmp_path / "replica.db"
    shutil.copy(own.path, replica)
    client = own.client
    text = client.get_model_version("m", own.version).tags[TAG]
    client.delete_registered_model("m")
    own.log("m")
    client.set_model_version_tag("m", own.version, TAG, text)
    behind = sqlalchemy.orm.sessionmaker(sqlalchemy.create_engine(f"sqlite:///{replica}"))
    primary, replicas = own.store.ManagedSessionMaker, []

    @contextlib.contextmanager
    def sessions(read_only=True):
        if read_only:
            replicas.append(1)
            with behind() as session:
                yield session
        else:
            with primary(read_only=False) as session:
                yield session

    own.store.ManagedSessionMaker = sessions
    rows.share_sessions(own.store)
    assert own.store.get_model_version("m", own.version).source != client.get_model_version("m", own.version).source
    before = len(replicas)
    with pytest.raises(MlflowException, match=r"deleted and created again|not the one that was signed|lie elsewhere"):
        own.promote()
    assert len(replicas) == before > 0
    assert own.released is None


def test_a_key_revoked_while_the_files_were_being_read_counts_at_the_next_call(site, monkeypatch):
    """The stamps of the files are taken before the content that is kept."""
    load, loads, kept = config.Guard.load, [], config.Watch(site.config)

    def loading(path):
        content = load(path)
        loads.append(path)
        if len(loads) == 2:  # after the content that is kept was read
            site.save(site.trust.revoke(site.signer.public_key.keyid, at=statement.now()))
        return content

    monkeypatch.setattr(config.Guard, "load", loading)
    with site.restored():
        assert not kept.guard().trust.keys[0].revoked
        assert kept.guard().trust.keys[0].revoked


def test_a_policy_that_was_tightened_anywhere_below_counts_for_the_next_promotion(own, site, tmp_path, monkeypatch):
    text = "schema: privgate/policy/v1\nname: {}\nversion: 1.0.0\n{}"
    rule = "rules:\n  - {{id: {}, metric: dtp, max: {}}}\n"
    expectation = '{"type": "expect_column_values_to_be_between", "kwargs": {"column": "age", "max_value": 99}}'
    files = {
        "root.yaml": text.format("root", "data: {suite: suite.json, min_rows: 50}\n" + rule.format("r", "1.0")),
        "base.yaml": text.format("base", "extends: root.yaml\n" + rule.format("b", "1.1")),
        "child.yaml": text.format("child", "extends: base.yaml\n" + rule.format("c", "1.2")),
        "suite.json": f'{{"name": "people", "expectations": [{expectation}]}}',
        "trust.json": (site.folder / "trust.json").read_text(),
        "guard.yaml": site.config.read_text().replace("dtp-1", "child.yaml"),
    }
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    monkeypatch.setenv("PRIVGATE_GUARD", str(tmp_path / "guard.yaml"))
    own.store = guard.guarded_store(f"privgate:sqlite:///{own.path}")
    policy = Policy.load(tmp_path / "child.yaml")
    own.sign("m", own.version, policy=policy.name, policy_digest=policy.digest)
    own.promote()
    for changed in ("child.yaml", "base.yaml", "root.yaml", "suite.json"):
        own.store.delete_registered_model_alias("m", "production")
        path = tmp_path / changed
        before = path.stat()
        path.write_text(files[changed].replace("max: 1.", "max: 0.").replace("99", "90"))  # as long as it was
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        with pytest.raises(MlflowException, match="policy"):
            own.promote()
        path.unlink()
        with pytest.raises(MlflowException):
            own.promote()
        assert own.released is None, changed
        path.write_text(files[changed])
        own.promote()
        assert own.released == own.version, changed


def test_a_second_write_in_the_same_tick_of_a_clock_counts(site, tmp_path, monkeypatch):
    for name in ("guard.yaml", "trust.json"):
        shutil.copy(site.folder / name, tmp_path / name)
    path = tmp_path / "guard.yaml"
    kept, real, still = config.Watch(path), type(path).stat, path.stat()
    monkeypatch.setattr(type(path), "stat", lambda self, **more: still if self == path else real(self, **more))
    assert kept.guard().registry == "test-registry"
    path.write_text(site.config.read_text().replace("test-registry", "rest-registry"))
    assert kept.guard().registry == "rest-registry"


def test_a_key_revoked_while_a_promotion_waited_for_its_turn_counts(own, site, monkeypatch):
    begin = writes.transaction

    @contextlib.contextmanager
    def wait(store, model):
        with begin(store, model) as session:
            site.save(site.trust.revoke(site.signer.public_key.keyid, at=statement.now()))
            yield session

    monkeypatch.setattr(writes, "transaction", wait)
    with site.restored(), pytest.raises(MlflowException, match="refused"):
        own.promote()
    assert own.released is None
