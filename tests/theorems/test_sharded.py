"""Sharded learners: the theorem against adversarial members, the traps of sharding, and plain scikit-learn use."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.tree import DecisionTreeClassifier

from privgate import Recipe, Subject, TrainingData
from privgate.models import Sharded
from privgate.models.sharded import clipped, log_pool_bound
from privgate.theorems import catalogue
from privgate.theorems.theorem import Units

THEOREM = catalogue.THEOREMS["sharded"]
COMBINE = ("log_pool", "mean")


def table(seed=0, n=80, K=2):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    return X, np.concatenate([np.arange(K), rng.integers(0, K, n - K)])


X, Y = table()
FRAME = pd.DataFrame(X, columns=list("abc"))


def model(base=None, shards=5, **more):
    return Sharded(GaussianNB() if base is None else base, **{"shards": shards, "classes": [0, 1], **more})


def subject(made, records=X, y=Y, **more):
    return Subject.local(Recipe(made, seed=1), TrainingData(records, y, one_record_each="groups" not in more, **more))


def upper(about):
    return THEOREM.certify(Units(about, np.arange(len(about.data.units)), None)).upper


def change(one, other):
    with np.errstate(divide="ignore"):
        return np.abs(np.log(one) - np.log(other)).max()


def differing(one, other):
    """Which members answer otherwise."""
    pairs = zip(one.members_, other.members_, strict=True)
    return [m for m, (a, b) in enumerate(pairs) if not np.array_equal(a.predict_proba(X), b.predict_proba(X))]


class Adversary(ClassifierMixin, BaseEstimator):
    """Answers whatever its records' first column says: extremes, NaN, infinities, missing classes, refusals."""

    def fit(self, X, y):
        self.mood_ = int(np.abs(np.asarray(X)[:, 0]).sum() * 1e6) % 9
        if self.mood_ == 0:
            raise RuntimeError("not today")
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, X):
        n, K = len(X), len(self.classes_)
        if self.mood_ == 4:
            raise ValueError("no such question")
        if self.mood_ in (1, 2, 3):
            return np.full((n, K), {1: np.nan, 2: np.inf, 3: 0.0}[self.mood_])
        p = np.full((n, K), 1e-300)
        p[:, self.mood_ % K] = 1.0
        return p


@pytest.mark.quick(2)
@pytest.mark.parametrize("combine", COMBINE)
@pytest.mark.parametrize("seed", range(6))
def test_adversarial_members_never_exceed_the_bound(combine, seed):
    rng = np.random.default_rng(seed)
    x, y = table(seed, n=40, K=int(rng.integers(2, 5)))
    dtp, shards = float(rng.choice([0.2, 1.0, 2.5])), int(rng.integers(1, 7))
    made = Sharded(Adversary(), shards=shards, dtp=dtp, classes=range(int(y.max()) + 1), combine=combine)
    whole = clone(made).fit(x, y).predict_proba(x[:5])
    for i in range(len(y)):
        keep = np.arange(len(y)) != i
        assert change(whole, clone(made).fit(x[keep], y[keep]).predict_proba(x[:5])) <= dtp


def test_published_ranges():
    """R for DTP 1, as docs/mathematics.md lists them."""
    for K, expected in ((2, {1: 1.00, 4: 2.355, 10: 5.055, 20: 10.0}), (3, {1: 0.76, 4: 2.2, 10: 5.03, 20: 10.0})):
        for k, R in expected.items():
            made = model(shards=k, classes=range(K))
            assert made.clip == pytest.approx(R, abs=0.06)
            assert log_pool_bound(made.clip, 1 / k, K) <= 1.0
    assert log_pool_bound(2.36, 0.25, 2) == pytest.approx(1.0023, abs=1e-4)
    assert model().alpha == pytest.approx(0.58198, abs=1e-5)
    # a person with two ids among ten shards
    assert log_pool_bound(5.05, 0.2, 2) == pytest.approx(1.98, abs=0.01)


def test_clipping_answers_nothing_where_a_member_does_not_answer():
    z = np.array([[0.0, -99.0], [np.nan, 0.0], [np.inf, 0.0], [-np.inf, -np.inf], [5.0, 4.0], [-np.inf, -3.0]])
    assert clipped(z, 2.0).tolist() == [[0, -2], [0, 0], [0, 0], [0, 0], [0, -1], [-2, 0]]


# ------------------------------------------------------------------ traps


def test_a_shard_depends_on_the_records_own_id_and_nothing_else():
    made = model(shards=7)
    shard = made.shard_of(X)
    assert len(np.unique(shard)) == 7
    for keep in (np.arange(80) != 3, np.arange(80)[::-1], np.arange(40, 80)):
        assert (made.shard_of(X[keep]) == shard[keep]).all()
    for same in (np.asfortranarray(X), FRAME, sp.csr_matrix(X)):
        assert (made.shard_of(same) == shard).all()
    assert (model(shards=7, key="other").shard_of(X) != shard).any()
    for kind in (np.int64, np.uint8, float):
        assert (model(shards=kind(7)).shard_of(X) == shard).all()
        assert np.array_equal(*(model(shards=s).fit(X, Y).predict_proba(X) for s in (kind(7), 7)))


def test_equal_values_have_one_spelling():
    made = model(shards=10**9, ids="p")
    for one, other in ((["a"], [np.str_("a")]), ([0.0], [-0.0])):
        kind = object if one == ["a"] else float
        assert np.array_equal(*(made.shard_of(pd.DataFrame({"p": pd.Series(v, dtype=kind)})) for v in (one, other)))


class Toy(ClassifierMixin, BaseEstimator):
    """Answers every question by one probability."""

    def fit(self, X, y):
        self.p_, self.classes_ = self.learn(X), np.array([0, 1])
        return self

    def predict_proba(self, X):
        return np.tile([self.p_, 1 - self.p_], (len(X), 1))


class DrawsFromEverybodysStream(Toy):
    def learn(self, X):
        return float(np.random.random(len(X))[-1])  # noqa: NPY002  the stream that is meant


class ReadsRowNumbers(Toy):
    def learn(self, X):
        return 1 / (2 + X.index[0])


class CountsCategories(Toy):
    def learn(self, X):
        return 1 / (2 + len(X["c"].cat.categories))


class CentresInPlace(Toy):
    """Takes the mean of all its records off each of them, where they are."""

    def learn(self, X):
        mean = np.mean([np.asarray(row) for row in X], axis=0)
        for k in range(len(X)):
            X[k] -= mean
        return float(np.clip(np.abs(X[0]).sum() % 1, 0.01, 0.99))


class DrawsWhenAsked(Toy):
    def learn(self, X):
        return len(X)

    def predict_proba(self, X):
        p = np.random.random(self.p_)[-1]  # noqa: NPY002  the stream that is meant
        return np.tile([p, 1 - p], (len(X), 1))


def rows(A):
    return [row.copy() for row in A]


@pytest.mark.parametrize(("base", "records", "without"), [
    (RandomForestClassifier(5), X, X[1:]),
    (make_pipeline(StandardScaler(), LogisticRegression()), X, X[1:]),
    # a stream that members would share
    (DecisionTreeClassifier(splitter="random", random_state=np.random.RandomState(3)), X, X[1:]),
    (DrawsFromEverybodysStream(), X, X[1:]),
    (ReadsRowNumbers(), FRAME, FRAME[1:].reset_index(drop=True)),  # as a table without the person is read again
    (CentresInPlace(), rows(X), rows(X[1:])),
])  # fmt: skip
def test_every_other_member_answers_bit_for_bit_the_same_without_a_person(base, records, without):
    made = model(base, random_state=4)
    before = np.random.get_state()[1].copy()  # noqa: NPY002  the stream that is meant
    whole, less = clone(made).fit(records, Y), clone(made).fit(without, Y[1:])
    assert (np.random.get_state()[1] == before).all()  # noqa: NPY002  the stream that is meant
    assert differing(whole, less) in ([made.shard_of(X)[0]], [])
    if isinstance(base, DrawsFromEverybodysStream | CentresInPlace):
        assert differing(whole, less)


def test_a_member_does_not_see_a_category_of_another_shard():
    frame = pd.DataFrame({"c": pd.Categorical(["rare", *"uv" * 20]), "x": np.arange(41.0)})
    y, less = np.arange(41) % 2, frame[1:].reset_index(drop=True)
    less["c"] = less["c"].cat.remove_unused_categories()  # as a table without the person is read again
    made = model(CountsCategories(), shards=4)
    whole, other = clone(made).fit(frame, y), clone(made).fit(less, y[1:])
    assert differing(whole, other) == [made.shard_of(frame)[0]]
    assert len(frame["c"].cat.categories) == 3  # what was given stays as it was


@pytest.mark.quick(1)
@pytest.mark.parametrize("combine", COMBINE)
@pytest.mark.parametrize(
    "base", [make_pipeline(StandardScaler(copy=False), LogisticRegression(C=1e4)), DrawsWhenAsked()]
)
def test_what_one_member_does_when_asked_does_not_reach_the_next(combine, base):
    x, y = table(n=20)
    x[0] = 1e6
    made, asked = model(base, combine=combine), 3 * table(seed=1, n=100)[0]
    before, whole = asked.copy(), clone(made).fit(x, y).predict_proba(asked)
    assert np.array_equal(asked, before)
    for k in range(len(y)):
        keep = np.arange(len(y)) != k
        assert change(whole, clone(made).fit(x[keep], y[keep]).predict_proba(asked.copy())) <= 1.0


def test_somebody_in_several_shards_is_charged_for_each():
    x, y = table(n=60)
    groups, made = np.repeat(np.arange(20), 3), model(shards=10)
    found, shard = upper(subject(made, x, y, groups=groups)), made.shard_of(x)
    held = [len(set(shard[groups == g])) for g in range(20)]
    assert max(held) == 3
    assert found == pytest.approx([log_pool_bound(made.clip, h / 10, 2) for h in held], abs=2e-9)
    assert (found[np.array(held) > 1] > 1).all()


def test_an_id_column_keeps_a_person_in_one_shard_and_is_not_learnt_from():
    x, y = table(n=60)
    frame = pd.DataFrame(x, columns=list("abc")).assign(person=[f"p{g}" for g in np.repeat(np.arange(20), 3)])
    made = model(shards=10, ids="person")
    fitted = clone(made).fit(frame, y)
    assert all(len(set(made.shard_of(frame)[3 * g : 3 * g + 3])) == 1 for g in range(20))
    assert np.array_equal(fitted.predict_proba(frame), fitted.predict_proba(frame[["a", "b", "c"]]))
    with pytest.raises(ValueError, match="no column 'person'"):
        clone(made).fit(frame[["a", "b", "c"]], y)
    with pytest.raises(ValueError, match="every record belongs to one person"):
        clone(made).fit(frame.assign(person=[None, *frame["person"][1:]]), y)

    wide = np.column_stack([np.arange(60) // 2, x])
    made = model(make_pipeline(StandardScaler(with_mean=False), LogisticRegression()), shards=4, ids=0)
    fitted = clone(made).fit(sp.coo_matrix(wide), y)
    assert np.array_equal(made.shard_of(sp.csc_matrix(wide)), made.shard_of(wide))
    assert fitted.predict_proba(sp.csr_matrix(wide)) == pytest.approx(clone(made).fit(wide, y).predict_proba(wide))


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"classes": None}, "every label there can be"),
        ({"classes": [1, 2]}, "none of the 2 declared"),
        ({"shards": 0}, "whole number from 1"),
        ({"shards": 2.5}, "whole number from 1"),
        ({"dtp": 0.0}, "positive number of nats"),
        ({"dtp": float("nan")}, "positive number of nats"),
        ({"dtp": float("inf")}, "positive number of nats"),
        ({"combine": "sum"}, "combine must be"),
        ({"base": object()}, "base must be an estimator"),
        ({"public": (np.zeros((1, 3)), [1])}, "public= went"),
        # members of a stream at some address would be others each time
        ({"random_state": np.random.RandomState(3)}, "random_state must be a whole number"),
    ],
)
def test_parameters_that_mean_nothing_are_one_sentence(wrong, why):
    with pytest.raises(ValueError, match=why):
        model(**wrong).fit(X, Y)


class NeedsMuchMemory(GaussianNB):
    def fit(self, X, y, sample_weight=None):
        raise MemoryError


def test_a_limit_that_all_members_share_is_no_members_answer():
    with pytest.raises(MemoryError):
        model(NeedsMuchMemory()).fit(X, Y)


# ------------------------------------------------------------------ hypotheses of the theorem


class OwnCode(GaussianNB):
    """Somebody's learner."""


def plain_function(x):
    return x


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (model(), ""),
        (model(make_pipeline(StandardScaler(), LogisticRegression())), ""),
        # members could share what only one of them was given, and only the author knows at which question it shows
        (model(OwnCode()), "code of its own"),
        (model(make_pipeline(FunctionTransformer(plain_function), GaussianNB())), "code of its own"),
        (model(make_pipeline(FunctionTransformer(np.log1p), GaussianNB())), "code of its own"),
        (model(make_pipeline(GaussianNB(), memory="cache")), "code of its own"),
        (make_pipeline(StandardScaler(), model(LogisticRegression())), "not privgate.models.Sharded"),
        (model(classes=[1, 2]), "does not declare"),
        (model(shards=3), "3 shards are clipping"),
    ],
)
def test_the_theorem_applies_to_strangers_of_known_libraries_alone(made, said):
    found = THEOREM.refusal(subject(made))
    assert said in found
    assert bool(said) == bool(found)


@pytest.mark.parametrize("name", ["sklearn/base.py", "sklearn.py", "privgate/models.py", "privgate.so"])
def test_a_snapshot_that_brings_its_own_libraries_is_no_subject_of_the_theorem(name, tmp_path):
    made = Recipe(model())
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / "own.py").write_text("")
    assert Recipe.read(made.payload, tmp_path).own_model is not None
    (tmp_path / name).write_text("clone = copy = None")
    assert Recipe.read(made.payload, tmp_path).own_model is None
