"""``privgate guard keys`` and ``privgate guard revoke``: keys, and letting one or a statement count no longer."""

import os
import re
from datetime import timedelta
from pathlib import Path

import click

from privgate.cli import outputs, shared
from privgate.errors import StatementError, UsageError

_STORE = click.option("--trust", "store", required=True, type=click.Path(path_type=Path), help="The trust store file.")
_DAYS = click.option("--days", default=365, show_default=True, type=click.IntRange(1, 3650), help="How long it counts.")


@click.group()
def keys() -> None:
    """Make, show and rotate signing keys; `privgate guard revoke` lets one count no longer."""


@keys.command()
@click.argument("private", type=click.Path(dir_okay=False, path_type=Path))
@_STORE
@_DAYS
@click.option("--role", "roles", multiple=True, help="evidence or verdict; both if absent.")
@click.option("--model", "models", multiple=True, help="Name or pattern of models it may sign for; all if absent.")
def init(*, private: Path, store: Path, days: int, roles: tuple[str, ...], models: tuple[str, ...]) -> int:
    """Write a new private key to PRIVATE (mode 600) and trust its public half."""
    from privgate.guard import keys as truststore
    from privgate.guard.keys import fresh_key

    outputs.file(store, "--trust")
    held = truststore.TrustStore.load(store) if store.exists() else truststore.TrustStore(())
    signer = truststore.new_key()
    fresh = fresh_key(signer.public_key, days=days, roles=roles or truststore.ROLES, models=models or ("*",))
    _write_private(private, signer.private_bytes)
    held.add(fresh).save(store)
    click.echo(f"key {fresh.key_id}\n  private: {private}\n  trusted until {fresh.not_after} in {store}")
    return 0


@keys.command()
@_STORE
def show(*, store: Path) -> int:
    """List trusted keys: id, window, roles, models, state."""
    from privgate.guard import keys as truststore
    from privgate.guard import statement

    for key in truststore.TrustStore.load(store).keys:
        reasons = [key.refusal(role, (key.scope or ("",))[0], statement.now()) for role in key.roles]
        state = "counts" if key.roles and not any(reasons) else next((r for r in reasons if r), "counts for nothing")
        click.echo(f"{key.key_id}  {key.not_before} .. {key.not_after}  {','.join(key.roles)}  {' '.join(key.scope)}")
        click.echo(f"  {state}{f'  ({key.note})' if key.note else ''}")
    return 0


@keys.command()
@click.argument("private", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--old", required=True, metavar="ID", help="Key to retire, as much of its id as is unique.")
@click.option("--overlap", default=7, show_default=True, type=click.IntRange(0, 365), help="Days both keys count.")
@_STORE
@_DAYS
def rotate(*, private: Path, old: str, overlap: int, store: Path, days: int) -> int:
    """Write a new private key with the old one's roles, and retire the old one.

    Until the overlap ends, sign stored evidence again: privgate guard sign --renew models:/name@alias.
    """
    from privgate.guard import keys as truststore
    from privgate.guard import statement
    from privgate.guard.keys import fresh_key

    held = truststore.TrustStore.load(store)
    before = held.key(old)
    signer = truststore.new_key()
    fresh = fresh_key(signer.public_key, days=days, roles=before.roles, models=before.scope, note=before.note)
    after = held.retire(before.key_id, after=statement.now() + timedelta(days=overlap))
    _write_private(private, signer.private_bytes)
    after.add(fresh).save(store)
    click.echo(f"key {fresh.key_id} counts until {fresh.not_after}")
    click.echo(f"key {before.key_id} counts until {after.key(before.key_id).not_after}; renew its statements before")
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

    held, now, note = TrustStore.load(store), statement.now(), " ".join(reason.split())[:200]
    if re.fullmatch("[0-9a-f]{6,64}", what) and not Path(what).exists():
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
    click.echo(f"{revoked} is revoked in {store}; run privgate guard doctor to see what rested on it")
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
