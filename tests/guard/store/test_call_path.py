"""The guarded store in this process: races and failing databases, made to happen exactly when they hurt."""

import contextlib
import shutil
import sqlite3

import mlflow
import pytest
import sqlalchemy
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import TEMPORARILY_UNAVAILABLE
from mlflow.store.model_registry.sqlalchemy_store import SqlAlchemyStore

from privgate.guard import guard, watch, writes
from privgate.guard.signing import TAG


class Own:
    """A guarded store over a database of this test's own, with a signed version; no server."""

    def __init__(self, registry, store, path, version):
        self.registry, self.store, self.path, self.version = registry, store, path, version

    def promote(self):
        return self.store.set_registered_model_alias("m", "production", self.version)

    @property
    def released(self):
        return dict(self.registry.client.get_registered_model("m").aliases).get("production")


@pytest.fixture
def own(empty_database, tmp_path, site, registry_type, monkeypatch):
    monkeypatch.setenv("PRIVGATE_GUARD", str(site.config))
    path = tmp_path / "own.db"
    shutil.copy(empty_database, path)
    uri = f"sqlite:///{path}"
    registry = registry_type(uri, site)
    registry.client.create_experiment("guard", artifact_location=(tmp_path / "artifacts").as_uri())
    monkeypatch.setattr(registry, "log", lambda name: _log(registry, name))
    version = registry.log("m")
    registry.sign("m", version, tmp_path)
    yield Own(registry, guard.guarded(f"privgate:{uri}"), path, version)
    mlflow.set_tracking_uri(None)


def _log(registry, name):
    """Register as the registry's own method does; a database has no experiment service in between."""
    mlflow.set_tracking_uri(registry.address)
    return type(registry).log(registry, name)


def test_a_signed_version_is_promoted(own):
    own.promote()
    assert own.released == own.version


def not_answering(*_):
    raise MlflowException("database is locked", TEMPORARILY_UNAVAILABLE)


def test_a_database_that_does_not_answer_is_said_as_that_and_promotes_nothing(own, monkeypatch):
    monkeypatch.setattr(own.store, "_get_sql_model_version", not_answering)
    with pytest.raises(MlflowException, match="the database did not answer; try again") as caught:
        own.promote()
    assert caught.value.get_http_status_code() == 503  # which clients try again
    assert own.released is None


def broken(*_):
    raise AttributeError("another MLflow")


def test_a_store_that_cannot_be_read_promotes_nothing(own, monkeypatch):
    monkeypatch.setattr(own.store, "_get_sql_model_version", broken)
    with pytest.raises(MlflowException, match="could not be verified") as caught:
        own.promote()
    assert caught.value.get_http_status_code() == 403
    assert own.released is None


@pytest.mark.parametrize("target", ["alias", "stage"])
@pytest.mark.parametrize(
    ("failure", "times", "stays"), [(not_answering, 1, True), (not_answering, 9, False), (broken, 1, False)]
)
def test_what_cannot_be_read_again_after_the_write_is_withdrawn(
    own, monkeypatch, target, failure, times, stays, tmp_path
):
    """A database that comes back in time changes nothing."""
    if target == "stage":
        own.registry.sign("m", own.version, tmp_path / "again", targets=(("m", "Production"),))
    read, calls = own.store._privgate_row, []

    def reading(*arguments):
        calls.append(arguments)
        return failure() if 1 < len(calls) <= 1 + times else read(*arguments)

    monkeypatch.setattr(own.store, "_privgate_row", reading)
    monkeypatch.setattr(writes.time, "sleep", lambda _: None)
    release = own.promote
    if target == "stage":
        release = lambda: own.store.transition_model_version_stage("m", own.version, "Production", False)
    with contextlib.nullcontext() if stays else pytest.raises(MlflowException, match="could not be read again"):
        release()
    stage = own.registry.client.get_model_version("m", own.version).current_stage
    assert (own.released == own.version if target == "alias" else stage == "Production") is stays


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("write", ["set_registered_model_alias", "transition_model_version_stage"])
def test_a_version_that_is_replaced_while_it_is_released_is_not(own, monkeypatch, write, tmp_path):
    own.registry.sign("m", own.version, tmp_path / "again", targets=(("m", "production"),))
    plain = getattr(SqlAlchemyStore, write)

    def late(self, *arguments):
        monkeypatch.setattr(SqlAlchemyStore, write, plain)
        own.registry.client.delete_registered_model("m")
        own.registry.log("m")
        return plain(self, *arguments)

    monkeypatch.setattr(SqlAlchemyStore, write, late)
    release = own.promote
    if write == "transition_model_version_stage":
        release = lambda: own.store.transition_model_version_stage("m", own.version, "Production", False)
    with pytest.raises(MlflowException, match="the version was replaced"):
        release()
    assert own.released is None
    assert own.registry.client.get_model_version("m", own.version).current_stage in {None, "None"}


def test_two_first_promotions_at_once_both_count(own):
    """MLflow looks whether the alias exists, then inserts it; the other promotion comes in between."""
    fired = []

    @sqlalchemy.event.listens_for(own.store.engine, "before_cursor_execute")
    def between(connection, cursor, text, parameters, context, executemany):
        if "INSERT INTO registered_model_aliases" in text and not fired:
            fired.append(text)
            with sqlite3.connect(own.path) as other:
                other.execute(
                    "INSERT INTO registered_model_aliases (workspace, name, alias, version) VALUES (?, ?, ?, ?)",
                    ("default", "m", "production", own.version),
                )

    own.promote()
    assert fired
    assert own.released == own.version


def test_the_guard_does_not_believe_a_replica_that_lags_behind(own, tmp_path):
    """The replica still has the signed version; the primary has another of the same number and the same statement."""
    replica = tmp_path / "replica.db"
    shutil.copy(own.path, replica)
    client = own.registry.client
    text = client.get_model_version("m", own.version).tags[TAG]
    client.delete_registered_model("m")
    own.registry.log("m")
    client.set_model_version_tag("m", own.version, TAG, text)
    behind = sqlalchemy.orm.sessionmaker(sqlalchemy.create_engine(f"sqlite:///{replica}"))
    primary = own.store.ManagedSessionMaker

    @contextlib.contextmanager
    def sessions(read_only=True):
        if read_only:
            with behind() as session:
                yield session
        else:
            with primary(read_only=False) as session:
                yield session

    own.store.ManagedSessionMaker = sessions
    own.promote()  # a guard that reads replicas would be deceived, so this test is about something
    client.delete_registered_model_alias("m", "production")

    own.store.ManagedSessionMaker = guard._primary_for_the_guard(sessions)
    with pytest.raises(MlflowException, match=r"deleted and created again|not the one that was signed|lie elsewhere"):
        own.promote()
    assert own.released is None


def test_a_key_revoked_while_the_files_were_being_read_counts_at_the_next_call(own, site, monkeypatch):
    """The stamps of the files are taken before the content that is kept."""
    from privgate.guard import statement

    keys, load, loads = site.trust, watch.Guard.load, []
    kept = watch.Watch(site.config)

    def loading(path):
        found = load(path)
        loads.append(path)
        if len(loads) == 2:  # after the content that is kept was read
            site.save(keys.revoke(site.signer.key_id, at=statement.now()))
        return found

    monkeypatch.setattr(watch.Guard, "load", loading)
    try:
        assert not kept.guard().trust.keys[0].revoked
        assert kept.guard().trust.keys[0].revoked
    finally:
        site.save(keys)
