from xml.etree import ElementTree as ET

from privgate import report


def suite(doc):
    return ET.fromstring(report.render(doc, "junit"))


def cases(doc):
    return {c.get("name"): [child.tag for child in c] for c in suite(doc).iter("testcase")}


def test_each_outcome_has_its_own_element(examples):
    doc = report.document(examples.tree_blocked(), hash_key=examples.KEY)

    found = cases(doc)

    assert found["dtp"] == ["failure"]
    assert found["deletion_capacity"] == ["error"]
    assert found["attack_tpr"] == ["system-out"]
    assert found["generalization_gap"] == []
    assert {k: suite(doc).get(k) for k in ("tests", "failures", "errors", "skipped")} == {
        "tests": "9",
        "failures": "2",
        "errors": "1",
        "skipped": "0",
    }


def test_a_rule_that_does_not_apply_is_skipped(examples):
    doc = report.document(examples.approved(), hash_key=examples.KEY)
    doc["findings"][-1]["applies"] = False

    assert cases(doc)["dtp"] == ["skipped"]


def test_nothing_judged_is_an_error_not_an_empty_suite(examples):
    doc = report.document(examples.approved(), hash_key=examples.KEY)
    doc["findings"] = []

    assert suite(doc).get("errors") == "1"


def test_a_failed_precondition_is_a_failure_of_its_own(examples):
    from privgate.evidence import Precondition

    broken = (Precondition("reproduces", "failed", "the recipe gives other probabilities"), *examples.CONTROLS[2:])
    doc = report.document(examples.approved(controls=broken), hash_key=examples.KEY)

    assert cases(doc)["precondition:reproduces"] == ["failure"]
    assert doc["decision"] == "blocked"
    assert "The recipe reproduces the registered model" in report.render(doc, "markdown")
