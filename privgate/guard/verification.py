"""Verifying at deployment: the statement, and every byte of the files that are about to be served."""

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from privgate import digest
from privgate.documents import LARGE, DocumentError, strict_json
from privgate.errors import DigestMismatchError, PrivgateError, RegistryError, StatementError, UsageError
from privgate.guard import statement
from privgate.guard.checks import Row, check, check_original, is_copy, row_and_statement, stored_evidence
from privgate.guard.config import VARIABLE, Guard
from privgate.guard.statement import Claims, Envelope
from privgate.registry.client import reader, stored_files
from privgate.registry.files import MLFLOW_META, FolderFiles
from privgate.registry.named import named


@dataclass(frozen=True)
class Verified:
    """What was verified."""

    #: what the statement says, and for how long it holds
    claims: Claims
    #: exact version
    uri: str
    #: how many files were compared
    n_files: int
    #: where the files lie: a consumer of this URI asks for no name that may mean something else a moment later
    pin: str


def verify(
    uri: str,
    guard: Guard,
    *,
    target: str | None = None,
    tracking_uri: str | None = None,
    to: Path | None = None,
) -> Verified:
    """Verify that the version behind ``uri`` (``models:/name@alias`` or ``models:/name/version``) may serve, now.

    ``target`` is the alias or stage to serve as: the URI's alias if absent, and any allowed one without. ``to`` is a
    folder that is made only if every byte is the one that was signed, so that it can be loaded without a second
    download. ``StatementError``: the statement is absent, forged, expired, about something else, or its evidence is
    gone. ``DigestMismatchError``: a file is not the one that was signed.
    """
    client = reader(tracking_uri)
    present = named(client, uri)
    if not present.version:
        raise StatementError(f"{uri} is no registered version; statements are about versions")
    target = target or _alias(uri)
    exact = f"models:/{present.name}/{present.version}"
    row, _ = held = row_and_statement(client, present.name, present.version)
    try:
        claims = _check_row(client, held, guard, target)
    except StatementError as exc:
        raise StatementError(f"{exact} may not serve{f' as {target!r}' if target else ''}: {exc}") from exc
    if (row.storage, claims.model_id) != (present.storage, present.model_id):
        raise StatementError(f"{exact} was replaced while it was being verified; verify again")
    _, evidence = _signed_report(client, claims, guard, exact)
    signed = evidence.statement["predicate"].get("files", {})
    with stored_files(client, row.storage) as stored:
        compare = _compare if to is None else partial(_hand_over, to=to)
        n_files = compare(claims, signed, stored, exact)
    return Verified(claims, exact, n_files, row.storage)


def _alias(uri: str) -> str | None:
    return uri.rpartition("@")[2] if "@" in uri else None


def _signed_report(client: Any, claims: Claims, guard: Guard, uri: str) -> tuple[bytes, Envelope]:
    """Return the stored report and evidence that a verified statement names by digest."""
    report, evidence = stored_evidence(client, claims.model_id, claims.evidence)
    if statement.payload_digest(report) != claims.report:
        raise StatementError(f"the report stored with {uri} is not the one that was signed")
    moments, role = (claims.signed, statement.now()), claims.role("evidence")
    guard.trust.verify(evidence, role, model=claims.name, moments=moments)
    return report, evidence


def _check_row(client: Any, held: tuple[Row, str], guard: Guard, target: str | None) -> Claims:
    """Return what a row's statement says; where the row is a copy, the version that was signed is asked, too."""
    row, text = held
    claims = check(text, guard.trust, row, guard.terms(target, row.name), target=target, now=statement.now())
    if not is_copy(claims, row):
        return claims
    try:
        original = row_and_statement(client, claims.name, claims.version)
    except RegistryError as exc:
        raise StatementError(
            f"models:/{claims.name}/{claims.version}, which was signed, cannot be read, so that nobody can tell "
            f"whether it was refused since ({exc})"
        ) from exc
    check_original(claims, original, guard.trust, statement.now())
    return claims


def _hand_over(claims: Claims, signed: Mapping[str, str], stored: FolderFiles, uri: str, to: Path) -> int:
    """Copy the files to a folder that appears only if they are those that were signed."""
    if to.exists() or to.is_symlink():
        raise UsageError(f"{to} exists; verify hands over to a folder of its own, so name another or remove that")
    try:
        to.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=to.parent, prefix=f".{to.name}-") as place:
            copy = Path(place, "model")
            copy.mkdir()
            stored.copy_to(copy)
            count = _compare(claims, signed, FolderFiles(copy), uri)
            (copy / MLFLOW_META).unlink(missing_ok=True)  # MLflow's note, which is no part of the model
            copy.rename(to)
    except OSError as exc:
        raise UsageError(f"the files of {uri} cannot be handed over in {to}: {exc.strerror or exc}") from exc
    return count


def _compare(claims: Claims, signed: Mapping[str, str], stored: FolderFiles, uri: str) -> int:
    files = stored.digests(claims.rows)
    if (present := digest.of_manifest(files)) != claims.files:
        differ = sorted(p for p in files.keys() | signed.keys() if signed and files.get(p) != signed.get(p))
        which = f"{differ[0]!r}{f' and {len(differ) - 1} more' if len(differ) > 1 else ''}" if differ else "a file"
        raise DigestMismatchError(
            f"the files of {uri} are not those that were checked and signed ({which}; "
            f"{present[:19]}… instead of {claims.files[:19]}…); do not serve them"
        )
    return len(files)


def recomputed(claims: Claims, folder: Path) -> list[str]:
    """Return what comes out again of the decision that was signed, by the kept cases of the check's folder.

    ``StatementError``: its report is not the one that was signed. ``SubjectError``: a case cannot be read, is not the
    one that was judged, or its limits do not give the decision. ``UsageError``: numpy is not installed.
    """
    try:
        from privgate.cases import recompute
    except ModuleNotFoundError as exc:
        raise UsageError(f"recomputing needs {exc.name}: pip install 'privgate-verify[recompute]'") from exc
    place = folder / "report.json"
    try:
        content = strict_json.content(place, LARGE)
        document = strict_json.loads(content, LARGE)
    except (OSError, DocumentError) as exc:
        why = exc.strerror if isinstance(exc, OSError) else f"it {exc}"
        raise StatementError(f"{place} cannot be read: {why}") from exc
    if statement.payload_digest(content) != claims.report:
        raise StatementError(f"{place} is not the report that was signed; name the folder of that check")
    return recompute(document, folder)


def approved_report(
    uri: str, *, config: Path | None = None, tracking_uri: str | None = None
) -> Mapping[str, Any] | None:
    """Return the signed report of an approved version; None where none counts, or no guard is configured."""
    place = config or os.environ.get(VARIABLE)
    if not place:
        return None
    try:
        guard, client = Guard.load(Path(place)), reader(tracking_uri)
        present = named(client, uri)
        held = row_and_statement(client, present.name, present.version)
        claims = _check_row(client, held, guard, _alias(uri))
        document = strict_json.loads(_signed_report(client, claims, guard, uri)[0], LARGE)
    except (PrivgateError, DocumentError):
        return None  # a comparison is an extra, never a condition
    return document if claims.passed and isinstance(document, dict) and document.get("approved") is True else None


def verify_folder(
    folder: Path,
    statement_file: Path,
    guard: Guard,
    *,
    target: str,
    model: str | None = None,
) -> tuple[Claims, int]:
    """Verify that the files in a folder may serve, now, and return what their statement says and how many they are.

    The folder holds all files of the version and nothing else; the statement is the verdict's envelope. ``model`` is
    the registered model to serve as, the one that was signed if absent. Where its alias points is not asked: to
    withdraw a release, revoke its statement in the trust store. Errors are those of `verify`.
    """
    try:
        text = strict_json.content(statement_file).decode()
    except (OSError, DocumentError, UnicodeDecodeError) as exc:
        why = exc.strerror if isinstance(exc, OSError) else exc
        raise StatementError(f"statement {statement_file} cannot be read: {why}") from exc
    # read for its row only: nothing of it is believed before ``check`` verified the signature
    said = Claims.read(Envelope.parse(text).statement)
    row = Row(said.name, said.version, said.source, said.storage, said.created, said.run_id)
    if model not in {None, said.name}:
        row = replace(row, name=str(model), version="", created=0, run_id="")
    try:
        claims = check(text, guard.trust, row, guard.terms(target, row.name), target=target, now=statement.now())
    except StatementError as exc:
        raise StatementError(f"{folder} may not serve as {row.name}@{target}: {exc}") from exc
    if not folder.is_dir():
        raise StatementError(f"{folder} is no folder")
    return claims, _compare(claims, {}, FolderFiles(folder), f"models:/{claims.name}/{claims.version} in {folder}")
