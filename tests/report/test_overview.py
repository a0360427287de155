import re

import pytest

from privgate import report

NOW = "2026-11-21T10:00:00Z"


@pytest.fixture(scope="module")
def documents(runs):
    return {k: runs.document(k) for k in ("certified", "refuted", "direct", "rounded")}


def rows_of(html):
    return re.findall(r'<tr><th scope="row">.*?</tr>', html, flags=re.DOTALL)


def test_shows_verdict_policy_expiry_worst_unit_and_last_check(documents):
    told_at = documents["certified"]["decided_at"][:16].replace("T", " ")
    (row,) = rows_of(report.index([{**documents["certified"], "expires": "2027-02-01T00:00:00Z"}], now=NOW))

    for told in ("credit, version 2", "Approved", "dtp-1", "2027-02-01 00:00 UTC", "1.43-fold", told_at):
        assert told in row


def test_what_needs_attention_comes_first(documents):
    html = report.index(
        [
            documents["certified"],
            {"document": documents["refuted"], "name": "b"},
            {"document": None, "name": "never"},
            {"document": {**documents["certified"], "expires": "2026-11-21T09:59:59Z"}, "name": "late"},
        ],
        now=NOW,
    )

    names = [re.search(r"<bdi>(\w+)", r)[1] for r in rows_of(html)]
    assert names == ["never", "b", "late", "credit"]
    assert "Approved, with 1 warning, expired" in html
    assert "3 not approved, expired or never checked" in html


def test_an_unreadable_expiry_is_over(documents):
    assert "expired" in rows_of(report.index([{**documents["certified"], "expires": "soon"}], now=NOW))[0]


def test_without_a_date_the_page_says_that_expiry_was_not_checked(documents):
    assert "Expiry was not checked" in report.index([documents["certified"]])


def test_a_report_of_another_model_is_unusable(documents):
    html = report.index([{"document": documents["certified"], "name": "other", "problem": "belongs to another model"}])

    assert "Report unusable" in html
    assert "Approved" not in html


@pytest.mark.parametrize(
    "href", ["javascript:alert(1)", "//evil.test/", "/etc/passwd", "../up.html", "http://evil.test"]
)
def test_links_lead_only_to_reports_beside_the_page(documents, href):
    assert "<a " not in rows_of(report.index([{"document": documents["certified"], "href": href}]))[0]


def test_a_link_with_odd_characters_is_encoded(documents):
    html = report.index([{"document": documents["certified"], "href": 'a b"/report.html'}])

    assert 'href="a%20b%22/report.html"' in html


def test_an_empty_registry_is_said_to_be_empty():
    assert "No model version was found." in report.index([])


def test_the_same_rows_give_the_same_bytes_in_any_order(documents):
    rows = list(documents.values())

    assert report.index(rows, now=NOW) == report.index(rows[::-1], now=NOW)


def test_hostile_names_stay_text(documents):
    html = report.index(
        [{"document": None, "name": "<script>alert(1)</script>\u202e", "alias": "<b>", "problem": "<i>"}]
    )

    assert "<script" not in html
    assert "<b>" not in html
    assert "\u202e" not in html
