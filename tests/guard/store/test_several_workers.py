"""What several workers on PostgreSQL share: the guard's files, rows that wait, the database's equality."""

import contextlib
import dataclasses
import re
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
import sqlalchemy
from mlflow.exceptions import MlflowException

from privgate.errors import PolicyError
from privgate.guard import statement
from privgate.guard.signing import TAG
from privgate.guard.store import guarded_store as guarded
from privgate.guard.transaction import _TABLES, check_equality
from tests.guard.store.test_at_the_same_time import WAITING

pytestmark = [pytest.mark.server, pytest.mark.filterwarnings("ignore::FutureWarning")]


@pytest.fixture
def database(on_postgres):
    """Connections of the database's owner."""
    engine = sqlalchemy.create_engine(on_postgres.database, poolclass=sqlalchemy.NullPool)
    yield engine
    engine.dispose()


@pytest.fixture
def signed(on_postgres, name, tmp_path):
    """A version that may be released, and the function that asks for it: returns status and message."""
    version = on_postgres.log(name)
    on_postgres.sign(name, version)

    def promote(**said):
        body = {"name": name, "alias": "production", "version": version, **said}
        status, answer = on_postgres.post("/api/2.0/mlflow/registered-models/alias", body)
        return status, answer.get("message", "")

    return SimpleNamespace(version=version, promote=promote)


def ended(site):
    keys = tuple(dataclasses.replace(k, not_after=statement.stamp(statement.now())) for k in site.trust.keys)
    site.save(dataclasses.replace(site.trust, keys=keys))
    time.sleep(1.1)


CHANGES = {
    "a key revoked": lambda site: site.save(site.trust.revoke(site.signer.public_key.keyid, at=statement.now())),
    "a key's window ended": ended,
    "a key taken out": lambda site: site.save(dataclasses.replace(site.trust, keys=())),
    "another policy": lambda site: site.config.write_text(site.config.read_text().replace("dtp-1", "pdtp-1")),
    "a configuration that cannot be used": lambda site: site.config.write_text("{"),
}


@pytest.fixture
def restored(site):
    """The configuration and trust of the server, for a test to change."""
    config, trust = site.config.read_text(), site.trust
    yield site
    site.config.write_text(config)
    site.save(trust)


@pytest.mark.quick(2)
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.attack("27 what one worker has read before", "PostgreSQL, one worker and two", "read again")
def test_every_worker_sees_a_change_at_once(signed, restored, change):
    config, trust = restored.config.read_text(), restored.trust
    for _ in range(2):
        assert {signed.promote()[0] for _ in range(8)} == {200}
        CHANGES[change](restored)
        assert {signed.promote()[0] for _ in range(8)} == {403}
        restored.config.write_text(config)
        restored.save(trust)


def meanwhile(on_postgres, database, name, change, ask):
    """Ask for something while another transaction holds the model's row; change something before it lets go."""
    with ThreadPoolExecutor(1) as pool, database.connect() as rows:
        rows.execute(sqlalchemy.text("SELECT 1 FROM registered_models WHERE name = :n FOR UPDATE"), {"n": name})
        asked = pool.submit(ask)
        deadline = time.monotonic() + 20
        with database.connect() as watching:
            while not watching.execute(sqlalchemy.text(WAITING)).scalar():
                assert time.monotonic() < deadline, asked
                time.sleep(0.01)
                watching.rollback()
        change(rows)
        rows.commit()
        return asked.result()


@pytest.mark.quick(1)
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.attack("27 trust taken away while a promotion waits", "PostgreSQL", "refused")
def test_what_is_taken_away_while_a_promotion_waits_counts(on_postgres, database, signed, restored, name, change):
    status, said = meanwhile(on_postgres, database, name, lambda _: CHANGES[change](restored), signed.promote)
    assert (status, "refused" in said) == (403, True)
    with database.connect() as rows:
        held = sqlalchemy.text("SELECT count(*) FROM registered_model_aliases WHERE name = :n")
        assert rows.execute(held, {"n": name}).scalar() == 0


@pytest.mark.parametrize("level", ["repeatable read", pytest.param("serializable", marks=pytest.mark.slow)])
@pytest.mark.attack("27 an isolation in which the guard reads what was", "PostgreSQL", "refused")
def test_what_was_committed_while_it_waited_is_read_at_any_isolation(
    on_postgres, database, site, signed, name, level, monkeypatch
):
    """An operator may set the isolation of a database or a role; then a snapshot is older than the wait for a lock."""
    monkeypatch.setenv("PRIVGATE_GUARD", str(site.config))
    level = level.replace(" ", "\\ ")
    url = sqlalchemy.make_url(on_postgres.database).update_query_dict(
        {"options": f"-c default_transaction_isolation={level}"}
    )
    store = guarded("privgate:" + url.render_as_string(hide_password=False))

    def promote():
        try:
            store.set_registered_model_alias(name, "production", signed.version)
        except MlflowException as exc:
            return str(exc)
        return "LET THROUGH"

    def take_away(rows):
        rows.execute(
            sqlalchemy.text("DELETE FROM model_version_tags WHERE name = :n AND key = :k"), {"n": name, "k": TAG}
        )

    assert "there is no statement" in meanwhile(on_postgres, database, name, take_away, promote)
    store.engine.dispose()


ODD = {
    "citext": "ALTER TABLE registered_model_aliases ALTER alias TYPE citext",
    "a nondeterministic collation": "ALTER TABLE model_versions ALTER name TYPE varchar(256) COLLATE loose",
    "padded characters": "ALTER TABLE model_version_tags ALTER key TYPE char(250)",
    "a domain": "ALTER TABLE registered_models ALTER name TYPE loosely",
    "tags of a model": "ALTER TABLE registered_model_tags ALTER key TYPE citext",
}


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.attack("27 a column that takes names for equal", "server start on PostgreSQL", "refused")
def test_columns_that_take_names_for_equal_are_refused(on_postgres, database, odd):
    def seen_from(schema):
        url = sqlalchemy.make_url(on_postgres.database).update_query_dict(
            {"options": f"-c search_path={schema},public"}
        )
        return SimpleNamespace(engine=sqlalchemy.create_engine(url, poolclass=sqlalchemy.NullPool))

    with database.connect() as rows:
        for words in (
            "DROP SCHEMA IF EXISTS odd CASCADE", "CREATE SCHEMA odd", "CREATE EXTENSION IF NOT EXISTS citext",
            "CREATE COLLATION odd.loose (provider = icu, locale = 'und-u-ks-level2', deterministic = false)",
            "SET search_path = odd, public", "CREATE DOMAIN odd.loosely AS citext",
            *(f"CREATE TABLE odd.{table} (LIKE public.{table})" for table in _TABLES),
        ):  # fmt: skip
            rows.execute(sqlalchemy.text(words))
        rows.commit()
        check_equality(seen_from("odd"))
        rows.execute(sqlalchemy.text("SET search_path = odd, public"))
        rows.execute(sqlalchemy.text(ODD[odd]))
        rows.commit()
        try:
            with pytest.raises(PolicyError, match="takes different names for equal"):
                check_equality(seen_from("odd"))
            check_equality(seen_from("public"))  # another schema's tables are no matter
        finally:
            rows.execute(sqlalchemy.text("DROP SCHEMA odd CASCADE"))
            rows.commit()


SPELLED = (
    "production\0",
    "production ",
    "Production",
    "prod\u0075\u0301ction",
    "\u200bproduction",
    "ｐroduction",
    "production\n",
)


@pytest.mark.attack("27 an alias or a number spelled otherwise", "PostgreSQL", "refused")
def test_other_spellings_release_nothing(on_postgres, database, name):
    version = on_postgres.log(name)
    for said in ({"alias": a} for a in SPELLED):
        body = {"name": name, "version": version, **said}
        assert on_postgres.post("/api/2.0/mlflow/registered-models/alias", body)[0] in {400, 403}, said
    for number in ("01", "+1", " 1", "1 ", "1_", "１", "1.0", "1e0", "1\0", "0x1"):
        body = {"name": name, "alias": "production", "version": number}
        assert on_postgres.post("/api/2.0/mlflow/registered-models/alias", body)[0] in {400, 403, 404, 500}, number
        stage = {"name": name, "version": number, "stage": "Production", "archive_existing_versions": False}
        assert on_postgres.post("/api/2.0/mlflow/model-versions/transition-stage", stage)[0] in {400, 403, 404, 500}
    for spelled in (f"{name}\0", f"{name} ", name.upper()):
        body = {"name": spelled, "alias": "production", "version": version}
        assert on_postgres.post("/api/2.0/mlflow/registered-models/alias", body)[0] in {400, 403, 404, 500}, spelled
    with database.connect() as rows:
        told = sqlalchemy.text(
            "SELECT a.alias, v.current_stage FROM model_versions v "
            "LEFT JOIN registered_model_aliases a USING (name) WHERE v.name = :n"
        )
        assert [tuple(row) for row in rows.execute(told, {"n": name})] == [(None, "None")]


@pytest.mark.slow
@pytest.mark.attack("27 the database restarts while a promotion waits", "PostgreSQL", "not moved")
def test_a_restarted_database_moves_nothing_and_needs_no_restart_of_the_server(on_postgres, database, signed, name):
    """The promotion that waited is not done, nobody is told that it was; the next one is."""
    with database.connect() as rows:
        folder = Path(rows.execute(sqlalchemy.text("SHOW data_directory")).scalar())
        options = (folder / "postmaster.opts").read_text()
    control = Path(options.split()[0]).with_name("pg_ctl")
    user = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"] if folder.owner() == "nobody" else []

    def restart(_rows):
        command = [
            *user,
            str(control),
            "-D",
            str(folder),
            "-w",
            "-m",
            "immediate",
            "-l",
            str(folder.parent / "log"),
            "restart",
        ]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd="/")

    restarted = []
    with contextlib.suppress(sqlalchemy.exc.OperationalError):  # our own connection ends, too
        meanwhile(on_postgres, database, name, restart, lambda: restarted.append(signed.promote()))
    ((status, said),) = restarted
    assert (status, bool(re.search("try again", said))) == (503, True), said
    with database.connect() as rows:
        assert (
            rows.execute(
                sqlalchemy.text("SELECT count(*) FROM registered_model_aliases WHERE name = :n"), {"n": name}
            ).scalar()
            == 0
        )
    assert signed.promote()[0] == 200
