"""``privgate guard``: what runs beside a guarded registry, and keys: making them, and letting one count no longer."""

import os
import re
from pathlib import Path

import click

from privgate.cli import outputs, shared
from privgate.cli.console import plain
from privgate.cli.serve import serve
from privgate.cli.sign import sign
from privgate.errors import ExitCode, StatementError, UsageError

_MARKS = {"fine": "+", "look": "!", "wrong": "x"}
_STORE = click.option("--trust", "store", required=True, type=click.Path(path_type=Path), help="The trust store file.")


@click.command()
@click.argument("private", required=False, type=click.Path(dir_okay=False, path_type=Path))
@_STORE
@click.option("--days", default=365, show_default=True, type=click.IntRange(1, 3650), help="How long it counts.")
@click.option("--model", "models", multiple=True, help="Name or pattern of models it may sign for; all if absent.")
def keys(*, private: Path | None, store: Path, days: int, models: tuple[str, ...]) -> int:
    """Write a new key to PRIVATE (mode 600) and trust its public half; without PRIVATE, list all trusted keys.

    Keys that are trusted already count on, until they end or `privgate guard revoke` lets them count no longer.
    """
    from privgate.guard import keys as truststore
    from privgate.guard import statement

    if private is not None and str(private) != "show":  # by which 0.1.0 listed them, and made no key
        outputs.file(store, "--trust")
        held = truststore.TrustStore.load(store) if store.exists() else truststore.TrustStore(())
        signer = truststore.new_key()
        key = truststore.fresh_key(signer.public_key, days=days, models=models or ("*",))
        _write_private(private, signer.private_bytes)
        held.add(key).save(store)
        click.echo(f"key {key.key_id}\n  private: {private}\n  trusted until {key.not_after} in {store}")
        return 0
    for key in truststore.TrustStore.load(store).keys:
        reasons = [key.refusal(role, (key.scope or ("",))[0], statement.now()) for role in key.roles]
        state = "counts" if key.roles and not any(reasons) else next((r for r in reasons if r), "counts for nothing")
        click.echo(f"{key.key_id}  {key.not_before} .. {key.not_after}  {','.join(key.roles)}  {' '.join(key.scope)}")
        click.echo(f"  {state}{f'  ({key.note})' if key.note else ''}")
    return 0


def _write_private(path: Path, content: bytes) -> None:
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError as exc:
        raise UsageError(f"{path} exists; a private key is never overwritten") from exc
    except OSError as exc:
        raise UsageError(f"{path} cannot be written: {exc.strerror}") from exc
    with os.fdopen(handle, "wb") as file:
        file.write(content)


@click.command()
@click.argument("what", metavar="URI|KEY")
@_STORE
@click.option("--reason", default="", help="Why; it is said wherever the statement is refused. Not needed for a KEY.")
@shared.tracking_uri
def revoke(*, what: str, store: Path, reason: str, tracking_uri: str | None) -> int:
    """Let all that was signed about URI (models:/name/version) until now count no longer, or all of a KEY.

    A key is named by six digits of its id or more. The guard refuses it at once, verify from now on; privgate guard
    doctor lists what is released on it. Checking and signing again makes another statement, which counts.
    """
    from privgate.guard import statement
    from privgate.guard.keys import TrustStore
    from privgate.registry.client import reader
    from privgate.registry.named import named

    held, now = TrustStore.load(store), statement.now()
    if re.fullmatch("[0-9a-f]{6,64}", what.lower()):
        held.revoke(what.lower(), at=now).save(store)
        click.echo(f"key {held.key(what.lower()).key_id} is revoked; check and sign again what rested on it")
        return 0
    if not what.startswith("models:") or not reason.strip():
        raise UsageError("name six digits of a key's id or more; or models:/name/version, and say why by --reason TEXT")
    version = named(reader(tracking_uri), what)
    if not version.version:
        raise StatementError(f"{what} is no registered version; statements are about versions")
    revoked, note = f"models:/{version.name}/{version.version}", " ".join(reason.split())[:200]
    held.revoke_version(revoked, at=now, note=note).save(store)
    click.echo(f"{revoked} is revoked in {store}; `privgate guard doctor --config FILE` lists what rested on it")
    return 0


@click.group()
def guard() -> None:
    """Guard a registry: check what asks for it, sign, revoke, and ask whether all is well."""


@guard.command()
@click.option("--config", required=True, type=click.Path(path_type=Path), help="The guard's configuration.")
@shared.tracking_uri
def doctor(*, config: Path, tracking_uri: str | None) -> int:
    """Ask whether the server is guarded, keys count, and everything released verifies. Exit 0 or 4."""
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
    (revoke, "Let a version or a key count no longer."),
    (keys, "Make and list signing keys."),
    (doctor, "Ask whether the server is guarded, and everything released verifies."),
):
    _command.short_help = _help
    guard.add_command(_command)
