"""Every command of each known line of MLflow, against each place in which a model's author can write an address."""

import shutil
import subprocess
import sys

import pytest

from tests.guard.store import authors
from tests.guard.store.test_server_versions import RELEASE, alone, interpreter

pytestmark = [
    pytest.mark.slow,
    pytest.mark.server,
    pytest.mark.timeout(3000),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]

LINES = ("3.10", "3.14", "newest")
#: what each place is tried with; the first kind by every command, others by the two that read and write most
KINDS_OF = {
    "the run": ("mlflow-artifacts", "http", "ftp", "s3", "gs", "dbfs", "file"),
    "the experiment": ("mlflow-artifacts", "http", "file"),
    "the reports' run": ("mlflow-artifacts", "file"),
    "the model's files": ("mlflow-artifacts", "http", "ftp", "s3", "gs", "dbfs"),
    "the version's source": ("http",),
    "the recipe's data": ("http", "mlflow-artifacts", "ftp", "s3", "gs", "dbfs"),
    "the recipe's table": ("http", "ftp", "s3"),
    "the recipe's run": ("mlflow-artifacts",),
    "the statement": ("http",),
    "tags, MLmodel, requirements": ("http",),
    "a redirect 302": ("redirect",),
    "a redirect 307": ("redirect",),
    "a redirect 308": ("redirect",),
}
MOST = ("check", "verify")


@pytest.fixture(scope="module", params=LINES)
def world(request, tmp_path_factory, site, running_mlflow, registry_type, free_port):
    """A guarded server of this line with a version that its own commands checked, signed and released."""
    python = sys.executable if request.param == "newest" else interpreter(request.param, tmp_path_factory)
    folder, work = tmp_path_factory.mktemp("line"), tmp_path_factory.mktemp("work")
    options = ("--registry-store-uri", f"privgate:sqlite:///{folder}/tracking.db")
    with running_mlflow(folder, *options, env=site.env, python=python) as address:
        registry = registry_type(address, site)
        registry.free_port = free_port
        subprocess.run([python, "-c", RELEASE, "m", address], env=alone(), check=True, cwd=work)
        with authors.served(authors.Listener()) as listener, authors.served(authors.Leading(address)) as leading:
            made = authors.World(registry, folder, work, python, listener, leading)
            for command in ("check", "sign"):
                code, said, found = made.ask(command)
                assert (code, found) == (0, authors.NOTHING), said
                if command == "check":
                    shutil.copytree(work / "1-check" / "out", work / "checked")
            registry.client.set_registered_model_alias("m", "production", "1")
            for command in ("verify", "verify by MLflow's client", "doctor"):
                code, said, found = made.ask(command)
                assert (code, found) == (0, authors.NOTHING), said
            yield made


def cases():
    for place, (_, asked) in authors.PLACES_OF.items():
        for kind in KINDS_OF[place]:
            every = kind == KINDS_OF[place][0] and place not in {"a redirect 307", "a redirect 308"}
            for command in authors.WAYS if every else [c for c in MOST if c in asked]:
                yield command, place, kind


def marked():
    for command, place, kind in cases():
        way = pytest.mark.attack(f"21 an address of an author's, {kind}, in {place}", command, "refused")
        yield pytest.param(command, place, kind, id=f"{command}-{place}-{kind}", marks=way)


@pytest.mark.parametrize(("command", "place", "kind"), marked())
def test_nothing_arrives_at_the_author_and_nothing_is_written_elsewhere(world, command, place, kind):
    _, said, found = authors.tried(world, command, place, kind)
    assert found == authors.NOTHING, said


def open_ones():
    """Give what arrives where the operator lists the author's address; whatever else could not fail."""
    for command, place, kind in cases():
        if kind == KINDS_OF[place][0] and command in authors.PLACES_OF[place][1]:
            yield command, place, kind


@pytest.mark.parametrize(("command", "place", "kind"), open_ones())
def test_where_the_operator_lists_the_address_it_is_asked_without_a_password(world, command, place, kind):
    _, said, found = authors.tried(world, command, place, kind, admitted=True)
    assert found["connected"], said
    assert found["told"], said
    assert not authors.password_in(found["told"]), found["told"]
