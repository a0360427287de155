"""What is asked beside a record: of its own kind, near it, inside the domain, and only what the model answers."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.linear_model import LogisticRegression
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

from privgate import Domain
from privgate.errors import MeasurementError
from privgate.influence import left_out, riskiest
from privgate.run import near_questions
from privgate.run.run import Budget, Run
from privgate.subject.containers import take
from privgate.subject.data import TrainingData
from privgate.subject.recipe import Recipe
from privgate.subject.subject import Subject
from tests.in_process import InProcess

N = 40
LABELS = np.arange(N) % 2


def run(X, estimator=None, candidates=None, **data):
    recipe = Recipe(estimator or LogisticRegression())
    return Run(Subject.local(recipe, TrainingData(X, LABELS, candidates=candidates, **data)), InProcess(), Budget())


def asked(X, *, near=False, **data):
    return near_questions.make_questions(run(X, **data), np.arange(N), near=near).kinds


def numbers(d=3):
    rng = np.random.default_rng(2)
    X = rng.normal(size=(N, d))
    return (X - X.mean(axis=0)) / X.std(axis=0)


def test_numbers_move_by_a_round_step_and_stay_among_the_values_there_are():
    X = numbers()
    kinds = asked(X, near=True)

    assert set(kinds) == {"every number up", "first number up", "every number down", "one number up"}
    for name, moved in kinds.items():
        step = np.abs(moved - X)
        assert ((step < 1e-12) | (np.abs(step - 1e-4) < 1e-12)).all(), name
        assert (moved >= X.min(axis=0)).all()
        assert (moved <= X.max(axis=0)).all()
    assert ((np.abs(kinds["one number up"] - X) > 0).sum(axis=1) == 1).all()
    assert (np.abs(kinds["first number up"] - X)[:, 1:] == 0).all()


@pytest.mark.parametrize(("unit", "step"), [(1.0, 0.1), (0.01, 0.001)])
def test_a_column_of_round_numbers_is_asked_within_its_resolution_too(unit, step):
    """A whole day beside an age in days was the nearest question, and too far for a tree that splits between days."""
    days = np.random.default_rng(4).integers(6_000, 30_000, (400, 1)) * unit
    labels = np.arange(400) % 2
    made = Run(
        Subject.local(Recipe(LogisticRegression()), TrainingData(days, labels, one_record_each=True)),
        InProcess(),
        Budget(),
    )
    kinds = near_questions.make_questions(made, np.arange(400), near=True).kinds

    gaps = {name: np.abs(moved - days).max() for name, moved in kinds.items()}
    assert min(gaps.values()) == pytest.approx(step)
    assert max(gaps.values()) == pytest.approx(10 * step)


def test_an_attacker_asks_further_away_too():
    X = numbers()
    kinds = asked(X)

    assert np.isnan(kinds["one value missing"]).sum(axis=1).tolist() == [1] * N
    assert (kinds["one number far away"].max(axis=1) > 10).all()
    assert np.abs(kinds["every number further up"] - X).max() == pytest.approx(1e-2)


def test_whole_numbers_that_may_be_categories_go_to_a_value_that_somebody_has():
    X = np.random.default_rng(3).choice([2, 5, 9], size=(N, 2))

    for moved in asked(X, near=True).values():
        assert moved.dtype == X.dtype
        assert set(np.unique(moved)) <= {2, 5, 9}


def test_a_frame_keeps_its_types_and_its_categories():
    rng = np.random.default_rng(4)
    frame = pd.DataFrame({
        "size": rng.normal(size=N).astype(np.float32),
        "floor": rng.integers(0, 300, N),
        "colour": pd.Categorical(rng.choice(["red", "blue"], N)),
        "town": pd.Series(rng.choice(["a", "b", None], N), dtype=object),
    })  # fmt: skip
    kinds = asked(frame)

    assert {"every number up", "one value of somebody else's", "one value missing"} <= set(kinds)
    for made in kinds.values():
        assert list(made.dtypes) == list(frame.dtypes)
        assert set(made["colour"].dropna()) <= {"red", "blue"}


@pytest.mark.parametrize("dtype", ["Float32", "Int64", "int64[pyarrow]"])
@pytest.mark.parametrize("missing", [False, True])
def test_numbers_that_may_be_missing_move_as_others_do(dtype, missing):
    values = pd.Series(np.random.default_rng(8).permutation(3 * N)[:N] * 90.0)
    plain = pd.DataFrame({"a": values.astype(np.int64 if "nt" in dtype else np.float64), "b": np.arange(N) % 2})
    frame = plain.assign(a=plain["a"].astype(dtype))
    if missing:
        frame.loc[3, "a"] = None
    ours, theirs = asked(frame), asked(plain)

    for name in ("every number up", "first number up", "every number down", "every number further up"):
        known = frame["a"].notna()
        assert ours[name]["a"].dtype == frame["a"].dtype
        assert ours[name]["a"].isna().equals(frame["a"].isna())
        assert (ours[name]["a"] != frame["a"])[known].all()
        if not missing:
            np.testing.assert_allclose(ours[name]["a"].astype(float), theirs[name]["a"].astype(float), atol=1e-2)
    far = ours["one number far away"]["a"]
    assert (far[far.notna()] > frame["a"].max()).any()


@pytest.mark.parametrize(
    "X",
    [
        [f"word {i} of many" for i in range(N)],
        sp.random_array((N, 9), density=0.4, format="csr", rng=np.random.default_rng(5)),
        np.random.default_rng(6).integers(0, 256, (N, 4, 4)).astype(np.uint8),
        pd.Series([f"word {i} of many" for i in range(N)]),
        tuple(f"word {i} of many" for i in range(N)),
    ],
    ids=["texts", "sparse", "pictures", "column", "tuple"],
)
def test_other_records_are_asked_as_far_as_their_kind_allows(X):
    near, more = asked(X, near=True), asked(X)

    assert len(near) >= 2
    assert len(more) > len(near)
    for made in more.values():
        assert type(made) is (list if isinstance(X, tuple) else type(X))
        assert getattr(made, "dtype", None) == getattr(X, "dtype", None)


def test_pictures_in_black_and_white_are_mirrored_and_moved():
    X = np.random.default_rng(9).random((N, 4, 4)) < 0.5

    assert asked(X, near=True) == {}
    assert (asked(X)["mirrored"] == X[:, :, ::-1]).all()
    assert set(asked(X)) == {"mirrored", "moved by one place"}


@pytest.mark.parametrize("dtype", ["str", "category"])
def test_a_category_may_be_missing_whatever_type_holds_it(dtype):
    words = pd.DataFrame({"town": np.where(LABELS > 0, "a", "b"), "size": LABELS + 0.5}).astype({"town": dtype})
    kinds = asked(words)

    assert kinds["one category missing"]["town"].isna().all()
    assert kinds["one category missing"].dtypes.equals(words.dtypes)
    assert kinds["one value missing"]["size"].isna().all()  # a model may refuse the one and answer the other


def test_somebody_elses_value_is_another_value():
    """Most people share a rare yes, a usual category, or what is missing: they are asked something else, too."""
    yes, words, none = (
        np.zeros(N, dtype=bool),
        np.array(["usual"] * N, dtype=object),
        np.array([None] * N, dtype=object),
    )
    yes[3], words[4], none[5] = True, "rare", "known"
    frame = pd.DataFrame({"yes": yes, "word": pd.Categorical(words), "none": none})
    for near in (True, False):
        made = asked(frame, near=near)["one value of somebody else's"]
        changed = [(made[c].astype(object).fillna("") != frame[c].astype(object).fillna("")) for c in frame]
        assert (np.sum(changed, axis=0) == 1).all()
    made = asked(frame[["yes"]].to_numpy(), near=True)["one value of somebody else's"]
    assert (made != frame[["yes"]].to_numpy()).all()


def test_nothing_outside_a_declared_domain_is_asked():
    X = np.clip(numbers(), -2, 2)
    for made in asked(X, domain=Domain(box=((-2.0, 2.0),) * 3)).values():
        assert np.abs(made).max() <= 2


def test_questions_stand_behind_the_pool_and_nobody_trains_on_them():
    X = numbers()
    made = near_questions.make_questions(run(X, candidates=(X[:5] + 1, LABELS[:5])), np.array([3, 41]), near=True)
    pool = made.extended.data.pool()[0]

    assert (take(pool, np.arange(N)) == X).all()
    assert made.places.shape == (2, 4)
    for q, container in enumerate(made.kinds.values()):
        assert (pool[made.places[:, q]] == container).all()


def test_a_person_is_asked_about_at_the_own_records_first():
    X = numbers()
    made = near_questions.make_questions(run(X, groups=np.arange(N) // 2), np.arange(N), near=True)
    unit, query = made.list_rows(np.array([4, 1]))

    assert unit.tolist() == [0] * 10 + [1] * 10
    assert query[:2].tolist() == [8, 9]
    assert sorted(query[2:10]) == sorted(made.places[[8, 9]].ravel())


def test_what_the_model_does_not_answer_is_not_asked_of_any_other():
    X = numbers()
    some = run(X, candidates=(X + 0.5, LABELS))
    fewer, own, answers = near_questions.keep_answered(
        some, near_questions.make_questions(some, np.arange(2 * N), near=False)
    )

    assert fewer.refused == ("one value missing",)
    assert own.shape == (2 * N, 2)
    assert answers.shape == (2 * N, len(fewer.kinds), 2)
    assert np.isfinite(answers).all()


class Shy(DecisionTreeClassifier):
    """Refuses whatever is nearly, and not exactly, a record that it was trained on."""

    def fit(self, X, y):
        self.known_ = np.array(X)
        return super().fit(X, y)

    def predict_proba(self, X):
        far = np.abs(np.asarray(X)[:, None] - self.known_[None]).max(axis=2).min(axis=1)
        if ((far > 0) & (far < 1e-3)).any():
            raise ValueError("not this question")
        return super().predict_proba(X)


def test_refusing_questions_beside_members_alone_is_no_way_out():
    X = numbers()
    some = run(X, Shy(), candidates=(X + 0.5, LABELS))

    with pytest.raises(MeasurementError, match="may tell who was trained on"):
        near_questions.keep_answered(some, near_questions.make_questions(some, np.arange(2 * N), near=True))


@pytest.mark.parametrize(
    ("estimator", "grouped"), [(LogisticRegression(solver="newton-cholesky"), True), (SVC(probability=True), False)]
)
def test_whoever_is_left_out_of_a_sample_or_not_is_asked_about_beside_the_own_record(estimator, grouped):
    """An engine that trains nobody answers for everybody, whatever sample a rule asks for."""
    X, groups = np.random.default_rng(0).normal(size=(400, 3)), np.arange(400) // 2 if grouped else None
    subject = Subject.local(Recipe(estimator), TrainingData(X, np.arange(400) % 2, groups=groups))
    some = Run(subject, InProcess(), seeds=(None,), near_questions=True, share=0.1)
    trains, plan = isinstance(estimator, SVC), left_out.plan_people(some)
    chosen = np.sort(plan.order[: plan.sizes[-1]]) if trains else np.arange(len(subject.data.units))
    made = riskiest.ask_about(some, chosen)
    unit, query = made.queries
    pool = made.subject.data.pool()[0]

    for k, u in enumerate(chosen):
        own = X[subject.data.units[u]]
        mine = pool[query[unit == k]]
        assert len(mine) > len(own)
        assert np.abs(mine[:, None] - own).max(axis=2).min(axis=1).max() < 0.01
    if trains:
        other = np.setdiff1d(np.arange(len(subject.data.units)), chosen)[:1]
        with pytest.raises(MeasurementError, match="beside whose record nothing is asked"):
            riskiest.ask_about(some, other)
