"""Several workers on PostgreSQL: two writes at the same time end as one after the other would have ended."""

import dataclasses
import itertools
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
import sqlalchemy

from privgate.guard import statement
from privgate.guard.statement import Claims, Envelope
from privgate.registry.named import TAG
from tests.guard.store.conftest import WAITING

pytestmark = [pytest.mark.server, pytest.mark.filterwarnings("ignore::FutureWarning")]

FIRST, GATE = 1, 2
#: the first transaction that writes one of these waits at its commit for whoever holds the gate; others pass
HOLD = f"""
CREATE OR REPLACE FUNCTION held() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF pg_try_advisory_xact_lock(7, {FIRST}) THEN PERFORM pg_advisory_xact_lock_shared(7, {GATE}); END IF;
  RETURN NULL;
END $$
"""
TABLES = ("registered_models", "registered_model_aliases", "model_versions", "model_version_tags")
API = "/api/2.0/mlflow/"


@pytest.fixture
def held(database):
    """Return a function that does the first of two at the same time up to its commit, then the second."""
    with database.connect() as rows:
        rows.execute(sqlalchemy.text(HOLD))
        for table in TABLES:
            trigger = f"CREATE CONSTRAINT TRIGGER held AFTER INSERT OR UPDATE OR DELETE ON {table}"
            rows.execute(
                sqlalchemy.text(f"{trigger} DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION held()")
            )

        def both(one, other):
            rows.execute(sqlalchemy.text(f"SELECT pg_advisory_lock(7, {GATE})"))
            with ThreadPoolExecutor(2) as pool:
                try:
                    ends = [pool.submit(one)]
                    most = settle(rows, ends, 1)
                    ends.append(pool.submit(other))
                    settle(rows, ends[1:], most + 1)
                finally:
                    rows.execute(sqlalchemy.text(f"SELECT pg_advisory_unlock(7, {GATE})"))
                return tuple(end.result() for end in ends)

        yield both
        for table in TABLES:
            rows.execute(sqlalchemy.text(f"DROP TRIGGER held ON {table}"))


def settle(rows, ends, most):
    """Wait until all are done, or ``most`` transactions wait for a lock; return how many do."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        waiting = rows.execute(sqlalchemy.text(WAITING)).scalar()
        if all(end.done() for end in ends) or waiting >= most:
            return waiting
        time.sleep(0.01)
    pytest.fail("neither done nor waiting")


class World:
    """A signed version of one model, a copy of it in another, and what anybody may do about them."""

    def __init__(self, registry, place, template):
        self.registry, self.place = registry, place
        now = statement.now().replace(microsecond=0)
        early, late, last = (now - timedelta(seconds=s) for s in (600, 300, 100))
        targets = tuple((f"{p}{place}{s}", "production") for p, s in (("", ""), ("", "-copy"), ("prod.", "")))
        targets += ((f"{place}-copy", "Production"),)
        source = f"s3://nowhere/{place}"
        about = {"name": place, "version": "1", "source": source, "storage": source, "targets": targets}
        created = self.create("", source)
        claims = dataclasses.replace(template, **about, created=created, signed=early, decided=early)
        self.approval = registry.text(claims)
        self.said(self.approval)
        copied = self.create("-copy", f"models:/{place}/1", self.approval)
        self.create(f"prod.{place}")
        refused = {"passed": False, "outcome": "failed", "signed": late, "decided": late}
        copy = {"name": f"{place}-copy", "created": copied, "source": f"models:/{place}/1"}
        narrow = {"targets": targets[:1], "signed": last, "decided": last}
        self.refusal, self.refusal_of_copy, self.narrow = (
            registry.text(dataclasses.replace(claims, **changes)) for changes in (refused, refused | copy, narrow)
        )

    def create(self, name, source="", text=""):
        """Make a model and, where a source is given, its first version; return when that was."""
        name = name if name.startswith("prod.") else f"{self.place}{name}"
        assert self.post("registered-models/create", {"name": name})
        if not source:
            return 0
        tags = [{"key": TAG, "value": text}] if text else []
        body = {"name": name, "source": source, "tags": tags}
        status, answer = self.registry.post(f"{API}model-versions/create", body)
        assert status == 200, answer
        return int(answer["model_version"]["creation_timestamp"])

    def ask(self, path, method="POST", *, model="", **body):
        return self.post(path, {"name": f"{self.place}{model}", **body}, method)

    def post(self, path, body, method="POST"):
        """Whether it was done; whoever is too late may be told that a version is gone, or that it is refused."""
        status, answer = self.registry.post(API + path, body, method)
        assert status in {200, 400, 403, 404}, answer
        return status == 200

    def version(self, action, method="DELETE", **body):
        return self.ask(f"model-versions/{action}", method, **{"version": "1", **body})

    def enter(self):
        tags = [{"key": TAG, "value": self.approval}]
        body = {"name": f"prod.{self.place}", "source": f"models:/{self.place}/1", "tags": tags}
        return self.post("model-versions/create", body)

    def said(self, text, model=""):
        return self.version("set-tag", "POST", model=model, key=TAG, value=text)

    def promote(self, model=""):
        return self.ask("registered-models/alias", model=model, alias="production", version="1")

    def rows(self, connection):
        """Return who holds what and says what, by the database's own rows, whatever the models are called."""
        held = {}
        aliases = connection.execute(sqlalchemy.text("SELECT name, alias, version FROM registered_model_aliases"))
        versions = connection.execute(sqlalchemy.text("SELECT name, version, current_stage FROM model_versions"))
        query = sqlalchemy.text("SELECT name, version, value FROM model_version_tags WHERE key = :key")
        texts = [(n, v, self.short(text)) for n, v, text in connection.execute(query, {"key": TAG})]
        for name, *row in [*aliases, *versions, *texts]:
            if self.place in name:
                held.setdefault(name.replace(self.place, "m"), []).append(tuple(map(str, row)))
        return {name: sorted(rows) for name, rows in held.items()}

    def short(self, text):
        claims = Claims.read(Envelope.parse(text).statement)
        return claims.name.replace(self.place, "m"), claims.outcome, len(claims.targets)


STAGE = {"version": "1", "stage": "Production", "archive_existing_versions": False}
DONE = {
    "promote": lambda w: w.promote(),
    "promote the copy": lambda w: w.promote("-copy"),
    "stage of the copy": lambda w: w.ask("model-versions/transition-stage", model="-copy", **STAGE),
    "copy into a protected model": lambda w: w.enter(),
    "refuse": lambda w: w.said(w.refusal),
    "refuse the copy": lambda w: w.said(w.refusal_of_copy, "-copy"),
    "put the approval back": lambda w: w.said(w.approval + " "),  # written otherwise, so that a row changes
    "put the copy's approval back": lambda w: w.said(w.approval + " ", "-copy"),
    "narrow the statement": lambda w: w.said(w.narrow),
    "take the statement away": lambda w: w.version("delete-tag", key=TAG),
    "take the copy's statement away": lambda w: w.version("delete-tag", model="-copy", key=TAG),
    "delete the version": lambda w: w.version("delete"),
    "delete the version, spelled 01": lambda w: w.version("delete", version="01"),
    "delete the copy": lambda w: w.version("delete", model="-copy"),
    "delete the model": lambda w: w.ask("registered-models/delete", "DELETE"),
    "rename the model": lambda w: w.ask("registered-models/rename", new_name=f"{w.place}-moved"),
    "rename the copy's": lambda w: w.ask("registered-models/rename", model="-copy", new_name=f"{w.place}-copy-moved"),
}
#: what is held at its commit, and what is done meanwhile, that once both succeeded
BOTH_SUCCEEDED = (
    ("promote the copy", "delete the version"),
    ("copy into a protected model", "rename the model"),
    ("copy into a protected model", "refuse"),
    ("refuse the copy", "put the approval back"),
    ("refuse", "take the copy's statement away"),
)
numbers = itertools.count()


@pytest.fixture(scope="session")
def template(on_postgres):
    """What any honest statement says."""
    return on_postgres.claims("template", on_postgres.log("template"))


@pytest.fixture
def serial(on_postgres, database, held, template):
    """Return a function: whether two writes, both done at once, end as some order of them ends."""

    def end_alike(one, other):
        def world():
            return World(on_postgres, f"w{next(numbers)}x", template)

        with database.connect() as connection:
            fresh = world()
            ends = (held(lambda: DONE[one](fresh), lambda: DONE[other](fresh)), fresh.rows(connection))
            orders = []
            for order in ((0, 1), (1, 0)):
                again = world()
                done = {k: DONE[(one, other)[k]](again) for k in order}
                orders.append(((done[0], done[1]), again.rows(connection)))
        return ends in orders

    return end_alike


@pytest.mark.slow
@pytest.mark.parametrize("one", DONE)
def test_two_writes_at_once_end_as_one_after_the_other(serial, one):
    assert [other for other in DONE if not serial(one, other)] == []


@pytest.mark.parametrize(("one", "other"), BOTH_SUCCEEDED)
def test_what_ended_otherwise_does_no_longer(serial, one, other):
    assert serial(one, other)
