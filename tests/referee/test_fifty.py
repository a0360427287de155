"""Nothing false is approved: subjects with known true answer, put to the product as a user would.

The truth of each is found anew in every run, by training again with the library, by reasoning or by simulation, and
never by the product's own engines, certificates or accountant.
"""

import importlib.util
import json
import os
from pathlib import Path

import pytest
from fifty import catalogue
from fifty.subjects import ALL

from privgate.training.fleet import Fleet

pytestmark = pytest.mark.usefixtures("own_registry")
#: what became of each subject, the last time that somebody read all of them; moved.md beside it says why
FROZEN = Path(__file__).with_name("outcomes.json")
#: one of each kind, for `make test`
FEW = ("checkpoint_of_two_records", "half_of_neighbours", "one_person_invisible", "contingency_table")
#: subjects that are approved and must not be -> the sentence of docs that says so: what tried to see them went
KNOWN = {
    "ignores_half": "A part of the data that training ignores is not seen",
    **dict.fromkeys(
        ("rare_jumps_tag0", "rare_jumps_tag3", "rare_jumps_endless_tag1", "rare_jumps_endless_tag2", "stump_tag0",
         "stump_tag1"), "Training whose seed matters more rarely is taken for training without one"),
    "wrong_candidates_sure": "The gate cannot always recognise candidates picked by what the model answers about them",
    **dict.fromkeys(("private_class_means", "private_label_counts", "private_mixup"),
                    "does not see class means that are added to the weights, or a loss that mixes"),
    **dict.fromkeys(("private_raw_scaler", "private_best_epoch"),
                    "Nor does it see scalers or epochs that are chosen on the records"),
}  # fmt: skip


def test_there_are_fifty_subjects_and_half_of_them_must_not_be_approved():
    assert len(ALL) >= 50
    assert sum(c.approve is False for c in ALL.values()) >= len(ALL) / 2
    assert sum(c.approve is True for c in ALL.values()) >= 20
    assert all(len(c.because) > 40 for c in ALL.values())


def test_what_is_known_to_be_approved_falsely_stands_in_the_documentation():
    docs = Path(__file__).resolve().parents[2] / "docs"
    pages = " ".join(
        " ".join((docs / name).read_text(encoding="utf-8").split()) for name in ("assumptions.md", "measuring.md")
    )

    assert set(KNOWN) <= set(ALL)
    assert [said for said in KNOWN.values() if said not in pages] == []


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", [n if n in FEW else pytest.param(n, marks=pytest.mark.slow) for n in ALL])
def test_nothing_false_is_approved_and_each_gets_the_same_verdict(name, tmp_path):
    """``REFEREE_OUTCOMES=FOLDER`` keeps what became of each in a file there, to be read and frozen."""
    if missing := [m for m in ALL[name].needs if importlib.util.find_spec(m) is None]:
        pytest.skip(f"needs {', '.join(missing)}")
    with Fleet(jobs=1, ledger="none") as fleet:  # whose draws are the same in each run
        got = catalogue.put(ALL[name], tmp_path, fleet)
    if folder := os.environ.get("REFEREE_OUTCOMES"):
        Path(folder, name).write_text(got.outcome, encoding="utf-8")

    assert not got.false_approval or name in KNOWN, got
    assert got.outcome == json.loads(FROZEN.read_text(encoding="utf-8"))[name], got
