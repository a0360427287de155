"""A long command says at once that it has begun, goes on saying so, and writes lines that fit."""

import os
import re
import subprocess
import sys
import time

import click
import pytest

from privgate.cli import LONG, cli
from privgate.cli import console as heartbeat

BEGUN = """
import sys
from privgate.cli import cli, console as heartbeat
def said(text):
    heavy = {"numpy", "mlflow", "sklearn", "pandas", "privgate.policy"} & {*sys.modules}
    print("heavy" if heavy else "light", text)
    raise SystemExit(0)
heartbeat.begin = said
cli.main(sys.argv[1:], standalone_mode=False)
"""


@pytest.mark.parametrize("name", LONG)
def test_the_first_line_is_there_before_any_library_is_read(name):
    made = subprocess.run(
        [sys.executable, "-c", BEGUN, *name.split(), "models:/m/1", "--policy", "dtp-1"],
        capture_output=True,
        text=True,
        check=True,
    )

    assert made.stdout == f"light {name}: reading libraries, then models:/m/1 by dtp-1\n"


@pytest.mark.quick(1)
@pytest.mark.parametrize("by", ["option", "environment"])
def test_whoever_asks_for_quiet_hears_nothing(by):
    made = subprocess.run(
        [sys.executable, "-c", BEGUN, "check", "models:/m/1", "--policy", "none-such", *["--quiet"][: by == "option"]],
        capture_output=True, text=True, check=False, env={**os.environ, "PRIVGATE_QUIET": str(by != "option")},
    )  # fmt: skip

    assert "light" not in made.stdout


def test_a_file_that_asks_for_quiet_ends_the_lines(monkeypatch, tmp_path):
    (tmp_path / "privgate.yaml").write_text("quiet: true\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(heartbeat, "_now", heartbeat._State())
    heartbeat.begin("check: reading")

    with pytest.raises(click.UsageError):
        cli.main(["check"], standalone_mode=False)

    assert heartbeat._now.ended is None


@pytest.mark.quick(2)
@pytest.mark.parametrize("uri", ["", "models:/m/1"], ids=["usage", "no registry"])
@pytest.mark.parametrize("stderr", ["closed", "full", "broken"])
def test_where_nobody_can_be_told_no_exit_code_is_a_verdict(stderr, uri, tmp_path):
    read, write = os.pipe()
    os.close(read)
    opened = {"broken": write, "full": os.open("/dev/full", os.O_WRONLY), "closed": None}[stderr]
    made = subprocess.run(
        ["sh", "-c", f'"$0" -m privgate check {uri} {"2>&-" * (stderr == "closed")}', sys.executable],
        stdout=subprocess.PIPE, stderr=opened, text=True, check=False, cwd=tmp_path,
    )  # fmt: skip

    assert made.returncode in {2, 3, 4}
    assert made.stdout == ""


@pytest.fixture
def heard(monkeypatch, capsys):
    monkeypatch.setattr(heartbeat, "_SECONDS", 0.2)
    monkeypatch.setattr(heartbeat, "_now", heartbeat._State())
    lines = []

    def heard():
        lines.extend(capsys.readouterr().err.splitlines())
        return lines

    yield heard
    heartbeat.end()


def test_work_that_says_nothing_is_told_of(heard):
    began = time.monotonic()
    heartbeat.begin("check: reading")
    while len(heard()) < 3 and time.monotonic() - began < 60:
        time.sleep(0.1)
    heartbeat.end()
    time.sleep(0.2)  # a line that was begun
    lines = [*heard()]

    assert lines[0] == "check: reading"
    assert 3 <= len(lines) <= 2 + (time.monotonic() - began) / heartbeat._SECONDS
    assert all(re.fullmatch(r"still at work, \d+ s so far", line) for line in lines[1:])
    time.sleep(0.5)
    assert heard() == lines


def test_without_a_terminal_each_phase_and_its_estimate_is_a_line(heard, monkeypatch):
    monkeypatch.setattr(heartbeat, "_SECONDS", 1000.0)
    for done, left in ((0, float("nan")), (1, float("nan")), (2, 300.0), (3, 299.0)):
        heartbeat.progress(done, 200, left, "training shadow models")
    heartbeat.progress(0, 8, 3.0, "retraining")

    assert heard() == [
        "training shadow models: 0 of 200",
        "training shadow models: 2 of 200, about 5 min left",
        "retraining: 0 of 8, about 3 s left",
    ]


def test_lines_fit_and_no_number_loses_its_unit(monkeypatch):
    monkeypatch.delenv("PRIVGATE_COLUMNS")
    text = "  + " + " ".join(f"influence {i} nats of {i} % in {i} s" for i in range(60))
    lines = heartbeat.wrapped(text).splitlines()

    assert max(map(len, lines)) <= heartbeat.WIDTH < len(text)
    assert all(line.startswith("      ") for line in lines[1:])
    assert not any(re.search(r"\d$", line) for line in lines[:-1])
    assert " ".join(" ".join(lines).split()) == text.strip()
    assert heartbeat.wrapped("/" + "long" * 40) == "/" + "long" * 40
    monkeypatch.setenv("PRIVGATE_COLUMNS", "1000")
    assert heartbeat.wrapped("one of two " * 50) == ("one of two " * 50).strip()
