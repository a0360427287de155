"""Whether a statement lets this row of this registry be released as that target, now: pure, in microseconds."""

import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Self

from privgate.errors import StatementError, SubjectError
from privgate.guard import statement
from privgate.guard.config import Terms
from privgate.guard.keys import TrustStore
from privgate.guard.statement import NOT_APPLICABLE, Claims, Envelope
from privgate.registry.client import answering, stored_files
from privgate.registry.named import locate_reports, oddity

#: how far a signer's clock may run ahead of ours
_CLOCKS = timedelta(minutes=5)
UNBOXED = (
    "the training code ran without a box, as the user who checked, and could have written the report; check where "
    "bubblewrap works (--isolation bubblewrap), or say accept_unboxed: true in the guard's configuration, or "
    "--accept-unboxed to privgate guard sign"
)


@dataclass(frozen=True)
class Row:
    """A row of the registry, as the registry has it."""

    #: registered model and version; the version is empty for a row that is about to be created
    name: str
    version: str
    #: immutable source
    source: str
    #: where the files lie
    storage: str
    #: creation time, milliseconds; 0 for a row that is about to be created
    created: int = 0
    #: the row's run; empty where it has none
    run_id: str = ""

    @classmethod
    def read(cls, name: str, held: Any, storage: Any, created: Any) -> Self:
        """Return the row of MLflow's entity of a version."""
        return cls(name, str(held.version), str(held.source), str(storage), int(created), str(held.run_id or ""))


def check(text: str, trust: TrustStore, row: Row, terms: Terms, *, target: str | None, now: datetime) -> Claims:
    """Return a statement's claims, or raise ``StatementError``: ``row`` may not be released as a target (None: any)."""
    if not text:
        raise StatementError("there is no statement")
    envelope = Envelope.parse(text)
    claims = Claims.read(envelope.statement)
    # the signature is checked before anything it covers is believed, or repeated in a message
    trust.verify(envelope, claims.role("verdict"), model=claims.name, moments=(claims.signed, now))
    _refuse((*_about(claims, row, terms, target), *_still(claims, terms, now)))
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
    same = task == terms.task if NOT_APPLICABLE in (task, terms.task) else terms.task in {"", task}
    return (
        (claims.passed and claims.outcome in {"passed", "warned"}, f"the verdict is {claims.outcome}, not an approval"),
        (now <= claims.expires, f"the statement expired on {statement.stamp(claims.expires)}; check and sign again"),
        *_ahead(claims, now),
        (claims.signed <= claims.expires, "the statement ends before it was signed; check the clocks"),
        (earlier or claims.policy_digest == terms.policy_digest, f"{reached}, {in_force}"),
        (same, kind),
        (terms.withheld or not claims.withheld, undeclared),
        (terms.accept_advisory or not claims.advisory, alone),
        (terms.accept_unboxed or task == NOT_APPLICABLE or is_sandboxed(claims.isolation), UNBOXED),
    )


def is_sandboxed(isolation: str) -> bool:
    """Whether what a report says of its isolation is a box."""
    return isolation.partition(" ")[0] == "bubblewrap"


def counting(text: str, trust: TrustStore, now: datetime) -> Claims | None:
    """Return what a verdict says that a key which counts has signed; None for anything else."""
    with suppress(StatementError):
        envelope = Envelope.parse(text)
        claims = Claims.read(envelope.statement)
        # a refusal outlives the window of its key: an approval by a younger key must not outlive the refusal
        moments = (claims.signed, now) if claims.passed else (claims.signed,)
        trust.verify(envelope, claims.role("verdict"), model=claims.name, moments=moments)
        return claims
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


TAG = "privgate.statement"
EVIDENCE_FILE = "evidence.dsse.json"
_EVIDENCE = re.compile(f"[^/]+/signed/[^/]+/{re.escape(EVIDENCE_FILE)}")


def row_and_statement(client: Any, name: str, version: str) -> tuple[Row, str]:
    """Return a row and the statement that it carries, read at once; the statement is empty where there is none."""
    with answering(f"reading models:/{name}/{version}"):
        held = client.get_model_version(name, version)
        storage = client.get_model_version_download_uri(name, version)
    return Row.read(name, held, storage, held.creation_timestamp), str(dict(held.tags).get(TAG, ""))


def stored_evidence(client: Any, model_id: str, wanted: str) -> tuple[bytes, Envelope]:
    """Return the stored report and the evidence envelope of this digest; ``StatementError``: there is none."""
    gone = (
        f"the evidence behind the statement ({wanted[:19]}…) is not stored with the model's run; check and sign again"
    )
    try:
        place = locate_reports(client, model_id)
    except SubjectError as exc:
        raise StatementError(gone) from exc
    with stored_files(client, place) as files:
        stored = files.names()
        for path in (p for p in stored if _EVIDENCE.fullmatch(p)):
            report = path.removesuffix(EVIDENCE_FILE) + "report.json"
            envelope = Envelope.parse(files.read(path).decode(errors="replace"))
            if statement.payload_digest(envelope.payload) == wanted and report in stored:
                return files.read(report), envelope
    raise StatementError(gone)
