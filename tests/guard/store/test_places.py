"""What the guard rests on lies where no client of the server can write."""

import shutil
from pathlib import Path

import pytest

from privgate.errors import PolicyError
from privgate.guard import store as guard
from privgate.guard.config import Watch
from privgate.guard.store import guarded_store as guarded

ROOT_POLICIES = Path(__file__).resolve().parents[3] / "policies"
DESTINATION, ROOT = "_MLFLOW_SERVER_ARTIFACT_DESTINATION", "_MLFLOW_SERVER_ARTIFACT_ROOT"


@pytest.fixture
def place(site, tmp_path, empty_database, monkeypatch):
    """A folder with configuration and database, guarded as a server does."""
    for path in (site.config, site.folder / "trust.json"):
        shutil.copy(path, tmp_path / path.name)
    shutil.copy(empty_database, tmp_path / "registry.db")
    monkeypatch.setenv("PRIVGATE_GUARD", str(tmp_path / "guard.yaml"))
    return tmp_path


@pytest.mark.parametrize("variable", [DESTINATION, ROOT])
@pytest.mark.parametrize(
    ("spelled", "says"),
    [
        *((place, "where any client may write artifacts") for place in (
            "{}", "file://{}", "file:{}", "file://localhost{}", "{}/artifacts/..", ".")),
        *((place, "no plain path") for place in ("file:{}?x=1", "file://{}?x=1", "file://{}#x", "file://otherhost{}")),
    ],
)  # fmt: skip
def test_clients_may_not_write_what_the_guard_reads(place, monkeypatch, variable, spelled, says):
    monkeypatch.chdir(place)
    monkeypatch.setenv(variable, spelled.format(place))
    with pytest.raises(PolicyError, match=says):
        guarded(f"privgate:sqlite:///{place}/registry.db")


@pytest.mark.parametrize("inner", ["sqlite:///file:{}/registry.db?uri=true", "sqlite:///{}/registry.db?URI=1"])
def test_a_database_that_is_named_by_an_address_is_refused(place, inner):
    with pytest.raises(PolicyError, match="by the path alone"):
        guard._check_places(inner.format(place), Watch(place / "guard.yaml"))


def rewrite(place, *change, more=""):
    (place / "guard.yaml").write_text((place / "guard.yaml").read_text().replace(*change) + more)


@pytest.mark.parametrize("inside", ["registry.db", "audit.jsonl", "guard.yaml", "trust.json", "base.yaml"])
def test_each_of_its_files_counts(place, monkeypatch, inside):
    served, database = place / "artifacts", place / "registry.db"
    served.mkdir()
    monkeypatch.setenv(DESTINATION, str(served))
    if inside == "registry.db":
        database = served / inside
    elif inside == "audit.jsonl":
        rewrite(place, "", "", more="audit_log: artifacts/audit.jsonl\n")
    elif inside == "trust.json":
        (place / "trust.json").rename(served / inside)
        rewrite(place, "trust: trust.json", "trust: artifacts/trust.json")
    elif inside == "base.yaml":  # which another policy extends
        shutil.copy(ROOT_POLICIES / "dtp-1.yaml", served / inside)
        extending = 'schema: privgate/policy/v1\nname: own\nversion: "1"\nextends: artifacts/base.yaml\n'
        (place / "own.yaml").write_text(extending)
        rewrite(place, "policy: dtp-1", "policy: own.yaml")
    else:
        for name in ("guard.yaml", "trust.json"):
            shutil.copy(place / name, served / name)
        monkeypatch.setenv("PRIVGATE_GUARD", str(served / inside))
    with pytest.raises(PolicyError, match=f"{inside} lies below"):
        guarded(f"privgate:sqlite:///{database}")


@pytest.mark.parametrize("elsewhere", ["s3://bucket/models", "mlflow-artifacts:/", "", "/nowhere/at/all"])
def test_artifacts_that_lie_elsewhere_are_no_matter(place, monkeypatch, elsewhere):
    monkeypatch.setenv(DESTINATION, elsewhere)
    monkeypatch.setenv(ROOT, elsewhere)
    guard._check_places(f"sqlite:///{place}/registry.db", Watch(place / "guard.yaml"))
