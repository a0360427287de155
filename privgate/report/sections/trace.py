"""The trace: digests, seeds, versions, and how to run the check again."""

from privgate.evidence import RunTrace
from privgate.evidence.figures import number
from privgate.report import front
from privgate.report.blocks import Block, Code, Facts, Section
from privgate.report.report_schema import SCHEMA, ReportDocument
from privgate.report.text import plain


def section(doc: ReportDocument) -> Section:
    """Return everything needed to check or repeat this run."""
    trace = doc.evidence.run.trace or RunTrace(versions={})
    digests = {**doc.subject.digests, **trace.digests}
    items = [(f"Digest of the {plain(k, 40)}", plain(v, 80)) for k, v in digests.items() if v]
    items.append((f"Digest of policy {plain(doc.policy.name, 40)}", plain(doc.policy.digest, 80)))
    facts = [
        ("privgate", plain(doc.privgate, 40)),
        ("report schema", SCHEMA),
        ("versions", plain(", ".join(f"{k} {v}" for k, v in trace.versions.items()), 600)),
        ("system", plain(trace.system, 160)),
        ("isolation of training code", plain(doc.evidence.run.isolation, 80)),
        ("seeds", plain(", ".join("none" if v is None else str(v) for v in trace.seeds), 300)),
        ("training calls", number(trace.training_calls) if trace.training_calls else ""),
    ]
    blocks: list[Block] = [Facts([i for i in items if i[1]], wide=True), Facts([f for f in facts if f[1]])]
    if trace.command:
        blocks.append(Code("To run this check again", plain(trace.command, 500)))
    if front.verify(doc):
        blocks.append(Code("To verify the statement attached to this version", front.verify(doc)))
    return Section("trace", "Trace", blocks)
