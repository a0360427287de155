"""What our statements say: a verdict on one version, the evidence behind it, and the bytes that are signed.

The verdict is an SLSA Verification Summary v1 in a DSSE v1.0.2 envelope; the evidence behind it is an in-toto Statement
v1 of our own type, named in the summary's ``inputAttestations`` by digest. Nothing here holds or trusts a key.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Self
from urllib.parse import quote

from securesystemslib import dsse
from securesystemslib.exceptions import Error

from privgate.documents import strict_json
from privgate.errors import StatementError


def now() -> datetime:
    """Return the present time in UTC."""
    return datetime.now(UTC)


def when(text: str) -> datetime:
    """Return the time that ``text`` writes; ``StatementError``: it is none, or says no zone."""
    try:
        value = datetime.fromisoformat(text)
        if value.tzinfo is None:
            raise StatementError(f"{text!r} says no time zone")
        return value.astimezone(UTC)
    except (ValueError, TypeError, OverflowError) as exc:
        raise StatementError(f"{text!r} is no time") from exc


def stamp(moment: datetime) -> str:
    """Return a time in UTC as statements write it."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


PAYLOAD_TYPE = "application/vnd.in-toto+json"
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"


class Envelope(dsse.Envelope):
    """A signed payload, by DSSE."""

    @property
    def statement(self) -> dict[str, Any]:
        """The in-toto statement; believe it only after its signature was verified. ``StatementError``: it is none."""
        try:
            value = strict_json.loads(self.payload)
        except ValueError as exc:
            raise StatementError(f"the statement's payload cannot be read: it {exc}") from exc
        if not isinstance(value, dict) or value.get("_type") != STATEMENT_TYPE or self.payload_type != PAYLOAD_TYPE:
            raise StatementError("the envelope holds no in-toto statement")
        return value

    def text(self) -> str:
        """Return the envelope as JSON on one line."""
        return json.dumps(self.to_dict(), separators=(",", ":"))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the envelope that ``text`` writes; ``StatementError``: it is none, or holds no signature."""
        try:
            envelope: Self = cls.from_dict(strict_json.loads(text))  # type: ignore[assignment]  # it makes this class
        except (Error, *strict_json.GARBLED) as exc:
            raise StatementError(f"the statement is no DSSE envelope ({type(exc).__name__})") from exc
        if not envelope.signatures or not isinstance(envelope.payload_type, str):
            raise StatementError("the statement carries no signature")
        return envelope


def payload(statement: Mapping[str, Any]) -> bytes:
    """Return a statement as bytes, always the same for the same statement."""
    return json.dumps(statement, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def payload_digest(body: bytes) -> str:
    """Return ``sha256:<hex>`` of a payload."""
    return "sha256:" + hashlib.sha256(body).hexdigest()


VSA_TYPE = "https://slsa.dev/verification_summary/v1"
EVIDENCE_TYPE = "urn:privgate:evidence:v2"
VERIFIER = "urn:privgate:gate:v1"
EXTENSION = "urn:privgate:verdict:v2"


def _digest(digest: str) -> dict[str, str]:
    kind, _, value = digest.partition(":")
    if kind != "sha256" or len(value) != 64:
        raise StatementError(f"{digest!r} is no sha256 digest")
    return {"sha256": value}


def _text(digest: Mapping[str, str]) -> str:
    return "sha256:" + _digest("sha256:" + str(digest["sha256"]))["sha256"]


#: claim -> what a verdict's own part calls it, how it is written, and how it is read
_OWN: dict[str, tuple[str, Callable[[Any], Any], Callable[[Any], Any]]] = {
    **{n: (n, str, str) for n in ("registry", "version", "source", "storage", "policy", "outcome", "isolation")},
    **{n: (key, str, str) for n, key in (("name", "model"), ("model_id", "modelId"), ("run_id", "runId"))},
    **{n: (n, int, int) for n in ("created", "versions")},
    **{n: (n, stamp, when) for n in ("decided", "expires")},
    "digests": ("digests", dict, lambda given: {str(k): str(v) for k, v in given.items()}),
    "report": ("report", _digest, _text),
    "targets": (
        "targets",
        lambda pairs: [{"model": model, "to": to} for model, to in pairs],
        lambda given: tuple((str(t["model"]), str(t["to"])) for t in given),
    ),
    "advisory": ("advisory", bool, lambda given: given is not False),
    "recomputed": ("recomputed", list, lambda given: tuple(map(str, given))),
}


@dataclass(frozen=True)
class Claims:
    """What a verdict statement says, in our words."""

    #: configured id of the registry
    registry: str
    #: the registry row that was checked, and its immutable source
    name: str
    version: str
    source: str
    #: where the row's files lie: what the registry gives a consumer of this version
    storage: str
    #: the logged model whose folder that is, and the row's run, empty where it has none
    model_id: str
    run_id: str
    #: the row's creation time, milliseconds; a deleted and recreated row has another
    created: int
    #: ``sha256:<hex>`` manifest of every file of the served folder
    files: str
    #: how many versions the registered model had when this was signed: each tells something about the data
    versions: int
    #: of model, recipe and data
    digests: Mapping[str, str]
    #: name, and digest of the resolved policy
    policy: str
    policy_digest: str
    #: ``sha256:<hex>`` of report.json, and of the evidence statement's payload, empty while it is not signed yet
    report: str
    evidence: str
    #: the verdict's, and whether it approves
    outcome: str
    passed: bool
    #: when it was decided and signed, and the last moment it counts
    decided: datetime
    signed: datetime
    expires: datetime
    #: where the version may be released: exact names, never patterns
    targets: tuple[tuple[str, str], ...]
    #: properties met without waiver
    levels: tuple[str, ...] = ()
    #: checker and signer were one user: the training code could have signed
    advisory: bool = True
    #: sandbox that kept training code from the checker, with its version; or ``"none"``
    isolation: str = "none"
    #: digests that the signer made itself from the registry's files; other data were named by digest only
    recomputed: tuple[str, ...] = ()
    #: what the model answered with: classification, regression, or empty in older statements
    task: str = ""
    #: the checker stated that no user of the model can get its file
    withheld: bool = False

    @property
    def rows(self) -> tuple[tuple[str, str], ...]:
        """(name, version) of the rows that may serve the files; a copy may have any version."""
        return (self.name, self.version), *((model, "") for model, _ in self.targets if model != self.name)

    def is_about(self, row: Any) -> bool:
        """Return whether the statement is about the very row of the registry, and none that took its place."""
        return (self.name, self.version, self.created) == (row.name, row.version, row.created)

    def allows(self, model: str, target: str | None) -> bool:
        """Whether the version may be released as ``target`` of ``model``; None asks for any target there."""
        return any(model == name and target in {None, to} for name, to in self.targets)

    def summary(self, version: str) -> dict[str, Any]:
        """Return the SLSA Verification Summary as an in-toto statement; ``version`` is privgate's."""
        return self._state(
            VSA_TYPE,
            {
                "verifier": {"id": VERIFIER, "version": {"privgate": version}},
                "timeVerified": stamp(self.signed),
                "resourceUri": resource(self.registry, self.name, self.version),
                "policy": {"uri": f"urn:privgate:policy:{quote(self.policy)}", "digest": _digest(self.policy_digest)},
                "inputAttestations": [{"uri": EVIDENCE_TYPE, "digest": _digest(self.evidence)}],
                "verificationResult": "PASSED" if self.passed else "FAILED",
                "verifiedLevels": list(self.levels) if self.passed else ["FAILED"],
                EXTENSION: {
                    **{key: write(getattr(self, name)) for name, (key, write, _) in _OWN.items()},
                    **({"task": self.task} if self.task else {}),
                    **({"file": "not downloadable"} if self.withheld else {}),
                },
            },
        )

    def _state(self, kind: str, predicate: Mapping[str, Any]) -> dict[str, Any]:
        files = {"name": f"models:/{self.name}/{self.version}", "digest": _digest(self.files)}
        return {"_type": STATEMENT_TYPE, "subject": [files], "predicateType": kind, "predicate": predicate}

    def evidence_statement(self, document: Mapping[str, Any], files: Mapping[str, str]) -> dict[str, Any]:
        """Return what was measured and found, bound to the report and every file by digest, as an in-toto statement."""
        return self._state(
            EVIDENCE_TYPE,
            {
                "report": _digest(self.report),
                "decided": stamp(self.decided),
                "outcome": self.outcome,
                "policy": {"name": self.policy, "digest": _digest(self.policy_digest)},
                "digests": dict(self.digests),
                "files": dict(files),
                "findings": [{k: f[k] for k in ("rule", "outcome", "message", "waiver")} for f in document["findings"]],
            },
        )

    @classmethod
    def read(cls, statement: Mapping[str, Any]) -> Self:
        """Return what a verdict statement says; ``StatementError``: it is another kind, or lacks something."""
        with strict_json.reading("the verdict statement lacks or garbles something", StatementError):
            predicate = statement["predicate"]
            if statement["predicateType"] != VSA_TYPE or predicate["verifier"]["id"] != VERIFIER:
                raise StatementError("the statement is no verdict of a privgate gate")
            own = predicate[EXTENSION]
            (subject,) = statement["subject"]
            (evidence,) = predicate["inputAttestations"]
            claims = cls(
                **{name: read(own[key]) for name, (key, _, read) in _OWN.items()},
                files=_text(subject["digest"]),
                policy_digest=_text(predicate["policy"]["digest"]),
                evidence=_text(evidence["digest"]),
                passed=predicate["verificationResult"] == "PASSED",
                signed=when(predicate["timeVerified"]),
                levels=tuple(str(v) for v in predicate["verifiedLevels"]),
                task=str(own.get("task", "")),
                withheld="file" in own,
            )
            if "workspace" in own:
                raise StatementError("the statement is for a workspace of MLflow, which 0.1.0 was the last to know")
            if predicate["resourceUri"] != resource(claims.registry, claims.name, claims.version):
                raise StatementError("the statement names two different model versions")
        return claims


def resource(registry: str, name: str, version: str) -> str:
    """Return the URI of a model version in a registry."""
    return f"mlflow-registry://{quote(registry, safe='')}/models/{quote(name, safe='')}/{version}"
