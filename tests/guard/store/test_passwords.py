"""MLflow's basic-auth app before the guard: who may do what there, and that no right of it releases anything."""

import base64

import pytest

from privgate.guard.config import Guard
from privgate.guard.diagnosis import examine
from privgate.guard.signing import TAG
from privgate.guard.verification import verify
from tests.guard.store.conftest import PASSWORD, list_ways, send_as, want_passwords

pytestmark = [pytest.mark.slow, pytest.mark.server, pytest.mark.filterwarnings("ignore::FutureWarning")]

RIGHTS = {"reader": "READ", "editor": "EDIT", "manager": "MANAGE"}
WHO = {
    "nobody": {},
    "admin with a wrong password": send_as("admin", "guessed"),
    "a token": {"Authorization": "Bearer " + base64.b64encode(f"admin:{PASSWORD}".encode()).decode()},
    **{user: send_as(user) for user in ("stranger", *RIGHTS, "admin")},
}
#: MLflow's app takes a token for a user without a name, and ends with an error of its own
DENIED = {who: {401, 403} for who in WHO} | {"a token": {500}}


@pytest.fixture(scope="module")
def secured(tmp_path_factory, running_guarded):
    """A guarded server with passwords, and users without any right."""
    folder = tmp_path_factory.mktemp("passwords")
    options, env = want_passwords(folder)
    options += ("--artifacts-destination", f"privgate:{folder}/artifacts")
    with running_guarded(folder, *options, env=env) as registry:
        for user in ("stranger", *RIGHTS):
            assert ask(registry, "admin", "users/create", username=user, password=PASSWORD) == 200
        yield registry


def ask(registry, who, path, method="POST", api="api/2.0", **body):
    return registry.post(f"/{api}/mlflow/{path}", body, method, headers=WHO[who])[0]


@pytest.fixture
def world(secured, name, monkeypatch):
    """A signed model and an unsigned one; users have their rights on the first, and may read the other."""
    for key, value in (("USERNAME", "admin"), ("PASSWORD", PASSWORD)):
        monkeypatch.setenv(f"MLFLOW_TRACKING_{key}", value)
    secured.good, secured.bad = f"{name}-a", f"{name}-b"
    for model in (secured.good, secured.bad):
        secured.log(model)
    secured.release(secured.good, "1")
    secured.text = secured.held_text(secured.good, "1")
    secured.client.create_registered_model(f"prod.{secured.bad}")
    experiment = secured.client.get_experiment_by_name("guard").experiment_id
    for user, right in RIGHTS.items():
        on = (("registered_model", secured.good, right), ("registered_model", secured.bad, "READ"))
        for kind, about, granted in (*on, ("experiment", experiment, right)):
            body = {"username": user, "resource_type": kind, "resource_id": about, "permission": granted}
            assert ask(secured, "admin", "users/permissions/grant", api="api/3.0", **body) in {200, 400}  # has it
    return secured


def unsigned_ways(world):
    """Give (path, body) of what would release the unsigned version, or a version of the signed model unsigned."""
    good, tag = world.good, [{"key": TAG, "value": world.text}]
    for _, _, (path, body) in list_ways(world, world.bad, "1"):
        yield path, {**body, "tags": tag} if path == "model-versions/create" else body
    yield "registered-models/rename", {"name": good, "new_name": f"prod.{good}"}
    yield "model-versions/set-tag", {"name": good, "version": "1", "key": TAG, "value": "passed"}


@pytest.mark.parametrize("who", WHO)
@pytest.mark.attack("30 no right, some rights, all rights", "basic-auth, api and ajax-api", "refused")
def test_no_right_releases_what_is_not_signed(world, who):
    for api in ("api/2.0", "ajax-api/2.0"):
        for path, body in unsigned_ways(world):
            assert ask(world, who, path, api=api, **body) in DENIED[who], (path, body)
        status = ask(world, who, "model-versions/create", api=api, name=world.good, source=f"models:/{world.bad}/1")
        assert (status == 200) is (who in {"editor", "manager", "admin"})
        versions = world.client.search_model_versions(f"name='{world.good}'")
        for version in (v.version for v in versions if str(v.version) != "1"):  # the other model under the signed name
            carried = {"name": world.good, "version": str(version), "key": TAG, "value": world.text}
            ask(world, who, "model-versions/set-tag", api=api, **carried)
            body = {"name": world.good, "version": str(version)}
            assert ask(world, who, "registered-models/alias", api=api, alias="production", **body) in DENIED[who]
    query = {"query": "mutation { mlflowSetRegisteredModelAlias { x } }"}
    assert world.post("/graphql", query, headers=WHO[who])[0] != 200 or who != "nobody"
    for model in (world.good, world.bad):
        assert not world.client.get_registered_model(model).aliases


@pytest.mark.attack("30 rights that nobody granted", "basic-auth's own routes", "refused")
@pytest.mark.parametrize("who", [who for who in WHO if who not in {"admin", "manager"}])
def test_users_give_themselves_no_rights(world, who):
    for body in ({"username": who, "is_admin": True}, {"username": "stranger", "is_admin": True}):
        assert ask(world, who, "users/update-admin", "PATCH", **body) in DENIED[who]
    for model in (world.good, world.bad):
        granted = {"resource_type": "registered_model", "resource_id": model, "permission": "EDIT"}
        assert ask(world, who, "users/permissions/grant", api="api/3.0", username="stranger", **granted) in DENIED[who]


@pytest.mark.attack("30 a refused renaming takes rights along", "basic-auth", "refused")
def test_rights_stay_where_a_renaming_was_refused(world):
    assert ask(world, "manager", "registered-models/rename", name=world.good, new_name=f"prod.{world.good}") == 403
    assert ask(world, "manager", "registered-models/update", "PATCH", name=world.good, description="mine") == 200
    assert ask(world, "editor", "registered-models/update", "PATCH", name=world.good, description="mine, too") == 200


def test_editors_and_readers_do_their_work(world, monkeypatch):
    """Who may edit signs and promotes, who may read verifies and is told the truth by the doctor."""
    assert ask(world, "editor", "registered-models/alias", name=world.good, alias="production", version="1") == 200
    said = {"name": world.good, "version": "1", "key": TAG, "value": world.text}
    assert ask(world, "editor", "model-versions/set-tag", **said) == 200
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "editor")
    world.release(world.good, "1", levels=("PRIVGATE_AGAIN",))  # as privgate guard sign writes it
    guard = Guard.load(world.site.config)
    for who in ("reader", "editor", "admin"):
        monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", who)
        assert verify(f"models:/{world.good}@production", guard, tracking_uri=world.address)
        first, *others = examine(guard, tracking_uri=world.address)
        words = "the registry is guarded" if who == "admin" else "ask as an administrator"
        assert (words in first.text, first.state) == (True, "fine" if who == "admin" else "wrong"), first
        assert not [answer for answer in others if answer.state == "wrong"]
