import json

import pytest

from privgate import report
from privgate.__main__ import run


@pytest.fixture(scope="module")
def pair(runs):
    return runs.document("before"), runs.document("certified")


def causes(comparison):
    return {c["cause"]: c["changed"] for c in comparison["causes"]}


def test_names_the_cause_that_changed_how_the_risk_shifted_and_where_the_decision_went(pair, runs):
    found = report.compare(*pair)

    assert [k for k, changed in causes(found).items() if changed] == ["hyperparameters"]
    assert found["rules"][0]["change"] == "better"
    measured = runs.document("shares"), runs.document("certified")  # everybody; the refused one stopped at one person
    shifted = report.compare(*measured)
    for side, doc in zip(("old", "new"), measured, strict=True):
        assert shifted["distribution"]["pdtp"][side] == doc["units"]["figures"]["pdtp"]["quantiles"]
    assert "The decision went from refused to approved" in found["summary"]
    assert report.compare(*reversed(pair))["rules"][0]["change"] == "worse"


@pytest.mark.parametrize(
    ("old", "new", "change"),
    [
        ({"low": 0.5, "high": 0.9}, {"low": 0.6, "high": 0.95}, "no clear change"),  # they overlap
        ({"low": 10, "high": 10, "direction": "min"}, {"low": 30, "high": 30, "direction": "min"}, "better"),
        ({}, {"low": "nan", "high": "nan"}, "not comparable: not measured"),
        ({}, {"request": "dtp(of=another)"}, "not comparable: another measurement"),
    ],
)
def test_better_and_worse_are_said_only_of_intervals_apart(pair, old, new, change):
    sides = [pair[1] | {"findings": [pair[1]["findings"][-1] | given]} for given in (old, new)]

    assert report.compare(*sides)["rules"][0]["change"] == change


def test_rules_that_came_and_went_are_listed(pair):
    old, new = (dict(d, findings=[dict(d["findings"][-1], rule=name)]) for d, name in zip(pair, "ab", strict=True))

    assert {r["rule"]: r["change"] for r in report.compare(old, new)["rules"]} == {"b": "new rule", "a": "rule removed"}


def test_changed_sources_beside_equal_parameters_are_changed_code_and_else_it_is_not_known(pair):
    old, new = pair
    same = dict(new, subject={**old["subject"], "digests": new["subject"]["digests"]})

    def function(doc, value):
        recipe = {"kind": "function", "fit": "mine:fit", "params": {"depth": value}}
        return dict(doc, subject={**doc["subject"], "recipe": recipe})

    assert causes(report.compare(old, same))["training code"] is True
    unsaid = dict(new, subject={**new["subject"], "digests": {}})
    assert causes(report.compare(old, unsaid))["training data"] is None
    assert causes(report.compare(function(old, 1), function(new, 2)))["training code"] is None


def test_what_changed_is_told_alone_and_in_the_report_of_the_version_after_it(pair, runs, tmp_path, capsys):
    doc = runs.document("certified", baseline=pair[0])

    assert "hyperparameters" in "\n".join(report.differences(report.compare(*pair)))
    assert all("hyperparameters" in report.render(doc, form) for form in ("html", "markdown"))
    assert doc["comparison"]["old"]["version"] == "1"
    assert "Since version 1" in report.render(doc, "html")
    files = [tmp_path / "old.json", tmp_path / "new.json"]
    for file, document in zip(files, pair, strict=True):
        file.write_text(json.dumps(document))
    assert run(["report", str(files[1]), "--compare", str(files[0]), "--format", "text"]) == 0
    assert "hyperparameters" in capsys.readouterr().out
