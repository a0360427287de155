"""The audit log: every release, refusal and withdrawal one line, none of them lost, none changed unseen."""

import json
import multiprocessing
import os
import types

import pytest
from mlflow.exceptions import MlflowException

from privgate.errors import StatementError
from privgate.guard import diagnosis as doctor
from privgate.guard.audit_log import AuditLog
from privgate.guard.transaction import BEFORE_COMMIT, permission_denied
from privgate.guard.writes import RecordedWrites


@pytest.fixture
def log(tmp_path):
    return AuditLog(tmp_path / "audit.jsonl")


def test_events_are_appended_and_linked(log):
    assert list(log.lines()) == []
    log.record("asked", doing="released", model="credit", version="3", target="production", by="ann@10.0.0.1")
    log.record("refused", model="credit", why="the verdict is failed\nnot an approval" + "x" * 9000)
    first, second = log.lines()
    assert (first["event"], first["previous"], second["event"]) == ("asked", "", "refused")
    assert second["previous"].startswith("sha256:")
    assert len(log.path.read_bytes().splitlines()) == 2
    assert len(second["why"]) == 2000
    assert oct(log.path.stat().st_mode & 0o777) in {"0o640", "0o600"}


@pytest.mark.parametrize("order", ["0X23", "023", "0213", "01123"])
def test_a_log_that_was_changed_shows(log, order):
    for i in range(4):
        log.record("refused", model=f"m{i}")
    lines = log.path.read_bytes().splitlines(keepends=True)
    spoilt = {"X": lines[1].replace(b"m1", b"mX"), **{str(i): line for i, line in enumerate(lines)}}
    log.path.write_bytes(b"".join(spoilt[character] for character in order))
    with pytest.raises(StatementError, match=r"does not follow|no event"):
        list(log.lines())


def append(path, count):
    for i in range(count):
        AuditLog(path).record("released", model=f"{os.getpid()}-{i}")


def test_processes_that_append_at_once_lose_nothing(log):
    workers = [multiprocessing.get_context("fork").Process(target=append, args=(log.path, 50)) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    models = [e["model"] for e in log.lines()]
    assert len(set(models)) == len(models) == 200


def test_a_line_that_a_killed_process_wrote_half_of_shows_and_hurts_no_other(log):
    log.record("released", model="a")
    with log.path.open("ab") as half:
        half.write(b'{"event": "rel')
    log.record("released", model="b")
    assert json.loads(log.path.read_bytes().splitlines()[-1])["model"] == "b"
    with pytest.raises(StatementError, match="line 2"):
        list(log.lines())


def test_what_cannot_be_written_is_an_error(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    for path in (tmp_path, tmp_path / "absent" / "audit.jsonl", tmp_path / "link"):
        with pytest.raises(StatementError, match="cannot be written"):
            AuditLog(path).record("refused", model="m")


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
    events = [(e["event"], e.get("version"), e.get("target")) for e in log.lines()]
    assert events == [
        ("asked", "3", "production"), ("released", "3", "production"),
        ("asked", None, "production"), ("withdrawn", None, "production"),
        ("asked", "3", "Production"), ("released", "3", "Production"),
        ("refused", "4", "production"),
    ]  # fmt: skip
    assert "the verdict is failed" in list(log.lines())[-1]["why"]


def test_what_cannot_be_recorded_is_not_released_and_without_a_log_nothing_changes(tmp_path):
    store = Store(AuditLog(tmp_path))
    with pytest.raises(MlflowException, match="cannot be written"):
        store.set_registered_model_alias("credit", "production", "3")
    assert store.moved == []
    store.set_registered_model_alias("credit", "candidate", "3")
    assert len(store.moved) == 1
    store = Store(None)
    store.set_registered_model_alias("credit", "production", "3")
    assert store.moved == [("credit", "production", "3")]


def test_the_doctor_looks_whether_the_log_is_whole(log):
    def look(log):
        (answer,) = doctor._audit_log(types.SimpleNamespace(audit_log=log))
        return answer.state, answer.text

    assert look(None)[0] == look(log)[0] == "look"
    log.record("released", model="m")
    log.record("withdrawn", model="m")
    assert look(log) == ("fine", "the audit log is whole: 2 events")
    log.path.write_bytes(log.path.read_bytes().replace(b"released", b"refused"))
    with pytest.raises(StatementError, match="line 2 does not follow"):  # which the doctor calls wrong
        look(log)
