"""Files that training opens beside its data are noticed and named, whoever opens them in Python."""

import importlib
import json
import sqlite3
import sys

import numpy as np
import pytest

from privgate import Recipe, Subject, TrainingData, evaluate
from privgate.controls.opened import check_opened_files
from privgate.subject import sources

X = np.random.default_rng(4).normal(size=(60, 2))
DATA = TrainingData(X, (X[:, 0] > 0).astype(int), one_record_each=True)
MODULE = """
import sqlite3
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression

SCORES = {at_import}

def fit(X, y, *, seed):
    {in_training}
    return LogisticRegression().fit(X, y)
"""
#: name -> (at import, in training, what is declared public, files that are named)
SCRIPTS = {
    "nothing": ("None", "ZoneInfo('Europe/Paris')", {}, []),
    "in training": ("None", "open('FOLDER/scores.csv').read()", {}, ["scores.csv"]),
    "at import": ("np.loadtxt('FOLDER/scores.csv')", "", {}, ["scores.csv"]),
    "by a link that goes": (
        "None",
        "link = Path('FOLDER/link'); link.symlink_to('FOLDER/scores.csv'); link.read_text(); link.unlink()",
        {},
        ["scores.csv"],
    ),
    "after many of libraries": (
        "None",
        "[p.open().close() for p in Path(pd.__file__).parents[1].rglob('*.py')]; open('FOLDER/scores.csv').read()",
        {},
        ["scores.csv"],
    ),
    "by pandas": ("None", "pd.read_csv('FOLDER/scores.csv')", {}, ["scores.csv"]),
    "a database": ("None", "sqlite3.connect('FOLDER/all.db').execute('select 1')", {}, ["all.db"]),
    "two, one declared": (
        "np.loadtxt('FOLDER/scores.csv')",
        "Path('FOLDER/weights.txt').read_text()",
        {"weights.txt": "of nobody, invented"},
        ["scores.csv"],
    ),
    "declared": ("None", "open('FOLDER/scores.csv').read()", {"FOLDER/scores.csv": "of others, by a bureau"}, []),
    "its own": ("None", "Path('FOLDER/own.txt').write_text('1'); Path('FOLDER/own.txt').read_text()", {}, []),
    "one that is not there": ("None", "Path('FOLDER/none.txt').exists() or pd", {}, []),
}


@pytest.fixture
def subject(request, tmp_path, monkeypatch):
    at_import, in_training, public, _ = SCRIPTS[request.param]
    for name in ("scores.csv", "weights.txt"):
        (tmp_path / name).write_text("1.5\n2.5\n")
    sqlite3.connect(tmp_path / "all.db").execute("create table t (a)")
    module = f"opens_{request.param.replace(' ', '_').replace(',', '')}"
    text = MODULE.format(at_import=at_import, in_training=in_training).replace("FOLDER", str(tmp_path))
    (tmp_path / f"{module}.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    stated = {key.replace("FOLDER", str(tmp_path)): why for key, why in public.items()}
    recipe = Recipe(importlib.import_module(module).fit, seed=1, public=stated)
    sources.write(recipe.snapshot, tmp_path / "src")
    monkeypatch.delitem(sys.modules, module)  # as where a version is checked: workers alone import it
    stored = Recipe.read(json.loads(json.dumps(recipe.payload)), tmp_path / "src")
    return Subject.local(stored, DATA)


@pytest.mark.parametrize(("subject", "named"), [(k, v[-1]) for k, v in SCRIPTS.items()], indirect=["subject"])
def test_a_file_that_training_opens_is_named(subject, named, fleet):
    finding = check_opened_files(subject, fleet)
    assert finding.outcome == ("inconclusive" if named else "passed"), finding.message
    assert all(name in finding.message for name in named)
    assert ("weights.txt" in finding.message) == ("weights.txt" in named)


@pytest.mark.parametrize("subject", ["by pandas"], indirect=True)
def test_nothing_is_measured_of_a_model_that_knows_others_files(subject, fleet):
    """A score of a file that others trained on all customers knows members and candidates alike."""
    verdict = evaluate("share-1", subject, fleet=fleet)
    assert verdict.outcome == "inconclusive"
    assert any("scores.csv, which is no part of its data" in f.message for f in verdict.findings)
