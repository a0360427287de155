"""``privgate guard``: what runs beside a guarded registry."""

from pathlib import Path

import click

from privgate.cli import keys, shared
from privgate.cli.console import plain
from privgate.cli.serve import serve
from privgate.cli.sign import sign
from privgate.errors import ExitCode

_MARKS = {"fine": "+", "look": "!", "wrong": "x"}


@click.group()
def guard() -> None:
    """Guard a registry: check what asks for it, sign, revoke, and ask whether all is well."""


@guard.command()
@click.option("--config", required=True, type=click.Path(path_type=Path), help="The guard's configuration.")
@shared.tracking_uri
def doctor(*, config: Path, tracking_uri: str | None) -> int:
    """Ask whether the server is guarded, clocks and keys are right, and everything released verifies. Exit 0 or 4."""
    from privgate.guard.config import Guard
    from privgate.guard.diagnosis import examine

    wrong = 0
    for answer in examine(Guard.load(config), tracking_uri=tracking_uri):
        wrong += answer.state == "wrong"
        click.echo(f"{_MARKS[answer.state]} {plain(answer.text)}")
    click.echo("nothing is wrong" if not wrong else f"{wrong} things are wrong")
    return int(ExitCode.SUBJECT if wrong else ExitCode.PASSED)


for _command, _help in (
    (serve, "Check what asks for it in the registry, have it signed, move the alias."),
    (sign, "Sign a report; meant for another user than check."),
    (keys.revoke, "Let a version, a statement or a key count no longer."),
    (keys.keys, "Make, show and rotate signing keys."),
    (doctor, "Ask whether the server is guarded, and everything released verifies."),
):
    _command.short_help = _help
    guard.add_command(_command)
