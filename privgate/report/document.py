"""The report document: the JSON from which every format is rendered."""

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from privgate.errors import PrivgateWarning, SubjectError
from privgate.evidence import Evidence
from privgate.evidence.values import bounds, encode, hidden
from privgate.policy.rules import about
from privgate.report import guesses, suppressed, words
from privgate.report.comparison import compare
from privgate.report.pseudonyms import Pseudonyms
from privgate.report.schema import SCHEMA, read
from privgate.report.units import summary
from privgate.run.suite_check import VALIDATION
from privgate.verdict import Verdict
from privgate.version import __version__


def document(verdict: Verdict, *, hash_key: bytes, baseline: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the report of a verdict as JSON values, the only source of everything rendered.

    Parameters
    ----------
    verdict : Verdict
        With its evidence and per-unit table.
    hash_key : bytes
        Key of the hashes that stand for records and people; at least 16 bytes, kept by the controller.
    baseline : mapping, optional
        Report of the version approved before; what changed since is then part of this report. One that cannot be read
        is warned of.

    Returns
    -------
    dict
        Valid under ``privgate/schemas/report-v2.json``; holds no unit name, no label of a unit, no feature value.

    Raises
    ------
    UsageError
        The key is too short.
    """
    evidence = verdict.evidence
    names = Pseudonyms(hash_key, evidence.records.get("unit", ()))
    where = {m.request.key: str(m.where) for m in evidence.measurements.values()}
    detail = encode(verdict.detail)
    everybody = _totals(evidence.subject)
    payload = evidence.payload()
    totals, few = suppressed.known(payload, everybody), suppressed.few_found(payload["measurements"])
    people, limits = everybody[1], suppressed.shares([f.payload() for f in verdict.findings])
    guessed = guesses.differences(payload, [f.payload() for f in verdict.findings])
    floors = [v for v in dict((verdict.policy.get("source") or {}).get("audit") or {}).values() if isinstance(v, int)]
    doc: dict[str, Any] = {
        "schema": SCHEMA,
        "privgate": __version__,
        "outcome": str(verdict.outcome),
        "approved": verdict.approved,
        "observed": verdict.observed,
        "exit_code": int(verdict.exit_code),
        "decided_at": str(detail.get("decided_at") or ""),
        "expires": str(detail.get("expires") or ""),
        "waivers": names.scrub(list(detail.get("waivers") or ())),
        "next_steps": names.scrub(list(detail.get("next_steps") or ())),
        "comparison": None,
        "subject": _subject(evidence.subject),
        "context": _context(names.scrub(dict(detail.get("context") or {}))),
        "policy": encode(verdict.policy),
        "findings": [
            told
            | (suppressed.ranged_finding(told, people, limits[f.request]) if f.request in limits else {})
            | suppressed.of_file(told, totals[0])
            | ({"value": few[f.request]} if f.request in few else {})
            | (guesses.finding(told, guessed[f.request]) if f.request in guessed else {})
            for f in verdict.findings
            for told in [names.scrub(f.payload(), where.get(f.request, ""))]
        ],
        "evidence": suppressed.evidence(_evidence(verdict, names), totals, floors, limits, guessed),
        "units": summary(evidence.records, names, _limits(verdict), everybody=_everybody(evidence)),
    }
    told = read({**doc, "decision": "", "level": ""})
    doc |= {"decision": words.decision(told), "level": words.level(told)}
    if baseline is not None:
        doc["comparison"] = _since(baseline, doc)
    return doc


def _totals(subject: Mapping[str, Any]) -> tuple[int, ...]:
    """Return how many people, records and candidates there are: what every report says and every reader knows."""
    records, units, outside = (int(subject.get(k) or 0) for k in ("n_records", "n_units", "n_candidates"))
    return records, units, outside, records + outside


def _context(context: dict[str, Any]) -> dict[str, Any]:
    """Return the context without a share of right answers that tells how few are wrong, or right."""
    share, n = context.get("accuracy"), int(context.get("accuracy_n") or 0)
    if not isinstance(share, float) or not n or not hidden(round(share * n), n):
        return context
    return {**context, "accuracy": None, "accuracy_between": [v / n for v in bounds(round(share * n), n)]}


def _since(baseline: Mapping[str, Any], doc: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return what changed; a comparison is an extra, and one of a version with itself says nothing."""
    try:
        found = compare(baseline, doc)
    except SubjectError as exc:
        warnings.warn(f"nothing is compared with the version before: {exc}", PrivgateWarning, stacklevel=3)
        return None
    same = [(d["subject"]["name"], d["subject"]["version"], d["subject"]["digests"]) for d in (baseline, doc)]
    return None if same[0] == same[1] else found


def _subject(subject: Mapping[str, Any]) -> dict[str, Any]:
    """Return the subject without the ends of an inferred feature box: they are values of single people."""
    told = dict(encode(subject))
    domain = told.get("domain")
    if isinstance(domain, Mapping) and domain.get("queries"):
        told["domain"] = {**domain, "box": None, "queries": len(domain["queries"])}
    if isinstance(domain, Mapping) and domain.get("inferred") and domain.get("box"):
        told["domain"] = {**domain, "box": None, "withheld": f"inferred ranges of {len(domain['box'])} features"}
    return told


def _without_positions(detail: Any) -> Any:
    """Return a precondition's detail without lists of whole numbers, which are rows of the data, and without files."""
    if not isinstance(detail, Mapping):
        return detail
    return {k: _without_positions(v) for k, v in detail.items() if k != VALIDATION and not _is_positions(v)}


def _is_positions(value: Any) -> bool:
    return isinstance(value, list) and any(isinstance(v, int) and not isinstance(v, bool) for v in value)


def _thinned(attacks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return attacks with their curves cut to what a chart can show, finest at few false accusations."""
    return [{**a, "figures": a["figures"] and {**a["figures"], "roc": thin(a["figures"]["roc"])}} for a in attacks]


def thin(curve: Sequence[Sequence[Any]], most: int = 120) -> list[Sequence[Any]]:
    """Return at most ``most`` points of a curve: the last one at each rate, at evenly spaced logarithms of the rate."""
    corners = [p for p, q in zip(curve, [*curve[1:], [None]], strict=True) if p[0] != q[0]]
    if len(corners) <= most:
        return corners
    low, high = (math.log(max(corners[i][0], 1e-9)) for i in (1, -1))
    step = (high - low) / (most - 2) or 1.0
    kept, place = [corners[0]], -1
    for point in corners[1:]:
        cell = int((math.log(max(point[0], 1e-9)) - low) / step)
        if cell > place or point is corners[-1]:
            kept.append(point)
            place = cell
    return kept


def _everybody(evidence: Evidence) -> bool:
    """Return whether every unit was measured by itself, so that there is a distribution to show."""
    coverage = evidence.influence and evidence.influence.coverage
    if coverage and coverage.not_computed:  # the riskiest few are no distribution
        return False
    return evidence.run.mode is None or evidence.run.mode.used == "all"


def _limits(verdict: Verdict) -> list[tuple[str, float]]:
    """Return the limits that rules set on single units: (column of the per-unit table, nats)."""
    found = [
        (column, f.limit)
        for f in verdict.findings
        for column in about(f.metric).columns
        if f.unit == "nats" and math.isfinite(f.limit)
    ]
    return list(dict.fromkeys(found))


def _evidence(verdict: Verdict, names: Pseudonyms) -> dict[str, Any]:
    """Return the evidence's payload with every unit name replaced."""
    payload = verdict.evidence.payload()
    if membership := payload["membership"]:
        payload["membership"] = {**membership, "attacks": _thinned(membership["attacks"])}
    return {
        **{part: names.scrub(payload[part]) for part in ("run", "influence", "membership", "claims")},
        **{part: payload[part] for part in ("attributes", "artifact", "robust", "collusion") if part in payload},
        "subject": _subject(payload["subject"]),
        "preconditions": names.scrub(
            [{**p, "detail": _without_positions(p["detail"])} for p in payload["preconditions"]]
        ),
        "measurements": [names.scrub(m, str(m["where"])) for m in payload["measurements"]],
    }
