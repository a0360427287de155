"""MLflow's workspaces: what one holds is not moved past the guard, and a statement counts in its own alone."""

import contextlib
import os
import subprocess
import sys
from datetime import timedelta
from urllib.parse import quote

import pytest
from mlflow.exceptions import MlflowException

from privgate.errors import StatementError
from privgate.guard import statement
from privgate.guard.config import Guard
from privgate.guard.diagnosis import examine
from privgate.guard.signing import TAG
from privgate.guard.verification import verify

pytestmark = [pytest.mark.slow, pytest.mark.server, pytest.mark.filterwarnings("ignore::FutureWarning")]
MODES = ("SET_DEFAULT", "CASCADE")


@pytest.fixture(scope="module")
def spaces(tmp_path_factory, running_guarded):
    """A guarded registry with workspaces."""
    with running_guarded(tmp_path_factory.mktemp("spaces"), "--enable-workspaces") as registry:
        yield registry


class Team:
    """A client of one workspace of the server, which it makes."""

    def __init__(self, registry, name, monkeypatch):
        self.name, self.patch, self.registry, self.client = name, monkeypatch, registry, registry.client
        if name != "default":
            status, answer = registry.post("/api/3.0/mlflow/workspaces", {"name": name})
            assert status in {200, 201}, answer

    @contextlib.contextmanager
    def here(self):
        """Ask this workspace meanwhile, as whoever set MLFLOW_WORKSPACE does."""
        with self.patch.context() as patch:
            patch.setenv("MLFLOW_WORKSPACE", self.name)
            yield self.client

    def version(self, model, source="s3://bucket/shared"):
        with self.here() as client:
            with contextlib.suppress(MlflowException):
                client.create_registered_model(model)
            return str(client.create_model_version(model, source).version)

    def text(self, model, version, **changes):
        said = {"files": "sha256:" + "a" * 64, "targets": ((model, "production"),), "workspace": self.name, **changes}
        with self.here():
            return self.registry.text(self.registry.claims(model, version, **said))

    def put(self, model, version, text):
        with self.here() as client:
            client.set_model_version_tag(model, version, TAG, text)

    def sign(self, model, version, **changes):
        """Put a signed statement on a version and return its text."""
        text = self.text(model, version, **changes)
        self.put(model, version, text)
        return text

    def promote(self, model, version):
        with self.here() as client:
            client.set_registered_model_alias(model, "production", version)

    def delete(self, mode):
        return self.registry.post(f"/api/3.0/mlflow/workspaces/{quote(self.name)}?mode={mode}", {}, method="DELETE")

    def count(self, table, column):
        with self.registry.past() as past:
            return past.execute(f"SELECT count(*) FROM {table} WHERE {column} = ?", (self.name,)).fetchone()[0]


@pytest.fixture
def team(spaces, monkeypatch):
    return lambda name: Team(spaces, name, monkeypatch)


def put_alias(team):
    version = team.version("aliased")
    team.sign("aliased", version)
    team.promote("aliased", version)


def put_stage(team):
    version = team.version("staged")
    team.sign("staged", version, targets=(("staged", "Production"),))
    with team.here() as client:
        client.transition_model_version_stage("staged", version, "Production")


def put_protected(team):
    with team.here() as client:
        client.create_registered_model("prod.entered")


def put_refusal(team):
    team.sign("refused", team.version("refused", "s3://bucket/refused"), passed=False, outcome="failed")


HOLDS = {put_alias: "alias 'production'", put_stage: "Production", put_protected: "prod.entered",
         put_refusal: "a refusal of 'refused'"}  # fmt: skip


@pytest.mark.parametrize("put", HOLDS, ids=lambda put: put.__name__)
def test_what_a_workspace_holds_is_not_moved_past_the_guard(team, put):
    here = team(put.__name__.replace("_", "-"))
    put(here)
    for mode in MODES:
        status, answer = here.delete(mode)
        assert status == 403, answer
        assert "privgate: deleting workspace" in answer["message"]
        assert HOLDS[put] in answer["message"]
        assert (here.count("registered_models", "workspace"), here.count("workspaces", "name")) == (1, 1)


@pytest.mark.parametrize("mode", MODES)
def test_a_workspace_that_holds_nothing_of_it_is_deleted(team, mode):
    here = team(f"plain-{mode.lower().replace('_', '-')}")
    here.sign(f"plain-{mode}", here.version(f"plain-{mode}"))
    status, answer = here.delete(mode)
    assert status in {200, 204}, answer
    assert here.count("workspaces", "name") == 0


def test_a_refusal_stops_the_same_files_in_all_workspaces(team):
    one, there = team("one"), []
    for place, model in ((one, "credit"), (team("other"), "credit"), (team("default"), "loans")):
        version = place.version(model, "s3://bucket/same")
        early = statement.now().replace(microsecond=0) - timedelta(minutes=10)
        there.append((place, model, version, place.sign(model, version, signed=early, decided=early)))
    refusal = one.sign("credit", there[0][2], passed=False, outcome="failed")
    for place, model, version, approval in there:
        with place.here() as client:
            assert client.get_model_version(model, version).tags[TAG] == refusal
        for act, *more in ((place.put, approval), (place.promote,)):
            with pytest.raises(MlflowException, match="PERMISSION_DENIED"):
                act(model, version, *more)


def test_a_statement_counts_in_its_own_workspace(team):
    here, default = team("own"), team("default")
    version = here.version("own", "s3://bucket/own")
    old = here.sign("own", version, workspace="default")  # as before statements named theirs
    assert "workspace" not in statement.Envelope.parse(old).statement["predicate"][statement.EXTENSION]
    with pytest.raises(MlflowException, match="workspace 'default', not 'own'"):
        here.promote("own", version)
    here.sign("own", version)
    here.promote("own", version)

    version = default.version("own", "s3://bucket/default")
    default.sign("own", version, workspace="own")
    with pytest.raises(MlflowException, match="workspace 'own', not 'default'"):
        default.promote("own", version)


def test_a_version_is_deleted_though_its_name_is_released_elsewhere(team):
    """Names are a workspace's own: what rests on a version of this name elsewhere rests on another version."""
    one, other = team("deleted-here"), team("released-there")
    versions = [place.version("twin", "s3://bucket/twin") for place in (one, other)]
    copy = other.version("twin-copy", "models:/twin/1")
    other.put("twin-copy", copy, other.sign("twin", versions[1], targets=(("twin-copy", "production"),)))
    other.promote("twin-copy", copy)
    with other.here() as client, pytest.raises(MlflowException, match="is released on the statement"):
        client.delete_model_version("twin", versions[1])
    with one.here() as client:
        client.delete_model_version("twin", versions[0])


def test_verify_and_doctor_ask_for_the_statement_of_their_workspace(team, site):
    here, guard = team("read"), Guard.load(site.config)
    with here.here():
        version = here.registry.log("read")
    here.sign("read", version)
    here.promote("read", version)
    text = here.text("read", version, workspace="default")
    with here.registry.past() as past:
        past.execute("UPDATE model_version_tags SET value = ? WHERE name = 'read' AND key = ?", (text, TAG))
    with here.here():
        with pytest.raises(StatementError, match="workspace 'default', not 'read'"):
            verify("models:/read@production", guard, tracking_uri=here.registry.address)
        said = [a.text for a in examine(guard, tracking_uri=here.registry.address) if a.state == "wrong"]
    assert any("workspace 'default', not 'read'" in text for text in said)


FRESH = """
import mlflow.server.handlers
from mlflow.entities.workspace import WorkspaceDeletionMode
from mlflow.store.workspace import rest_store
from mlflow.store.workspace.sqlalchemy_store import SqlAlchemyStore

print(hasattr(SqlAlchemyStore.delete_workspace, "__wrapped__"))
store = rest_store.RestWorkspaceStore(lambda: None)
rest_store.call_endpoint = lambda **request: print("the other server was asked")
for mode in WorkspaceDeletionMode:
    try:
        print(mode.value, end=": ")
        store.delete_workspace("team", mode=mode)
    except Exception as exc:
        print(exc)
"""


def test_a_worker_that_has_not_opened_its_registry_is_guarded(site):
    """It may be asked to delete a workspace first; one of another server only if that one sees that it is empty."""
    environment = {**os.environ, **site.env, "_MLFLOW_SERVER_REGISTRY_STORE": "privgate:http://127.0.0.1:9"}
    ran = subprocess.run([sys.executable, "-c", FRESH], env=environment, capture_output=True, text=True, check=True)
    wrapped, *modes = ran.stdout.splitlines()
    assert wrapped == "True"
    said = dict(line.split(": ", 1) for line in modes)
    assert said.pop("RESTRICT") == "the other server was asked"
    assert set(said) == {"SET_DEFAULT", "CASCADE"}
    assert all("refused: it holds what another server knows" in text for text in said.values())
