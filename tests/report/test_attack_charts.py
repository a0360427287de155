"""What the attack section draws, and says instead where there is nothing to draw."""

import pytest

from privgate.report import attack_sections, front
from privgate.report.attack_sections import ran
from privgate.report.blocks import Chart, Text
from privgate.report.report_schema import read


@pytest.fixture
def doc(runs):
    return runs.document("attacked")


def membership(doc):
    return read(doc).evidence.membership


def test_labels_and_groups_carry_the_names_that_were_recorded(doc):
    strongest = ran(membership(doc).attacks)[0]
    (chart,) = attack_sections.groups(strongest)

    named = [row[0] for row in chart.table.rows]
    recorded = [cell.name for cell in (*strongest[1].classes, *strongest[1].groups)]
    # a column that has no name but a number is said to be one
    assert named == [f"column {name}" if name[0].isdigit() else name for name in recorded]
    assert len(named) > 3


@pytest.mark.parametrize(("pdtp", "kind"), [([0.0, 0.0, 0.0], Text), ([0.0, 0.1, 0.2], Chart)])
def test_accuracy_is_set_against_pdtp_where_pdtp_varies(doc, pdtp, kind):
    found = {"points": [[x, 0.5 + x] for x in pdtp], "pearson": None, "kind": "point estimates"}
    doc["evidence"]["membership"]["against_pdtp"] = found

    (block,) = attack_sections.against_pdtp(membership(doc).against_pdtp)

    assert isinstance(block, kind)
    if kind is Text:
        assert "all have the same, 0 nats" in block.text


def attacks(doc, *given):
    """Put other figures into the attacks that ran, in their order: (title, auc, share found at 1 %, problem)."""
    for attack, (title, auc, found, problem) in zip(doc["evidence"]["membership"]["attacks"], given, strict=False):
        attack |= {"title": title, "problem": ""}
        attack["figures"] |= {
            "auc": auc,
            "roc": [[0.0, 0.0], [0.01, found], [0.5, 0.9], [1.0, 1.0]],
            "tpr_at_fpr": [{"fpr": 0.01, "value": None if problem else found, "problem": problem}],
            "accuracy": {"value": 0.5, "low": 0.4, "high": 0.6},
        }
    doc["evidence"]["membership"]["attacks"] = doc["evidence"]["membership"]["attacks"][: len(given)]
    return ran(membership(doc).attacks)


def test_the_caption_names_the_attack_that_is_best_at_what_it_says(doc):
    # four are better by AUC; the fifth finds most at the rate that the sentence is about, and is drawn
    others = [(f"common {i}", 0.9 - i / 100, 0.02, "") for i in range(4)]
    (chart,) = attack_sections.curves(attacks(doc, *others, ("rare", 0.6, 0.3, "")))

    assert "rare, finds 30" in chart.reading
    assert "rare" in {row[0] for row in chart.table.rows}


def test_a_rate_that_was_not_resolved_is_not_called_the_best(doc):
    (chart,) = attack_sections.curves(attacks(doc, ("first", 0.9, 0.02, "too few")))

    assert chart.reading.startswith("The strongest attack is first")


def test_an_attack_that_did_not_run_is_listed_with_its_reason_and_not_as_tested(doc, runs):
    from privgate.report.report_document import render

    for attack in doc["evidence"]["membership"]["attacks"]:
        attack |= {"figures": None, "problem": "needs at least 2,500 records a side"}

    page = render(doc, "html")
    assert "needs at least 2,500 records a side" in page
    assert "Not tested: membership inference" in page


@pytest.mark.parametrize("name", ["near_overlap", "same_population"])
def test_page_one_says_that_candidates_are_unfit_however_many_rules_there_are(doc, name):
    said = "candidates are not what they should be; no attack is judged by them"
    (held,) = (f for f in doc["findings"] if f["rule"] == f"precondition:{name}")
    doc["findings"] += [{**doc["findings"][-1], "rule": f"r{i}"} for i in range(12)]

    shown = {}
    for outcome in ("warned", "passed"):
        held |= {"outcome": outcome, "message": said}
        shown[outcome] = front.view(read(doc))["not_shown"]

    assert any(said in line.lower() for line in shown["warned"])
    assert not any("candidates are not" in line.lower() for line in shown["passed"])
