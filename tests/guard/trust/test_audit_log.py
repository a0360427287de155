"""The audit log: every release, refusal and withdrawal one line, none of them lost."""

import json
import multiprocessing
import os
import types

import pytest
from mlflow.exceptions import MlflowException

from privgate.errors import StatementError
from privgate.guard.rows import BEFORE_COMMIT, permission_denied
from privgate.guard.writes import RecordedWrites, record_event


@pytest.fixture
def log(tmp_path):
    return tmp_path / "audit.jsonl"


def lines(log):
    return [json.loads(line) for line in log.read_text().splitlines()]


def test_events_are_appended(log):
    record_event(log, "asked", doing="released", model="credit", version="3", by="ann@10.0.0.1")
    record_event(log, "refused", model="credit", why="the verdict is failed\nnot an approval" + "x" * 9000)
    first, second = lines(log)
    assert (first["event"], first["by"], second["event"], len(second["why"])) == (
        "asked", "ann@10.0.0.1", "refused", 2000,
    )  # fmt: skip
    assert oct(log.stat().st_mode & 0o777) in {"0o640", "0o600"}


def append(path, count):
    for i in range(count):
        record_event(path, "released", model=f"{os.getpid()}-{i}")


def test_processes_that_append_at_once_lose_nothing(log):
    workers = [multiprocessing.get_context("fork").Process(target=append, args=(log, 50)) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    assert len({e["model"] for e in lines(log)}) == len(lines(log)) == 200


def test_what_cannot_be_written_is_an_error(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    for path in (tmp_path, tmp_path / "absent" / "audit.jsonl", tmp_path / "link"):
        with pytest.raises(StatementError, match="cannot be written"):
            record_event(path, "refused", model="m")


# -- the store ------------------------------------------------------------------------------------------------------


class Inner:
    """MLflow's store and the guard's decision, for the recording alone."""

    refuses = ""

    def set_registered_model_alias(self, name, alias, version):
        if self.refuses:
            raise permission_denied(f"privgate: {self.refuses}")
        BEFORE_COMMIT.get()()
        self.moved.append((name, alias, version))

    def delete_registered_model_alias(self, name, alias):
        self.moved.append((name, alias))

    def transition_model_version_stage(self, name, version, stage, archive_existing_versions):
        BEFORE_COMMIT.get()()
        self.moved.append((name, version, stage, archive_existing_versions))


class Store(RecordedWrites, Inner):
    def __init__(self, log):
        self.moved = []
        guard = types.SimpleNamespace(
            aliases=frozenset({"production"}), stages=frozenset({"production"}), audit_log=log,
            protects_model=lambda name: name.startswith("prod."),
        )  # fmt: skip
        self.privgate_watch = types.SimpleNamespace(guard=lambda: guard)


def test_releases_refusals_and_withdrawals_are_recorded(log):
    store = Store(log)
    store.set_registered_model_alias(name="credit", version="3", alias="production")
    store.delete_registered_model_alias("credit", "production")
    store.transition_model_version_stage("credit", "3", "Production", archive_existing_versions=False)
    store.set_registered_model_alias("credit", "candidate", "3")  # protected is nothing here
    store.refuses = "the verdict is failed"
    with pytest.raises(MlflowException, match="the verdict is failed"):
        store.set_registered_model_alias("credit", "production", "4")
    events = [(e["event"], e.get("version"), e.get("target")) for e in lines(log)]
    assert events == [
        ("asked", "3", "production"), ("released", "3", "production"),
        ("asked", None, "production"), ("withdrawn", None, "production"),
        ("asked", "3", "Production"), ("released", "3", "Production"),
        ("refused", "4", "production"),
    ]  # fmt: skip
    assert "the verdict is failed" in lines(log)[-1]["why"]


def test_what_cannot_be_recorded_is_not_released_and_without_a_log_nothing_changes(tmp_path):
    store = Store(tmp_path)
    with pytest.raises(MlflowException, match="cannot be written"):
        store.set_registered_model_alias("credit", "production", "3")
    assert store.moved == []
    store.set_registered_model_alias("credit", "candidate", "3")
    assert len(store.moved) == 1
    store = Store(None)
    store.set_registered_model_alias("credit", "production", "3")
    assert store.moved == [("credit", "production", "3")]
