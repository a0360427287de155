"""What the theorem about shards takes for granted: public records are nobody's, ids name people, learners are read."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.tree import DecisionTreeClassifier

from privgate import Recipe, Subject, TrainingData
from privgate.families import certificates, own_code
from privgate.families.certificate import Units
from privgate.families.sharded_members import learner
from privgate.models import Sharded

CERTIFICATE = certificates.ALL["sharded"]
RNG = np.random.default_rng(0)
N = 40
X, Y = RNG.normal(size=(N, 2)), np.arange(N) % 2


def subject(base=None, records=X, **more):
    groups = more.pop("groups", None)
    model = Sharded(GaussianNB() if base is None else base, shards=4, classes=[0, 1], **more)
    return Subject.local(Recipe(model, seed=0), TrainingData(records, Y, groups=groups))


def frame(values):
    return pd.DataFrame(values, columns=["a", "b"])


@pytest.mark.parametrize(
    ("records", "public"),
    [
        (X, (X[:5].copy(), Y[:5])),
        (X, (X[:5].astype(object), Y[:5].astype(float))),
        (frame(X), (frame(X[:5])[["b", "a"]], Y[:5])),
        (frame(X), (frame(X[:5]), list(Y[:5]))),
    ],
)
def test_whose_record_is_public_too_is_in_every_shard(records, public):
    """Every member is trained on the public records: leaving somebody out of one shard leaves them in all others."""
    about = subject(DecisionTreeClassifier(), records, public=public)
    found = CERTIFICATE.bound(about, np.arange(N), None)
    assert (found.upper[:5] > 2).all()
    assert (found.upper[5:] <= 1).all()
    assert CERTIFICATE.every_data_set(about) == np.inf
    assert any("some training records are among them" in a for a in found.assumptions)


def test_a_public_record_with_another_label_is_another_record():
    about = subject(public=(X[:5], 1 - Y[:5]))
    assert (CERTIFICATE.bound(about, np.arange(N), None).upper <= 1).all()
    assert CERTIFICATE.every_data_set(about) == pytest.approx(1.0, abs=1e-6)


def test_a_person_of_two_ids_in_one_shard_by_chance_has_no_bound_for_other_data():
    wide = np.column_stack([np.arange(N), X])
    shard = Sharded(GaussianNB(), shards=4, classes=[0, 1], ids=0).shard_of(wide)
    one, other = np.flatnonzero(shard == shard[0])[:2]
    groups = np.arange(N)
    groups[other] = one
    about = subject(records=wide, ids=0, groups=groups)
    assert (CERTIFICATE.certify(Units(about, np.arange(N - 1))).upper <= 1).all()
    assert CERTIFICATE.every_data_set(about) == np.inf


class CountsCategories(ClassifierMixin, BaseEstimator):
    """Answers by the number of categories that its records' type lists."""

    def fit(self, X, y):
        self.p_ = 1 / (2 + len(X["c"].cat.categories))
        self.classes_ = np.array([0, 1])
        return self

    def predict_proba(self, X):
        return np.tile([self.p_, 1 - self.p_], (len(X), 1))


@pytest.mark.parametrize("public", [None, 4])
def test_a_member_does_not_see_a_category_of_another_shard(public):
    table = pd.DataFrame({"c": pd.Categorical(["rare", *"uv" * 20]), "x": np.arange(41.0)})
    y = np.arange(41) % 2
    own = None if public is None else (table[1 : 1 + public].reset_index(drop=True), y[1 : 1 + public])
    made = Sharded(CountsCategories(), shards=4, classes=[0, 1], public=own)
    less = table[1:].reset_index(drop=True)
    less["c"] = less["c"].cat.remove_unused_categories()  # as a table without the person is read again
    if own is not None:
        less["c"] = less["c"].astype(table["c"].dtype)
    whole, other = made.fit(table, y).members_, Sharded(**made.get_params(deep=False)).fit(less, y[1:]).members_
    changed = [m for m in range(4) if whole[m].p_ != other[m].p_]
    assert changed == [made.shard_of(table)[0]]
    assert len(table["c"].cat.categories) == 3  # what was given stays as it was


class DrawsWhenAsked(ClassifierMixin, BaseEstimator):
    """Draws as many numbers as it has records whenever it is asked, and answers by the last of them."""

    def fit(self, X, y):
        self.n_, self.classes_ = len(X), np.array([0, 1])
        return self

    def predict_proba(self, X):
        p = np.random.random(self.n_)[-1]  # noqa: NPY002  the stream that is meant
        return np.tile([p, 1 - p], (len(X), 1))


def test_members_do_not_go_on_in_a_stream_where_another_stopped():
    whole = Sharded(DrawsWhenAsked(), shards=4, dtp=1.0, classes=[0, 1])
    for left in range(N):
        kept = np.arange(N) != left
        change = np.log(clone(whole).fit(X, Y).predict_proba(X[:1])) - np.log(
            clone(whole).fit(X[kept], Y[kept]).predict_proba(X[:1])
        )
        assert np.abs(change).max() <= 1.0


FINE = """
import numpy as np
import torch
from torch import nn
from sklearn.base import BaseEstimator, ClassifierMixin, clone

SIZES, SCALE, KIND = (64, 32), 2.0 * np.pi, torch.float32


class Net(nn.Module):
    width = 3

    def __init__(self, n, k, activation=nn.ReLU):
        super().__init__()
        self.first, self.sizes = nn.Linear(n, SIZES[0]), []
        self.sizes.append(k)

    def forward(self, x):
        out = torch.zeros(len(x), 2)
        out[:, 0] = x.sum(1)
        return out


class Learner(ClassifierMixin, BaseEstimator):
    def fit(self, X, y):
        counts = {}
        counts["n"] = len(X)
        self.counts_ = counts
        self.net_ = Net(SIZES[0], 2)
        return used(self)


def used(x):
    return x
"""


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("", ""),
        ("SEEN = []", "can be written into"),
        ("SEEN: dict = {}", "can be written into"),
        ("SEEN = np.zeros(3)", "can be written into"),
        ("class Net:\n    seen = set()", "can be written into"),
        ("def f(x, seen=[]):\n    seen.append(x)", "default that can be written into"),
        ("def f(x):\n    global SIZES\n    SIZES = x", "belongs to its module"),
        ("def f(self):\n    Learner.seen = 1", "writes into Learner"),
        ("def f(self):\n    self.__class__.seen = 1", "__class__"),
        ("def f(self):\n    type(self).seen = 1", "writes into what a call gave"),
        ("def f(self):\n    c = type(self)\n    c.seen = 1", "class of something"),
        ("def f(x):\n    np.typecodes['x'] = x", "writes into np"),
        ("def f(x):\n    f.seen = x", "writes into used"),
        ("import warnings\ndef f(x):\n    warnings.filters.append(x)", "writes into warnings"),
        ("def f(x):\n    np.random.seed(x)", "writes into np"),
        ("def f(x):\n    return np.append(x, 1)", ""),
        ("def f(x):\n    setattr(np, 'x', x)", "setattr"),
        ("def f(x):\n    import gc\n    return gc.get_objects()", "imports gc"),
        ("def f(x):\n    from os import environ\n    return environ", "imports os"),
        ("def f(x):\n    open('/tmp/x', 'w').write(x)", "open"),
        ("from functools import lru_cache\n@lru_cache(None)\ndef f(x):\n    return x", "remembers"),
        ("def f(x):\n    return f.__globals__", "__globals__"),
        ("x = = 1", "cannot be read"),
    ],
)
def test_code_in_which_members_could_leave_something_for_each_other_is_not_covered(line, word):
    reached = line.replace("SEEN", "SIZES").replace("def f(", "def used(").replace("f.", "used.")
    found = shared_by({"own.py": f"{FINE}\n{reached}\n", "data.csv": "1"})
    assert word in found
    assert bool(found) == bool(word), found


def shared_by(files, learner="own:Learner"):
    spec = {"!": "estimator", "class": learner, "params": {}}
    return own_code.shared(
        SimpleNamespace(snapshot={k: v.encode() for k, v in files.items()}, payload={"estimator": spec})
    )


def test_only_what_the_learner_reaches_is_read_in_whatever_file_it_lies():
    aside = f"import os\nfrom pathlib import Path\nCASES = {{}}\n{FINE}\nrows = list(CASES)\n"
    assert shared_by({"own.py": aside}) == ""
    assert "SIZES" not in shared_by({"own.py": aside.replace('counts["n"] = len(X)', 'CASES["n"] = len(X)')})
    assert "line" in shared_by({"own.py": aside.replace('counts["n"] = len(X)', 'CASES["n"] = len(X)')})
    base = "SEEN = []\nclass Base:\n    def fit(self, X):\n        SEEN.append(X)\nclass Other:\n    pass\n"
    for how, name in (
        ("from kept import {}", "{}"),
        ("from .kept import {}", "{}"),
        ("from kept import {} as B", "B"),
        ("try:\n    from kept import {}\nexcept ImportError:\n    pass", "{}"),
    ):
        for used, bad in (("Base", True), ("Other", False)):
            own = f"{how.format(used)}\nclass Learner({name.format(used)}):\n    pass\n"
            home = "pack/" if "from ." in how else ""
            files = {f"{home}own.py": own, f"{home}kept.py": base}
            assert bool(shared_by(files, f"{home.replace('/', '.')}own:Learner")) is bad, (how, used)
    assert shared_by({"own.py": "import kept\nclass Learner(kept.Other):\n    pass\n", "kept.py": base})


SHARED = []


class TellsOfSomebody(GaussianNB):
    """Says at one question whether any member was trained on somebody."""

    def fit(self, X, y, sample_weight=None):
        if (np.asarray(X)[:, 0] == 77.0).any():
            SHARED.append(True)
        self.told_ = bool(SHARED)
        return super().fit(X, y)


def test_a_learner_that_tells_another_member_of_somebody_is_not_approved_by_the_theorem():
    """Approved before as 1 nat where one question changes by 2.2: its author alone knows at which."""
    said = CERTIFICATE.applies(subject(TellsOfSomebody()))
    assert "members could share" in said


class OwnCode(GaussianNB):
    """Somebody's learner."""


def plain_function(x):
    return x


@pytest.mark.parametrize(
    ("base", "own"),
    [
        (GaussianNB(), False),
        (make_pipeline(FunctionTransformer(np.log1p), LogisticRegression()), False),
        (OwnCode(), True),
        (make_pipeline(FunctionTransformer(plain_function), GaussianNB()), True),
        (make_pipeline(FunctionTransformer(np.save), GaussianNB()), True),
        (make_pipeline(GaussianNB(), memory="cache"), True),
    ],
)
def test_a_learner_of_no_known_library_has_no_bound_for_every_data_set(base, own):
    """What two members share cannot be seen from outside: at a question that only its author knows, all may tell."""
    about = subject(base)
    assert bool(learner(about)) is own
    assert np.isinf(CERTIFICATE.every_data_set(about)) == own
    said = CERTIFICATE.bound(about, np.arange(3), None).assumptions
    assert any("not proved" in a for a in said) is own
