"""The overview of every model, and what a CI server reads of one."""

import re
from xml.etree import ElementTree as ET

import pytest

from privgate import report

NOW = "2026-11-21T10:00:00Z"


@pytest.fixture(scope="module")
def documents(runs):
    return {k: runs.document(k) for k in ("certified", "refuted", "direct", "rounded")}


def rows_of(html):
    return re.findall(r'<tr><th scope="row">.*?</tr>', html, flags=re.DOTALL)


def test_shows_verdict_policy_expiry_worst_person_and_last_check(documents):
    told_at = documents["certified"]["decided_at"][:16].replace("T", " ")
    (row,) = rows_of(report.index([{**documents["certified"], "expires": "2027-02-01T00:00:00Z"}], now=NOW))

    for told in ("credit, version 2", "Approved", "dtp-1", "2027-02-01 00:00 UTC", "1.43-fold", told_at):
        assert told in row


def test_what_needs_attention_comes_first_in_any_order_of_rows(documents):
    rows = [
        documents["certified"],
        {"document": documents["refuted"], "name": "b"},
        {"document": None, "name": "never"},
        {"document": {**documents["certified"], "expires": "2026-11-21T09:59:59Z"}, "name": "late"},
    ]
    html = report.index(rows, now=NOW)

    assert [re.search(r"<bdi>(\w+)", r)[1] for r in rows_of(html)] == ["never", "b", "late", "credit"]
    assert "Approved, with 1 warning, expired" in html
    assert "3 not approved, expired or never checked" in html
    assert report.index(rows[::-1], now=NOW) == html


@pytest.mark.parametrize(
    ("row", "said", "never"),
    [
        ({"expires": "soon"}, "expired", "no statement"),  # what cannot be read is over
        ({"name": "other", "problem": "belongs to another model"}, "Report unusable", "Approved"),
        ({"href": 'a b"/report.html'}, 'href="a%20b%22/report.html"', "a b"),
        *(({"href": href}, "credit", "<a ") for href in
          ("javascript:alert(1)", "//evil.test/", "/etc/passwd", "../up.html", "http://evil.test")),
        ({"document": None, "name": "<script>alert(1)</script>\u202e", "alias": "<b>", "problem": "<i>"},
         "Report unusable", "<script|<b>|\u202e"),
    ],
)  # fmt: skip
def test_a_row_says_what_is_wrong_and_holds_nothing_foreign(documents, row, said, never):
    doc = documents["certified"] | {k: row[k] for k in row if k == "expires"}
    (shown,) = rows_of(report.index([{"document": doc, **{k: v for k, v in row.items() if k != "expires"}}], now=NOW))

    assert said in shown
    assert not re.search(never, shown)


def test_a_page_without_a_date_or_without_models_says_so(documents):
    assert "Expiry was not checked" in report.index([documents["certified"]])
    assert "No model version was found." in report.index([])


@pytest.mark.parametrize(
    ("kind", "rule", "change", "tags"),
    [
        ("attacked", "dtp", {}, ["failure"]),
        ("attacked", "deletion_capacity", {}, ["error"]),
        ("attacked", "attack_tpr", {}, ["system-out"]),
        ("attacked", "generalization_gap", {}, []),
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
