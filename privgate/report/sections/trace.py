"""The trace: digests, seeds, versions, and how to run the check again."""

from collections.abc import Mapping

from privgate.report import front, reading
from privgate.report.blocks import Block, Code, Facts, Section
from privgate.report.reading import Doc
from privgate.report.text import plain


def section(doc: Doc) -> Section:
    """Return everything needed to check or repeat this run."""
    d = reading.detail(doc)
    trace, policy = reading.mapping(d.get("trace")), reading.mapping(doc.get("policy"))
    digests = {**reading.mapping(reading.subject(doc).get("digests")), **reading.mapping(trace.get("digests"))}
    items = [(f"Digest of the {plain(k, 40)}", plain(v, 80)) for k, v in digests.items() if v]
    items.append((f"Digest of policy {plain(policy.get('name'), 40)}", plain(policy.get("digest"), 80)))
    other = {k: v for k, v in trace.items() if k not in ("digests", "command")}
    versions = {**other, **reading.mapping(d.get("environment"))}
    facts = [(plain(k, 60).replace("_", " "), _told(v)) for k, v in versions.items()]
    facts.insert(0, ("report schema", plain(doc.get("schema"), 60)))
    if "privgate" not in versions:
        facts.insert(0, ("privgate", plain(doc.get("privgate"), 40)))
    blocks: list[Block] = [Facts([i for i in items if i[1]], wide=True), Facts([f for f in facts if f[1]])]
    if trace.get("command"):
        blocks.append(Code("To run this check again", plain(trace["command"], 500)))
    if front.verify(doc):
        blocks.append(Code("To verify the statement attached to this version", front.verify(doc)))
    return Section("trace", "Trace", blocks)


def _told(value: object) -> str:
    if isinstance(value, Mapping):
        return plain(", ".join(f"{k} {v}" for k, v in value.items()), 600)
    if isinstance(value, list | tuple):
        return plain(", ".join("none" if v is None else str(v) for v in value), 300)
    return plain(value, 160)
