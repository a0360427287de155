"""Refit is the definition: equal to a plain loop over np.delete, for records, people and every container."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.compose import ColumnTransformer
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import BernoulliNB, CategoricalNB, GaussianNB, MultinomialNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier

from privgate.run import refit
from privgate.subject.containers import take
from privgate.subject.data import TrainingData
from privgate.subject.recipe import Recipe
from privgate.subject.subject import Subject
from privgate.theorems.closed_form import RefitRequest, Status
from privgate.training.fleet import Fleet

N = 24
RNG = np.random.default_rng(11)
NUMBERS = RNG.normal(size=(N, 3))
Y = np.arange(N) % 3
WORDS = np.array(["age", "job", "town", "pet", "car"])
TEXT = [" ".join(RNG.choice(WORDS, size=6)) for _ in range(N)]
FRAME = pd.DataFrame({"age": RNG.integers(20, 60, N), "town": RNG.choice(["a", "b", "c"], N)})
MIXED = make_pipeline(
    ColumnTransformer([("n", StandardScaler(), ["age"]), ("c", OneHotEncoder(handle_unknown="ignore"), ["town"])]),
    LogisticRegression(),
)


@pytest.fixture(scope="module")
def fleet():
    with Fleet(jobs=1, ledger="none") as made:
        yield made


def every(subject):
    return np.arange(len(subject.data.units), dtype=np.int64)


def fit_plainly(learner, X, y, rows):
    kept = np.delete(np.arange(len(y)), rows)
    return learner.fit(take(X, kept), y[kept])


@pytest.mark.quick(4)
@pytest.mark.parametrize(
    ("learner", "X"),
    [
        (GaussianNB(), NUMBERS),
        (LogisticRegression(), np.asfortranarray(NUMBERS)),
        (KNeighborsClassifier(5), NUMBERS.astype(np.float32)),
        (DecisionTreeClassifier(random_state=0), NUMBERS),
        (make_pipeline(StandardScaler(copy=False), GaussianNB()), NUMBERS),
        (MultinomialNB(), sp.csr_matrix(RNG.poisson(1, size=(N, 5)))),
        (CategoricalNB(min_categories=9), RNG.integers(0, 3, size=(N, 4))),
        (BernoulliNB(), RNG.integers(0, 2, size=(N, 4)).astype(bool)),
        (make_pipeline(CountVectorizer(vocabulary=sorted(WORDS)), MultinomialNB()), TEXT),
        (MIXED, FRAME),
    ],
    ids=["naive", "fortran", "neighbours", "tree", "in-place", "sparse", "categories", "bool", "text", "frame"],
)
def test_every_unit_equals_a_plain_refit(fleet, learner, X):
    subject = Subject.local(Recipe(learner, seed=0), TrainingData(X, Y, one_record_each=True))
    found = refit.leave_out(RefitRequest(subject, every(subject), (0,), fleet))

    assert (found.status == Status.EXACT).all()
    for t in range(N):
        expected = fit_plainly(learner, X, Y, [t]).predict_proba(take(X, np.array([t])))
        np.testing.assert_allclose(np.exp(found.log_without[0, t]), expected[0], rtol=0, atol=1e-12)
    everyone = np.arange(N)
    full = learner.fit(take(X, everyone), Y).predict_proba(take(X, everyone))
    np.testing.assert_allclose(np.exp(found.log_with[0]), full, rtol=0, atol=1e-12)


def test_text_labels_and_a_chosen_order_of_units(fleet):
    labels = np.array(["no", "maybe", "yes"])[Y]
    subject = Subject.local(Recipe(GaussianNB()), TrainingData(NUMBERS, labels, one_record_each=True))
    found = refit.leave_out(RefitRequest(subject, np.array([7, 2, 5]), (None,), fleet))

    for row, t in enumerate([7, 2, 5]):
        expected = fit_plainly(GaussianNB(), NUMBERS, labels, [t]).predict_proba(NUMBERS[[t]])
        np.testing.assert_allclose(np.exp(found.log_without[0, row]), expected[0], atol=1e-12)


def test_people_are_left_out_with_all_their_records(fleet):
    people = np.array([f"p{i % 7}" for i in range(N)])
    subject = Subject.local(Recipe(GaussianNB()), TrainingData(NUMBERS, Y, groups=people))
    found = refit.leave_out(RefitRequest(subject, every(subject), (None,), fleet))

    assert len(found.units) == 7
    for u in range(7):
        rows = np.flatnonzero(people == f"p{u}")
        np.testing.assert_array_equal(found.row_query[found.row_unit == u], rows)
        expected = fit_plainly(GaussianNB(), NUMBERS, Y, rows).predict_proba(NUMBERS[rows])
        np.testing.assert_allclose(np.exp(found.log_without[0, found.row_unit == u]), expected, atol=1e-12)


def test_other_queries_candidates_included_are_answered_by_the_same_models(fleet):
    data = TrainingData(NUMBERS, Y, candidates=(NUMBERS[:4] + 1, Y[:4]), one_record_each=True)
    subject = Subject.local(Recipe(GaussianNB()), data)
    queries = (np.array([0, 0, 1]), np.array([3, N + 2, N]))
    found = refit.leave_out(RefitRequest(subject, np.array([5, 6]), (None,), fleet, queries=queries))

    pool = data.pool()[0]
    for row, (unit, query) in enumerate([(5, 3), (5, N + 2), (6, N)]):
        expected = fit_plainly(GaussianNB(), NUMBERS, Y, [unit]).predict_proba(pool[[query]])
        np.testing.assert_allclose(np.exp(found.log_without[0, row]), expected[0], atol=1e-12)


def test_a_class_that_vanishes_with_its_unit_is_undefined_and_never_trained(fleet):
    alone = Y.copy()
    alone[4] = 9
    subject = Subject.local(Recipe(GaussianNB()), TrainingData(NUMBERS, alone, one_record_each=True))
    found = refit.leave_out(RefitRequest(subject, every(subject), (None,), fleet))

    assert [u for u, s in enumerate(found.status) if s is Status.UNDEFINED] == [4]
    assert found.reason == {4: "its class vanishes from the training data without it"}


def needs_record_three(X, y, *, seed, failing=3):
    if not (X[:, 0] == NUMBERS[failing, 0]).any():
        raise RuntimeError("no record three")
    return GaussianNB().fit(X, y)


def test_a_unit_without_which_training_fails_is_named_and_kept(fleet):
    subject = Subject.local(Recipe(needs_record_three), TrainingData(NUMBERS, Y, one_record_each=True))
    found = refit.leave_out(RefitRequest(subject, every(subject), (None,), fleet))

    assert [u for u, s in enumerate(found.status) if s is Status.FAILED] == [3]
    assert list(found.reason) == [3]
    assert found.reason[3].startswith("training raised RuntimeError (line ")
    assert len(found.units) == N


def test_probability_zero_is_minus_infinity_not_a_failure(fleet):
    subject = Subject.local(Recipe(DecisionTreeClassifier(), seed=0), TrainingData(NUMBERS, Y, one_record_each=True))
    found = refit.leave_out(RefitRequest(subject, every(subject), (0,), fleet))

    assert np.isneginf(found.log_with).any()
    assert (found.status == Status.EXACT).all()


def test_subsets_equal_plain_fits_on_the_pool(fleet):
    data = TrainingData(NUMBERS, Y, candidates=(NUMBERS + 0.5, Y), one_record_each=True)
    subject = Subject.local(Recipe(GaussianNB()), data)
    masks = np.random.default_rng(2).random((3, 2 * N)) < 0.5
    shadows = refit.train_on_subsets(subject, masks, (None,), fleet)

    pool_X, pool_y = data.pool()
    for mask, log_p in zip(masks, shadows.log_p, strict=True):
        expected = GaussianNB().fit(pool_X[mask], pool_y[mask]).predict_proba(pool_X)
        np.testing.assert_allclose(np.exp(log_p), expected, atol=1e-12)


def test_a_subset_without_a_class_gives_it_probability_zero(fleet):
    subject = Subject.local(Recipe(GaussianNB()), TrainingData(NUMBERS, Y, one_record_each=True))
    shadows = refit.train_on_subsets(subject, (Y != 1)[None], (None,), fleet)

    assert np.isneginf(shadows.log_p[0, :, 1]).all()
