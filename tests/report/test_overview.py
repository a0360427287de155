"""What a CI server reads of a report."""

from xml.etree import ElementTree as ET

import pytest

from privgate import report


@pytest.mark.parametrize(
    ("kind", "rule", "change", "tags"),
    [
        ("attacked", "dtp", {}, ["failure"]),
        ("attacked", "deletion_capacity", {}, ["error"]),
        ("attacked", "attack_tpr", {}, ["system-out"]),
        ("attacked", "by_group", {}, ["system-out"]),
        ("attacked", "dtp", {"applies": False}, ["skipped"]),
        ("stopped", "precondition:depends_on_data", {}, ["error"]),
        ("stopped", "precondition:depends_on_data", {"outcome": "failed"}, ["failure"]),
    ],
)
def test_each_outcome_has_its_own_element_in_junit_and_each_element_is_counted(runs, kind, rule, change, tags):
    doc = runs.document(kind)
    next(f for f in doc["findings"] if f["rule"] == rule).update(change)
    suite = ET.fromstring(report.render(doc, "junit"))

    assert [[child.tag for child in c] for c in suite.iter("testcase") if c.get("name") == rule] == [tags]
    counted = {"tests": "testcase", "failures": "failure", "errors": "error", "skipped": "skipped"}
    assert {k: int(suite.get(k)) for k in counted} == {k: len([*suite.iter(tag)]) for k, tag in counted.items()}
    assert ET.fromstring(report.render(doc | {"findings": []}, "junit")).get("errors") == "1"
