"""Signing: a written report becomes evidence and verdict statements, after everything in it was checked again.

The signer trusts the numbers of the report, whose honesty is that of the host that measured them, and nothing else:
it judges them again under its own policy, and looks itself at the registry's row and files.
"""

import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, time, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from securesystemslib.signer import Signer

from privgate import cases, digest
from privgate.documents import LARGE, strict_json
from privgate.errors import DigestMismatchError, RegistryError, StatementError
from privgate.evidence import Evidence
from privgate.evidence.verdict import Finding, Outcome, together
from privgate.guard import statement
from privgate.guard.config import Guard, Terms, refuse_name
from privgate.guard.keys import seal
from privgate.guard.statement import Claims, Envelope
from privgate.guard.verification import EVIDENCE_FILE, check_terms
from privgate.policy import Judged, Policy
from privgate.registry.attachments import copy_to_run
from privgate.registry.client import answering, connect, list_pages, stored_files
from privgate.registry.files import all_files
from privgate.registry.load import recompute_digests
from privgate.registry.named import TAG, join_folder, named
from privgate.version import __version__

#: without these, no number is about the registered model and its data
CONTROLS = ("reproduces", "depends_on_data", "served")
_FINE = {"passed", "warned"}


@dataclass(frozen=True)
class SigningRequest:
    """What is to be signed."""

    #: ``models:/name/version``; empty to take the report's word
    uri: str = ""
    #: nonce of the check; empty if not requested
    nonce: str = ""
    #: whether an approval may rest on training code that ran as the checker
    unboxed: bool = True

    def refuse_others(self, evidence: Evidence, *, releases: bool) -> None:
        """Raise ``StatementError`` unless a report is the one that was asked for; an approval had its controls."""
        about = f"models:/{evidence.subject.get('name')}/{evidence.subject.get('version')}"
        if self.uri and about != self.uri:
            raise StatementError(f"the report is about {about}, to be signed is {self.uri}; nothing is signed")
        if self.nonce and evidence.run.nonce != self.nonce:
            raise StatementError("the report is not of the check that was asked: its nonce is another; check again")
        ran = {p.name for p in evidence.preconditions if p.outcome in _FINE}
        if releases and (missing := [name for name in CONTROLS if name not in ran]):
            raise StatementError(f"the report approves without the control {missing[0]!r}; check again")


def compare(stated: Mapping[str, Any], recomputed: Mapping[str, str], uri: str) -> None:
    """Raise ``DigestMismatchError`` where a report states another digest than the registry's own files have."""
    for name, value in recomputed.items():
        if stated.get(name) != value:
            raise DigestMismatchError(f"the report is about another {name} than {uri} has ({value[:19]}…); check again")


def read_document(content: bytes) -> dict[str, Any]:
    """Return the report to sign; ``StatementError``: it cannot be read, is of another version, or only observed."""
    with strict_json.reading("report.json cannot be read", StatementError):
        document = dict(strict_json.loads(content, LARGE))
        observed, schema = document["observed"], document["schema"]
    if schema != "privgate/report/v2":
        raise StatementError(f"report.json has schema {schema!r}; this privgate signs privgate/report/v2")
    if observed is not False:
        raise StatementError("the run only observed; nothing is signed as approved")
    return document


@strict_json.reading("the report cannot be judged again", StatementError)
def judged_again(document: dict[str, Any], policy: Policy) -> tuple[Judged, Evidence]:
    """Return what the report's own numbers give under the policy, and these; ``StatementError``: it says else."""
    if why := cases.name_removed_theorem((document["evidence"]["influence"] or {}).get("cases") or ()):
        raise StatementError(why)
    if document["policy"].get("digest") != policy.digest:
        raise StatementError(f"the report was not judged by this policy {policy.name!r}; check again under it")
    decided = statement.when(document["decided_at"])
    evidence = Evidence.from_payload(document["evidence"])
    if any(evidence.subject.get(k) != document["subject"].get(k) for k in ("name", "version", "digests")):
        raise StatementError("the report's evidence is about another model than the report")
    kept = evidence.run.remembered
    if kept is None or not kept.signable:
        raise StatementError(
            "the run used remembered trainings, and its questions could be foretold, so it cannot be signed; check "
            "again by privgate check, or with Fleet(signable=True)"
        )
    said = [(f["rule"], f["outcome"]) for f in document["findings"]]
    again = policy.judge(evidence, today=decided.date(), confirm=partial(_doubted, dict(said), policy.groups))
    if [(f.rule, str(f.outcome)) for f in again.findings] != said:
        raise StatementError("the report says something else than its own numbers give under this policy; check again")
    if str(together(again.findings)) != document["outcome"]:
        raise StatementError("the report's outcome is not the worst of its findings; check again")
    return again, evidence


def _doubted(said: Mapping[str, str], groups: Mapping[str, str], findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings; of rules that ask one question, those are open that the report counts for less."""
    less = {rule for rule, outcome in said.items() if outcome in {Outcome.NOT_NEEDED, Outcome.INCONCLUSIVE}}
    doubted = [f.rule in less and f.rule in groups and f.outcome.releases for f in findings]
    return [replace(f, outcome=Outcome.INCONCLUSIVE) if d else f for f, d in zip(findings, doubted, strict=True)]


@strict_json.reading("the report cannot be judged again", StatementError)
def expires(document: dict[str, Any], judged: Judged, policy: Policy, decided: datetime) -> datetime:
    """Return the end of the last day on which the approval counts: never later than what it rests on."""
    last = datetime.combine(judged.expires, time.max, UTC)
    if stated := str(document.get("expires") or ""):
        moment = datetime.fromisoformat(stated)
        last = min(last, moment if moment.tzinfo else datetime.combine(moment.date(), time.max, UTC))
    return min(last, decided + timedelta(days=policy.valid_days)).replace(microsecond=0)


def levels(policy: Policy, findings: Sequence[Finding]) -> tuple[str, ...]:
    """Return what is met without a waiver or a warning."""
    met = [f.rule for f in findings if f.outcome is Outcome.PASSED and not f.rule.startswith("precondition:")]
    words = (f"policy {policy.name}", *(f"rule {rule}" for rule in met))
    return tuple("PRIVGATE_" + re.sub(r"[^A-Z0-9]+", "_", text.upper()) for text in words)


@dataclass(frozen=True)
class Signed:
    """Both envelopes, what the verdict says, and the report they are about."""

    claims: Claims
    evidence: Envelope
    verdict: Envelope
    report: bytes

    def write(self, folder: Path) -> None:
        """Write the envelopes."""
        for name, envelope in ((EVIDENCE_FILE, self.evidence), ("verdict.dsse.json", self.verdict)):
            (folder / name).unlink(missing_ok=True)  # a link could lead to another user's file
            (folder / name).write_text(envelope.text(), encoding="utf-8")


def sign(
    out_dir: Path,
    signer: Signer,
    *,
    policy: Policy,
    registry: str,
    targets: Sequence[tuple[str, str]] = (),
    tracking_uri: str | None = None,
    checked_elsewhere: bool = False,
    request: SigningRequest | None = None,
    guard: Guard | None = None,
) -> Signed:
    """Return signed statements about the report in ``out_dir``, the folder that ``check`` wrote.

    The report must have been judged by ``policy``, the signer's own copy. ``targets`` are (model, alias or stage) where
    the version may be released; ``production`` of its own model if empty. ``checked_elsewhere`` is the operator's word
    that another container or host ran the check. ``request`` is what whoever started the check wants signed; anything
    checked by hand if absent. Nothing is approved for a target that ``guard``, where it is known, would refuse.

    ``StatementError``: the report cannot be signed: observed only, another policy, not what its own numbers give.
    ``DigestMismatchError``: the version's files are not those that were checked.
    """
    path = out_dir / "report.json"
    with strict_json.reading(f"{path} of privgate check cannot be read", StatementError):
        owner, content = path.stat().st_uid, strict_json.content(path, LARGE)
    document = read_document(content)
    judged, evidence_given = judged_again(document, policy)
    outcome = Outcome(document["outcome"])  # which was just compared with the findings
    request = request or SigningRequest()
    request.refuse_others(evidence_given, releases=outcome.releases)
    client, subject = connect(tracking_uri), document["subject"]
    name, version = str(subject["name"]), str(subject["version"])
    if not version:
        raise StatementError("the report is about no registered version; register the model and check that")
    places = tuple(targets) or ((name, "production"),)
    for place in {part for pair in places for part in pair}:
        refuse_name(place)
    facts, table = _look_at_files(client, f"models:/{name}/{version}", subject["digests"])
    decided = statement.when(document["decided_at"])
    claims = Claims(
        **facts,
        registry=registry,
        name=name,
        version=version,
        targets=places,
        advisory=owner == os.geteuid() and not checked_elsewhere,
        digests={k: str(v) for k, v in subject["digests"].items() if k != "files"},
        policy=policy.name,
        policy_digest=policy.digest,
        report=statement.payload_digest(content),
        evidence="",
        outcome=str(outcome),
        passed=outcome.releases,
        decided=decided,
        signed=statement.now().replace(microsecond=0),
        expires=expires(document, judged, policy, decided),
        levels=levels(policy, judged.findings),
        isolation=evidence_given.run.isolation,
        task=str(evidence_given.subject.get("task") or "classification"),
        withheld=bool(evidence_given.subject.get("file")),
    )
    refuse_unread(claims, policy, guard, unboxed=request.unboxed)
    evidence = seal(claims.evidence_statement(document, table), signer)
    full = replace(claims, evidence=statement.payload_digest(evidence.payload))
    return Signed(full, evidence, seal(full.summary(__version__), signer), content)


def _look_at_files(client: Any, uri: str, stated: Mapping[str, Any]) -> tuple[dict[str, Any], Mapping[str, str]]:
    """Return what the registry says of a version, as claims, and each file's digest; refuse others than checked."""
    row = named(client, uri)
    with stored_files(client, row.storage) as folder:
        table = all_files(folder, rows=((row.name, row.version),))
        files = digest.of_manifest(table)
        if files != stated.get("files"):
            raise DigestMismatchError(f"the files of {uri} are not those that were checked; check again")
        own = recompute_digests(client, uri, folder, table)
    compare(stated, own, uri)
    with answering(f"counting the versions of {row.name}"):
        versions = sum(1 for _ in list_pages(client.search_model_versions, f"name='{row.name}'"))
    kept = {key: getattr(row, key) for key in ("source", "storage", "run_id", "created", "model_id")}
    return kept | {"files": files, "versions": versions, "recomputed": ("files", *own)}, table


def refuse_unread(claims: Claims, policy: Policy, guard: Guard | None, *, unboxed: bool) -> None:
    """Raise ``StatementError`` for what the guard would refuse, as far as the signer knows it."""
    if not claims.passed:
        check_terms(claims, None, statement.now())
        return
    for model, target in claims.targets:
        terms = Terms(claims.registry, policy.digest, policy.name, withheld=True)
        terms = terms if guard is None else guard.terms(target, model)
        # an advisory statement says so, and a verifier may accept it by an option
        check_terms(claims, replace(terms, accept_advisory=True, accept_unboxed=unboxed), statement.now())


def attach_statement(signed: Signed, *, tracking_uri: str | None = None) -> None:
    """Put the verdict into the version's tag, and report and evidence beside the model's run."""
    client, claims = connect(tracking_uri), signed.claims
    uri = f"models:/{claims.name}/{claims.version}"
    # a folder of its own: the next check replaces its policy's report, and must not touch what a release rests on
    place = f"{join_folder(claims.model_id, claims.policy)}/signed/{claims.report.removeprefix('sha256:')[:16]}"
    with answering(f"attaching the statement to {uri}"), tempfile.TemporaryDirectory() as folder:
        signed.write(Path(folder))
        Path(folder, "report.json").write_bytes(signed.report)
        copy_to_run(client, claims.model_id, Path(folder), place)
        text = signed.verdict.text()
        client.set_model_version_tag(claims.name, claims.version, TAG, text)
        if client.get_model_version(claims.name, claims.version).tags.get(TAG) != text:
            raise RegistryError(f"the registry did not keep the statement of {uri} whole; its tags are too short")
