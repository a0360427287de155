"""Of an error in training code a report tells the class and the owner's line; the message stays in the log."""

import importlib.util

import numpy as np
import pandas as pd
import pytest

from privgate.errors import SubjectError
from privgate.subject import sources
from privgate.subject.data import TrainingData
from privgate.subject.recipe import Recipe
from privgate.subject.subject import Subject
from privgate.training import worker
from privgate.training.fit import Fit
from privgate.training.fleet import Fleet

RECIPE = """import pandas as pd
def record(X): raise ValueError(f"cannot use the person {X['who'].iloc[0]}")
def library(X): return pd.Timestamp(X["who"].iloc[0])
def key(X): return {}[X["who"].iloc[0]]
def module(X): import lightgbn
def file(X): return open(X["who"].iloc[0])
"""
X = pd.DataFrame({"who": ["Jane Marple"] * 2})
LOG = "its message is in privgate's log)"


@pytest.fixture
def owner(tmp_path):
    source = tmp_path / "of_the_owner.py"
    source.write_text(RECIPE)
    spec = importlib.util.spec_from_file_location("of_the_owner", source)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("record", "ValueError (line 2"),
        ("library", "DateParseError (line 3"),
        ("key", "KeyError (line 4"),
        ("module", "ModuleNotFoundError of 'lightgbn' (line 5"),
        ("file", "FileNotFoundError (line 6"),
    ],
)
def test_class_and_line_are_told_and_the_message_is_in_the_log(owner, capfd, name, told):
    with pytest.raises(Exception) as caught:  # noqa: PT011  whatever it raises
        getattr(owner, name)(X)

    assert worker.sentence("training", caught.value) == f"training raised {told} of of_the_owner.py; {LOG}"
    assert ("Marple" in capfd.readouterr().err) is (name != "module")


def test_an_error_that_our_own_sentence_cites_is_told_alike(tmp_path):
    (tmp_path / "reads_when_imported.py").write_text("raise ImportError('cannot use Jane Marple')\n")
    with pytest.raises(SubjectError, match="Marple") as caught:
        sources.resolve("reads_when_imported:f", tmp_path)

    assert "Marple" not in worker.sentence("loading", caught.value)


def failing(X, y, *, seed):
    raise RuntimeError(f"all of {X[0]}")


def test_the_message_stays_in_the_log_of_the_workers(tmp_path):
    data = TrainingData(
        np.array([[f"person {i}"] for i in range(20)], dtype=object), np.arange(20) % 2, one_record_each=True
    )
    with Fleet(jobs=1, ledger=tmp_path) as fleet:
        fits = [Fit(1, np.array([0]), left_out=np.array([], dtype=np.int64))]
        (answer,) = fleet.fits(Subject.local(Recipe(failing, seed=1), data), fits)
    assert "person" not in answer.problem
    assert any("all of ['person 0']" in log.read_text() for log in fleet.logs.iterdir())
