"""``privgate revoke``: let one statement count no longer."""

import re
from pathlib import Path

import click

from privgate.errors import StatementError, UsageError


@click.command()
@click.argument("what", metavar="URI|FILE|DIGEST")
@click.option("--trust", "store", required=True, type=click.Path(path_type=Path), help="The trust store file.")
@click.option("--reason", required=True, help="Why; it is said wherever the statement is refused.")
@click.option("--tracking-uri", default=None, help="MLflow server or store; MLFLOW_TRACKING_URI if absent.")
def revoke(*, what: str, store: Path, reason: str, tracking_uri: str | None) -> int:
    """Let the statement of URI (models:/name/version), in FILE, or with the payload DIGEST count no longer.

    The guard refuses it at once, verify from now on; privgate doctor lists what is released on it. Checking and signing
    again makes another statement, which counts.
    """
    from privgate.guard import statement
    from privgate.guard.trust import TrustStore

    payload = _payload(what, tracking_uri)
    held = TrustStore.load(store)
    held.revoke_statement(payload, at=statement.now(), note=" ".join(reason.split())[:200]).save(store)
    click.echo(f"statement {payload} is revoked in {store}; run privgate doctor to see what rested on it")
    return 0


def _payload(what: str, tracking_uri: str | None) -> str:
    """Return the digest of the payload that is meant."""
    from privgate.documents import DocumentError, door
    from privgate.guard import statement

    if re.fullmatch("sha256:[0-9a-f]{64}", what):
        return what
    if what.startswith("models:"):
        from privgate.guard.stored_statement import row_and_statement
        from privgate.registry.client import named, reader

        client = reader(tracking_uri)
        found = named(client, what)
        text = row_and_statement(client, found.name, found.version)[1] if found.version else ""
        if not text:
            raise StatementError(f"{what} carries no statement")
    else:
        try:
            text = door.content(Path(what)).decode()
        except OSError as exc:
            raise UsageError(f"{what} cannot be read: {exc.strerror}") from exc
        except (DocumentError, UnicodeDecodeError) as exc:
            raise UsageError(f"{what} holds no statement: {exc}") from exc
    return statement.payload_digest(statement.Envelope.parse(text).payload)
