"""Defaults of options: ``PRIVGATE_<OPTION>`` in the environment, then ``privgate.yaml``; ``init`` writes one.

The file is that of the working folder or of the nearest folder above it, where one of another user does not count. Its
paths begin at its folder. Commands that decide what is trusted (guard, verify) take no file: who can write to a working
folder must not choose whom to trust.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import click

from privgate.cli import outputs
from privgate.documents import DocumentError, strict_yaml
from privgate.errors import ExitCode, UsageError

#: commands that take their defaults from a file
CONFIGURED = ("check", "promote", "advise", "report", "policy", "dp", "demo")
#: command -> keys without an option: what page one states of the model and its data
STATED = dict.fromkeys(("check", "promote"), ("purpose", "owner", "data-name", "data-source"))
FILE = "privgate.yaml"
#: variables of these names are no options
_OTHER_MEANING = frozenset({"signing_key", "ledger_key", "key"})


def options_of(command: click.Command) -> dict[str, click.Option]:
    """Return option name without dashes -> option, of a command or of all commands of a group."""
    options: dict[str, click.Option] = {}
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            options |= {name.lstrip("-"): parameter for name in parameter.opts if name.startswith("--")}
    return options


def defaults(
    name: str,
    command: click.Command,
    environ: Mapping[str, str],
    folder: Path,
    every: Callable[[], Mapping[str, click.Command]],
) -> tuple[dict[str, Any], str]:
    """Return click's default map of the called command, and which settings the file gave, as a sentence.

    ``every`` gives all commands of privgate, so that a key for another one is no mistake. ``UsageError``: the file
    cannot be read, or a key of it is no option of any command.
    """
    used: list[str] = []
    path, keys = _read(folder) if name in CONFIGURED else (folder, {})
    given = {str(key).replace("_", "-"): value for key, value in keys.items()}
    known = {*STATED["check"], *(option for inner in (every() if given else {}).values() for option in _names(inner))}
    for key in given.keys() - known:
        near = get_close_matches(key, known, n=1)
        raise UsageError(f"{path}: no option is called {key!r}{f'; did you mean {near[0]!r}?' if near else ''}")
    settings = _for(name, command, given, environ, used, path.parent)
    return settings, f"from {os.path.relpath(path, folder)}: {', '.join(dict.fromkeys(used))}" if used else ""


def _for(  # noqa: PLR0917  private
    called: str, command: click.Command, given: Mapping[str, Any], environ: Mapping[str, str], used: list[str], at: Path
) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, option in {**dict.fromkeys(STATED.get(called, ())), **options_of(command)}.items():
        key, many = name.replace("-", "_"), option is not None and option.multiple
        parameter = key if option is None else str(option.name)
        if name in given:
            value = given[name]
            value = value if isinstance(value, bool | list) or value is None else _from(at, option, str(value))
            values[parameter] = [value] if many and not isinstance(value, list) else value
            used.append(name)
        if (text := environ.get(f"PRIVGATE_{key.upper()}", "")) and key not in _OTHER_MEANING:
            values[parameter] = text.split(",") if many else text
    for name, inner in getattr(command, "commands", {}).items():
        values[name] = _for(name, inner, given, environ, used, at)
    return values


def _from(place: Path, option: click.Option | None, value: str) -> str:
    names_path = option and (isinstance(option.type, click.Path) or option.name in {"policy_name", "ledger"})
    if option is None or not names_path or "://" in value or value == "none":
        return value
    path = place / Path(value).expanduser()
    shipped = option.name == "policy_name" and not path.is_file() and Path(value).name == value
    return value if shipped and not value.endswith((".yaml", ".yml")) else str(path)


def _names(command: click.Command) -> Iterator[str]:
    yield from options_of(command)
    for inner in getattr(command, "commands", {}).values():
        yield from _names(inner)


def _read(folder: Path) -> tuple[Path, dict[str, Any]]:
    """Return the nearest file with settings from a folder upward, and what it holds; {} where there is none."""
    for place in (folder, *folder.absolute().parents):
        for path in (place / FILE, place / "pyproject.toml"):
            try:
                # above the working folder any user may have left a file, as in /tmp
                if not os.path.isfile(path):  # noqa: PTH113  none, too, in a folder without access
                    continue
                if place != folder and path.lstat().st_uid not in {0, os.getuid()}:
                    click.echo(f"note: {path} belongs to another user, so it is not read", err=True)
                    continue
                if path.name == FILE:
                    keys = strict_yaml.read(path)
                elif b"[tool.privgate" in path.read_bytes():  # a policy there must not give way to a milder one
                    raise UsageError(f"{path}: [tool.privgate] is no longer read; write its keys into {FILE}")
                else:
                    continue
            except (OSError, DocumentError) as exc:
                raise UsageError(f"{path} cannot be read: {exc}") from exc
            if not isinstance(keys, dict):
                kind = type(keys).__name__
                raise UsageError(f"{path} holds a {kind}; write one option a line, such as policy: dtp-1")
            return path, keys
    return folder / FILE, {}


_CONFIG = """\
# Settings of privgate. Options on the command line and PRIVGATE_<OPTION> in the environment win over this file.
# To tighten the policy, name a file of your own that `extends` it. Sign and guard by the same one.
policy: {policy}
report-dir: privgate-report
# what page one of the report says; uncomment and fill in
# purpose: what the model is for
# owner: who answers for it
# data-name: what the training data are called
# data-source: where they come from
"""
_GITHUB = """\
# A check of one model version. It runs training code, in a box: sign in another job.
name: privacy
on:
  workflow_dispatch:
    inputs:
      model:
        description: models:/name/version
        required: true
permissions:
  contents: read
jobs:
  check:
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@11bd71901bbe5b1630ceea73d27597364c9af683 # v4.2.2
        with:
          persist-credentials: false
      - uses: actions/setup-python@a26af69be951a213d495a4c3e4e4022e16d87065 # v5.6.0
        with:
          python-version: "3.11"
      # Ubuntu 24.04 lets no unprivileged program make a box until it is told to
      - name: Let training code run in a box
        run: |
          command -v bwrap > /dev/null ||
            {{ sudo apt-get update -qq && sudo apt-get install -y -qq --no-install-recommends bubblewrap; }} || true
          sudo sysctl -qew kernel.apparmor_restrict_unprivileged_userns=0 || true # the check says whether it can
      # the environment that trained the model, with privgate from its repository or a wheel
      - run: pip install -r requirements.txt
      - env:
          PRIVGATE_INPUT_MODEL: ${{{{ inputs.model }}}}
          PRIVGATE_INPUT_POLICY: {policy}
          PRIVGATE_INPUT_ISOLATION: bubblewrap
          # lines NAME=VALUE for registry and data, as MLFLOW_TRACKING_TOKEN; they should only read, and attach reports
          PRIVGATE_CREDENTIALS: ${{{{ secrets.PRIVGATE_CREDENTIALS }}}}
          PRIVGATE_INPUT_TRACKING_URI: ${{{{ vars.MLFLOW_TRACKING_URI }}}}
        run: python -P -m privgate.github check
"""
_SNIPPETS = {"github": {".github/workflows/privacy.yml": _GITHUB}, "none": {}}


@click.command()
@click.option("--folder", type=click.Path(file_okay=False, path_type=Path), default=Path(), help="Here if absent.")
@click.option("--policy", default="release-1", show_default=True)
@click.option("--ci", type=click.Choice(list(_SNIPPETS)), default="github", show_default=True)
def init(*, folder: Path, policy: str, ci: str) -> int:
    """Write privgate.yaml and a CI snippet; what exists is left as it is."""
    from privgate.policy import Policy

    Policy.load(policy)  # an unknown one is said before anything is written
    place = outputs.folder(folder, "--folder")
    for name, text in {FILE: _CONFIG, **_SNIPPETS[ci]}.items():
        path = place / name
        if path.exists():
            click.echo(f"kept {path}: it exists")
            continue
        outputs.file(path, "init:").write_text(text.format(policy=policy), encoding="utf-8")
        click.echo(f"wrote {path}")
    click.echo(f"next: privgate policy explain {policy}, then privgate check models:/NAME/VERSION")
    click.echo('completion: eval "$(_PRIVGATE_COMPLETE=bash_source privgate)"   # or zsh_source, fish_source')
    return int(ExitCode.PASSED)
