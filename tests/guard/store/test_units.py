"""The units of hooks/mlflow-server: systemd accepts them, and both commands accept the options that they give."""

import shlex
import shutil
import subprocess
from configparser import ConfigParser
from pathlib import Path

import click
import pytest

from privgate.cli.guard import serve
from privgate.guard.config import Guard

HOOK = Path(__file__).resolve().parents[3] / "hooks" / "mlflow-server"
UNITS = sorted(HOOK.glob("*.service"))


def words(unit):
    """Return the command of a unit as systemd splits it."""
    parser = ConfigParser(interpolation=None, strict=False)
    parser.optionxform = str
    parser.read(unit)
    return shlex.split(parser["Service"]["ExecStart"].replace("\\\n", " "))


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
@pytest.mark.parametrize("unit", UNITS, ids=lambda u: u.name)
def test_systemd_accepts_the_unit(unit, tmp_path):
    there = tmp_path / unit.name
    # the programs of the real host are not here; everything else is as in the file
    there.write_text(unit.read_text().replace(words(unit)[0], "/bin/true"))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(there)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_the_commands_accept_the_options_of_the_units():
    from mlflow.cli import server

    assert len(UNITS) == 2
    for unit, command, called in zip(UNITS, (server, serve), ("mlflow server", "privgate guard serve"), strict=True):
        program, *rest = words(unit)
        count = called.count(" ")
        assert [Path(program).name, *rest[:count]] == called.split()
        options = rest[count:]
        _, rest, _ = command.make_parser(click.Context(command)).parse_args(options)
        assert rest == []
        with pytest.raises(click.NoSuchOption):
            command.make_parser(click.Context(command)).parse_args([*options, "--absent"])
    assert "privgate:${BACKEND_STORE_URI}" in words(UNITS[0])


def test_the_example_configuration_is_a_guard(tmp_path, site):
    shutil.copy(HOOK / "guard.yaml", tmp_path)
    shutil.copy(site.folder / "trust.json", tmp_path)
    assert Guard.load(tmp_path / "guard.yaml").aliases == {"production", "champion"}
