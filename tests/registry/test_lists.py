"""One broken item never ends a list: the others are still told, the broken one is named, and the exit is not 0."""

import shutil

import mlflow
import pytest
from mlflow.exceptions import MlflowException
from mlflow.store.model_registry.sqlalchemy_store import SqlAlchemyStore

from privgate import Subject, log_model
from privgate.__main__ import run
from privgate.evidence.verdict import Verdict
from privgate.registry import attach

NAMES = ("broken", "zeta")


def breaks_aliases(monkeypatch):
    """Have the registry fail about one model only."""
    asked = SqlAlchemyStore.get_model_version_by_alias

    def ask(self, name, *args):
        if name == "broken":
            raise MlflowException("the disk is broken")
        return asked(self, name, *args)

    monkeypatch.setattr(SqlAlchemyStore, "get_model_version_by_alias", ask)


def breaks_versions(monkeypatch):
    def refuse(self, *args, **kwargs):
        raise MlflowException("the disk is broken")

    monkeypatch.setattr(SqlAlchemyStore, "search_model_versions", refuse)


@pytest.mark.parametrize(("breaks", "lists"), [(breaks_aliases, ("doctor", "verify")), (breaks_versions, ("doctor",))])
def test_one_broken_item_never_ends_a_list(
    registry, approved, recipe, data, monkeypatch, capsys, tmp_path, breaks, lists
):
    shutil.copytree(approved[2] / "out", out := tmp_path / "out")
    for name in NAMES:
        log_model(recipe, data, registered_model_name=name, store="artifacts")
        attach(Subject.load(f"models:/{name}/1"), out, Verdict({"name": "dtp-1"}, (), None))
        mlflow.MlflowClient().set_registered_model_alias(name, "production", "1")
    run(["guard", "keys", "key.pem", "--trust", "trust.json"])
    (tmp_path / "guard.yaml").write_text(
        "schema: privgate/guard/v2\nregistry: here\ntrust: trust.json\n"
        'releases:\n  - {models: "*", task: classification, policy: release-1}\nprotected: {aliases: [production]}\n'
    )
    breaks(monkeypatch)
    commands = {
        "doctor": [["guard", "doctor", "--config", "guard.yaml"]],
        "verify": [["verify", f"models:/{name}@production", "--config", "guard.yaml"] for name in NAMES],
    }
    for told in lists:
        capsys.readouterr()
        assert {run(words) for words in commands[told]} == {4}
        said = "".join(capsys.readouterr())
        assert all(f"models:/{name}" in said for name in NAMES), said
