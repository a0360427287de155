"""A CycloneDX 1.6 bill of materials for machine learning: the model, its data by digest, and the verdict."""

import json
import math
import uuid
from typing import Any

from privgate.report import assertions, words
from privgate.report.assertions import Assertion
from privgate.report.report_schema import Comparison, ReportDocument
from privgate.report.text import plain


def render(doc: ReportDocument | Comparison) -> str:
    """Return the bill as JSON; the same report gives the same bytes, serial number included."""
    if isinstance(doc, Comparison):
        raise TypeError("a comparison has no bill of materials")
    digests = doc.subject.digests
    known = "/".join(f"{k}={digests[k]}" for k in sorted(digests))
    serial = uuid.uuid5(uuid.NAMESPACE_URL, f"privgate:{known}/{doc.policy.digest}/{doc.decided_at}")
    metadata = {
        **({"timestamp": doc.decided_at} if doc.decided_at else {}),
        "tools": {"components": [{"type": "application", "name": "privgate", "version": doc.privgate}]},
        "component": _model(doc),
    }
    bill = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        "metadata": metadata,
        "components": [_data(doc)],
        "dependencies": [{"ref": "model", "dependsOn": ["training-data"]}, {"ref": "training-data"}],
    }
    return json.dumps(bill, indent=1, ensure_ascii=True, allow_nan=False) + "\n"


def _model(doc: ReportDocument) -> dict[str, Any]:
    s = doc.subject
    card: dict[str, Any] = {
        "modelParameters": {
            "task": "classification",
            "datasets": [{"ref": "training-data"}],
            "outputs": [{"format": s.release.form}],
        },
        "quantitativeAnalysis": {"performanceMetrics": [_metric(a) for a in assertions.of(doc) if a.finding.metric]},
        "considerations": {
            **({"useCases": [plain(doc.context.purpose, 200)]} if doc.context.purpose else {}),
            "technicalLimitations": words.not_shown(),
        },
    }
    verdict = {
        "outcome": str(doc.outcome),
        "decision": doc.decision,
        "level": doc.level,
        "policy": plain(doc.policy.name, 80),
        "policy-digest": plain(doc.policy.digest, 80),
        "expires": doc.expires,
        "owner": plain(doc.context.owner, 80),
    }
    return {
        "type": "machine-learning-model",
        "bom-ref": "model",
        "name": plain(s.name, 80) or "model",
        **({"version": plain(s.version, 20)} if s.version else {}),
        **_hashes(s.digests.get("model", "")),
        "modelCard": card,
        "properties": [{"name": f"privgate:{k}", "value": v} for k, v in verdict.items() if v],
    }


def _metric(a: Assertion) -> dict[str, Any]:
    f = a.finding
    told: dict[str, Any] = {"type": f"privgate:{f.metric}{f.suffix}", "value": _text(f.value), "slice": a.asked}
    if not math.isnan(f.low) and not math.isnan(f.high):
        told["confidenceInterval"] = {"lowerBound": _text(f.low), "upperBound": _text(f.high)}
    return told


def _data(doc: ReportDocument) -> dict[str, Any]:
    context = doc.context
    name = plain(context.data_name, 80) or "training data"
    told = {"source": plain(context.data_source, 200), "records": str(doc.subject.n_records)}
    return {
        "type": "data",
        "bom-ref": "training-data",
        "name": name,
        **_hashes(doc.subject.digests.get("data", "")),
        "data": [{"type": "dataset", "name": name, "classification": "personal data"}],
        "properties": [{"name": f"privgate:{k}", "value": v} for k, v in told.items() if v],
    }


def _hashes(digest: str) -> dict[str, Any]:
    """Return a digest as CycloneDX writes it; nothing where there is none."""
    kind, _, content = digest.partition(":")
    return {"hashes": [{"alg": "SHA-256", "content": content}]} if kind == "sha256" and len(content) == 64 else {}


def _text(x: float) -> str:
    return f"{x:.6g}"
