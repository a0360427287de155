"""Defaults of options: ``PRIVGATE_<OPTION>`` in the environment, then ``privgate.yaml`` or ``[tool.privgate]`` here.

An option on the command line wins, then the environment, then the file: ``privgate.yaml`` in the working folder, or the
table ``[tool.privgate]`` of its ``pyproject.toml``. Keys are the options' names; a key that is a command's name holds
keys for that command alone. Commands that decide what is trusted (sign, verify, serve, keys, …) take no file: whoever
can write to a working folder must not choose whom to trust.
"""

import tomllib
from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import click

from privgate.documents import DocumentError, strict_yaml
from privgate.errors import UsageError

#: commands that take their defaults from a file
CONFIGURED = ("check", "promote", "report", "compare", "remove-risky", "policy", "dp", "demo")
FILE = "privgate.yaml"


def options_of(command: click.Command) -> dict[str, click.Option]:
    """Return option name without dashes -> option, of a command or of all commands of a group."""
    found: dict[str, click.Option] = {}
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            found |= {name.lstrip("-"): parameter for name in parameter.opts if name.startswith("--")}
    return found


def defaults(
    name: str,
    command: click.Command,
    environ: Mapping[str, str],
    folder: Path,
    every: Callable[[], Mapping[str, click.Command]],
) -> tuple[dict[str, Any], list[str]]:
    """Return click's default map of the called command, and which settings the file gave.

    Parameters
    ----------
    name, command
        What was called.
    environ : mapping
        Where ``PRIVGATE_<OPTION>`` stands.
    folder : Path
        Where the file is looked for.
    every : callable
        Gives every command of privgate, so that a key for another one is no mistake; asked where there is a file.

    Raises
    ------
    UsageError
        The file cannot be read, or a key of it is no option of any command.
    """
    used: list[str] = []
    given = _settings(folder, every) if name in CONFIGURED else {}
    return _for(name, command, given, environ, used), list(dict.fromkeys(used))


def source(folder: Path) -> str:
    """Return the name of the file that settings come from."""
    return FILE if (folder / FILE).is_file() else "pyproject.toml"


def _for(
    called: str, command: click.Command, given: Mapping[str, Any], environ: Mapping[str, str], used: list[str]
) -> dict[str, Any]:
    own = given.get(called)
    settings = {**given, **(own if isinstance(own, Mapping) else {})}
    found: dict[str, Any] = {}
    for name, option in options_of(command).items():
        key = name.replace("-", "_")
        if name in settings or key in settings:
            value = settings.get(name, settings.get(key))
            found[str(option.name)] = value if isinstance(value, bool | list) or value is None else str(value)
            used.append(name)
        if (text := environ.get(f"PRIVGATE_{key.upper()}", "")) and not _private(key):
            found[str(option.name)] = text.split(",") if option.multiple else text
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            found[name] = _for(name, inner, settings, environ, used)
    return found


def _private(key: str) -> bool:
    """Whether a variable of this name has another meaning already."""
    return key in {"signing_key", "ledger_key", "key"}


def _settings(folder: Path, every: Callable[[], Mapping[str, click.Command]]) -> dict[str, Any]:
    path, found = _read(folder)
    known = every() if found else {}
    allowed = {name for command in known.values() for name in _names(command)} | set(known)
    for key in _keys(found):
        if key.replace("_", "-") not in allowed:
            near = get_close_matches(key.replace("_", "-"), allowed, n=1)
            raise UsageError(f"{path}: no option is called {key!r}{f'; did you mean {near[0]!r}?' if near else ''}")
    return found


def _names(command: click.Command) -> Iterator[str]:
    yield from options_of(command)
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            yield name
            yield from _names(inner)


def _keys(found: Mapping[str, Any]) -> Iterator[str]:
    for key, value in found.items():
        yield str(key)
        if isinstance(value, Mapping):
            yield from _keys(value)


def _read(folder: Path) -> tuple[Path, dict[str, Any]]:
    path = folder / FILE
    try:
        if path.is_file():
            found = strict_yaml.read(path)
        else:
            path = folder / "pyproject.toml"
            text = path.read_text(encoding="utf-8") if path.is_file() else ""
            found = tomllib.loads(text).get("tool", {}).get("privgate", {})
    except (OSError, DocumentError, ValueError) as exc:
        raise UsageError(f"{path} cannot be read: {exc}") from exc
    if not isinstance(found, dict):
        raise UsageError(f"{path} holds a {type(found).__name__}; write one option a line, such as policy: dtp-1")
    return path, found
