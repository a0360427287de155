"""Verifying files that somebody else downloaded: an init container, a mounted volume, a machine without a registry."""

from pathlib import Path

from privgate import digest
from privgate.documents import DocumentError, door
from privgate.errors import DigestMismatchError, StatementError
from privgate.guard import times
from privgate.guard.checks import Row, Terms, check
from privgate.guard.config import Guard
from privgate.guard.dsse import Envelope
from privgate.guard.statement import Claims
from privgate.registry.stored_files import FolderFiles


def verify_folder(
    folder: Path,
    statement_file: Path,
    guard: Guard,
    *,
    target: str,
    model: str | None = None,
    terms: Terms | None = None,
) -> tuple[Claims, int]:
    """Verify that the files in a folder may serve, now, and return what their statement says and how many they are.

    What only a registry knows is not asked: whether the alias still names this version, and whether the row was deleted
    since. Whoever revokes a release revokes the statement in the trust store that this reads.

    Parameters
    ----------
    folder : Path
        All files of the version, nothing else.
    statement_file : Path
        The verdict's envelope, as ``privgate sign`` writes it and the version's tag holds it.
    guard : Guard
        Trusted keys, registry id and policies.
    target : str
        Alias or stage to serve as.
    model : str, optional
        Registered model to serve as; the one that was signed if absent.
    terms : Terms, optional
        Instead of the guard's, for a policy given by hand.

    Raises
    ------
    StatementError
        The statement cannot be read, is forged, expired, revoked, or about something else.
    DigestMismatchError
        A file is not the one that was signed.
    """
    try:
        text = door.content(statement_file).decode()
    except OSError as exc:
        raise StatementError(f"statement {statement_file} cannot be read: {exc.strerror}") from exc
    except (DocumentError, UnicodeDecodeError) as exc:
        raise StatementError(f"statement {statement_file} cannot be read: {exc}") from exc
    # read for its row only: nothing of it is believed before ``check`` verified the signature
    said = Claims.read(Envelope.parse(text).statement)
    row = Row(said.name, said.version, said.source, said.storage, said.created, said.run_id)
    if model not in {None, said.name}:
        row = Row(str(model), "", said.source, said.storage)
    try:
        claims = check(text, guard.trust, row, terms or guard.terms(target), target=target, now=times.now())
    except StatementError as exc:
        raise StatementError(f"{folder} may not serve as {row.name}@{target}: {exc}") from exc
    if not folder.is_dir():
        raise StatementError(f"{folder} is no folder")
    files = FolderFiles(folder).digests()
    if (found := digest.of_manifest(files)) != claims.files:
        raise DigestMismatchError(
            f"the files in {folder} are not those of models:/{claims.name}/{claims.version} that were checked and "
            f"signed ({len(files)} files, {found[:19]}… instead of {claims.files[:19]}…); do not serve them"
        )
    return claims, len(files)
