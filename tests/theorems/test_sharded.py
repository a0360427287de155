"""Sharded learners: the theorem against adversarial members, the traps of sharding, and plain scikit-learn use."""

import itertools
import pickle

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from privgate import Recipe, Subject, TrainingData
from privgate.check.gate import evaluate
from privgate.models import Sharded
from privgate.models.sharded import clipped, log_pool_bound
from privgate.policy import Policy
from privgate.theorems import catalogue
from privgate.theorems.catalogue import applicable

COMBINE = ("log_pool", "mean", "votes")


def table(seed=0, n=80, K=2):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    return X, np.concatenate([np.arange(K), rng.integers(0, K, n - K)])


def change(one, other):
    with np.errstate(divide="ignore"):
        return np.abs(np.log(one) - np.log(other)).max()


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
        if self.mood_ == 1:
            return np.full((n, K), np.nan)
        if self.mood_ == 2:
            return np.full((n, K), np.inf)
        if self.mood_ == 3:
            return np.zeros((n, K))
        if self.mood_ == 4:
            raise ValueError("no such question")
        p = np.full((n, K), 1e-300)
        p[:, self.mood_ % K] = 1.0
        return p


@pytest.mark.quick(2)
@pytest.mark.parametrize("combine", COMBINE)
@pytest.mark.parametrize("seed", range(6))
def test_adversarial_members_never_exceed_the_bound(combine, seed):
    rng = np.random.default_rng(seed)
    X, y = table(seed, n=40, K=int(rng.integers(2, 5)))
    dtp, shards = float(rng.choice([0.2, 1.0, 2.5])), int(rng.integers(1, 7))
    made = Sharded(Adversary(), shards=shards, dtp=dtp, classes=range(int(y.max()) + 1), combine=combine)
    whole = clone(made).fit(X, y).predict_proba(X[:5])
    for i in range(len(y)):
        keep = np.arange(len(y)) != i
        assert change(whole, clone(made).fit(X[keep], y[keep]).predict_proba(X[:5])) <= dtp


def pooled(made, parts):
    """Return log-probabilities of all members together; ``parts`` has shape (members, n, K)."""
    if made.combine == "log_pool":
        z = parts.mean(axis=0)
        return z - np.logaddexp.reduce(z, axis=1, keepdims=True)
    return np.log((parts.sum(axis=0) + made.alpha) / (made.shards + parts.shape[-1] * made.alpha))


@pytest.mark.parametrize("shards", [1, 2, 3, 4, 10])
@pytest.mark.parametrize("K", [2, 3, 7])
def test_the_log_pools_bound_is_attained_by_extreme_members_and_never_exceeded(shards, K):
    made = Sharded(GaussianNB(), shards=shards, dtp=1.0, classes=range(K))
    low = np.full(K, -made.clip)
    low[0] = 0.0
    high = np.zeros(K)
    high[0] = -made.clip
    rest = np.tile(low, (shards - 1, 1)).reshape(shards - 1, 1, K)
    one, other = (pooled(made, np.concatenate([m.reshape(1, 1, K), rest])) for m in (low, high))
    reverse = [pooled(made, np.concatenate([m.reshape(1, 1, K), high - 0 * rest])) for m in (low, high)]
    largest = max(np.abs(one - other).max(), np.abs(reverse[0] - reverse[1]).max())

    assert largest <= 1.0
    assert largest == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize("k", [1, 2, 3, 4])
@pytest.mark.parametrize("C", [2, 3])
def test_votes_by_enumeration(k, C):
    """Every vote of every member, one of them replaced by every other vote or by no answer."""
    made = Sharded(GaussianNB(), shards=k, dtp=1.0, classes=range(C), combine="votes")
    ballots = [*np.eye(C), np.full(C, 1 / C)]
    worst = 0.0
    for others in itertools.combinations_with_replacement(ballots, k - 1):
        each = [pooled(made, np.array([*others, b]).reshape(k, 1, C)) for b in ballots]
        worst = max(worst, *(np.abs(a - b).max() for a, b in itertools.combinations(each, 2)))

    assert worst <= 1.0
    assert worst > 0.99


def test_published_ranges():
    """R for DTP 1, as docs/mathematics.md lists them."""
    for K, expected in ((2, {1: 1.00, 4: 2.355, 10: 5.055, 20: 10.0}), (3, {1: 0.76, 4: 2.2, 10: 5.03, 20: 10.0})):
        for k, R in expected.items():
            made = Sharded(GaussianNB(), shards=k, dtp=1.0, classes=range(K))
            assert made.clip == pytest.approx(R, abs=0.06)
            assert log_pool_bound(made.clip, 1 / k, K) <= 1.0
    assert log_pool_bound(2.36, 0.25, 2) == pytest.approx(1.0023, abs=1e-4)
    assert Sharded(GaussianNB(), classes=[0, 1]).alpha == pytest.approx(0.58198, abs=1e-5)
    # a person with two ids among ten shards
    assert log_pool_bound(5.05, 0.2, 2) == pytest.approx(1.98, abs=0.01)


def test_clipping_answers_nothing_where_a_member_does_not_answer():
    z = np.array([[0.0, -99.0], [np.nan, 0.0], [np.inf, 0.0], [-np.inf, -np.inf], [5.0, 4.0], [-np.inf, -3.0]])

    assert clipped(z, 2.0).tolist() == [[0, -2], [0, 0], [0, 0], [0, 0], [0, -1], [-2, 0]]


# ------------------------------------------------------------------ traps


def test_a_shard_depends_on_the_records_own_id_and_nothing_else():
    X = table()[0]
    made = Sharded(GaussianNB(), shards=7, classes=[0, 1])
    shard = made.shard_of(X)

    assert len(np.unique(shard)) == 7
    for keep in (np.arange(80) != 3, np.arange(80)[::-1], np.arange(40, 80)):
        assert (made.shard_of(X[keep]) == shard[keep]).all()
    assert (made.shard_of(np.asfortranarray(X)) == shard).all()
    frame = pd.DataFrame(X, columns=list("abc"))
    assert (made.shard_of(frame) == shard).all()
    assert (made.shard_of(sp.csr_matrix(X)) == shard).all()
    assert (Sharded(GaussianNB(), shards=7, classes=[0, 1], key="other").shard_of(X) != shard).any()


@pytest.mark.parametrize("base", [
    RandomForestClassifier(5), make_pipeline(StandardScaler(), LogisticRegression()),
    DecisionTreeClassifier(splitter="random", random_state=np.random.RandomState(3)),  # a stream members would share
])  # fmt: skip
def test_every_other_member_answers_bit_for_bit_the_same_without_a_person(base):
    X, y = table()
    made = Sharded(base, shards=5, classes=[0, 1], random_state=4)
    shard = made.shard_of(X)
    whole = clone(made).fit(X, y)
    for i in (0, 7, 33):
        keep = np.arange(len(y)) != i
        less = clone(made).fit(X[keep], y[keep])
        same = [
            np.array_equal(a.predict_proba(X), b.predict_proba(X))
            for a, b in zip(whole.members_, less.members_, strict=True)
        ]
        assert [m for m in range(5) if not same[m]] in ([shard[i]], [])


class DrawsFromEverybodysStream(ClassifierMixin, BaseEstimator):
    """Draws as many numbers from numpy's own stream as it has records."""

    def fit(self, X, y):
        self.p_ = float(np.random.random(len(X))[-1])  # noqa: NPY002  the stream that is meant
        self.classes_ = np.array([0, 1])
        return self

    def predict_proba(self, X):
        return np.tile([self.p_, 1 - self.p_], (len(X), 1))


def test_members_do_not_share_the_streams_that_learners_draw_from():
    X, y = table()
    made = Sharded(DrawsFromEverybodysStream(), shards=5, classes=[0, 1])
    shard = made.shard_of(X)
    np.random.seed(1)  # noqa: NPY002  the stream that is meant
    before = np.random.get_state()[1].copy()  # noqa: NPY002  the stream that is meant
    whole = clone(made).fit(X, y)
    assert (np.random.get_state()[1] == before).all()  # noqa: NPY002  the stream that is meant
    less = clone(made).fit(X[1:], y[1:])

    same = [a.p_ == b.p_ for a, b in zip(whole.members_, less.members_, strict=True)]
    assert [m for m in range(5) if not same[m]] == [shard[0]]


def test_the_scaler_outside_is_not_covered_and_the_one_inside_is():
    X, y = table()
    inside = Recipe(Sharded(make_pipeline(StandardScaler(), LogisticRegression()), classes=[0, 1]))
    outside = Recipe(make_pipeline(StandardScaler(), Sharded(LogisticRegression(), classes=[0, 1])))
    data = TrainingData(X, y, one_record_each=True)

    assert catalogue.THEOREMS["sharded"].applies(Subject.local(inside, data)) == ""
    assert "not privgate.models.Sharded" in catalogue.THEOREMS["sharded"].applies(Subject.local(outside, data))


def test_labels_must_be_declared_and_hold_the_data():
    X, y = table(K=3)
    with pytest.raises(ValueError, match="every label there can be"):
        Sharded(GaussianNB()).fit(X, y)
    with pytest.raises(ValueError, match="none of the 2 declared"):
        Sharded(GaussianNB(), classes=[0, 1]).fit(X, y)
    few = Subject.local(Recipe(Sharded(GaussianNB(), classes=[0, 1])), TrainingData(X, y, one_record_each=True))
    assert "does not declare" in catalogue.THEOREMS["sharded"].applies(few)


def test_somebody_in_several_shards_is_charged_for_each():
    X, y = table(n=60)
    groups = np.repeat(np.arange(20), 3)
    made = Sharded(GaussianNB(), shards=10, classes=[0, 1])
    subject = Subject.local(Recipe(made), TrainingData(X, y, groups=groups, one_record_each=groups is None))
    found = catalogue.THEOREMS["sharded"].bound(subject, np.arange(20), None)
    shard = made.shard_of(X)
    held = [len(set(shard[groups == g])) for g in range(20)]

    assert max(held) == 3
    assert found.upper == pytest.approx([log_pool_bound(made.clip, h / 10, 2) for h in held], abs=2e-9)
    assert (found.upper[np.array(held) > 1] > 1).all()


def test_an_id_column_keeps_a_person_in_one_shard_and_is_not_learnt_from():
    X, y = table(n=60)
    frame = pd.DataFrame(X, columns=list("abc")).assign(person=[f"p{g}" for g in np.repeat(np.arange(20), 3)])
    made = Sharded(GaussianNB(), shards=10, classes=[0, 1], ids="person")
    fitted = clone(made).fit(frame, y)

    assert all(len(set(made.shard_of(frame)[3 * g : 3 * g + 3])) == 1 for g in range(20))
    assert np.array_equal(fitted.predict_proba(frame), fitted.predict_proba(frame[["a", "b", "c"]]))
    with pytest.raises(ValueError, match="no column 'person'"):
        clone(made).fit(frame[["a", "b", "c"]], y)
    with pytest.raises(ValueError, match="every record belongs to one person"):
        clone(made).fit(frame.assign(person=[None, *frame["person"][1:]]), y)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"shards": 0}, "whole number from 1"),
        ({"shards": 2.5}, "whole number from 1"),
        ({"dtp": 0.0}, "positive number of nats"),
        ({"dtp": float("nan")}, "positive number of nats"),
        ({"dtp": float("inf")}, "positive number of nats"),
        ({"combine": "sum"}, "combine must be"),
        ({"base": None}, "base must be an estimator"),
        ({"public": (np.zeros((1, 3)), [7])}, "public records have labels"),
    ],
)
def test_parameters_that_mean_nothing_are_one_sentence(wrong, why):
    X, y = table()
    with pytest.raises(ValueError, match=why):
        Sharded(**{"base": GaussianNB(), "classes": [0, 1], **wrong}).fit(X, y)


def test_two_published_versions_tell_who_left():
    """The bound is about one version: the quotient of two names the shard of everybody who left between them."""
    X, y = table()
    made = Sharded(DecisionTreeClassifier(), shards=10, classes=[0, 1])
    one, two = clone(made).fit(X, y), clone(made).fit(X[1:], y[1:])
    moved = [m for m in range(10) if not np.array_equal(*(v.members_[m].predict_proba(X) for v in (one, two)))]

    assert moved in ([made.shard_of(X)[0]], [])


# ------------------------------------------------------------------ plain scikit-learn


def test_it_is_a_plain_estimator():
    X, y = table(n=200)
    made = Sharded(make_pipeline(StandardScaler(), LogisticRegression()), shards=4, classes=[0, 1])

    assert clone(made).get_params(deep=False).keys() == made.get_params(deep=False).keys()
    assert made.get_params()["base__logisticregression__C"] == 1.0
    search = GridSearchCV(made, {"base__logisticregression__C": [0.1, 1.0], "shards": [2, 4]}, cv=2).fit(X, y)
    assert set(search.best_params_) == {"base__logisticregression__C", "shards"}
    assert cross_val_score(made, X, y, cv=2).shape == (2,)
    fitted = clone(made).fit(X, y)
    assert np.array_equal(pickle.loads(pickle.dumps(fitted)).predict_proba(X), fitted.predict_proba(X))
    assert fitted.predict_proba(X).sum(axis=1) == pytest.approx(1.0)


def test_public_records_reach_every_member():
    X, y = table(n=30)
    Z, t = table(seed=1, n=50)
    made = Sharded(GaussianNB(), shards=10, classes=[0, 1], public=(Z, t)).fit(X, y)

    assert all(m.class_count_.sum() >= 50 for m in made.members_)
    assert (
        catalogue.THEOREMS["sharded"].applies(
            Subject.local(Recipe(clone(made)), TrainingData(X, y, one_record_each=True))
        )
        == ""
    )


@pytest.mark.slow
def test_any_learner_is_approved_by_dtp_1():
    X, y = table(n=40)
    subject = Subject.local(
        Recipe(Sharded(DecisionTreeClassifier(), shards=5, classes=[0, 1]), seed=1),
        TrainingData(X, y, one_record_each=True),
    )
    plain = Subject.local(Recipe(DecisionTreeClassifier(), seed=1), TrainingData(X, y, one_record_each=True))

    verdict = evaluate(Policy.load("dtp-1"), subject)
    assert verdict.approved
    assert (verdict.records["engine"] == "refit").all()
    assert verdict.records["dtp_upper"].max() <= 1.0
    assert verdict.records["dtp_lower"].max() > 0.5
    assert not evaluate(Policy.load("dtp-1"), plain).approved


# ------------------------------------------------------------------ members that are not strangers


def worst_change(made, X, y, asked):
    whole = clone(made).fit(X, y).predict_proba(asked.copy())
    keep = ~np.eye(len(y), dtype=bool)
    return max(change(whole, clone(made).fit(X[k], y[k]).predict_proba(asked.copy())) for k in keep)


@pytest.mark.quick(1)
@pytest.mark.parametrize("combine", COMBINE)
def test_a_step_that_writes_into_the_question_does_not_reach_the_next_member(combine):
    X, y = table(n=20)
    X[0] = 1e6
    base = make_pipeline(StandardScaler(copy=False), LogisticRegression(C=1e4))
    made = Sharded(base, shards=5, classes=[0, 1], combine=combine)
    asked = 3 * table(seed=1, n=100)[0]

    assert worst_change(made, X, y, asked) <= 1.0
    before = asked.copy()
    clone(made).fit(X, y).predict_proba(asked)
    assert np.array_equal(asked, before)


class ReadsRowNumbers(ClassifierMixin, BaseEstimator):
    """Answers by the first row number that it sees."""

    def fit(self, X, y):
        self.p_ = 1 / (2 + X.index[0])
        self.classes_ = np.array([0, 1])
        return self

    def predict_proba(self, X):
        return np.tile([self.p_, 1 - self.p_], (len(X), 1))


def test_a_member_does_not_see_where_its_records_stand_in_the_whole():
    X, y = table(n=60)
    frame = pd.DataFrame(X, columns=list("abc"))
    made = Sharded(ReadsRowNumbers(), shards=10, classes=[0, 1])
    whole = clone(made).fit(frame, y)
    less = clone(made).fit(frame[1:].reset_index(drop=True), y[1:])  # as a table without the person is read again

    shard = made.shard_of(frame)
    same = [a.p_ == b.p_ for a, b in zip(whole.members_, less.members_, strict=True)]

    assert [m for m in range(10) if not same[m]] in ([shard[0]], [])


class CentresInPlace(ClassifierMixin, BaseEstimator):
    """Takes the mean of all its records off each of them, where they are."""

    def fit(self, X, y):
        mean = np.mean([np.asarray(row) for row in X], axis=0)
        for k in range(len(X)):
            X[k] -= mean
        self.p_ = float(np.clip(np.abs(X[0]).sum() % 1, 0.01, 0.99))
        self.classes_ = np.array([0, 1])
        return self

    def predict_proba(self, X):
        return np.tile([self.p_, 1 - self.p_], (len(X), 1))


def test_what_a_member_writes_into_public_records_stays_with_it():
    X, y = table(n=30)
    Z, t = table(seed=1, n=4)
    rows = lambda A: [row.copy() for row in A]
    made = Sharded(CentresInPlace(), shards=5, classes=[0, 1], public=(rows(Z), t))
    shard = made.shard_of(rows(X))
    whole, less = clone(made).fit(rows(X), y), clone(made).fit(rows(X)[1:], y[1:])
    same = [a.p_ == b.p_ for a, b in zip(whole.members_, less.members_, strict=True)]

    assert [m for m in range(5) if not same[m]] == [shard[0]]


class NeedsMuchMemory(GaussianNB):
    def fit(self, X, y, sample_weight=None):
        raise MemoryError


def test_a_limit_that_all_members_share_is_no_members_answer():
    X, y = table(n=20)
    with pytest.raises(MemoryError):
        Sharded(NeedsMuchMemory(), classes=[0, 1]).fit(X, y)


@pytest.mark.parametrize("kind", [np.float16, np.float32])
def test_short_floats_do_not_round_the_bound_away(kind):
    for shards in (1, 4, 10):
        made = Sharded(GaussianNB(), shards=shards, dtp=kind(1.0), classes=[0, 1])
        assert log_pool_bound(made.clip, 1 / shards, 2) <= 1.0
        assert np.log1p(1 / made.alpha) <= 1.0


@pytest.mark.parametrize("kind", [np.int64, np.uint8, float])
def test_a_number_of_shards_of_any_type_gives_the_same_shards(kind):
    X, y = table(n=30)
    made, plain = (Sharded(GaussianNB(), shards=s, classes=[0, 1]).fit(X, y) for s in (kind(7), 7))

    assert np.array_equal(made.shard_of(X), plain.shard_of(X))
    assert np.array_equal(made.predict_proba(X), plain.predict_proba(X))


def test_members_of_a_stream_at_some_address_would_be_others_each_time():
    X, y = table()
    with pytest.raises(ValueError, match="random_state must be a whole number"):
        Sharded(GaussianNB(), classes=[0, 1], random_state=np.random.RandomState(3)).fit(X, y)


def test_sparse_records_with_an_id_column():
    X, y = table(n=40)
    wide = np.column_stack([np.arange(40) // 2, X])
    made = Sharded(GaussianNB(), shards=4, classes=[0, 1], ids=0)
    base = make_pipeline(StandardScaler(with_mean=False), LogisticRegression())
    fitted = made.set_params(base=base).fit(sp.coo_matrix(wide), y)

    assert np.array_equal(made.shard_of(sp.csc_matrix(wide)), made.shard_of(wide))
    assert fitted.predict_proba(sp.csr_matrix(wide)) == pytest.approx(clone(made).fit(wide, y).predict_proba(wide))


def test_equal_values_have_one_spelling():
    made = Sharded(GaussianNB(), shards=10**9, classes=[0, 1], ids="p")
    spelt = [["a", 0.0], [np.str_("a"), -0.0]]
    text, numpys = (made.shard_of(pd.DataFrame({"p": pd.Series([s[0]], dtype=object)})) for s in spelt)
    zero, minus = (made.shard_of(pd.DataFrame({"p": [s[1]]})) for s in spelt)

    assert text == numpys
    assert zero == minus


@pytest.mark.parametrize("name", ["sklearn/base.py", "sklearn.py", "privgate/models.py", "privgate.so"])
def test_a_snapshot_that_brings_its_own_libraries_is_no_subject_of_the_theorem(name, tmp_path):
    made = Recipe(Sharded(GaussianNB(), classes=[0, 1]))
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / "own.py").write_text("")
    assert Recipe.read(made.payload, tmp_path).own_model is not None
    (tmp_path / name).write_text("clone = copy = None")

    assert Recipe.read(made.payload, tmp_path).own_model is None


# ------------------------------------------------------------------ verdicts


def verdict_of(policy, groups=None, **params):
    X, y = table(n=24)
    made = Sharded(DecisionTreeClassifier(), **{"shards": 5, "classes": [0, 1], **params})
    return evaluate(
        policy, Subject.local(Recipe(made, seed=1), TrainingData(X, y, groups=groups, one_record_each=groups is None))
    )


@pytest.mark.slow
def test_a_model_over_the_limit_is_blocked_and_no_bug():
    """It computes an ``alpha`` that nobody can set: more smoothing is no next step."""
    verdict = verdict_of(Policy.load("dtp-1"), dtp=4.0)

    assert not verdict.approved
    assert verdict.records["dtp_upper"].max() > 1.0


@pytest.mark.slow
def test_fewer_than_4_shards_count_only_beside_an_attack_rule():
    X, y = table(n=24)
    few, enough = (
        Subject.local(Recipe(Sharded(GaussianNB(), shards=s, classes=[0, 1])), TrainingData(X, y, one_record_each=True))
        for s in (3, 4)
    )
    names = lambda subject, attacked: [c.name for c in applicable(subject, attacked=attacked)[0]]

    assert names(enough, False) == names(few, True) == ["sharded"]
    assert names(few, False) == []
    verdict = verdict_of(Policy.load("dtp-1"), shards=3)
    assert not verdict.approved
    assert np.isinf(verdict.records["dtp_upper"]).all()
    assert "only beside an attack rule" in str(verdict.evidence)
