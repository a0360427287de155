"""MLflow's basic-auth app before the guard: who may do what there, and that no right of it releases anything."""

import pytest

from privgate.guard.config import Guard
from privgate.guard.diagnosis import examine
from privgate.guard.verification import verify
from privgate.registry.named import TAG
from tests.guard.store.conftest import PASSWORD, send_as, want_passwords

pytestmark = [pytest.mark.slow, pytest.mark.server, pytest.mark.filterwarnings("ignore::FutureWarning")]

RIGHTS = {"reader": "READ", "editor": "EDIT", "manager": "MANAGE"}


def ask(registry, who, path, method="POST", api="api/2.0", **body):
    headers = send_as(who) if who else {}
    return registry.post(f"/{api}/mlflow/{path}", body, method, headers=headers)[0]


@pytest.fixture
def world(tmp_path, running_guarded, name, monkeypatch):
    """A guarded server with passwords; version 1 of a model is signed, 2 is not, and users have rights on it."""
    for key, value in (("USERNAME", "admin"), ("PASSWORD", PASSWORD)):
        monkeypatch.setenv(f"MLFLOW_TRACKING_{key}", value)
    options, env = want_passwords(tmp_path)
    options += ("--artifacts-destination", f"privgate:{tmp_path}/artifacts")
    with running_guarded(tmp_path, *options, env=env) as registry:
        for payload in ("signed", "not signed"):
            registry.log(name, payload=payload)
        registry.release(name, "1")
        experiment = registry.client.get_experiment_by_name("guard").experiment_id
        for user, right in RIGHTS.items():
            assert ask(registry, "admin", "users/create", username=user, password=PASSWORD) == 200
            for kind, about in (("registered_model", name), ("experiment", experiment)):
                body = {"username": user, "resource_type": kind, "resource_id": about, "permission": right}
                assert ask(registry, "admin", "users/permissions/grant", api="api/3.0", **body) == 200
        registry.good, registry.text = name, registry.held_text(name, "1")
        yield registry


def test_no_right_releases_and_editors_and_readers_do_their_work(world, monkeypatch):
    """Who may edit signs and promotes, who may read verifies and is told the truth by the doctor."""
    for who in ("", *RIGHTS, "admin"):
        unsigned = {"name": world.good, "alias": "production", "version": "2"}
        assert ask(world, who, "registered-models/alias", **unsigned) in {401, 403}
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
