"""What the attack section draws, and says instead where there is nothing to draw."""

import pytest

from privgate.report import attack_charts, front
from privgate.report.blocks import Chart, Text


def test_labels_and_groups_carry_the_names_that_were_recorded():
    figure = {"value": 0.7, "low": 0.6, "high": 0.8, "n": 300}
    parts = {
        "classes": [{"name": "label >50K", **figure}],
        "groups": [{"name": "sex F", **figure}],
    }

    (chart,) = attack_charts.groups({"title": "An attack", **parts})

    assert [row[0] for row in chart.table.rows] == ["label >50K", "sex F"]


@pytest.mark.parametrize(("pdtp", "kind"), [([0.0, 0.0, 0.0], Text), ([0.0, 0.1, 0.2], Chart)])
def test_accuracy_is_set_against_pdtp_where_pdtp_varies(pdtp, kind):
    found = {"points": [[x, 0.5 + x] for x in pdtp], "pearson": None, "kind": "point estimates"}

    (block,) = attack_charts.all_by_pdtp(found)

    assert isinstance(block, kind)
    if kind is Text:
        assert "all have the same, 0 nats" in block.text


def attacked(name, auc, found):
    curve = [[0.0, 0.0], [0.01, found], [0.5, 0.9], [1.0, 1.0]]
    return {"name": name, "title": name, "auc": auc, "roc": curve, "tpr_at_fpr": {"0.01": {"value": found}}}


def test_the_caption_names_the_attack_that_is_best_at_what_it_says():
    # four are better by AUC; the fifth finds most at the rate that the sentence is about, and is drawn
    others = [attacked(f"common {i}", 0.9 - i / 100, 0.02) for i in range(4)]
    (chart,) = attack_charts.curves([*others, attacked("rare", 0.6, 0.3)])

    assert "rare, finds 30" in chart.reading
    assert "rare" in {row[0] for row in chart.table.rows}


def test_a_rate_that_was_not_resolved_is_not_called_the_best():
    first = attacked("first", 0.9, 0.02) | {"tpr_at_fpr": {"0.01": {"value": None, "problem": "too few"}}}
    (chart,) = attack_charts.curves([first])

    assert chart.reading.startswith("The strongest attack is first")


@pytest.mark.parametrize("name", ["near_overlap", "same_population"])
def test_page_one_says_that_candidates_are_unfit_however_many_rules_there_are(name):
    said = "candidates are not what they should be; no attack is judged by them"
    finding = {"rule": f"precondition:{name}", "outcome": "warned", "message": said}
    rules = [{"rule": f"r{i}", "outcome": "failed", "metric": "dtp", "message": "x"} for i in range(12)]

    shown = front.view({"outcome": "failed", "findings": [finding, *rules]})["not_shown"]

    assert any(said in line.lower() for line in shown)
    fit = front.view({"outcome": "failed", "findings": [{**finding, "outcome": "passed"}, *rules]})["not_shown"]
    assert not any("candidates are not" in line.lower() for line in fit)
