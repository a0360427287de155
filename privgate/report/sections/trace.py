"""The trace: digests, seeds, versions, and how to run the check again."""

from collections.abc import Mapping
from typing import Any

from privgate.report.blocks import Code, Facts, Section
from privgate.report.text import plain


def section(doc: Mapping[str, Any]) -> Section:
    """Return everything needed to check or repeat this run."""
    s, p = doc.get("subject") or {}, doc.get("policy") or {}
    detail = (doc.get("evidence") or {}).get("detail") or {}
    trace = detail.get("trace") or {}
    digests = {
        **(s.get("digests") or {}),
        f"policy {p.get('name', '')}": p.get("digest", ""),
        **(trace.get("digests") or {}),
    }
    blocks: list[Any] = [Facts([(str(k), plain(v, 80)) for k, v in digests.items() if v])]
    versions = trace.get("versions") or {"privgate": doc.get("privgate")}
    blocks.append(Facts([(str(k), plain(v, 80)) for k, v in versions.items()]))
    if trace.get("seeds"):
        blocks.append(Facts([("Seeds", plain(trace["seeds"], 300))]))
    if trace.get("command"):
        blocks.append(Code("To run this check again", plain(trace["command"], 500)))
    return Section("trace", "Trace", [b for b in blocks if not isinstance(b, Facts) or b.items])
