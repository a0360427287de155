"""What several workers on PostgreSQL share: the guard's files, rows that wait, the database's equality."""

import contextlib
import dataclasses
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
from privgate.guard.store import guarded_store
from privgate.guard.transaction import _TABLES, check_equality
from tests.guard.store.conftest import WAITING

pytestmark = [pytest.mark.server, pytest.mark.filterwarnings("ignore::FutureWarning")]
HELD = sqlalchemy.text("SELECT count(*) FROM registered_model_aliases WHERE name = :n")


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
@pytest.mark.attack("27 what one worker has read before", "PostgreSQL, one worker and two", "read again")
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


@pytest.mark.quick(1)
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.attack("27 trust taken away while a promotion waits", "PostgreSQL", "refused")
def test_what_is_taken_away_while_a_promotion_waits_counts(database, promote, site, name, change):
    with site.restored():
        status, said = ask_meanwhile(database, name, lambda _: CHANGES[change](site), promote)
    assert (status, "refused" in said) == (403, True)
    with database.connect() as rows:
        assert rows.execute(HELD, {"n": name}).scalar() == 0


def connect_with(on_postgres, options):
    """Return the address of the database for a connection with options of its own."""
    url = sqlalchemy.make_url(on_postgres.database).update_query_dict({"options": f"-c {options}"})
    return url.render_as_string(hide_password=False)


@pytest.mark.parametrize("level", ["repeatable read", pytest.param("serializable", marks=pytest.mark.slow)])
@pytest.mark.attack("27 an isolation in which the guard reads what was", "PostgreSQL", "refused")
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
@pytest.mark.attack("27 a column that takes names for equal", "server start on PostgreSQL", "refused")
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


ALIASES = (
    "production\0", "production ", "Production", "prod\u0075\u0301ction", "\u200bproduction", "\uff50roduction",
    "production\n",
)  # fmt: skip
NUMBERS = ("01", "+1", " 1", "1 ", "1_", "\uff11", "1.0", "1e0", "1\0", "0x1")


@pytest.mark.attack("27 an alias or a number spelled otherwise", "PostgreSQL", "refused")
def test_other_spellings_release_nothing(on_postgres, database, name):
    version = on_postgres.log(name)
    for alias in ALIASES:
        assert ask_alias(on_postgres, name, version, alias)[0] in {400, 403}, alias
    for number in NUMBERS:
        assert ask_alias(on_postgres, name, number)[0] in {400, 403, 404, 500}, number
        stage = {"name": name, "version": number, "stage": "Production", "archive_existing_versions": False}
        assert on_postgres.post("/api/2.0/mlflow/model-versions/transition-stage", stage)[0] in {400, 403, 404, 500}
    for spelled in (f"{name}\0", f"{name} ", name.upper()):
        assert ask_alias(on_postgres, spelled, version)[0] in {400, 403, 404, 500}, spelled
    with database.connect() as rows:
        stages = sqlalchemy.text("SELECT current_stage FROM model_versions WHERE name = :n")
        assert rows.execute(stages, {"n": name}).scalar() == "None"
        assert rows.execute(HELD, {"n": name}).scalar() == 0


@pytest.mark.slow
@pytest.mark.attack("27 the database restarts while a promotion waits", "PostgreSQL", "not moved")
def test_a_restarted_database_moves_nothing_and_needs_no_restart_of_the_server(database, promote, name):
    """The promotion that waited is not done, nobody is told that it was; the next one is."""
    with database.connect() as rows:
        folder = Path(rows.execute(sqlalchemy.text("SHOW data_directory")).scalar())
    control = Path((folder / "postmaster.opts").read_text().split()[0]).with_name("pg_ctl")
    user = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"] if folder.owner() == "nobody" else []
    command = [*user, control, "-D", folder, "-w", "-m", "immediate", "-l", folder.parent / "log", "restart"]
    answers = []
    with contextlib.suppress(sqlalchemy.exc.OperationalError):  # our own connection ends, too
        ask_meanwhile(
            database,
            name,
            lambda _: subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd="/"),
            lambda: answers.append(promote()),
        )
    ((status, said),) = answers
    assert (status, "try again" in said) == (503, True), said
    with database.connect() as rows:
        assert rows.execute(HELD, {"n": name}).scalar() == 0
    assert promote()[0] == 200
