"""Time decides alike wherever a statement is read: registry, verify, a folder, the doctor, the light verifier."""

import dataclasses
import importlib
import shutil
import sys
import time
from datetime import UTC, datetime, timedelta

import mlflow
import pytest
from mlflow.entities.model_registry import ModelVersionTag
from mlflow.exceptions import MlflowException

from privgate.errors import PrivgateError
from privgate.guard import diagnosis as doctor
from privgate.guard import keys as truststore
from privgate.guard import statement
from privgate.guard import verification as verifying
from privgate.guard.config import Guard
from privgate.guard.keys import Revoked, fresh_key, seal
from privgate.guard.store import guarded_store as guarded
from privgate.registry.client import connect
from privgate.registry.named import TAG
from tests.guard.store.conftest import Registry, Site
from tests.verify.test_distribution import closure, installed, settings  # noqa: F401  fixtures

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")

#: an hour in which Europe's clocks go forward
T = datetime(2031, 3, 30, 1, tzinfo=UTC)
DAY, HOUR, MINUTE, SECOND, TICK = (timedelta(**{k: 1}) for k in ("days", "hours", "minutes", "seconds", "microseconds"))
MIDNIGHT, LATER = T.replace(hour=0), datetime(2031, 4, 1, tzinfo=UTC)
OLD = "sha256:" + "0" * 64
CONFIG = """\
schema: privgate/guard/v2
registry: test-registry
trust: trust.json
releases: [{models: "*", task: classification, policy: "%s"}]
still_accepted: [{models: "*", policy: "%s", signed_before: 2031-03-30, until: 2031-03-31}]
protected: {aliases: [production], stages: [Production], models: ["prod.*"]}
accept_unboxed: true
"""


@dataclasses.dataclass(frozen=True)
class Edge:
    """What is signed, by whom, and when it is read; what is not said lies far from any edge."""

    now: datetime = T
    signed: datetime = T - HOUR
    decided: datetime | None = None
    expires: datetime = T + 300 * DAY
    key: tuple[datetime, datetime] = (T - 300 * DAY, T + 300 * DAY)
    revoked: datetime | None = None
    policy: str = ""
    #: of a field, as somebody wrote it
    written: tuple[str, object] = ("", "")


def around(edge, moments, counts, **said):
    """Give the cases of a moment that is moved over an edge."""
    for moment, holds in zip(moments, counts, strict=True):
        yield pytest.param(Edge(**{**said, edge: moment}), holds, id=f"{'-'.join(said)}-{edge}-{moment:%d-%H:%M:%S.%f}")


BEHIND = T - 5 * MINUTE
EDGES = [
    *around("now", (T - SECOND, T, T + TICK, T + SECOND), (True, True, False, False), expires=T),
    *around("now", (T - SECOND, T, T + TICK), (True, True, False), key=(T - DAY, T)),
    *around("signed", (T - HOUR - SECOND, T - HOUR, T), (False, True, True), key=(T - HOUR, T + DAY)),
    *around("now", (BEHIND - TICK, BEHIND, T), (False, True, True), signed=T),
    *around("decided", (T, T + 5 * MINUTE, T + 5 * MINUTE + SECOND), (True, True, False), signed=T),
    *around("expires", (T - SECOND, T), (False, True), signed=T, now=T - 2 * SECOND),
    *around("signed", (T - HOUR - SECOND, T - HOUR, T - HOUR + SECOND), (False, False, True), revoked=T - HOUR),
    *around("signed", (MIDNIGHT - SECOND, MIDNIGHT), (True, False), policy=OLD),
    *around("now", (LATER - TICK, LATER), (True, False), policy=OLD, signed=MIDNIGHT - SECOND),
    *around("now", (MIDNIGHT, MIDNIGHT - TICK), (True, False), policy=OLD, signed=MIDNIGHT - SECOND),  # set back
]
FIELDS = ("expires", "decided", "timeVerified")
NO_TIMES = (
    "2031-03-30T01:00:00", "2031-03-30", "2031-03-30T01:00:60Z", "9999-12-31T23:59:59-12:00",
    "0001-01-01T00:00:00+12:00", "2031-02-29T00:00:00Z", "infinity", "", None, 1_932_598_800, ["2031-03-30T01:00:00Z"],
)  # fmt: skip
WRITTEN = [
    *(pytest.param(Edge(written=(field, t)), False, id=f"{field}-{t}") for field in FIELDS for t in NO_TIMES),
    pytest.param(Edge(written=("expires", "2031-03-30T15:00:00+14:00")), True, id="with an offset, at"),
    pytest.param(Edge(written=("expires", "2031-03-30T15:00:00+14:00"), now=T + SECOND), False, id="and after"),
    pytest.param(Edge(written=("expires", "9999-12-31T23:59:59Z")), True, id="the last second of all"),
]


class Place:
    """A registry with one version and the folder that it serves, each case's statement, and all who read it."""

    def __init__(self, folder, database, light):
        self.site = Site(folder)
        shutil.copy(database, folder / "registry.db")
        self.address = f"sqlite:///{folder}/registry.db"
        self.registry = Registry(self.address, self.site)
        self.client = self.registry.client
        self.client.create_experiment("guard", artifact_location=(folder / "artifacts").as_uri())
        self.site.config.write_text(CONFIG % (self.site.policy.digest, OLD))
        self.version = self.registry.log("credit")
        targets = (("credit", "production"), ("credit", "Production"), ("prod.credit", "production"))
        self.claims = self.registry.release("credit", self.version, targets=targets)
        self.files = folder / "upload"
        sys.path.insert(0, str(light))
        parts = ("config", "verification", "statement")
        self.light = {name: importlib.import_module(f"privgate_verify.guard.{name}") for name in parts}
        sys.path.remove(str(light))

    def put(self, edge, monkeypatch):
        """Sign, trust and set all clocks as a case says."""
        self.trust(edge.key, edge.revoked)
        moments = {"signed": edge.signed, "decided": edge.decided or edge.signed, "expires": edge.expires}
        digest = edge.policy or self.claims.policy_digest
        said = dataclasses.replace(self.claims, policy_digest=digest, **moments).summary("test")
        field, text = edge.written
        if field:
            where = said["predicate"]
            (where if field in where else where[statement.EXTENSION])[field] = text
        self.carry(seal(said, self.site.signer).text())
        for module in (statement, self.light["statement"]):
            monkeypatch.setattr(module, "now", lambda: edge.now)

    def trust(self, window, revoked=None):
        """Let keys count within a window, and the version's statements not since some moment."""
        window = dict(zip(("not_before", "not_after"), map(statement.stamp, window), strict=True))
        keys = tuple(dataclasses.replace(k, **window) for k in self.site.trust.keys)
        at = revoked and (Revoked("", statement.stamp(revoked), "", f"models:/credit/{self.version}"),)
        dataclasses.replace(self.site.trust, keys=keys, revoked=at or ()).save(self.site.folder / "trust.json")

    def carry(self, text):
        """Put a text where all readers find it."""
        self.text = text
        (self.site.folder / "verdict.json").write_text(text)
        self.client.set_model_version_tag("credit", self.version, TAG, text)

    def sign(self, signer=None, **changes):
        """Return what an honest statement says, with some things changed."""
        return seal(dataclasses.replace(self.claims, **changes).summary("test"), signer or self.site.signer).text()

    def readers(self):
        """Give (reader, whether the statement counts there)."""
        store = self.store
        move = (store.transition_model_version_stage, "credit", self.version, "Production", False)
        yield "registry, stage", counts(*move)
        yield "registry, copy", counts(self.enter, store)
        alias = (store.set_registered_model_alias, "credit", "production", self.version)
        yield "registry, alias", counts(*alias)
        self.client.set_registered_model_alias("credit", "production", self.version)
        again = {"target": "production", "tracking_uri": self.address}
        yield "verify", counts(lambda: verifying.verify("models:/credit@production", self.guard(), **again))
        folder = (self.files, self.site.folder / "verdict.json")
        yield "folder", counts(lambda: verifying.verify_folder(*folder, self.guard(), target="production"))
        yield "doctor", self.doctor()
        yield "privgate-verify", self.lightly(folder)

    def guard(self):
        return Guard.load(self.site.config)

    def enter(self, store):
        tags = [ModelVersionTag(TAG, self.text)]
        copy = store.create_model_version("prod.credit", f"models:/credit/{self.version}", tags=tags)
        self.client.delete_model_version("prod.credit", copy.version)

    def doctor(self):
        try:
            guard = self.guard()
        except PrivgateError:  # it then says nothing else
            return False
        (said,) = (a for a in doctor._released(connect(self.address), guard) if "'production'" in a.text)
        return said.state != "wrong"

    def lightly(self, folder):
        refused = importlib.import_module("privgate_verify.errors").PrivgateError
        try:
            held = self.light["config"].Guard.load(self.site.config)
            self.light["verification"].verify_folder(*folder, held, target="production")
        except refused:
            return False
        return True


def counts(call, *arguments):
    try:
        call(*arguments)
    except PrivgateError:
        return False
    except MlflowException as exc:
        if exc.error_code != "PERMISSION_DENIED" or "could not be verified" in exc.message:
            raise
        return False
    return True


@pytest.fixture(scope="module")
def place(empty_database, installed, tmp_path_factory):  # noqa: F811  the fixture that is imported
    folder, before = tmp_path_factory.mktemp("clocks"), mlflow.get_tracking_uri()
    mlflow.set_tracking_uri(f"sqlite:///{folder}/registry.db")
    opened = Place(folder, empty_database, installed)
    opened.client.create_registered_model("prod.credit")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PRIVGATE_GUARD", str(opened.site.config))
        patched.setattr(statement, "now", lambda: T)
        patched.setenv("TZ", "ahead-14")  # the server's own zone is no matter
        time.tzset()
        opened.store = guarded(f"privgate:{opened.address}", opened.address)
        yield opened
    time.tzset()
    mlflow.set_tracking_uri(before)


@pytest.mark.quick(8)
@pytest.mark.parametrize(("edge", "holds"), [*EDGES, *WRITTEN])
def test_all_who_read_a_statement_agree_at_every_edge(place, monkeypatch, edge, holds):
    with monkeypatch.context() as patched:
        place.put(edge, patched)
        said = dict(place.readers())
    assert said == dict.fromkeys(said, holds)


def test_who_sees_evidence_refuses_a_revoked_keys(place, monkeypatch):
    """The registry and a folder have the verdict alone; docs/guarded-server.md says what to revoke besides."""
    with monkeypatch.context() as patched:
        place.put(Edge(), patched)
        verdicts = truststore.new_key()
        (evidence,) = (dataclasses.replace(key, roles=("evidence",)) for key in place.site.trust.keys)
        store = truststore.TrustStore(
            (evidence, fresh_key(verdicts.public_key, days=9, roles=("verdict",), models=("*",)))
        )
        place.carry(place.sign(verdicts, signed=T, decided=T, expires=T + DAY))
        for revoked in (False, True):
            at = statement.stamp(T) if revoked else ""
            window = {"not_before": statement.stamp(T - DAY), "not_after": statement.stamp(T + DAY)}
            keys = (dataclasses.replace(evidence, revoked=at, **window), store.keys[1])
            dataclasses.replace(store, keys=keys).save(place.site.folder / "trust.json")
            said = dict(place.readers())
            assert said == {reader: not (revoked and reader in {"verify", "doctor"}) for reader in said}
