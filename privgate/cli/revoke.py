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
    """Let all that was signed about URI (models:/name/version) until now count no longer, or one statement.

    The one in FILE, or with the payload DIGEST: an older one about the same version would still count.

    The guard refuses it at once, verify from now on; privgate doctor lists what is released on it. Checking and signing
    again makes another statement, which counts.
    """
    from privgate.guard import statement
    from privgate.guard.checks import TrustStore

    held, now, note = TrustStore.load(store), statement.now(), " ".join(reason.split())[:200]
    if what.startswith("models:"):
        revoked = _version(what, tracking_uri)
        held.revoke_version(revoked, at=now, note=note).save(store)
    else:
        revoked = f"statement {_payload(what)}"
        held.revoke_statement(revoked.removeprefix("statement "), at=now, note=note).save(store)
    click.echo(f"{revoked} is revoked in {store}; run privgate doctor to see what rested on it")
    return 0


def _version(uri: str, tracking_uri: str | None) -> str:
    """Return the exact version that a URI means; what it carries now is no matter, for anybody could take that away."""
    from privgate.registry.client import reader
    from privgate.registry.named import named

    found = named(reader(tracking_uri), uri)
    if not found.version:
        raise StatementError(f"{uri} is no registered version; statements are about versions")
    return f"models:/{found.name}/{found.version}"


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
