"""JUnit XML for CI servers: one case a rule."""

import re
from collections.abc import Mapping
from typing import Any
from xml.etree import ElementTree as ET

from privgate.report import words
from privgate.report.text import plain

_COMMAND = re.compile(r"::|##\[")


def render(doc: Mapping[str, Any]) -> str:
    """Return the report as JUnit XML.

    A broken rule is a ``failure``; one that could not be judged is an ``error``, because no number decided it; one that
    does not apply is ``skipped``. Preconditions are cases too: without them no number counts.
    """
    cases = [*words.preconditions(doc), *words.rules(doc)]
    suite = ET.Element("testsuite", name=_say(f"privgate {_subject(doc)}"), timestamp=_say(doc.get("decided_at")))
    ET.SubElement(ET.SubElement(suite, "properties"), "property", name="decision", value=_say(doc.get("decision")))
    tally = dict.fromkeys(("failure", "error", "skipped"), 0)
    for finding in cases:
        name = _say(finding.get("rule"))
        case = ET.SubElement(suite, "testcase", classname=_say(_policy(doc)), name=name, time="0")
        if kind := _kind(finding):
            tally[kind] += 1
            ET.SubElement(case, kind, message=_say(finding.get("message"))).text = _body(finding)
        elif finding.get("outcome") == "warned":
            ET.SubElement(case, "system-out").text = _say(f"warning: {finding.get('message')} {finding.get('waiver')}")
    if not cases:
        tally["error"] = 1
        case = ET.SubElement(suite, "testcase", classname=_say(_policy(doc)), name="policy", time="0")
        ET.SubElement(case, "error", message="no rule was judged")
    counts = (max(len(cases), 1), tally["failure"], tally["error"], tally["skipped"])
    for key, count in zip(("tests", "failures", "errors", "skipped"), counts, strict=True):
        suite.set(key, str(count))
    ET.indent(suite)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(suite, encoding="unicode") + "\n"


def _kind(finding: Mapping[str, Any]) -> str:
    if finding.get("applies") is False:
        return "skipped"
    # an outcome nobody knows is no pass
    return {"passed": "", "warned": "", "failed": "failure"}.get(str(finding.get("outcome")), "error")


def _body(finding: Mapping[str, Any]) -> str:
    parts = (finding.get("title"), f"measured: {words.measured(finding)}", f"limit: {words.limit(finding)}")
    return "\n".join(_say(p) for p in (*parts, finding.get("meaning"), finding.get("advice")) if p)


def _say(value: Any) -> str:
    """Return text without what XML 1.0 forbids and without commands of a CI log."""
    return _COMMAND.sub(lambda m: "\u200a".join(m.group()), plain(value))


def _subject(doc: Mapping[str, Any]) -> str:
    subject = doc.get("subject") or {}
    return " ".join(str(subject[k]) for k in ("name", "version") if subject.get(k)) or "unnamed"


def _policy(doc: Mapping[str, Any]) -> str:
    return f"privgate.{(doc.get('policy') or {}).get('name', 'policy')}"
