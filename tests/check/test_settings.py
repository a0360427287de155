"""Where options come from, what is printed, and what a shell completes."""

import os
import re
from pathlib import Path

import click
import pytest
import yaml
from click.shell_completion import ShellComplete

from privgate.__main__ import run
from privgate.cli import COMMANDS, GROUPS, cli, config


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return tmp_path


def commands():
    context = cli.make_context("privgate", ["explain"], resilient_parsing=True)
    return {name: cli.get_command(context, name) for name in COMMANDS}


def settings(name, environ=(), folder=Path()):
    every = commands()
    return config.defaults(name, every[name], dict(environ), folder, lambda: every)[0]


def leaves(command, path=()):
    """Yield (path, command) of a command and of all inside it."""
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            yield from leaves(inner, (*path, name))
    else:
        yield path, command


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_has_a_variable(name):
    for path, command in leaves(commands()[name]):
        options = config.options_of(command)
        given = {f"PRIVGATE_{o.replace('-', '_').upper()}": "1" for o in options}
        found = settings(name, given)
        for step in path:
            found = found[step]
        assert set(found) == {p.name for o, p in options.items() if o != "key"}


def test_the_line_wins_over_the_environment_and_that_over_the_file(capsys, monkeypatch):
    Path("privgate.yaml").write_text("policy: from-file\nfull: true\n")
    command = ["check", "models:/a/1"]

    assert run(command) == 2
    assert "from-file" in capsys.readouterr().err
    monkeypatch.setenv("PRIVGATE_POLICY", "from-environment")
    assert run(command) == 2
    assert "from-environment" in capsys.readouterr().err
    assert run([*command, "--policy", "from-line"]) == 2
    error = capsys.readouterr().err
    assert "from-line" in error
    assert error.splitlines()[1].startswith("note: from privgate.yaml: policy, full")


def test_the_nearest_file_above_counts_and_its_paths_begin_at_its_folder(capsys, monkeypatch, here):
    Path("own.yaml").write_text('schema: privgate/policy/v1\nname: own\nversion: "1"\nrules: []\n')
    Path("privgate.yaml").write_text("policy: own.yaml\nreport-dir: out\nledger: kept\npurpose: own.yaml\n")
    below = here / "a" / "b"
    below.mkdir(parents=True)
    found = settings("check", folder=below)
    assert found == {
        "policy_name": f"{here}/own.yaml",
        "report_dir": f"{here}/out",
        "ledger": f"{here}/kept",
        "purpose": "own.yaml",
    }
    monkeypatch.chdir(below)
    assert run(["check", "models:/a/1"]) == 2  # no rule
    assert "note: from ../../privgate.yaml: " in capsys.readouterr().err

    real = Path.stat
    monkeypatch.setattr(
        Path, "stat", lambda self, **how: os.stat_result((*(r := real(self, **how))[:4], 54321, *r[5:]))
    )
    assert settings("check", folder=below) == {}
    assert f"note: {here}/privgate.yaml belongs to another user" in capsys.readouterr().err

    def locked(self, **how):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "stat", locked)
    monkeypatch.setattr(os.path, "isfile", lambda path: False)
    assert settings("check", folder=below) == {}


@pytest.mark.parametrize("words", ["check models:/a/1", "promote models:/a/1 --to production", "advise models:/a/1"])
def test_the_default_policy_is_release_1(capsys, words):
    command = commands()[words.partition(" ")[0]]
    assert command.make_context("privgate", words.split()[1:]).params["policy_name"] == "release-1"
    Path("privgate.yaml").write_text("policy: no-such\n")
    assert run(words.split()) == 2
    assert "no-such" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "words"),
    [("polcy: dtp-1", "no option is called 'polcy'; did you mean 'policy'?"), ("- a", "holds a list"),
     ("a: [", "cannot be read"), ("jbos: 2", "did you mean 'jobs'?")],
)  # fmt: skip
def test_a_file_with_a_mistake_is_refused_in_a_sentence(capsys, text, words):
    Path("privgate.yaml").write_text(text)

    assert run(["check", "models:/a/1"]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert "Traceback" not in error


def test_a_policy_in_pyproject_does_not_give_way_to_the_default_in_silence(capsys):
    Path("pyproject.toml").write_text("[tool.privgate]\npolicy = 'strict'\n")
    assert run(["check", "models:/a/1"]) == 2
    assert "write its keys into privgate.yaml" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["guard", "verify"])
def test_a_working_folder_never_chooses_whom_to_trust(name):
    """A stranger's repository may hold a file: it must not accept advisory statements or leave out the box."""
    Path("privgate.yaml").write_text("accept-advisory: true\nwithout-isolation: true\ntrust: mine.json\n")

    def empty(found):
        return all(empty(v) for v in found.values() if isinstance(v, dict)) and not any(
            not isinstance(v, dict) for v in found.values()
        )

    assert empty(settings(name))


def test_init_writes_what_can_be_used_and_overwrites_nothing(capsys, here):
    Path("privgate.yaml").write_text("policy: mine.yaml\n")

    assert run(["init", "--policy", "dtp-1-attacks"]) == 0
    assert "kept privgate.yaml" in capsys.readouterr().out
    assert Path("privgate.yaml").read_text() == "policy: mine.yaml\n"
    assert not (here / "privacy-policy.yaml").exists()
    workflow = yaml.safe_load(Path(".github/workflows/privacy.yml").read_text())
    (step,) = (s for s in workflow["jobs"]["check"]["steps"] if "env" in s)
    assert step["env"]["PRIVGATE_INPUT_MODEL"] == "${{ inputs.model }}"
    assert step["run"] == "python -P -m privgate.github check"
    assert step["env"]["PRIVGATE_INPUT_POLICY"] == "dtp-1-attacks"
    assert workflow["permissions"] == {"contents": "read"}
    assert run(["init", "--policy", "no-such"]) == 2


def completed(*words):
    line = ShellComplete(cli, {}, "privgate", "_PRIVGATE_COMPLETE")
    return [item.value for item in line.get_completions(list(words[:-1]), words[-1])]


def test_a_shell_completes_commands_and_choices():
    assert completed("re") == ["report"]
    assert "none" in completed("check", "--isolation", "n")


def test_help_shows_every_command_once_in_a_group(capsys):
    assert run(["--help"]) == 0
    shown = re.findall(r"^  ([a-z][a-z-]+) {2}", capsys.readouterr().out, flags=re.MULTILINE)

    assert sorted(shown) == sorted(COMMANDS)
    assert sorted(n for names in GROUPS.values() for n in names) == sorted(COMMANDS)


@pytest.mark.parametrize(("value", "color"), [("1", False), ("", None)])
def test_no_color_is_kept(monkeypatch, value, color):
    monkeypatch.setenv("NO_COLOR", value)
    seen = []

    run([], click.Command("seen", callback=lambda: seen.append(click.get_current_context().color)))

    # click paints nothing where the context says False, a terminal or not
    assert seen == [color]
