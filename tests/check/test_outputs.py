"""Where a command cannot write is said in one sentence, with exit code 2, before anything is read or trained."""

from pathlib import Path

import pytest

from privgate import github
from privgate.__main__ import run
from privgate.cli import outputs
from privgate.training.fleet import Fleet

CHECK = ["check", "models:/nobody/1", "--policy", "dtp-1", "--tracking-uri", "sqlite:///nowhere.db", "--quiet"]


@pytest.fixture
def taken(tmp_path, monkeypatch):
    """A file where a folder is wanted: it stops root as well, for whom every folder is writable."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(Fleet, "__init__", lambda *_, **__: pytest.fail("a fleet was made"))
    (tmp_path / "taken").write_text("here is a file")
    return tmp_path / "taken"


def said(capsys, arguments):
    """Return the one sentence that a command ended with; it ended with 2 and without a traceback."""
    assert run(arguments) == 2
    lines = capsys.readouterr().err.splitlines()
    if ": reading libraries, then " in lines[0]:
        lines = lines[1:]
    assert lines[0].startswith("error: ")
    assert all(line.startswith("    ") for line in lines[1:])  # one sentence, however many lines it takes
    return " ".join(" ".join(lines).split())


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--report-dir", "taken/report", "taken/report cannot be written: Not a directory"),
        ("--report-dir", "/proc/privgate", "cannot be written"),
        ("--ledger", "taken/ledger", "the ledger taken/ledger cannot be opened: Not a directory; say --ledger FOLDER"),
        ("--hash-key-file", "taken/hash.key", "hash key taken/hash.key cannot be read or made: Not a directory"),
    ],
)
def test_a_place_that_cannot_be_written_is_named_before_training(taken, capsys, option, value, words):
    for command in (CHECK, ["promote", *CHECK[1:], "--to", "production"]):
        assert words in said(capsys, [*command, option, value])


def test_a_report_whose_file_is_a_folder_is_refused(taken, capsys):
    Path("out/junit.xml").mkdir(parents=True)

    assert "junit.xml in it is a folder" in said(capsys, [*CHECK, "--report-dir", "out"])


def test_nothing_is_left_where_everything_can_be_written(taken):
    outputs.check({"report_dir": "out", "hash_key_file": None, "cluster": None, "ledger": "ledger"})
    outputs.file("page.html", "--html")

    assert sorted(p.name for p in Path().iterdir()) == ["config", "ledger", "out", "taken"]
    assert not list(Path("out").iterdir())
    assert not list(Path("ledger").iterdir())


@pytest.mark.parametrize(
    "arguments",
    [
        ["demo", "--folder", "taken/demo"],
        ["report", "report.json", "--html", "taken/page.html"],
        ["report", "b.json", "--compare", "a.json", "--html", "taken/page.html"],
        ["guard", "keys", "key.pem", "--trust", "taken/trust.json"],
    ],
    ids=lambda a: " ".join(a[:3]),
)
def test_every_command_that_writes_says_it(taken, capsys, arguments):
    assert "Not a directory" in said(capsys, arguments)


@pytest.mark.parametrize("name", ["GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY", "PRIVGATE_INPUT_REPORT_DIR"])
def test_a_workflow_step_tries_its_files_first(taken, capsys, name):
    environ = {"PRIVGATE_INPUT_MODEL": "models:/credit/1", "PRIVGATE_INPUT_POLICY": "dtp-1", name: "taken/file"}

    assert github.perform("check", environ, execute=lambda _: pytest.fail("privgate was called")) == 2
    assert "cannot be written: Not a directory" in capsys.readouterr().out
