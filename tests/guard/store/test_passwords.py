"""MLflow's basic-auth app before the guard: who may do what there, and that no right of it releases anything."""

import base64

import pytest

from privgate.guard.config import Guard
from privgate.guard.diagnosis import examine
from privgate.guard.signing import TAG
from privgate.guard.verification import verify
from tests.guard.store.conftest import PASSWORD, send_as, want_passwords

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
