"""What several workers on PostgreSQL share: the guard's files, rows that wait, the database's equality."""

import dataclasses
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
import sqlalchemy
from mlflow.exceptions import MlflowException

from privgate.errors import PolicyError
from privgate.guard import statement
from privgate.guard.rows import _TABLES, check_equality
from privgate.guard.store import guarded_store
from privgate.registry.named import TAG
from tests.guard.store.conftest import WAITING

pytestmark = [pytest.mark.server, pytest.mark.filterwarnings("ignore::FutureWarning")]


@pytest.fixture
def promote(on_postgres, name):
    """Ask for the release of a version that may be released: status and message of the answer."""
    version = on_postgres.log(name)
    on_postgres.sign(name, version)
    return lambda: ask_alias(on_postgres, name, version)


def ask_alias(registry, name, version, alias="production"):
    body = {"name": name, "alias": alias, "version": version}
    status, answer = registry.post("/api/2.0/mlflow/registered-models/alias", body)
    return status, answer.get("message", "")


def end_windows(site):
    keys = tuple(dataclasses.replace(k, not_after=statement.stamp(statement.now())) for k in site.trust.keys)
    site.save(dataclasses.replace(site.trust, keys=keys))
    time.sleep(1.1)


CHANGES = {
    "a key revoked": lambda site: site.save(site.trust.revoke(site.signer.public_key.keyid, at=statement.now())),
    "a key's window ended": end_windows,
    "a key taken out": lambda site: site.save(dataclasses.replace(site.trust, keys=())),
    "another policy": lambda site: site.config.write_text(site.config.read_text().replace("dtp-1", "pdtp-1")),
    "a configuration that cannot be used": lambda site: site.config.write_text("{"),
}


@pytest.mark.quick(2)
@pytest.mark.parametrize("change", CHANGES)
def test_every_worker_sees_a_change_at_once(promote, site, change):
    for _ in range(2):
        assert {promote()[0] for _ in range(8)} == {200}
        with site.restored():
            CHANGES[change](site)
            assert {promote()[0] for _ in range(8)} == {403}


def ask_meanwhile(database, name, change, ask):
    """Ask for something while another transaction holds the model's row; change something before it lets go."""
    hold = sqlalchemy.text("SELECT 1 FROM registered_models WHERE name = :n FOR UPDATE")
    with ThreadPoolExecutor(1) as pool, database.connect() as watching, database.connect() as connection:
        rows = connection.execution_options(isolation_level="READ COMMITTED")
        rows.execute(hold, {"n": name})
        answer, deadline = pool.submit(ask), time.monotonic() + 20
        while not watching.execute(sqlalchemy.text(WAITING)).scalar():
            assert time.monotonic() < deadline, answer
            time.sleep(0.01)
        change(rows)
        rows.commit()
        return answer.result()


def connect_with(on_postgres, options):
    """Return the address of the database for a connection with options of its own."""
    url = sqlalchemy.make_url(on_postgres.database).update_query_dict({"options": f"-c {options}"})
    return url.render_as_string(hide_password=False)


@pytest.mark.parametrize("level", ["repeatable read", pytest.param("serializable", marks=pytest.mark.slow)])
def test_what_was_committed_while_it_waited_is_read_at_any_isolation(
    on_postgres, database, site, name, level, monkeypatch
):
    """An operator may set the isolation of a database or a role; then a snapshot is older than the wait for a lock."""
    monkeypatch.setenv("PRIVGATE_GUARD", str(site.config))
    level = level.replace(" ", "\\ ")
    store = guarded_store("privgate:" + connect_with(on_postgres, f"default_transaction_isolation={level}"))
    version = on_postgres.log(name)
    on_postgres.sign(name, version)
    delete = sqlalchemy.text("DELETE FROM model_version_tags WHERE name = :n AND key = :k")
    with pytest.raises(MlflowException, match="there is no statement"):
        ask_meanwhile(
            database,
            name,
            lambda rows: rows.execute(delete, {"n": name, "k": TAG}),
            lambda: store.set_registered_model_alias(name, "production", version),
        )
    store.engine.dispose()


ODD = {
    "citext": "ALTER TABLE registered_model_aliases ALTER alias TYPE citext",
    "a nondeterministic collation": "ALTER TABLE model_versions ALTER name TYPE varchar(256) COLLATE loose",
    "padded characters": "ALTER TABLE model_version_tags ALTER key TYPE char(250)",
    "a domain": "ALTER TABLE registered_models ALTER name TYPE loosely",
    "tags of a model": "ALTER TABLE registered_model_tags ALTER key TYPE citext",
}


@pytest.mark.parametrize("odd", ODD)
def test_columns_that_take_names_for_equal_are_refused(on_postgres, database, odd):
    def see(schema):
        url = connect_with(on_postgres, f"search_path={schema},public")
        return SimpleNamespace(engine=sqlalchemy.create_engine(url, poolclass=sqlalchemy.NullPool))

    def run(rows, *scripts):
        for script in scripts:
            rows.execute(sqlalchemy.text(script))

    with database.connect() as rows:
        run(
            rows, "DROP SCHEMA IF EXISTS odd CASCADE", "CREATE SCHEMA odd", "CREATE EXTENSION IF NOT EXISTS citext",
            "CREATE COLLATION odd.loose (provider = icu, locale = 'und-u-ks-level2', deterministic = false)",
            "SET search_path = odd, public", "CREATE DOMAIN odd.loosely AS citext",
            *(f"CREATE TABLE odd.{table} (LIKE public.{table})" for table in _TABLES),
        )  # fmt: skip
        check_equality(see("odd"))
        run(rows, ODD[odd])
        try:
            with pytest.raises(PolicyError, match="takes different names for equal"):
                check_equality(see("odd"))
            check_equality(see("public"))  # another schema's tables are no matter
        finally:
            run(rows, "DROP SCHEMA odd CASCADE")
