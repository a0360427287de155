"""Whether a statement lets a row be released now: pure; and verifying that, and every served byte, at deployment."""

import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from privgate import digest
from privgate.documents import LARGE, DocumentError, strict_json
from privgate.errors import DigestMismatchError, PrivgateError, RegistryError, StatementError, SubjectError, UsageError
from privgate.guard import statement
from privgate.guard.config import VARIABLE, Guard, Terms
from privgate.guard.keys import TrustStore
from privgate.guard.statement import Claims, Envelope
from privgate.registry.client import reader, stored_files
from privgate.registry.files import MLFLOW_META, all_files
from privgate.registry.named import Named, Row, locate_reports, named, oddity

#: how far a signer's clock may run ahead of ours
_CLOCKS = timedelta(minutes=5)
UNBOXED = (
    "the training code ran without a box, as the user who checked, and could have written the report; check where "
    "bubblewrap works (--isolation bubblewrap), or say accept_unboxed: true in the guard's configuration, or "
    "--accept-unboxed to privgate guard sign"
)


def check(text: str, trust: TrustStore, row: Row, terms: Terms, *, target: str | None, now: datetime) -> Claims:
    """Return a statement's claims, or raise ``StatementError``: ``row`` may not be released as a target (None: any)."""
    if not text:
        raise StatementError("there is no statement")
    claims = read_signed(text, trust, now)
    _refuse((*_about(claims, row, terms, target), *_still(claims, terms, now)))
    return claims


def read_signed(text: str, trust: TrustStore, now: datetime, *, outlives: bool = False) -> Claims:
    """Return what a verdict says that a key which counts has signed; ``StatementError``: it is none.

    Where a refusal ``outlives`` the window of its key, no approval by a younger key outlives the refusal.
    """
    envelope = Envelope.parse(text)
    claims = Claims.read(envelope.statement)
    # the signature is checked before anything it covers is believed, or repeated in a message
    moments = (claims.signed, now) if claims.passed or not outlives else (claims.signed,)
    trust.verify(envelope, "verdict", model=claims.name, moments=moments)
    return claims


def check_terms(claims: Claims, terms: Terms | None, now: datetime) -> None:
    """Raise ``StatementError`` unless what a statement says counts now: asked by who signs, and by the guard.

    Without terms, as for a refusal, its time must have come, and nothing else is asked.
    """
    _refuse(_ahead(claims, now) if terms is None else _still(claims, terms, now))


def _refuse(rows: Iterable[tuple[bool, str]]) -> None:
    for holds, otherwise in rows:
        if not holds:
            raise StatementError(otherwise)


def _ahead(claims: Claims, now: datetime) -> tuple[tuple[bool, str], ...]:
    return (
        (claims.signed <= now + _CLOCKS, "the statement is signed in the future; check the clocks"),
        (claims.decided <= claims.signed + _CLOCKS, "the statement is signed before its verdict was decided"),
    )


def _about(claims: Claims, row: Row, terms: Terms, target: str | None) -> tuple[tuple[bool, str], ...]:
    """Return whether the statement is about this row and target."""
    signed = f"models:/{claims.name}/{claims.version}"
    place = f"{row.name}@{target or '…'}"
    itself = not is_copy(claims, row)
    odd = [(name, oddity(name)) for name in (row.name, claims.name)]
    other = f"the statement is for registry {claims.registry!r}, not {terms.registry!r}"
    known = itself or row.source in {signed, claims.source}
    return (
        (claims.registry == terms.registry, other),
        (known, f"the statement is about {signed}, not about this version or a copy's source"),
        (not itself or row.created == claims.created, f"{signed} was deleted and created again since it was signed"),
        (not itself or row.source == claims.source, f"the source of {signed} is not the one that was signed"),
        (not itself or row.run_id == claims.run_id, f"the run of {signed} is not the one that was signed"),
        *((not problem, f"{name!r} can be neither checked nor released: {problem}") for name, problem in odd),
        (row.storage == claims.storage, "the version's files lie elsewhere than those that were checked"),
        (claims.allows(row.name, target), f"the statement does not allow {place}; sign it with --target {place}"),
    )


def _still(claims: Claims, terms: Terms, now: datetime) -> tuple[tuple[bool, str], ...]:
    """Return whether the statement approves, and still counts."""
    reached = f"the verdict was reached under policy {claims.policy!r} ({claims.policy_digest[:19]}…)"
    in_force = f"in force is {terms.policy!r} ({terms.policy_digest[:19]}…); check again under that one"
    task = claims.task or ("regression" if claims.policy.startswith("regression-1") else "classification")
    undeclared = (
        "the verdict rests on a file that is not downloadable, and the guard's table does not say that of this model; "
        "add 'file: not downloadable' to its row, or check without it"
    )
    earlier = any(e.counts(claims.policy_digest, claims.signed, now) for e in terms.earlier)
    alone = "the statement is advisory: checker and signer were one user; sign as another user, container or host"
    kind = f"the model was judged as {task}, and the guard's table says that it is {terms.task or 'to be judged'}"
    return (
        (claims.passed and claims.outcome in {"passed", "warned"}, f"the verdict is {claims.outcome}, not an approval"),
        (now <= claims.expires, f"the statement expired on {statement.stamp(claims.expires)}; check and sign again"),
        *_ahead(claims, now),
        (claims.signed <= claims.expires, "the statement ends before it was signed; check the clocks"),
        (earlier or claims.policy_digest == terms.policy_digest, f"{reached}, {in_force}"),
        (terms.task in {"", task}, kind),
        (terms.withheld or not claims.withheld, undeclared),
        (terms.accept_advisory or not claims.advisory, alone),
        (terms.accept_unboxed or is_sandboxed(claims.isolation), UNBOXED),
    )


def is_sandboxed(isolation: str) -> bool:
    """Whether what a report says of its isolation is a box."""
    return isolation.partition(" ")[0] == "bubblewrap"


def counting(text: str, trust: TrustStore, now: datetime) -> Claims | None:
    """Return what a verdict says that a key which counts has signed; None for anything else."""
    with suppress(StatementError):
        return read_signed(text, trust, now, outlives=True)
    return None


def check_original(claims: Claims, original: tuple[Row, str] | None, trust: TrustStore, now: datetime) -> None:
    """Refuse a copy of a version that was refused after its signature, or whose row is gone.

    ``original`` is the row that the statement is about and the statement that it carries now; None where there is none.
    """
    signed = f"models:/{claims.name}/{claims.version}"
    if original is None or (original[0].created, original[0].storage) != (claims.created, claims.storage):
        raise StatementError(
            f"{signed}, which was signed, is gone, so that nobody can tell whether it was refused since; check and "
            "sign this version itself"
        )
    held = counting(original[1], trust, now)
    if held is not None and not held.passed and (held.signed >= claims.signed or held.decided >= claims.decided):
        raise StatementError(f"{signed}, which was signed, was refused since, on {statement.stamp(held.signed)}")


def is_copy(claims: Claims, row: Row) -> bool:
    """Whether a statement is about another row than this one."""
    return (claims.name, claims.version) != (row.name, row.version)


EVIDENCE_FILE = "evidence.dsse.json"


@dataclass(frozen=True)
class Verified:
    """What was verified."""

    #: what the statement says, and for how long it holds
    claims: Claims
    #: exact version
    uri: str
    #: how many files were compared
    n_files: int


def verify(
    uri: str, guard: Guard, *, target: str | None = None, tracking_uri: str | None = None, to: Path | None = None
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
    try:
        claims = _check_row(client, present, guard, target)
    except StatementError as exc:
        raise StatementError(f"{exact} may not serve{f' as {target!r}' if target else ''}: {exc}") from exc
    if claims.model_id != present.model_id:
        raise StatementError(f"{exact} may not serve: its statement is about another logged model; sign again")
    _, evidence = _signed_report(client, claims, guard, exact)
    with stored_files(client, present.storage) as folder:
        compare = _compare if to is None else partial(_hand_over, to=to)
        n_files = compare(claims, evidence.statement["predicate"].get("files", {}), folder, exact)
    return Verified(claims, exact, n_files)


def _alias(uri: str) -> str | None:
    return uri.rpartition("@")[2] if "@" in uri else None


def _is_evidence(parts: tuple[str, ...]) -> bool:
    return len(parts) == 4 and (parts[1], parts[3]) == ("signed", EVIDENCE_FILE)


def _signed_report(client: Any, claims: Claims, guard: Guard, uri: str) -> tuple[bytes, Envelope]:
    """Return the stored report and evidence that a verified statement names by digest."""
    short = f"{claims.evidence[:19]}…"
    gone = f"evidence behind the statement ({short}) is not stored with the model's run; check and sign again"
    try:
        place = locate_reports(client, claims.model_id)
    except SubjectError as exc:
        raise StatementError(gone) from exc
    unread = strict_json.reading(f"stored {EVIDENCE_FILE} or its report cannot be read, so sign again", SubjectError)
    with stored_files(client, place) as folder, unread:
        for path in (p for p in digest.below(folder) if p.is_file() and _is_evidence(p.relative_to(folder).parts)):
            evidence = Envelope.parse(strict_json.content(path, LARGE).decode(errors="replace"))
            report = path.with_name("report.json")
            if statement.payload_digest(evidence.payload) == claims.evidence and report.is_file():
                content = strict_json.content(report, LARGE)
                break
        else:
            raise StatementError(gone)
    if statement.payload_digest(content) != claims.report:
        raise StatementError(f"the report stored with {uri} is not the one that was signed")
    guard.trust.verify(evidence, "evidence", model=claims.name, moments=(claims.signed, statement.now()))
    return content, evidence


def _check_row(client: Any, row: Named, guard: Guard, target: str | None) -> Claims:
    """Return what a row's statement says; where the row is a copy, the version that was signed is asked, too."""
    claims = check(row.statement, guard.trust, row, guard.terms(target, row.name), target=target, now=statement.now())
    if not is_copy(claims, row):
        return claims
    try:
        original = named(client, f"models:/{claims.name}/{claims.version}")
    except (RegistryError, SubjectError) as exc:
        raise StatementError(
            f"models:/{claims.name}/{claims.version}, which was signed, cannot be read, so that nobody can tell "
            f"whether it was refused since ({exc})"
        ) from exc
    check_original(claims, (original, original.statement), guard.trust, statement.now())
    return claims


def _hand_over(claims: Claims, signed: Mapping[str, str], folder: Path, uri: str, to: Path) -> int:
    """Copy the files to a folder that appears only if they are those that were signed."""
    if to.exists() or to.is_symlink():
        raise UsageError(f"{to} exists; verify hands over to a folder of its own, so name another or remove that")
    try:
        to.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=to.parent, prefix=f".{to.name}-") as place:
            copy = Path(place, "model")
            shutil.copytree(folder, copy, symlinks=True)
            count = _compare(claims, signed, copy, uri)
            (copy / MLFLOW_META).unlink(missing_ok=True)  # MLflow's note, which is no part of the model
            copy.rename(to)
    except OSError as exc:
        raise UsageError(f"the files of {uri} cannot be handed over in {to}: {exc.strerror or exc}") from exc
    return count


def _compare(claims: Claims, signed: Mapping[str, str], folder: Path, uri: str) -> int:
    files = all_files(folder, rows=claims.rows)
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
    with strict_json.reading(f"{place} cannot be read", StatementError):
        content = strict_json.content(place, LARGE)
        document = strict_json.loads(content, LARGE)
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
        claims = _check_row(client, named(client, uri), guard, _alias(uri))
        document = strict_json.loads(_signed_report(client, claims, guard, uri)[0], LARGE)
    except (PrivgateError, DocumentError):
        return None  # a comparison is an extra, never a condition
    return document if claims.passed and isinstance(document, dict) and document.get("approved") is True else None


def verify_folder(
    folder: Path, statement_file: Path, guard: Guard, *, target: str, model: str | None = None
) -> tuple[Claims, int]:
    """Verify that the files in a folder may serve, now, and return what their statement says and how many they are.

    The folder holds all files of the version and nothing else; the statement is the verdict's envelope. ``model`` is
    the registered model to serve as, the one that was signed if absent. Where its alias points is not asked: to
    withdraw a release, revoke its statement in the trust store. Errors are those of `verify`.
    """
    with strict_json.reading(f"statement {statement_file} cannot be read", StatementError):
        text = strict_json.text_of(statement_file)
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
    return claims, _compare(claims, {}, folder, f"models:/{claims.name}/{claims.version} in {folder}")
