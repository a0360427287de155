"""Verifying at deployment: the statement, and every byte of the files that are about to be served."""

import tempfile
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import url2pathname

from privgate import digest, statement
from privgate.errors import DigestMismatchError, StatementError
from privgate.registry import layout
from privgate.registry.client import answering, connect, download, named
from privgate.registry.guard_config import Guard
from privgate.registry.signing import TAG, row_of, stored_evidence
from privgate.statement import Claims
from privgate.trust import Terms, check


@dataclass(frozen=True)
class Verified:
    """What was verified, and for how long it holds."""

    claims: Claims
    uri: str
    n_files: int


def verify(
    uri: str,
    guard: Guard,
    *,
    target: str | None = None,
    terms: Terms | None = None,
    tracking_uri: str | None = None,
) -> Verified:
    """Verify that the version behind ``uri`` may serve, now.

    Parameters
    ----------
    uri : str
        ``models:/name@alias`` or ``models:/name/version``.
    guard : Guard
        Trusted keys, registry id and policies.
    target : str, optional
        Alias or stage to serve as; the URI's alias if absent, and any allowed target without one.
    terms : Terms, optional
        Instead of the guard's, for a policy given by hand.
    tracking_uri : str, optional
        MLflow server or store; the environment's if absent.

    Raises
    ------
    StatementError
        The statement is absent, forged, expired, about something else, or its evidence is gone.
    DigestMismatchError
        A file is not the one that was signed.
    RegistryError
        The registry does not answer.
    """
    client = connect(tracking_uri)
    found = named(client, uri)
    if not found.version:
        raise StatementError(f"{uri} is no registered version; statements are about versions")
    target = target or (uri.rpartition("@")[2] if "@" in uri else None)
    exact = f"models:/{found.name}/{found.version}"
    row = row_of(client, found.name, found.version)
    with answering(f"reading {exact}"):
        text = str(client.get_model_version(found.name, found.version).tags.get(TAG, ""))
    try:
        claims = check(text, guard.trust, row, terms or guard.terms(target), target=target, now=statement.now())
    except StatementError as exc:
        raise StatementError(f"{exact} may not serve{f' as {target!r}' if target else ''}: {exc}") from exc
    with stored_files(client, found.model_id) as folder:
        files = layout.all_files(folder)
        _compare(claims, files, exact)
        report, evidence = stored_evidence(folder, claims.evidence)
    if statement.payload_digest(report) != claims.report:
        raise StatementError(f"the report stored with {exact} is not the one that was signed")
    guard.trust.verify(evidence, "evidence", model=claims.name, moments=(claims.signed, statement.now()))
    return Verified(claims, exact, len(files))


def _compare(claims: Claims, files: dict[str, str], uri: str) -> None:
    if digest.of_manifest(files) != claims.files:
        raise DigestMismatchError(
            f"the files of {uri} are not those that were checked and signed ({len(files)} files, "
            f"{digest.of_manifest(files)[:19]}… instead of {claims.files[:19]}…); do not serve them"
        )


@contextmanager
def stored_files(client: Any, model_id: str) -> Iterator[Path]:
    """Give the folder of a logged model's files: where they lie if that is on this machine, else a copy."""
    with answering(f"finding the files of {model_id}"):
        location = str(client.get_logged_model(model_id).artifact_location)
    local = _local(location)
    if local is not None:
        yield local
        return
    with tempfile.TemporaryDirectory() as place:
        yield download(client, model_id, Path(place), tracking_uri=client.tracking_uri)


def _local(location: str) -> Path | None:
    parsed = urllib.parse.urlparse(location)
    path = Path(url2pathname(parsed.path)) if parsed.scheme == "file" else Path(location)
    return path if parsed.scheme in {"", "file"} and not parsed.netloc and path.is_dir() else None
