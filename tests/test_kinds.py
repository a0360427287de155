"""The table of kinds in its short form: what is refused in one sentence, what is decided, and what refits say of it."""

import pytest

from kinds.catalogue import KINDS
from kinds.measure import measured
from kinds.table import DECIDED, right, written

REFUSED = [k for k in KINDS if k.expects == "refusal"]
#: in every run, and in the slow suite
SHORT, SLOW = ("CategoricalNB",), ("k neighbours", "ridge", "columns + logistic, Adult", "decision tree")
DECIDED_HERE = [
    pytest.param(k, marks=() if k.name in SHORT else pytest.mark.slow, id=k.name)
    for k in KINDS
    if k.name in (*SHORT, *SLOW)
]


@pytest.fixture(autouse=True)
def data(shared_data, monkeypatch):
    monkeypatch.setenv("PRIVGATE_DATA", str(shared_data("adult.csv.gz").parent))


def test_each_name_is_one_kind_and_rows_are_those_of_the_list():
    assert len({k.name for k in KINDS}) == len(KINDS) >= 60
    assert {k.row for k in KINDS} <= set(range(1, 33))


@pytest.mark.parametrize("kind", REFUSED, ids=lambda k: k.name)
def test_what_has_no_answer_about_one_person_is_refused_in_one_sentence(kind, tmp_path):
    row = measured(kind, n=kind.small, ledger=tmp_path, refereed=False)

    assert row["verdict"] == "refused", row
    assert right(row)
    assert "\n" not in row["said"]
    assert row.get("trainings", 0) == 0


@pytest.mark.parametrize("kind", DECIDED_HERE)
def test_what_is_decided_is_not_contradicted_by_refits(kind, tmp_path):
    row = measured(kind, n=kind.small, ledger=tmp_path, refereed=True)

    assert row["verdict"] in DECIDED, row
    assert right(row), row
    assert kind.name in written([row])
