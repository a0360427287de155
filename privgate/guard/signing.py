"""Signing: a written report becomes evidence and verdict statements, after everything in it was checked again.

The signer trusts the numbers of the report, whose honesty is that of the host that measured them, and nothing else: it
judges them again under its own policy, and looks itself at the registry's row and files.
"""

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from privgate import digest
from privgate.errors import DigestMismatchError, RegistryError, StatementError
from privgate.guard import aliases, dsse, judged_again, times
from privgate.guard.asked import SigningRequest, compare
from privgate.guard.config import Guard
from privgate.guard.dsse import Envelope
from privgate.guard.signer import seal
from privgate.guard.statement import Claims
from privgate.guard.stored_statement import EVIDENCE_FILE, TAG, row_of, stored_evidence
from privgate.guard.trust import Signer
from privgate.policy import Policy
from privgate.registry import report_place
from privgate.registry.client import answering, connect
from privgate.registry.named import named
from privgate.registry.names import oddity
from privgate.registry.recomputed import recomputed
from privgate.registry.stored_files import stored_files
from privgate.verdict import Outcome
from privgate.version import __version__

VERDICT_FILE = "verdict.dsse.json"


@dataclass(frozen=True)
class Signed:
    """Both envelopes, what the verdict says, and the report they are about."""

    claims: Claims
    evidence: Envelope
    verdict: Envelope
    report: bytes

    def write(self, folder: Path) -> None:
        """Write both envelopes."""
        (folder / EVIDENCE_FILE).write_text(self.evidence.text(), encoding="utf-8")
        (folder / VERDICT_FILE).write_text(self.verdict.text(), encoding="utf-8")


def sign(
    out_dir: Path,
    signer: Signer,
    *,
    policy: Policy,
    registry: str,
    targets: Sequence[tuple[str, str]] = (),
    tracking_uri: str | None = None,
    checked_elsewhere: bool = False,
    asked: SigningRequest | None = None,
) -> Signed:
    """Return signed statements about the report in ``out_dir``.

    Parameters
    ----------
    out_dir : Path
        Folder that ``check`` wrote.
    signer : Signer
        Whose key signs.
    policy : Policy
        The signer's own copy of the policy; the report must have been judged by the same.
    registry : str
        Configured id of the registry.
    targets : sequence of (model, alias or stage)
        Where the version may be released; ``production`` of its own model if empty.
    tracking_uri : str, optional
        Where the model version is; the environment's if absent.
    checked_elsewhere : bool
        The operator's word that another container or host ran the check, although its files belong to this user.
    asked : Asked, optional
        What whoever started the check wants signed; anything that is checked by hand if absent.

    Raises
    ------
    StatementError
        The report cannot be signed: observed only, another policy, not what its own numbers give.
    DigestMismatchError
        The version's files are not those that were checked.
    """
    path = out_dir / "report.json"
    try:
        owner, content = path.stat().st_uid, path.read_bytes()
    except OSError as exc:
        raise StatementError(f"{path} cannot be read: {exc.strerror}; run privgate check first") from exc
    advisory = owner == os.geteuid() and not checked_elsewhere
    return _sign(
        content,
        signer,
        connect(tracking_uri),
        policy=policy,
        registry=registry,
        targets=tuple(targets),
        advisory=advisory,
        asked=asked or SigningRequest(),
    )


def renew(uri: str, signer: Signer, *, policy: Policy, guard: Guard, tracking_uri: str | None = None) -> Signed:
    """Return fresh statements from the evidence that is stored with a version; nothing is trained.

    Raises
    ------
    StatementError
        The stored evidence is missing, altered, or signed by no key that counts now.
    """
    client = connect(tracking_uri)
    target = named(client, uri)
    with answering(f"reading {uri}"):
        text = client.get_model_version(target.name, target.version).tags.get(TAG, "")
    before = Claims.read(Envelope.parse(text).statement) if text else None
    if before is None:
        raise StatementError(f"{uri} carries no statement to renew; run privgate check and privgate sign")
    content, evidence = stored_evidence(client, target.model_id, before.evidence)
    moments = (times.now(),)
    guard.trust.verify(evidence, "evidence", model=before.name, moments=moments)
    guard.trust.verify(Envelope.parse(text), "verdict", model=before.name, moments=(before.signed, *moments))
    if dsse.payload_digest(content) != before.report:
        raise StatementError(f"the stored report of {uri} is not the one that was signed; check again")
    return _sign(
        content,
        signer,
        client,
        policy=policy,
        registry=guard.registry,
        targets=before.targets,
        advisory=before.advisory,
    )


def _sign(
    content: bytes,
    signer: Signer,
    client: Any,
    *,
    policy: Policy,
    registry: str,
    targets: tuple[tuple[str, str], ...],
    advisory: bool,
    asked: SigningRequest | None = None,
) -> Signed:
    document = judged_again.document(content)
    judged, evidence_given = judged_again.judged_again(document, policy)
    if asked is not None:
        asked.refuse_others(evidence_given, releases=Outcome(document["outcome"]).releases)
    subject = document["subject"]
    name, version = str(subject["name"]), str(subject["version"])
    if not version:
        raise StatementError("the report is about no registered version; register the model and check that")
    present = named(client, f"models:/{name}/{version}")
    row = row_of(client, name, version)
    if row.storage != present.storage:
        raise DigestMismatchError(f"models:/{name}/{version} was replaced while it was being signed; check again")
    with stored_files(client, row.storage) as stored:
        table = stored.digests()
        files = digest.of_manifest(table)
        if files != subject["digests"].get("files"):
            raise DigestMismatchError(
                f"the files of models:/{name}/{version} are not those that were checked; check again"
            )
        own = recomputed(client, f"models:/{name}/{version}", stored, table, tracking_uri=client.tracking_uri)
    compare(subject["digests"], own, f"models:/{name}/{version}")
    targets = targets or ((name, "production"),)
    for model, target in targets:
        _check_target(model, target)
        if refusal := policy.refusal(model, target):
            raise StatementError(refusal)
    outcome = Outcome(document["outcome"])  # which was just compared with the findings
    decided = times.when(document["decided_at"])
    claims = Claims(
        registry=registry,
        name=name,
        version=version,
        source=row.source,
        storage=row.storage,
        model_id=present.model_id,
        run_id=row.run_id,
        created=row.created,
        files=files,
        versions=_versions(client, name),
        digests={k: str(v) for k, v in subject["digests"].items() if k != "files"},
        policy=policy.name,
        policy_digest=policy.digest,
        report=dsse.payload_digest(content),
        evidence="",
        outcome=str(outcome),
        passed=outcome.releases,
        decided=decided,
        signed=times.now().replace(microsecond=0),
        expires=judged_again.expires(document, judged, policy, decided),
        targets=targets,
        levels=judged_again.levels(policy, judged.findings),
        advisory=advisory,
        isolation=evidence_given.run.isolation,
        recomputed=("files", *own),
    )
    evidence = seal(claims.evidence_statement(document, table), signer)
    full = Claims(**{**vars(claims), "evidence": dsse.payload_digest(evidence.payload)})
    return Signed(full, evidence, seal(full.summary(__version__), signer), content)


def _check_target(model: str, target: str) -> None:
    """Refuse a target that is not one name: what a pattern or an eye reads as more is the operator's to allow."""
    if problem := oddity(model):
        raise StatementError(f"nothing is signed for release as {model}@{target}: {problem}; targets are exact names")
    if not aliases.is_plain(target):
        raise StatementError(
            f"nothing is signed for release as {target!r}: aliases and stages are of ASCII letters, digits, _ and -"
        )


def _versions(client: Any, name: str) -> int:
    """Return how many versions a registered model has."""
    count, token = 0, None
    while True:
        with answering(f"counting the versions of {name}"):
            page = client.search_model_versions(f"name='{name}'", max_results=1000, page_token=token)
        count, token = count + len(page), page.token
        if not token:
            return count


def attach_statement(signed: Signed, *, tracking_uri: str | None = None) -> None:
    """Put the verdict into the version's tag, and report and evidence beside the model's run.

    Raises
    ------
    RegistryError
        The registry refused or did not answer.
    """
    client = connect(tracking_uri)
    claims = signed.claims
    uri = f"models:/{claims.name}/{claims.version}"
    # a folder of its own: the next check replaces its policy's report, and must not touch what a release rests on
    place = f"{report_place.folder_of(claims.model_id, claims.policy)}/signed/{_part(claims.report)}"
    with answering(f"attaching the statement to {uri}"), tempfile.TemporaryDirectory() as folder:
        signed.write(Path(folder))
        Path(folder, "report.json").write_bytes(signed.report)
        report_place.keep(client, claims.model_id, Path(folder), place)
        text = signed.verdict.text()
        client.set_model_version_tag(claims.name, claims.version, TAG, text)
        if client.get_model_version(claims.name, claims.version).tags.get(TAG) != text:
            raise RegistryError(f"the registry did not keep the statement of {uri} whole; its tags are too short")


def _part(digest_text: str) -> str:
    return digest_text.removeprefix("sha256:")[:16]
