"""Options that several commands take, said once; light, because the verifier has them too."""

import shlex
from functools import partial
from pathlib import Path

import click

from privgate.errors import UsageError

#: formats of a report that a command prints
PRINTED = ("text", "json", "markdown", "junit")
PATH = click.Path(path_type=Path)
#: an option whose help names its default
shown = partial(click.option, show_default=True)


def _tells_what_to_sign(ctx: click.Context, param: click.Parameter, command: str | None) -> str | None:
    del ctx, param
    try:
        words = " ".join(shlex.split(command or ""))
    except ValueError as exc:
        raise UsageError(f"--sign-command cannot be split into words: {exc}") from exc
    if command is not None and not all(word in words for word in ("{uri}", "{nonce}")):
        raise UsageError("--sign-command must tell the signer what to sign, by {uri} and {nonce}")
    return command


sign_command = click.option(
    "--sign-command",
    metavar="CMD",
    callback=_tells_what_to_sign,
    help="Hands an approval to the signer, another user, container or host. {out} is the report's folder, {policy}, "
    "{uri}, {nonce} and {target} what was asked for. It is split as a shell would, and run without one.",
)
tracking_uri = click.option("--tracking-uri", help="MLflow server or store; MLFLOW_TRACKING_URI if absent.")
jobs = click.option("--jobs", type=click.IntRange(min=1), help="Worker processes; all cores if absent.")
ledger = click.option("--ledger", metavar="FOLDER", help="Where results are remembered.")
quiet = click.option("--quiet", is_flag=True, help="No progress on stderr.")
as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
