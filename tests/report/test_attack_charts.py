"""What the attack section draws, and says instead where there is nothing to draw."""

import pytest

from privgate.report import attack_charts
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
