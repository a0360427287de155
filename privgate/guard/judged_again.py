"""A report before it is signed: read, and judged again by its own numbers under the signer's policy."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime, time, timedelta
from typing import Any

from privgate.documents import LARGE, door, strict_json
from privgate.errors import StatementError
from privgate.evidence import Evidence
from privgate.guard import times
from privgate.policy import Judged, Policy
from privgate.verdict import Finding, Outcome, together


def document(content: bytes) -> dict[str, Any]:
    """Return the report that is to be signed.

    Raises
    ------
    StatementError
        It cannot be read, is of another version, or of a run that only observed.
    """
    try:
        document = strict_json.loads(content, LARGE)
        observed, schema = document["observed"], document["schema"]
    except door.GARBLED as exc:
        raise StatementError(f"report.json cannot be read: {door.why(exc)}") from exc
    if schema != "privgate/report/v2":
        raise StatementError(f"report.json has schema {schema!r}; this privgate signs privgate/report/v2")
    if observed is not False:
        raise StatementError("the run only observed; nothing is signed as passed")
    return dict(document)


@door.reading("the report cannot be judged again", StatementError)
def judged_again(document: dict[str, Any], policy: Policy) -> tuple[Judged, Evidence]:
    """Return what the report's own numbers give under the signer's policy, and those numbers.

    Raises
    ------
    StatementError
        It is another policy, or the report says anything else than its numbers.
    """
    if document["policy"].get("digest") != policy.digest:
        raise StatementError(f"the report was not judged by this policy {policy.name!r}; check again under it")
    decided = times.when(document["decided_at"])
    try:
        evidence = Evidence.from_payload(document["evidence"])
    except (KeyError, TypeError, ValueError) as exc:
        raise StatementError(f"the report's evidence cannot be read: {exc}") from exc
    if {k: evidence.subject.get(k) for k in ("name", "version", "digests")} != {
        k: document["subject"].get(k) for k in ("name", "version", "digests")
    }:
        raise StatementError("the report's evidence is about another model than the report")
    kept = evidence.run.remembered
    if kept is None or not kept.signable:
        raise StatementError(
            "the run took remembered trainings as they were, so it cannot be signed; check again without --remembered"
        )
    again = policy.judge(evidence, today=decided.date())
    said = [(f["rule"], f["outcome"]) for f in document["findings"]]
    if [(f.rule, str(f.outcome)) for f in again.findings] != said:
        raise StatementError("the report says something else than its own numbers give under this policy; check again")
    if str(together(again.findings)) != document["outcome"]:
        raise StatementError("the report's outcome is not the worst of its findings; check again")
    return again, evidence


@door.reading("the report cannot be judged again", StatementError)
def expires(document: dict[str, Any], judged: Judged, policy: Policy, decided: datetime) -> datetime:
    """Return the end of the last day on which the approval counts: never later than what it rests on."""
    last = datetime.combine(judged.expires, time.max, UTC)
    stated = str(document.get("expires") or "")
    if stated:
        moment = datetime.fromisoformat(stated)
        last = min(last, moment if moment.tzinfo else datetime.combine(moment.date(), time.max, UTC))
    return min(last, decided + timedelta(days=policy.valid_days)).replace(microsecond=0)


def levels(policy: Policy, findings: Sequence[Finding]) -> tuple[str, ...]:
    """Return what is met without a waiver or a warning."""
    met = [f.rule for f in findings if f.outcome is Outcome.PASSED and not f.rule.startswith("precondition:")]
    return tuple(
        "PRIVGATE_" + re.sub(r"[^A-Z0-9]+", "_", text.upper())
        for text in (f"policy {policy.name}", *(f"rule {r}" for r in met))
    )
