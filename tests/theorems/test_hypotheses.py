"""Every hypothesis that fails: no bound, or an infinite one, and a sentence that says which."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import BernoulliNB, CategoricalNB, GaussianNB

from privgate import Domain, Recipe, Subject, TrainingData
from privgate.models import ContingencyTable, RandomTrees, SmoothedNeighbors
from privgate.theorems import catalogue

rng = np.random.default_rng(0)
CODES = rng.integers(0, 3, (30, 3))
REAL = rng.random((30, 3))
Y = np.arange(30) % 2
BOX = Domain.of([(0, 1)] * 3)
WORDS = Domain(max_length=9)


def subject(estimator, X, domain=None, y=Y, groups=None):
    return Subject.local(
        Recipe(estimator), TrainingData(X, y, domain=domain, groups=groups, one_record_each=groups is None)
    )


def bound(name, s):
    assert catalogue.THEOREMS[name].applies(s) == ""
    return catalogue.THEOREMS[name].bound(s, np.arange(len(s.data.units)), None)


@pytest.mark.parametrize(
    ("name", "estimator", "X", "domain", "said"),
    [
        ("categorical_nb", CategoricalNB(), REAL, None, "whole numbers"),
        ("categorical_nb", CategoricalNB(), CODES, BOX, "names no categories"),
        ("categorical_nb", CategoricalNB(), CODES, Domain(categories=(3, 3, 2)), "declares 2 categories"),
        ("categorical_nb", CategoricalNB(), CODES, Domain(categories=(3, 3, 9)), "min_categories=[3, 3, 9]"),
        ("categorical_nb", CategoricalNB(min_categories=[3, 3]), CODES, None, "min_categories does not have 3"),
        ("categorical_nb", CategoricalNB(class_prior=[1.0, 0.0]), CODES, None, "rules out a class"),
        ("categorical_nb", CategoricalNB(alpha=0.0, force_alpha=True), CODES, None, "without smoothing"),
        ("bernoulli_nb", BernoulliNB(alpha=0.0, force_alpha=True), CODES, None, "without smoothing"),
        ("bernoulli_nb", BernoulliNB(alpha=[1.0, 1.0, 2.0]), CODES, None, "not one number"),
        ("bernoulli_nb", BernoulliNB(binarize=None), CODES, None, "other than 0 and 1"),
        ("bernoulli_nb", BernoulliNB(binarize=None), CODES % 2, Domain.of([(0, 1)] * 3), "other than 0 and 1"),
        ("bernoulli_nb", BernoulliNB(), CODES, Domain(categories=(2, 2, 2)), "outside the declared domain"),
        ("bernoulli_nb", BernoulliNB(), CODES, WORDS, "neither categories nor a box"),
        ("gaussian_nb", GaussianNB(), REAL, WORDS, "range of each feature"),
        ("gaussian_nb", GaussianNB(priors=[0.0, 1.0]), REAL, BOX, "rules out a class"),
        ("gaussian_nb", GaussianNB(), REAL.astype(np.float32), BOX, "single precision"),
        ("newton", LogisticRegression(C=np.inf), REAL, BOX, "penalty"),
        ("newton", LogisticRegression(class_weight="balanced"), REAL, BOX, "class weights"),
        ("newton", LogisticRegression(l1_ratio=0.5, solver="saga"), REAL, BOX, "not L2"),
        ("newton", LogisticRegression(), REAL.astype(np.float32), BOX, "single precision"),
        ("newton", LogisticRegression(C=1e4, max_iter=2), REAL, BOX, "did not end by its gradient"),
        ("newton", LogisticRegression(C=1e4, max_iter=2, solver="newton-cg"), REAL, BOX, "did not end by its gradient"),
        ("newton", LogisticRegression(tol=0.1, solver="newton-cholesky"), REAL, BOX, "set solver='newton-cholesky'"),
        ("newton", LogisticRegression(tol=1e-18, solver="newton-cg"), REAL, BOX, "gradient"),
        ("newton", LogisticRegression(solver="sag"), REAL, BOX, "sag does not stop by its gradient"),
        ("newton", LogisticRegression(solver="saga"), REAL, BOX, "saga does not stop by its gradient"),
        ("newton", LogisticRegression(solver="liblinear"), REAL, BOX, "liblinear does not stop by its gradient"),
        ("smoothed_neighbors", SmoothedNeighbors(alpha=0.0), REAL, None, "without smoothing"),
        ("random_trees", RandomTrees(n_features=3, alpha=0.0), REAL, None, "without smoothing"),
    ],
)
def test_a_hypothesis_that_fails_is_named(name, estimator, X, domain, said):
    text = catalogue.THEOREMS[name].applies(subject(estimator, X, domain))
    assert text.startswith("does not apply, because ")
    assert said in text


FULL = [
    ("categorical_nb", CategoricalNB(min_categories=3), CODES, None),
    ("bernoulli_nb", BernoulliNB(), CODES, None),
    ("gaussian_nb", GaussianNB(var_smoothing=0.1), REAL, BOX),
    ("newton", LogisticRegression(tol=1e-9, solver="newton-cholesky"), REAL, BOX),
    ("contingency_table", ContingencyTable(), CODES, None),
    ("smoothed_neighbors", SmoothedNeighbors(), REAL, None),
    ("random_trees", RandomTrees(n_features=3), REAL, None),
]


@pytest.mark.parametrize(("name", "estimator", "X", "domain"), FULL, ids=[f[0] for f in FULL])
def test_a_class_of_one_record_is_infinite_for_that_record_alone(name, estimator, X, domain):
    y = Y.copy()
    y[5] = 2
    found = bound(name, subject(estimator, X, domain, y=y))
    assert np.isinf(found.upper[5])
    assert np.isinf(found.lower[5])
    assert np.isfinite(np.delete(found.upper, 5)).all()


@pytest.mark.parametrize(("name", "estimator", "X", "domain"), FULL, ids=[f[0] for f in FULL])
def test_a_person_who_holds_all_of_a_class_is_infinite(name, estimator, X, domain):
    y = Y.copy()
    y[[5, 9]] = 2
    groups = np.arange(30)
    groups[9] = 5
    found = bound(name, subject(estimator, X, domain, y=y, groups=groups))
    assert np.isinf(found.upper[5])
    assert np.isfinite(np.delete(found.upper, 5)).all()


@pytest.mark.parametrize("name", ["bernoulli_nb", "gaussian_nb"])
def test_sparse_and_dense_data_give_the_same(name):
    _, estimator, X, domain = next(f for f in FULL if f[0] == name)
    dense = bound(name, subject(estimator, X, domain))
    sparse = bound(name, subject(estimator, sp.csr_matrix(X), domain))
    np.testing.assert_array_equal(dense.upper, sparse.upper)


@pytest.mark.parametrize("K", [2, 3])
def test_probabilities_that_float64_cannot_hold_are_refused(K):
    """docs/mathematics.md, section 16: 1 - p is 0 from a margin of 36.7, and exp from one of 745."""
    y = np.digitize(REAL[:, 0], [0.5] if K == 2 else [0.3, 0.7])
    estimator = LogisticRegression(C=10.0, tol=1e-9, solver="newton-cholesky")
    near, far = (Domain.of([(-size, size)] * 3) for size in (1.0, 100.0 if K == 2 else 1000.0))
    assert catalogue.THEOREMS["newton"].applies(subject(estimator, REAL, near, y=y)) == ""
    assert "too few digits" in catalogue.THEOREMS["newton"].applies(subject(estimator, REAL, far, y=y))


def test_logistic_regression_takes_sparse_records_in_any_form():
    estimator = LogisticRegression(tol=1e-9, solver="newton-cholesky")
    dense = bound("newton", subject(estimator, REAL, BOX))
    for form in (sp.csr_matrix, sp.csc_matrix, sp.coo_matrix):
        sparse = bound("newton", subject(estimator, form(REAL), BOX))
        np.testing.assert_allclose(dense.upper, sparse.upper, rtol=1e-9)


def test_a_category_that_one_record_holds_alone_is_infinite_unless_it_is_declared():
    """docs/mathematics.md, section 3.1: training without the record knows one category less."""
    X = CODES.copy()
    X[7, 1] = 3
    learnt = bound("categorical_nb", subject(CategoricalNB(), X))
    assert np.isinf(learnt.upper[7])
    assert np.isfinite(np.delete(learnt.upper, 7)).all()
    declared = bound(
        "categorical_nb", subject(CategoricalNB(min_categories=[3, 4, 3]), X, Domain(categories=(3, 4, 3)))
    )
    assert np.isfinite(declared.upper).all()


def test_fewer_declared_categories_than_the_classifier_knows_ask_less():
    wide = bound("categorical_nb", subject(CategoricalNB(min_categories=5), CODES, Domain(categories=(5, 5, 5))))
    narrow = bound("categorical_nb", subject(CategoricalNB(min_categories=5), CODES, Domain(categories=(3, 3, 3))))
    assert (narrow.upper <= wide.upper + 1e-12).all()


@pytest.mark.parametrize("k", [29, 30, 31, 500])
def test_fewer_records_than_neighbors_are_bounded_too(k):
    s = subject(SmoothedNeighbors(n_neighbors=k, alpha=0.6), REAL)
    assert bound("smoothed_neighbors", s).upper.max() <= np.log1p(1 / 0.6) + 1e-9
    p = clone(SmoothedNeighbors(n_neighbors=k)).fit(REAL, Y).predict_proba(REAL[:2])
    q = clone(SmoothedNeighbors(n_neighbors=k)).fit(REAL[:1], Y[:1]).predict_proba(REAL[:2])
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    assert q.shape == (2, 1)


OWN = [
    ContingencyTable(alpha=0.5, classes=["a", "b", "c", "d"]),
    SmoothedNeighbors(n_neighbors=3, alpha=0.5, classes=["a", "b", "c", "d"]),
    RandomTrees(n_features=3, alpha=0.5, classes=["a", "b", "c", "d"], average="arithmetic"),
]


@pytest.mark.parametrize("model", OWN, ids=lambda m: type(m).__name__)
def test_leaving_out_the_only_holder_of_a_class_is_bounded_where_the_classes_are_declared(model):
    """Section 12.3: labels that are read off the data change every cell when one of them goes."""
    name = {"ContingencyTable": "contingency_table", "SmoothedNeighbors": "smoothed_neighbors"}.get(
        type(model).__name__, "random_trees"
    )
    y = np.where(Y == 0, "a", "b").astype(object).astype(str)
    y[5] = "c"
    declared = subject(model, REAL, y=y)
    assert declared.classes.tolist() == ["a", "b", "c", "d"]
    found = bound(name, declared)
    assert np.isfinite(found.upper).all()
    keep = np.arange(30) != 5
    with_, without = clone(model).fit(REAL, y), clone(model).fit(REAL[keep], y[keep])
    Q = np.concatenate([REAL, rng.random((100, 3))])
    change = np.abs(np.log(with_.predict_proba(Q)) - np.log(without.predict_proba(Q))).max()
    assert found.lower[5] <= change <= found.upper[5]
    undeclared = bound(name, subject(clone(model).set_params(classes=None), REAL, y=y))
    assert np.isinf(undeclared.upper[5])
    with pytest.raises(ValueError, match="declared classes"):
        clone(model).set_params(classes=["a", "b"]).fit(REAL, y)


def test_neighbors_keep_dtp_1_from_a_smoothing_of_0_582():
    found = bound("smoothed_neighbors", subject(SmoothedNeighbors(alpha=0.582), REAL))
    assert found.upper.max() <= 1.0
    assert bound("smoothed_neighbors", subject(SmoothedNeighbors(alpha=0.58), REAL)).upper.max() > 1.0
