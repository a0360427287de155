"""A Hugging Face model card that carries the verdict: metadata that the hub reads, then the summary."""

import json
import math
from typing import Any

from privgate.report import assertions, summary
from privgate.report.report_schema import Comparison, ReportDocument
from privgate.report.text import plain


def render(doc: ReportDocument | Comparison) -> str:
    """Return ``README.md`` of a model repository; JSON is YAML, so no name in it can end the metadata."""
    if isinstance(doc, Comparison):
        raise TypeError("a comparison has no model card")
    head = json.dumps(_metadata(doc), indent=1, ensure_ascii=True)
    head = head.replace("<", "\\u003c")  # in strings only; whoever shows metadata as a page sees no markup
    return f"---\n{head}\n---\n\n{summary.render(doc)}"


def _metadata(doc: ReportDocument) -> dict[str, Any]:
    context = doc.context
    dataset = {"type": "private", "name": plain(context.data_name, 80) or "training data of the model"}
    figures = [
        {
            "type": f"privgate-{f.metric}{f.suffix}",
            "name": asked,
            "value": _value(f.value),
            # a figure alone is no promise: an approval rests on the upper end of its interval
            "args": {"low": _value(f.low), "high": _value(f.high), f.direction: _value(f.limit), "unit": f.unit},
        }
        for f, asked in ((a.finding, a.asked) for a in assertions.of(doc))
        if f.metric
    ]
    if context.accuracy is not None:
        figures.append({"type": "accuracy", "name": "accuracy about other people", "value": context.accuracy})
    result = {"task": {"type": "tabular-classification"}, "dataset": dataset, "metrics": figures}
    return {
        "tags": ["privgate", f"privgate-{doc.outcome}"],
        "privgate": {
            "decision": doc.decision,
            "policy": plain(doc.policy.name, 80),
            "policy_digest": plain(doc.policy.digest, 80),
            "decided_at": plain(doc.decided_at, 40),
            "digests": {plain(k, 40): plain(v, 80) for k, v in doc.subject.digests.items()},
        },
        "model-index": [{"name": plain(doc.subject.name, 80) or "model", "results": [result]}],
    }


def _value(x: float) -> float | str:
    return x if math.isfinite(x) else str(x)
