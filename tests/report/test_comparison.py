import pytest

from privgate import report
from privgate.errors import UsageError


@pytest.fixture(scope="module")
def pair(runs):
    return runs.document("before"), runs.document("certified")


def causes(comparison):
    return {c["cause"]: c["changed"] for c in comparison["causes"]}


def test_names_the_cause_that_changed_and_only_that(pair):
    found = causes(report.compare(*pair))

    assert found["hyperparameters"] is True
    assert [k for k, v in found.items() if v] == ["hyperparameters"]


def test_says_rule_by_rule_what_moved_and_how_the_risk_shifted(pair):
    found = report.compare(*pair)

    assert found["rules"][0]["change"] == "better"
    for side, doc in zip(("old", "new"), pair, strict=True):
        assert found["distribution"]["pdtp"][side] == doc["units"]["figures"]["pdtp"]["quantiles"]
    assert "The decision went from refused to approved" in found["summary"]


def test_backwards_is_worse(pair):
    assert report.compare(*reversed(pair))["rules"][0]["change"] == "worse"


def test_overlapping_intervals_are_neither_better_nor_worse(pair):
    old, new = (dict(d, findings=[dict(pair[1]["findings"][-1], low=low, high=high)]) for d, (low, high) in
                zip(pair, ((0.5, 0.9), (0.6, 0.95)), strict=True))  # fmt: skip

    assert report.compare(old, new)["rules"][0]["change"] == "no clear change"


def test_more_is_better_where_the_limit_is_a_least_one(pair):
    old, new = (
        dict(d, findings=[dict(pair[1]["findings"][-1], direction="min", low=v, high=v)])
        for d, v in zip(pair, (10, 30), strict=True)
    )

    assert report.compare(old, new)["rules"][0]["change"] == "better"


def test_what_was_not_measured_is_not_compared(pair):
    old, new = pair[0], dict(pair[1], findings=[dict(pair[1]["findings"][-1], low="nan", high="nan")])

    assert report.compare(old, new)["rules"][0]["change"].startswith("not comparable")


def test_rules_that_came_and_went_are_listed(pair):
    old, new = (dict(d, findings=[dict(d["findings"][-1], rule=name)]) for d, name in zip(pair, "ab", strict=True))

    assert {r["rule"]: r["change"] for r in report.compare(old, new)["rules"]} == {"b": "new rule", "a": "rule removed"}


def test_changed_sources_beside_equal_parameters_are_changed_code(pair):
    old, new = pair
    same = dict(new, subject={**old["subject"], "digests": new["subject"]["digests"]})

    assert causes(report.compare(old, same))["training code"] is True


def test_code_of_a_function_whose_parameters_changed_too_is_not_known(pair):
    def function(doc, value):
        recipe = {"kind": "function", "fit": "mine:fit", "params": {"depth": value}}
        return dict(doc, subject={**doc["subject"], "recipe": recipe})

    assert causes(report.compare(function(pair[0], 1), function(pair[1], 2)))["training code"] is None


@pytest.mark.parametrize("format_", ["html", "markdown"])
def test_a_comparison_renders_from_its_own_json_and_in_a_report(pair, format_):
    comparison = report.compare(*pair)

    alone = report.render(comparison, format_)
    within = report.render(dict(pair[1], comparison=comparison), format_)

    assert "hyperparameters" in alone
    assert "hyperparameters" in within
    assert report.render(comparison, format_) == alone


def test_a_comparison_has_no_junit(pair):
    with pytest.raises(UsageError):
        report.render(report.compare(*pair), "junit")


def test_the_baseline_becomes_part_of_the_report(pair, runs):
    doc = runs.document("certified", baseline=pair[0])

    assert doc["comparison"]["old"]["version"] == "1"
    assert "Since version 1" in report.render(doc, "html")
