"""An error in training code keeps the names that its owner wrote, and tells nothing of any record."""

import importlib.util
import json

import numpy as np
import pandas as pd
import pytest

from privgate.subject.data import TrainingData
from privgate.subject.recipe import Recipe
from privgate.subject.subject import Subject
from privgate.training import owner_words
from privgate.training.box import bubblewrap
from privgate.training.fit import Fit
from privgate.training.fleet import Fleet

RECIPE = '''
from pathlib import Path
import pandas as pd
from sklearn.linear_model import LogisticRegression
KNOWN = ("Private", "income")
class LookupMissing(Exception):
    """Raised by this recipe."""
def file(X, y): return open("lookup/codes.csv")
def joined(X, y): return open(Path("/nowhere") / "codes.csv")
def attribute(X, y): return LogisticRegression().coefficients
def column(X, y): return X["incme"]
def module(X, y): import lightgbn
def name(X, y): return undefined_name
def own(X, y): raise LookupMissing("the table 'codes.csv' is missing")
def record(X, y): raise ValueError(f"cannot use the person {X['who'][0]} of age {X['age'][0]}")
def quoted(X, y): raise ValueError(f"cannot use the person '{X['who'][0]}'")
def pieces(X, y): raise ValueError(" ".join(X["who"][0]))
def halves(X, y): raise ValueError(X["who"][0][:4] + " the " + X["who"][0][4:])
def number(X, y): raise KeyError(X["age"][0])
def token(X, y): raise ValueError(f"cannot use {X['job'][0]}")
def tokens(X, y): raise ValueError(" ".join(["cannot use", "income", "income", "income"]))
def kind(X, y): raise type(X["who"][0].replace(" ", ""), (ValueError,), {})("cannot use")
def library(X, y): return float(X["who"][0])
def lookup(X, y): return {}[X["job"][0]]
def file_of_record(X, y): return open(X["who"][0])
def category(X, y):
    frame = pd.Series(["a"], dtype="category")
    frame[0] = X["who"][0]
def attribute_of_record(X, y): return getattr(LogisticRegression(), X["who"][0])
def column_of_record(X, y): return X[X["job"][0]]
def attached(X, y):
    try:
        float(X["who"][0])
    except ValueError as exc:
        raise RuntimeError(f"cannot use: {exc}") from exc
'''
X = pd.DataFrame({"who": ["Jane Marple", "Hercule Poirot"], "job": ["Private", "Detective"], "age": [71, 64]})
Y = np.array(["yes", "nay"])


@pytest.fixture
def said(tmp_path):
    source = tmp_path / "src" / "recipe_of_a_test.py"
    source.parent.mkdir()
    source.write_text(RECIPE)
    (tmp_path / "recipe.json").write_text(json.dumps({"params": {"target": "income"}}))
    spec = importlib.util.spec_from_file_location("recipe_of_a_test", source)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def said(name):
        with pytest.raises(BaseException) as caught:  # noqa: PT011  whatever it raises
            getattr(module, name)(X, Y)
        return owner_words.told(caught.value, tmp_path, X, Y)

    return said


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("file", "FileNotFoundError: No such file or directory: 'lookup/codes.csv'"),
        ("joined", "FileNotFoundError: No such file or directory: '…/codes.csv'"),
        ("attribute", "AttributeError: 'LogisticRegression' object has no attribute 'coefficients'"),
        ("column", "KeyError: 'incme'"),
        ("module", "ModuleNotFoundError: No module named 'lightgbn'"),
        ("name", "NameError: name 'undefined_name' is not defined"),
        ("own", "LookupMissing: the table 'codes.csv' is missing"),
        ("record", "ValueError: cannot use the person … of age …"),
        ("quoted", "ValueError: cannot use the person '…'"),
        ("token", "ValueError: cannot use …"),
        ("tokens", "ValueError: cannot use income …"),
        ("library", "ValueError: could not convert string to float: '…'"),
        ("lookup", "KeyError: '…'"),
        ("file_of_record", "FileNotFoundError: No such file or directory: '…'"),
        ("attribute_of_record", "AttributeError: 'LogisticRegression' object has no attribute '…'"),
        ("column_of_record", "KeyError: '…'"),
    ],
)
def test_what_the_owner_wrote_stays_and_what_a_record_holds_goes(said, name, sentence):
    assert said(name) == sentence


@pytest.mark.parametrize(
    "name",
    ["record", "quoted", "pieces", "halves", "number", "token", "kind", "library", "lookup", "file_of_record",
     "category", "attribute_of_record", "column_of_record", "attached"],
)  # fmt: skip
def test_no_text_of_a_record_comes_through(said, name):
    told = said(name)

    for value in ("Jane", "Marple", "arple", "J a", "Private", "71"):
        assert value not in told, told


def missing(X, y, *, seed, path):
    raise FileNotFoundError(2, "No such file or directory", path) if len(X) < 40 else RuntimeError(f"all of {X[0]}")


@pytest.mark.skipif(not bubblewrap.found().version, reason="no boxes here")
@pytest.mark.parametrize(
    ("n", "tells"), [(20, "No such file or directory: 'codes.csv'"), (40, "RuntimeError: all of ['…']")]
)
def test_names_come_out_of_a_box_and_records_do_not(tmp_path, n, tells):
    data = TrainingData(np.array([[f"person {i}"] for i in range(n)], dtype=object), np.arange(n) % 2)
    subject = Subject.local(Recipe(missing, {"path": "codes.csv"}, seed=1), data)
    with Fleet(jobs=1, ledger=tmp_path, isolate="bubblewrap") as fleet:
        answer = fleet.fits(subject, [Fit(1, np.array([0]), left_out=np.array([], dtype=np.int64))])[0]

    assert tells in answer.problem
