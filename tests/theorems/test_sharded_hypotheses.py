"""What the theorem about shards takes for granted: public records are nobody's, ids name people, learners are read."""

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
from privgate.models import Sharded
from privgate.theorems import catalogue
from privgate.theorems.certificate import Units

CERTIFICATE = catalogue.THEOREMS["sharded"]
RNG = np.random.default_rng(0)
N = 40
X, Y = RNG.normal(size=(N, 2)), np.arange(N) % 2


def subject(base=None, records=X, **more):
    groups = more.pop("groups", None)
    model = Sharded(GaussianNB() if base is None else base, shards=4, classes=[0, 1], **more)
    return Subject.local(Recipe(model, seed=0), TrainingData(records, Y, groups=groups, one_record_each=groups is None))


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
def test_a_learner_of_no_known_library_has_no_theorem_and_is_refitted(base, own):
    """Members could share what only one of them was given, and only the author knows at which question it shows."""
    about = subject(base)
    assert bool(CERTIFICATE.applies(about)) is own
    assert ("code of its own" in CERTIFICATE.applies(about)) is own
