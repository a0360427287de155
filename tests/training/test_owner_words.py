"""An error in training code keeps the names that its owner wrote, and tells nothing of any record."""

import importlib.util
import json

import numpy as np
import pandas as pd
import pytest

from privgate.errors import SubjectError
from privgate.subject import sources
from privgate.subject.data import TrainingData
from privgate.subject.recipe import Recipe
from privgate.subject.subject import Subject
from privgate.training import owner_words, payload, worker
from privgate.training.box import bubblewrap
from privgate.training.fit import Fit
from privgate.training.fleet import Fleet

RECIPE = '''
import sys
from pathlib import Path
import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import OrdinalEncoder
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
def record(X, y): raise ValueError(f"cannot use the person {X['who'].iloc[0]} of age {X['age'].iloc[0]}")
def quoted(X, y): raise ValueError(f"cannot use the person '{X['who'].iloc[0]}'")
def pieces(X, y): raise ValueError(" ".join(X["who"].iloc[0]))
def halves(X, y): raise ValueError(X["who"].iloc[0][:4] + " the " + X["who"].iloc[0][4:])
def number(X, y): raise KeyError(X["age"].iloc[0])
def token(X, y): raise ValueError(f"cannot use {X['job'].iloc[0]}")
def tokens(X, y): raise ValueError(" ".join(["cannot use", "income", "income", "income"]))
def kind(X, y): raise type(X["who"].iloc[0].replace(" ", ""), (ValueError,), {})("cannot use")
def library(X, y): return float(X["who"].iloc[0])
def lookup(X, y): return {}[X["job"].iloc[0]]
def file_of_record(X, y): return open(X["who"].iloc[0])
def category(X, y):
    frame = pd.Series(["a"], dtype="category")
    frame[0] = X["who"].iloc[0]
def attribute_of_record(X, y): return getattr(LogisticRegression(), X["who"].iloc[0])
def column_of_record(X, y): return X[X["job"].iloc[0]]
def columns(X, y): return X[["incme", "age"]]
def short(X, y): return q
def operator(X, y): return sorted([1, "a"])
def parameter(X, y): return LogisticRegression(C=-1.0).fit(X[["age"]], [0, 1] * 3)
def formatted(X, y): return open(f"lookup/codes-{len(X)}.csv")
def kind_of_array(X, y): return np.zeros(3).to_numpy()
def quote(X, y): return float(X["who"].iloc[3].lower())
def quotes(X, y): return OrdinalEncoder(categories=[["a"]]).fit(X[["who"]])
def raw_quotes(X, y): return pd.concat([X.set_index("who")] * 2, verify_integrity=True)
def letter(X, y): return X["who"].iloc[5].encode("ascii")
def byte(X, y): return X["who"].iloc[5].encode("latin-1").decode()
def line(X, y): return pd.to_datetime(X["who"].iloc[4])
def unquoted(X, y): return pd.Timestamp(X["who"].iloc[1].lower())
def a_part(X, y): return pd.Timestamp(X["who"].iloc[1].split()[1].upper())
def cut(X, y): sys.exit("file " * 39 + X["who"].iloc[1])
def truth(X, y): return {}[X["age"].iloc[0] == 71]
def both(X, y): return {}["Sparse", X["age"].iloc[0]]
def date(X, y): sys.exit("not after 2021-03-05T11:22:33 or 71kg or 3+71j")
def nested(X, y): sys.exit("not " + X["tags"].iloc[0][0]["aunt"])
def raw(X, y): sys.exit("not " + X["raw"].iloc[0].decode())
def of_nobody(X, y): sys.exit("not " + X["kind"].cat.categories[0])
def row(X, y): sys.exit(f"not {X.index[0]}")
def attached(X, y):
    try:
        float(X["who"].iloc[0])
    except ValueError as exc:
        raise RuntimeError(f"cannot use: {exc}") from exc
'''
WHO = ["Jane Marple", "Hercule Poirot", "Pat O'Brien", 'Kim O\'Hara "Kit"', "Sue\nGrafton", "René Müller"]
X = pd.DataFrame(
    {
        "who": WHO,
        "job": ["Private", "Detective", *["Private"] * 4],
        "age": [71, 64, 30, 41, 52, 23],
        "tags": [[{"aunt": "Wimsey"}]] * 6,
        "raw": [b"Ngaio Marsh"] * 6,
        "kind": pd.Categorical([None] * 6, categories=["Dalgliesh"]),
    },
    index=[f"of Vane {i}" for i in range(6)],
)
Y = np.array(["yes", "nay"])
PARAMETER = "InvalidParameterError: The 'C' parameter of LogisticRegression"
SECRET = (
    "jane|marple|arple|j a|private|71|herc|poirot|brien|malley|kit'|sue|grafton|rené|xe9|ller|true|t11|wimsey|ngaio|"
    "marsh|dalgl|vane"
)


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
        return owner_words.told(caught.value, tmp_path, owner_words.Held.of(X, Y))

    return said


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("file", "FileNotFoundError: No such file or directory: 'lookup/codes.csv'"),
        ("joined", "FileNotFoundError: No such file or directory: '/nowhere/codes.csv'"),
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
        ("columns", "KeyError: ['incme'] not in index"),
        ("short", "NameError: name 'q' is not defined"),
        ("operator", "TypeError: '<' not supported between instances of 'str' and 'int'"),
        ("parameter", f"{PARAMETER} must be a float in the range (…, inf]. Got … instead."),
        ("formatted", "FileNotFoundError: No such file or directory: 'lookup/codes-….csv'"),
        ("kind_of_array", "AttributeError: 'numpy.ndarray' object has no attribute 'to_numpy'"),
        ("byte", "UnicodeDecodeError: 'utf-8' codec can't decode byte … in position …: invalid continuation byte"),
        ("truth", "KeyError: '…'"),
        ("both", "KeyError: '…'"),
        ("date", "SystemExit: not after … or … or …"),
    ],
)  # fmt: skip
def test_what_the_owner_wrote_stays_and_what_a_record_holds_goes(said, name, sentence):
    assert said(name) == sentence


@pytest.mark.parametrize(
    "name",
    ["record", "quoted", "pieces", "halves", "number", "token", "kind", "library", "lookup", "file_of_record",
     "category", "attribute_of_record", "column_of_record", "attached", "quote", "quotes", "raw_quotes", "letter",
     "byte", "line", "unquoted", "a_part", "cut", "truth", "both", "date", "nested", "raw", "of_nobody", "row"],
)  # fmt: skip
def test_no_text_of_a_record_comes_through(said, name):
    told = said(name)

    for value in SECRET.split("|"):
        assert value not in told.casefold(), told


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


def test_what_our_own_sentence_cites_is_told_like_any_other_error(tmp_path):
    data = TrainingData(np.array([["Jane Marple"], ["Hercule Poirot"]], dtype=object), np.arange(2))
    payload.write(Subject.local(Recipe(missing, {"path": "codes.csv"}, seed=1), data), tmp_path)
    module = tmp_path / "src" / "reads_when_imported.py"
    module.parent.mkdir(exist_ok=True)
    module.write_text("def check(text): raise ImportError(f'cannot use {text}')\ncheck('Jane Marple'.upper())\n")
    with pytest.raises(SubjectError, match="MARPLE") as caught:
        sources.resolve("reads_when_imported:f", module.parent)

    told = worker.sentence("loading", caught.value, tmp_path)

    assert told.endswith("recipe cannot be imported: ImportError: cannot use …")
