"""The table of what guarantees cost, in its short form: one row of each kind, resumed, and what is written of it."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from utility.learners import ROWS
from utility.measure import measured
from utility.table import HEADINGS, written
from utility.tables import NAMES, table

SMALL = {"seeds": 1, "people": 2, "shadows": 4, "targets": 2}


def row(word, data="breast cancer"):
    return next(r for r in ROWS if r.data == data and word in r.name)


def test_every_data_set_has_every_learner():
    kinds = ("defaults", "Sharded", "boosting", "KeyedForest", "logistic", "ε = 8", "ε = 1")

    assert all(any(k in r.name for r in ROWS if r.data == data) for data in NAMES for k in kinds)
    assert len({(r.data, r.name) for r in ROWS}) == len(ROWS)


def test_features_lie_in_the_declared_ranges():
    found = table("breast cancer").data(0)

    assert found.X.min() >= 0
    assert found.X.max() <= 1
    assert len(found.y) == 400


@pytest.mark.slow
@pytest.mark.parametrize(("word", "bounded"), [("Sharded", True), ("logistic", True), ("forest, library", False)])
def test_a_row_says_what_is_proven(word, bounded):
    made = measured(row(word), table("breast cancer").at_most(120), **SMALL)

    assert made["problems"] == {}
    assert 0.5 < made["use"]["accuracy"][0] <= 1
    assert made["proof"]["people"] == 2
    assert (made["proof"]["within"] == 2) == bounded
    assert made["attack"]["people"] == 120
    assert made["deletion"]["seconds"] > 0
    line = written([made]).splitlines()[-1]
    assert line.count("|") == len(HEADINGS) + 1


def test_what_cannot_be_measured_is_said_and_not_made_up():
    class Broken:
        def fit(self, X, y):
            raise ValueError("no such learner")

    made = measured(
        type(row("forest"))("breast cancer", "broken", lambda *_: Broken()), table("breast cancer"), **SMALL
    )

    assert set(made["problems"]) == {"use", "deletion", "attack", "proof"}
    assert "use: ValueError: no such learner" in written([made])
    assert "0." not in written([made]).splitlines()[2]


@pytest.mark.parametrize(("part", "measured_again"), [("attack", 0), ("all", 8)])
def test_what_died_is_tried_again_and_other_rows_are_not(part, measured_again, tmp_path, monkeypatch):
    from utility import __main__ as command

    asked = []

    def apart(learner, *_):
        asked.append(learner)
        return {"data": learner.data, "learner": learner.name, "guarantee": "", "problems": {part: "not done in 1 s"}}

    monkeypatch.setattr(command, "_apart", apart)
    for _ in range(2):
        ran = CliRunner().invoke(command.main, ["--only", "DP-SGD", "--out", str(tmp_path / "rows.jsonl")])
        assert ran.exit_code == 0, ran.output

    assert len(asked) == 8 + measured_again
    assert "not done in 1 s" in ran.output


def test_a_row_is_measured_again_when_what_it_rests_on_changes_and_what_died_is_an_error(tmp_path, monkeypatch):
    from utility import __main__ as command

    asked, said = [], {}
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- utility -->\nold\n<!-- end of utility -->\nafter\n")

    def apart(learner, *_):
        asked.append(learner)
        return {"data": learner.data, "learner": learner.name, "guarantee": "", "problems": said}

    def run(*more):
        asked.clear()
        options = ["--only", "KeyedForest", "--out", str(tmp_path / "rows.jsonl"), "--table", str(page), *more]
        done = CliRunner().invoke(command.main, options)
        return done.exit_code, len(asked), done.stderr

    monkeypatch.setattr(command, "_apart", apart)
    assert run("--most-minutes", "1e-9")[:2] == (1, 0)
    assert run()[:2] == (0, 4)
    assert run()[:2] == (0, 0)
    assert page.read_text().startswith("before\n<!-- utility -->\n\n| data | learner |")
    assert page.read_text().endswith("|\n\n<!-- end of utility -->\nafter\n")

    monkeypatch.setattr(command.kept, "product", lambda: "another")
    said["all"] = "ended with -9"
    code, measured_again, told = run()
    assert (code, measured_again) == (1, 4)
    assert "Adult, KeyedForest, depth 6: changed since: privgate" in told
    assert "4 died: Adult, KeyedForest" in told


def test_an_odd_number_of_targets_is_refused():
    assert CliRunner().invoke(command(), ["--targets", "3"]).exit_code == 2


def command():
    from utility.__main__ import main

    return main


def test_what_was_proven_when_verdicts_were_frozen_is_proven():
    """The page's table beside the one that was kept: nobody's proof, and nobody's limit, is lost."""
    root = Path(__file__).resolve().parent

    def proven(page):
        rows = [
            line.strip("| ").split(" | ") for line in page.read_text(encoding="utf-8").splitlines() if " | " in line
        ]
        start = rows.index(list(HEADINGS))
        return {(r[0], r[1]): (r[6] != "none", r[7]) for r in rows[start + 2 :] if len(r) == len(HEADINGS)}

    kept, now = proven(root / "goldens" / "data" / "any-model.md"), proven(root.parent / "docs" / "any-model.md")
    assert len(kept) >= 20
    assert {name: now[name] for name in kept} == kept
