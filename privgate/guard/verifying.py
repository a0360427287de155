"""Verifying at deployment: the statement, and every byte of the files that are about to be served."""

from dataclasses import dataclass

from privgate import digest
from privgate.errors import DigestMismatchError, StatementError
from privgate.guard import statement
from privgate.guard.config import Guard
from privgate.guard.statement import Claims
from privgate.guard.stored_statement import row_and_statement, stored_evidence
from privgate.guard.trust import Terms, check
from privgate.registry.client import named, reader
from privgate.registry.stored_files import stored_files


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
    client = reader(tracking_uri)
    found = named(client, uri)
    if not found.version:
        raise StatementError(f"{uri} is no registered version; statements are about versions")
    target = target or (uri.rpartition("@")[2] if "@" in uri else None)
    exact = f"models:/{found.name}/{found.version}"
    row, text = row_and_statement(client, found.name, found.version)
    try:
        claims = check(text, guard.trust, row, terms or guard.terms(target), target=target, now=statement.now())
    except StatementError as exc:
        raise StatementError(f"{exact} may not serve{f' as {target!r}' if target else ''}: {exc}") from exc
    with stored_files(client, found.model_id) as stored:
        files = stored.digests()
        _compare(claims, files, exact)
        report, evidence = stored_evidence(stored, claims.evidence)
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
