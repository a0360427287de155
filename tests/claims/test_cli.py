"""``privgate dp``: plain tables for people, JSON for machines, exit codes for neither to guess."""

import json

import pytest
from click.testing import CliRunner

from privgate.__main__ import run
from privgate.cli.dp import dp


def call(*arguments):
    found = CliRunner().invoke(dp, list(arguments), standalone_mode=False, catch_exceptions=False)
    return found.output


def test_bounds_prints_the_published_numbers_with_their_hypotheses():
    text = call("bounds", "--epsilon", "2", "--delta", "0", "--prior", "0.5")
    for words in ("0.8808", "0.7616", "added or removed", "independently", "loss within [0, 1]"):
        assert words in text


def test_every_bound_in_json_names_prior_adjacency_and_sampling_in_words():
    answer = json.loads(call("bounds", "--epsilon", "1", "--delta", "1e-5", "--fpr", "0.01", "--json"))
    for row in answer["bounds"]:
        words = " ".join(row["assumptions"])
        assert "guarantee compares data sets" in words
        assert "records enter" in words
        assert 0 <= row["bound"] <= 1
        assert row["prior"] is not None or "TPR" in row["name"]


def test_no_bound_on_positive_accuracy_without_an_fpr_when_delta_is_above_0():
    rows = json.loads(call("bounds", "--epsilon", "1", "--delta", "1e-5", "--json"))["bounds"]
    assert not [r for r in rows if "positive" in r["name"]]
    assert "pass --fpr" in call("bounds", "--epsilon", "1", "--delta", "1e-5")
    rows = json.loads(call("bounds", "--epsilon", "1", "--delta", "1e-5", "--fpr", "0.01", "--json"))["bounds"]
    assert {r["fpr"] for r in rows if "positive" in r["name"]} == {0.01}


@pytest.mark.parametrize(
    "arguments",
    [
        ["bounds", "--epsilon", "-1", "--delta", "0"],
        ["bounds", "--delta", "0"],
        ["bounds", "--epsilon", "1", "--delta", "0", "--prior", "0"],
        ["bounds"],
        ["bounds", "--epsilon", "1", "--max-accuracy", "0.6"],
        ["audit", "nowhere:fit", "--data", "nowhere:data", "--delta", "0", "--adjacency", "add_remove"],
    ],
)
def test_calls_that_cannot_be_answered_end_with_code_2(arguments, capsys):
    assert run(["dp", *arguments]) == 2
    said = capsys.readouterr().err.removeprefix("dp audit: reading libraries, then nowhere:fit\n")
    assert said.startswith(("error: ", "Usage"))


def test_a_goal_is_answered_by_the_largest_epsilon():
    answer = json.loads(call("bounds", "--max-accuracy", "0.6", "--delta", "0", "--json"))
    assert answer["epsilon"] == pytest.approx(0.405465, abs=1e-6)
    assert "make_private_with_epsilon" in call("bounds", "--max-accuracy", "0.6")


def test_capacity_prints_the_reference_table():
    text = call("bounds", "--deletions", "--epsilon", "1", "--delta", "0", "--prior", "0.001")
    for words in ("rho 0.5, prior 0.001, capacity 255", "rho 0.9, prior 0.001, capacity 38", "epsilon 4 4"):
        assert words in text
    rows = json.loads(call("bounds", "--deletions", "--epsilon", "1", "--delta", "1e-6", "--json"))["capacity"]
    assert len(rows) == 20
    assert "no statement holds for all" in call("bounds", "--deletions", "--epsilon", "1", "--delta", "1e-6")
