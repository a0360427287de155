"""Long closed forms and theorems in parts: the same answers, on workers or here, and nothing done is repeated."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier

from privgate import Recipe, Subject, TrainingData
from privgate.families import catalogue, in_parts
from privgate.families.engine import Asked
from privgate.subject.domain import Domain
from privgate.training.fleet import Fleet
from privgate.training.payload import Worked, packed, unpacked

N = 300
RNG = np.random.default_rng(3)
X = RNG.normal(size=(N, 3)).clip(-3, 3)
Y = (X[:, 0] + RNG.normal(size=N) > 0).astype(int)
DATA = TrainingData(X, Y, domain=Domain(box=((-3, 3),) * 3))
KINDS = {
    "gaussian_nb": GaussianNB(),
    "k_nearest": KNeighborsClassifier(5),
}
COLUMNS = ("units", "row_unit", "row_query", "log_with", "log_without", "error", "status", "engine")


@pytest.fixture(autouse=True)
def all_is_long(monkeypatch):
    monkeypatch.setattr(in_parts, "LONG", 0.0)


@pytest.fixture
def worked(monkeypatch):
    """Return the parts that this process works on."""
    done, honest = [], Worked.answer
    monkeypatch.setattr(Worked, "answer", lambda self, part: done.append(part) or honest(self, part))
    return done


def question(kind, fleet):
    subject = Subject.local(Recipe(KINDS[kind], seed=1), DATA)
    return catalogue.named(kind), Asked(subject, np.arange(N), (1,), fleet)


def agree(made, whole):
    for name in COLUMNS:
        one, other = getattr(made, name), getattr(whole, name)
        if one.dtype == object:
            assert (one == other).all()
        else:
            np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-9, err_msg=name)


@pytest.mark.parametrize("kind", KINDS)
def test_parts_make_the_whole_and_are_found_again(kind, tmp_path, worked):
    with Fleet(jobs=1, ledger=tmp_path) as fleet:
        engine, asked = question(kind, fleet)
        whole, left = engine.answers(asked)
        made, left_too = in_parts.remembered_answers(engine, asked)
    assert len(worked) == in_parts.PARTS
    agree(made, whole)
    np.testing.assert_array_equal(left, left_too)

    with Fleet(jobs=1, ledger=tmp_path) as fleet:
        engine, asked = question(kind, fleet)
        assert in_parts.remembered_known(engine, asked)
        again, _ = in_parts.remembered_answers(engine, asked)
        assert len(worked) == in_parts.PARTS
        assert fleet.freshness.recalled > 0  # such a run cannot be signed
        assert fleet.freshness.trained == 0
        fleet.signable = True  # and one that is to be believes nothing
        assert not in_parts.remembered_known(engine, asked)
    agree(again, made)


def test_workers_say_the_same(tmp_path, monkeypatch, worked):
    with Fleet(jobs=1, ledger="none") as fleet:
        engine, asked = question("gaussian_nb", fleet)
        alone, _ = in_parts.remembered_answers(engine, asked)
    monkeypatch.setattr(in_parts, "PATIENCE", -1.0)
    told, here = [], len(worked)
    with Fleet(jobs=2, ledger=tmp_path, progress=lambda done, total, _: told.append((done, total))) as fleet:
        engine, asked = question("gaussian_nb", fleet)
        made, _ = in_parts.remembered_answers(engine, asked)
    assert len(worked) == here
    assert told[-1] == (N, N)
    agree(made, alone)


def test_what_is_short_is_not_divided(monkeypatch):
    monkeypatch.setattr(in_parts, "LONG", 5.0)
    with Fleet(jobs=1, ledger="none") as fleet:
        engine, asked = question("gaussian_nb", fleet)
        assert not in_parts.worth(engine, asked)


def test_arrays_and_values_come_back_as_they_were():
    arrays = {"a": np.array([np.nan, -np.inf, -0.0, 5e-324]), "b": np.array(["x", "yz"]), "c": np.zeros((0, 3), bool)}
    back, told = unpacked(packed(arrays, {"k": [1, None, "é"]}))
    assert told == {"k": [1, None, "é"]}
    for name, value in arrays.items():
        assert back[name].dtype == value.dtype
        assert back[name].tobytes() == value.tobytes()


SCRIPT = """
import sys, time
import numpy as np
from sklearn.naive_bayes import GaussianNB
from privgate import Recipe, Subject, TrainingData
from privgate.families import catalogue, in_parts, remembered
from privgate.families.engine import Asked
from privgate.training.fleet import Fleet
from privgate.training.payload import Worked

in_parts.LONG = 0.0
honest = Worked.answer

def answer(self, part):
    time.sleep(0.02)
    made = honest(self, part)
    with open(sys.argv[2], "ab") as f:
        f.write(b"part ")
    return made

Worked.answer = answer
rng = np.random.default_rng(0)
subject = Subject.local(Recipe(GaussianNB(), seed=1), TrainingData(rng.normal(size=(400, 2)), np.arange(400) % 2))
with Fleet(jobs=1, ledger=sys.argv[1]) as fleet:
    made, _ = remembered.answers(catalogue.named("gaussian_nb"), Asked(subject, np.arange(400), (1,), fleet))
np.save(sys.argv[3], made.log_without)
"""


@pytest.mark.slow
def test_killed_outright_twice_it_repeats_under_one_part_in_a_hundred(tmp_path):
    (tmp_path / "run.py").write_text(SCRIPT)
    journal = tmp_path / "journal"

    def start(name, result):
        words = [sys.executable, tmp_path / "run.py", tmp_path / name, journal, tmp_path / result]
        return subprocess.Popen(words, env={**os.environ, "PYTHONPATH": str(Path.cwd())})

    assert start("clean", "whole.npy").wait(200) == 0
    journal.unlink()
    for part in (40, 80):
        process = start("ledger", "result.npy")
        while process.poll() is None and (not journal.exists() or len(journal.read_bytes().split()) < part):
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    assert start("ledger", "result.npy").wait(200) == 0
    # one part at most for each kill
    assert len(journal.read_bytes().split()) <= in_parts.PARTS + 2
    assert (np.load(tmp_path / "whole.npy") == np.load(tmp_path / "result.npy")).all()
