"""``privgate guard``: what runs beside a guarded registry, and keys: making them, and letting one count no longer."""

import os
import re
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from privgate.cli import outputs, shared
from privgate.cli.console import plain
from privgate.cli.serve import serve
from privgate.cli.sign import sign
from privgate.errors import ExitCode, StatementError, UsageError

if TYPE_CHECKING:
    from privgate.guard.keys import TrustStore

_MARKS = {"fine": "+", "look": "!", "wrong": "x"}
_STORE = click.option("--trust", "store", required=True, type=click.Path(path_type=Path), help="The trust store file.")


@click.command()
@click.argument("private", required=False, type=click.Path(dir_okay=False, path_type=Path))
@_STORE
@click.option("--old", metavar="ID", help="Key to retire, as much of its id as is unique; the new one has its roles.")
@click.option("--overlap", default=7, show_default=True, type=click.IntRange(0, 365), help="Days that both keys count.")
@click.option("--days", default=365, show_default=True, type=click.IntRange(1, 3650), help="How long it counts.")
@click.option("--role", "roles", multiple=True, help="evidence or verdict; both if absent.")
@click.option("--model", "models", multiple=True, help="Name or pattern of models it may sign for; all if absent.")
def keys(
    *,
    private: Path | None,
    store: Path,
    old: str | None,
    overlap: int,
    days: int,
    roles: tuple[str, ...],
    models: tuple[str, ...],
) -> int:
    """Write a new key to PRIVATE (mode 600) and trust its public half, or list all keys.

    With --old it takes the place of another, whose roles and models it has. Until the overlap ends, sign stored
    evidence again: privgate guard sign --renew models:/name@alias. Without PRIVATE, trusted keys are listed: id,
    window, roles, models, state. `privgate guard revoke` lets one count no longer.
    """
    from privgate.guard import keys as truststore
    from privgate.guard import statement

    if private is None and old is None:
        return _show(truststore.TrustStore.load(store))
    if private is None:
        raise UsageError("name the file of the new key, which takes the place of --old")
    if old is not None and (roles or models):
        raise UsageError("--role and --model are those of the key that --old names; leave them out")
    outputs.file(store, "--trust")
    held = truststore.TrustStore.load(store) if store.exists() else truststore.TrustStore(())
    before, note = None if old is None else held.key(old), ""
    if before is not None:
        roles, models, note = before.roles, before.scope, before.note
        held = held.retire(before.key_id, after=statement.now() + timedelta(days=overlap))
    signer = truststore.new_key()
    key = truststore.fresh_key(
        signer.public_key, days=days, roles=roles or truststore.ROLES, models=models or ("*",), note=note
    )
    _write_private(private, signer.private_bytes)
    held.add(key).save(store)
    click.echo(f"key {key.key_id}\n  private: {private}\n  trusted until {key.not_after} in {store}")
    if before is not None:
        click.echo(f"key {before.key_id} counts until {held.key(before.key_id).not_after}; renew its statements before")
    return 0


def _show(held: "TrustStore") -> int:
    from privgate.guard import statement

    for key in held.keys:
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
@click.argument("what", metavar="URI|FILE|DIGEST|KEY")
@_STORE
@click.option("--reason", default="", help="Why; it is said wherever the statement is refused. Not needed for a KEY.")
@shared.tracking_uri
def revoke(*, what: str, store: Path, reason: str, tracking_uri: str | None) -> int:
    """Let all that was signed about URI (models:/name/version) until now count no longer, or less, or more.

    Less is one statement: the one in FILE, or with the payload DIGEST. More is all that a KEY ever signed, which is
    named by six digits of its id or more.

    The guard refuses it at once, verify from now on; privgate guard doctor lists what is released on it. Checking and
    signing again makes another statement, which counts.
    """
    from privgate.guard import statement
    from privgate.guard.keys import TrustStore

    names_key = re.fullmatch("[0-9a-fA-F]{1,64}", what) and not Path(what).exists()
    if names_key and len(what := what.lower()) < 6:
        raise UsageError(f"{what} is too short for a key; name six digits of its id or more")
    held, now, note = TrustStore.load(store), statement.now(), " ".join(reason.split())[:200]
    if names_key:
        held.revoke(what, at=now).save(store)
        click.echo(f"key {held.key(what).key_id} is revoked; check and sign again what rested on it")
        return 0
    if not note:
        raise UsageError("say why, by --reason TEXT; it is said wherever the statement is refused")
    if what.startswith("models:"):
        revoked = _version(what, tracking_uri)
        held.revoke_version(revoked, at=now, note=note).save(store)
    else:
        revoked = f"statement {_payload(what)}"
        held.revoke_statement(revoked.removeprefix("statement "), at=now, note=note).save(store)
    click.echo(f"{revoked} is revoked in {store}; `privgate guard doctor --config FILE` lists what rested on it")
    return 0


def _version(uri: str, tracking_uri: str | None) -> str:
    from privgate.registry.client import reader
    from privgate.registry.named import named

    version = named(reader(tracking_uri), uri)
    if not version.version:
        raise StatementError(f"{uri} is no registered version; statements are about versions")
    return f"models:/{version.name}/{version.version}"


def _payload(what: str) -> str:
    """Return the digest of the payload that is meant."""
    from privgate.documents import DocumentError, strict_json
    from privgate.guard import statement

    if re.fullmatch("sha256:[0-9a-f]{64}", what):
        return what
    try:
        text = strict_json.content(Path(what)).decode()
    except OSError as exc:
        raise UsageError(f"{what} cannot be read: {exc.strerror}") from exc
    except (DocumentError, UnicodeDecodeError) as exc:
        raise UsageError(f"{what} holds no statement: {exc}") from exc
    return statement.payload_digest(statement.Envelope.parse(text).payload)


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
    (revoke, "Let a version, a statement or a key count no longer."),
    (keys, "Make, show and rotate signing keys."),
    (doctor, "Ask whether the server is guarded, and everything released verifies."),
):
    _command.short_help = _help
    guard.add_command(_command)
