"""JUnit XML for CI servers: one case a rule."""

import re
from xml.etree import ElementTree as ET

from privgate.report import assertions
from privgate.report.assertions import Assertion
from privgate.report.report_schema import ReportDocument
from privgate.report.text import plain
from privgate.verdict import Finding, Outcome

_COMMAND = re.compile(r"::|##\[")


def render(doc: ReportDocument) -> str:
    """Return the report as JUnit XML.

    A broken rule is a ``failure``; one that could not be judged is an ``error``, because no number decided it; one that
    does not apply is ``skipped``. Preconditions are cases too: without them no number counts.
    """
    cases = assertions.of(doc)
    name = f"privgate {doc.subject.name} {doc.subject.version}".strip()
    suite = ET.Element("testsuite", name=_say(name), timestamp=_say(doc.decided_at))
    ET.SubElement(ET.SubElement(suite, "properties"), "property", name="decision", value=_say(doc.decision))
    tally = dict.fromkeys(("failure", "error", "skipped"), 0)
    policy = _say(f"privgate.{doc.policy.name}")
    for asserted in cases:
        finding = asserted.finding
        case = ET.SubElement(suite, "testcase", classname=policy, name=_say(finding.rule), time="0")
        said = _say(f"{asserted.asked}: {asserted.sentence}")
        if kind := _kind(finding):
            tally[kind] += 1
            ET.SubElement(case, kind, message=said).text = _body(asserted)
        elif finding.outcome is Outcome.WARNED:
            ET.SubElement(case, "system-out").text = f"warning: {said}"
    if not cases:
        tally["error"] = 1
        case = ET.SubElement(suite, "testcase", classname=policy, name="policy", time="0")
        ET.SubElement(case, "error", message="no rule was judged")
    counts = (max(len(cases), 1), tally["failure"], tally["error"], tally["skipped"])
    for key, count in zip(("tests", "failures", "errors", "skipped"), counts, strict=True):
        suite.set(key, str(count))
    ET.indent(suite)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(suite, encoding="unicode") + "\n"


def _kind(finding: Finding) -> str:
    if not finding.applies or finding.outcome is Outcome.NOT_NEEDED:
        return "skipped"
    return {Outcome.FAILED: "failure", Outcome.INCONCLUSIVE: "error"}.get(finding.outcome, "")


def _body(a: Assertion) -> str:
    return "\n".join(_say(p) for p in (a.finding.meaning, a.finding.advice) if p)


def _say(value: str) -> str:
    """Return text without what XML 1.0 forbids and without commands of a CI log."""
    return _COMMAND.sub(lambda m: "\u200a".join(m.group()), plain(value))
