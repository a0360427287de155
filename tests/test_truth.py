"""Models of which the truth is known: what they are, what is said of them, and one of them judged."""

import re
import warnings
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from truth import referee
from truth.__main__ import main
from truth.catalogue import TRUTH, Known
from truth.table import came_out, counts, written

PAGE = Path(__file__).resolve().parents[1] / "docs" / "truth.md"
BY_NAME = {k.name: k for k in TRUTH}


def test_half_of_them_leak():
    assert len(BY_NAME) == len(TRUTH) == 228
    assert sum(k.leaks for k in TRUTH) == 114
    families = {k.family for k in TRUTH}
    assert 25 <= len(families) <= 30
    for family in families:  # each has both, as many of the one as of the other
        leaks = [k.leaks for k in TRUTH if k.family == family]
        assert sum(leaks) * 2 == len(leaks)
    assert all("harmless" in k.name or k.leaks for k in TRUTH)


@pytest.mark.quick(6)
@pytest.mark.parametrize("family", sorted({k.family for k in TRUTH}))
def test_each_trains_and_answers_on_its_own_data(family):
    for known in (k for k in TRUTH if k.family == family):
        plain = referee.Plain(known)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = plain.train(plain.data.X, plain.data.y)
            told = plain.told(model, plain.rows(plain.data.candidates[0], np.arange(20)))
        assert told.shape == (20, 1 if plain.numbers else len(plain.classes)), known.name
        assert not np.isnan(told).any(), known.name
        assert len(plain.units) >= 200, known.name
        assert len(plain.data.candidates[1]) == 1000, known.name


class Tells:
    """A model that answers with a label of its own people, or with the prior."""

    def __init__(self, *, knows: bool) -> None:
        self.knows = knows

    def get_params(self, deep=False):
        return {"knows": self.knows}

    def set_params(self, **params):
        return self

    def fit(self, X, y):
        self.known = dict(zip(map(bytes, X), y, strict=True)) if self.knows else {}
        self.prior = np.bincount(y) / len(y)
        return self

    def predict_proba(self, X):
        told = [np.eye(2)[self.known[bytes(x)]] if bytes(x) in self.known else self.prior for x in X]
        return np.clip(told, 0.05, 0.95)


@pytest.mark.parametrize("knows", [True, False])
@pytest.mark.parametrize("said", [True, False])
def test_the_referee_confirms_what_is_true_and_nothing_else(knows, said):
    some = TRUTH[0]
    found = referee.truth(Known("a", "b", said, "", Tells(knows=knows), some.data))

    assert found["confirmed"] is (knows == said)


def rows(leaking, harmless):
    about = {"name": "a", "why": "b", "said": "c"}
    return [{**about, "leaks": leaks, "verdict": v} for leaks, some in ((1, leaking), (0, harmless)) for v in some]


def test_released_with_warnings_is_released():
    found = rows(
        ["passed", "warned", "failed", "inconclusive"], ["warned", "failed", "refused", "inconclusive", "died"]
    )

    assert [came_out(r) for r in found] == [
        *["**false approval**"] * 2, "right", "left open", "right", *["needless refusal"] * 2, "left open", "died",
    ]  # fmt: skip
    assert "4 leak: 4 were judged, 1 refused, 1 left open, **2 false approvals**." in counts(found)
    assert "1 approved, 1 left open, **2 needless refusals**, 1 came to no verdict." in counts(found)
    assert written(found).count("**false approval**") == 2


@pytest.fixture
def command(monkeypatch, tmp_path):
    """Return the command over the first two of a family, whose rows are made at once; and what it judged."""
    ran = []

    def quickly(work, name, *_, limit):
        ran.append(name)
        return {"verdict": run.verdict, "said": "well", "cpu": 0.0}

    def run(*more):
        ran.clear()
        options = ["--only", "households: of four", "--only", "households, harmless: of four", "--out", str(tmp_path)]
        return CliRunner().invoke(main, [*options, *more]), list(ran)

    monkeypatch.setattr("truth.__main__.apart", quickly)
    monkeypatch.setattr("truth.__main__.import_once", lambda *_: None)
    monkeypatch.setattr("privgate.registry.local_registry", str)
    run.verdict = "failed"
    return run


def test_one_false_approval_is_an_error_also_of_the_next_run(command):
    command.verdict = "warned"
    done, _ = command()
    assert done.exit_code == 1
    assert "1 false approval: households: of four" in done.stderr
    again, ran = command()
    assert (again.exit_code, ran) == (1, [])


def test_the_page_has_a_row_for_each_and_counts_them():
    text = PAGE.read_text(encoding="utf-8")
    told = {line.split("|")[1].strip() for line in text.splitlines() if line.startswith("| ")}

    assert set(BY_NAME) <= told
    assert re.search(r"114 leak: \d+ were judged", text)
    assert "| traceback |" not in text
