"""The exit codes, from outside: one sentence on stderr, no traceback, and nothing computed is lost."""

import json
import subprocess
import sys

import pytest

from privgate import registry
from privgate.errors import RegistryError


def clean(process: subprocess.CompletedProcess[str]) -> str:
    assert "Traceback" not in process.stderr, process.stderr
    return process.stderr


def test_0_approved_everything_written_and_no_library_imported_that_only_others_need(privgate, inside, tmp_path):
    words = ("--policy", "dtp-1", "--report-dir", "out", "--no-attach", "--ledger", "none")
    ended = privgate("check", "models:/smoothed/1", *words, PYTHONPROFILEIMPORTTIME="1")

    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith("APPROVED")
    names = {p.name for p in (tmp_path / "out").iterdir()}
    assert names == {"report.json", "records.parquet", "cases.npz", "report.html", "summary.md", "junit.xml"}
    document = json.loads((tmp_path / "out" / "report.json").read_text())
    assert document["outcome"] in ("passed", "warned")
    assert inside("report", "out/report.json", "--html", "again.html").returncode == 0
    assert (tmp_path / "again.html").read_bytes() == (tmp_path / "out" / "report.html").read_bytes()

    imported = {line.rpartition("|")[2].strip() for line in ended.stderr.splitlines() if line.startswith("import time")}
    assert "numpy" in imported
    others = {"great_expectations", "matplotlib", "mlflow", "skops", "pytest", "torch", "dask"}
    assert (others | {"sklearn.base", "scipy"}) & imported == set()


def test_1_blocked_and_not_promoted(inside):
    ended = inside("promote", "models:/memory/1", "--to", "production", "--policy", "dtp-1")

    assert ended.returncode == 1, ended.stderr
    assert "not promoted" in clean(ended)
    assert ended.stdout.startswith("REFUSED")


def test_4_a_registry_that_is_gone_leaves_the_report(inside, tmp_path, monkeypatch):
    def fail(*_, **__):
        raise RegistryError("attaching the report: connection refused")

    monkeypatch.setattr(registry, "attach", fail)
    ended = inside("check", "models:/smoothed/1", "--policy", "dtp-1", "--report-dir", "out")

    assert ended.returncode == 4, ended.stderr
    assert "connection refused" in clean(ended)
    assert (tmp_path / "out" / "report.html").is_file()


def test_5_inconclusive_is_said_before_and_after(inside):
    ended = inside(
        "check", "models:/forest/1", "--policy", "dtp-1", "--no-attach", "--seeds", "2", "--budget", "8 trainings"
    )

    assert ended.returncode == 5, ended.stdout + ended.stderr
    assert "can never approve" in clean(ended)
    assert "pdtp-1" in ended.stderr
    assert ended.stderr.index("can never approve") < ended.stderr.index("without single people")


def test_2_a_folder_for_the_report_that_cannot_be_made_is_said_before_training(inside, tmp_path):
    (tmp_path / "file").write_text("")
    ended = inside("check", "models:/smoothed/1", "--policy", "dtp-1", "--report-dir", "file/out")

    assert ended.returncode == 2, ended.stderr
    assert "cannot be written" in ended.stderr
    assert "retrain" not in ended.stderr


@pytest.mark.parametrize(
    ("callback", "code", "words"),
    [
        ("1 / 0", 3, ("ZeroDivisionError", "nothing was approved")),
        ("os.kill(os.getpid(), signal.SIGINT)", 130, ("resumes",)),
    ],
)
def test_a_bug_shows_its_traceback_and_an_interruption_that_the_command_resumes(callback, code, words):
    body = (
        "import os, signal, sys\nimport privgate.cli.report as r\nfrom privgate.__main__ import run\n"
        # a shell that started these tests in the background has left the signal ignored
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        f"r.report.callback = lambda **_: {callback}\nsys.exit(run(['report', 'x.json', '--html', 'y']))"
    )
    ended = subprocess.run([sys.executable, "-c", body], capture_output=True, text=True, check=False)
    assert ended.returncode == code
    assert all(word in ended.stderr for word in words)
    assert ("Traceback" in ended.stderr) == (code == 3)


def test_list_and_explain_name_everything(inside):
    chosen, listed = inside("explain", "--list"), inside("explain", "--list", "--all")
    assert chosen.returncode == listed.returncode == 0
    assert chosen.stdout.startswith("policies\n")
    assert listed.stdout.startswith(chosen.stdout)
    for word in ("dtp", "refit", "categorical_nb", "lira_online", "dtp-1"):
        assert f"  {word} " in listed.stdout
        assert (f"  {word} " in chosen.stdout) == (word not in ("refit", "categorical_nb"))
    assert max(map(len, listed.stdout.splitlines())) <= 100
    assert inside("explain", "pdtp").returncode == 0
    missing = inside("explain", "lirra_online")
    assert missing.returncode == 2
    assert "lira_online" in clean(missing)
