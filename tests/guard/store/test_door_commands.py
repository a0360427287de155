"""The commands that people run, against an address of a model's author: nothing arrives there, and no password does."""

import contextlib
import sqlite3
import sys

import pytest

from tests.guard.store import authors
from tests.guard.store.test_serve import model

pytestmark = [pytest.mark.server, pytest.mark.filterwarnings("ignore::FutureWarning")]


@pytest.fixture(scope="module")
def world(guarded_server, guarded_folder, site, registry_type, free_port, tmp_path_factory):
    registry = registry_type(guarded_server, site)
    registry.free_port = free_port
    tables = (
        "registered_model_aliases",
        "model_version_tags",
        "registered_model_tags",
        "model_versions",
        "registered_models",
    )

    def emptied():
        with contextlib.closing(sqlite3.connect(guarded_folder / "tracking.db", timeout=30)) as rows:
            for table in tables:
                rows.execute(f"DELETE FROM {table}")
            rows.commit()

    emptied()
    work = tmp_path_factory.mktemp("authors")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(work)
        model(registry, "m")
        registry.release("m", "1", work)
    registry.client.set_registered_model_alias("m", "production", "1")
    with authors.served(authors.Listener()) as listener, authors.served(authors.Leading(guarded_server)) as leading:
        yield authors.World(registry, guarded_folder, work, sys.executable, listener, leading)
    emptied()


#: command, place, kind: one for each step of a command that would ask there
CASES = [
    ("check", "the experiment", "http"),
    ("check", "the recipe's data", "http"),
    ("sign --renew", "the run", "mlflow-artifacts"),
    ("verify", "the run", "http"),
    ("verify", "a redirect 307", "redirect"),
    ("verify by MLflow's client", "the model's files", "mlflow-artifacts"),
    ("doctor", "the run", "mlflow-artifacts"),
    ("serve", "the run", "mlflow-artifacts"),
]
#: where the operator lists the address: of these, each command's quickest
OPEN = [CASES[i] for i in (1, 2, 4, 6, 7)]


def marked():
    for command, place, kind in CASES:
        named = f"{kind or 'another host'} by {place}"
        yield pytest.param(
            command, place, kind, id=f"{command}-{place}", marks=pytest.mark.attack(f"21 {named}", command, "refused")
        )


@pytest.mark.parametrize(("command", "place", "kind"), marked())
def test_nothing_arrives_at_the_author(world, command, place, kind):
    _, said, found = authors.tried(world, command, place, kind)
    assert found == authors.NOTHING, said


@pytest.mark.parametrize(("command", "place", "kind"), OPEN)
def test_where_the_operator_lists_the_address_it_is_asked_without_a_password(world, command, place, kind):
    """Otherwise the tests above could not fail."""
    _, said, found = authors.tried(world, command, place, kind, admitted=True)
    assert found["connected"], said
    assert found["told"], said
    assert not authors.password_in(found["told"]), found["told"]
