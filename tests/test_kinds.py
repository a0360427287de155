"""The table of kinds: what is refused in one sentence, and the command that measures it."""

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from kinds import rests
from kinds.__main__ import _named, main
from kinds.apart import apart
from kinds.catalogue import KINDS
from kinds.measure import measured
from kinds.table import right

PAGE = Path(__file__).resolve().parents[1] / "docs" / "kinds.md"

REFUSED = [k for k in KINDS if k.expects == "refusal"]


@pytest.fixture
def data(shared_data, monkeypatch):
    monkeypatch.setenv("PRIVGATE_DATA", str(shared_data("adult.csv.gz").parent))


def test_a_whole_name_asks_for_one_kind_and_a_part_of_names_for_all_that_have_it():
    assert [k.name for k in _named(("logistic",))] == ["logistic"]
    assert {k.name for k in _named(("lgb", "boosting, text"))} == {"lgb.train", "histogram boosting, text and missing"}
    assert _named(()) == list(KINDS)


@pytest.mark.quick(1)
@pytest.mark.usefixtures("data")
@pytest.mark.parametrize("kind", REFUSED, ids=lambda k: k.name)
def test_what_has_no_answer_about_one_person_is_refused_in_one_sentence(kind, tmp_path):
    row = measured(kind, n=kind.small, ledger=tmp_path, refereed=False)

    assert row["verdict"] == "refused", row
    assert right(row)
    assert "\n" not in row["said"]
    assert row.get("trainings", 0) == 0


def test_the_table_of_the_documentation_has_a_row_for_every_kind():
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    told = {line.split("|")[2].strip() for line in lines if line.startswith("| ")}

    assert {k.name for k in KINDS} <= told
    assert not [line for line in lines if "traceback" in line.lower()]


@pytest.fixture
def command(monkeypatch, tmp_path):
    """Return the command over two kinds, whose rows are made at once; and the names that it measured."""
    ran = []

    def quickly(work, name, *_, limit):
        ran.append(name)
        return {"verdict": "passed", "said": "well", "cpu": 0.0}

    monkeypatch.setattr("kinds.__main__.apart", quickly)
    monkeypatch.setattr("kinds.__main__.import_once", lambda: None)
    monkeypatch.setattr("privgate.registry.local_registry", str)

    def run(*more):
        ran.clear()
        options = ["--only", "ridge", "--only", "lasso", "--out", str(tmp_path / "kinds"), *more]
        return CliRunner().invoke(main, options), sorted(ran)

    return run


def test_a_row_is_measured_again_when_what_it_rests_on_changes(command, monkeypatch):
    assert command()[1] == ["lasso", "ridge"]
    assert command()[1] == []

    own, shared = rests._catalogue()
    monkeypatch.setattr(rests, "_catalogue", lambda: ({**own, "ridge": "written otherwise"}, shared))
    done, ran = command()
    assert ran == ["ridge"]
    assert "ridge: changed since: the kind" in done.stderr
    assert "1 of 2 to measure; 1 passed over" in done.stderr

    monkeypatch.setattr(rests.kept, "product", lambda: "another")
    done, ran = command("--only-table")
    assert ran == []
    assert done.stdout.count("not run") == 3  # both, and the count of them
    done, ran = command()
    assert ran == ["lasso", "ridge"]
    assert "lasso: changed since: privgate" in done.stderr


def test_what_dies_or_takes_too_long_is_a_row():
    done = apart(dict, [("verdict", "passed")], limit=60.0)
    died = apart(os._exit, 3, limit=60.0)
    slow = apart(sum, range(10**12), limit=0.5)

    assert done["verdict"] == "passed"
    assert died["verdict"] == "died"
    assert died["said"].endswith("(exit code 3)")
    assert slow["verdict"] == "too slow"
    assert 0.5 <= slow["cpu"] < 30
