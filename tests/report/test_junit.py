from xml.etree import ElementTree as ET

from privgate import report


def suite(doc):
    return ET.fromstring(report.render(doc, "junit"))


def cases(doc):
    return {c.get("name"): [child.tag for child in c] for c in suite(doc).iter("testcase")}


def test_each_outcome_has_its_own_element(runs):
    doc = runs.document("attacked")

    found = cases(doc)

    assert found["dtp"] == ["failure"]
    assert found["deletion_capacity"] == ["error"]
    assert found["attack_tpr"] == ["system-out"]
    assert found["generalization_gap"] == []
    assert {k: suite(doc).get(k) for k in ("tests", "failures", "errors", "skipped")} == {
        "tests": "20",
        "failures": "2",
        "errors": "2",
        "skipped": "0",
    }


def test_a_rule_that_does_not_apply_is_skipped(runs):
    doc = runs.document("certified")
    doc["findings"][-1]["applies"] = False

    assert cases(doc)["dtp"] == ["skipped"]


def test_nothing_judged_is_an_error_not_an_empty_suite(runs):
    doc = runs.document("certified")
    doc["findings"] = []

    assert suite(doc).get("errors") == "1"


def test_a_failed_precondition_is_a_failure_of_its_own(runs):
    doc = runs.document("stopped")
    assert cases(doc)["precondition:depends_on_data"] == ["error"]

    doc["outcome"] = "failed"
    for finding in doc["findings"]:
        finding["outcome"] = "failed" if finding["rule"] == "precondition:depends_on_data" else finding["outcome"]
    assert cases(doc)["precondition:depends_on_data"] == ["failure"]
    assert "The recipe depends on its data" in report.render(doc, "markdown")
