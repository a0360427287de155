"""Every hypothesis that fails: no bound, or an infinite one, and a sentence that says which."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import BernoulliNB, CategoricalNB, GaussianNB

from privgate import Domain, Recipe, Subject, TrainingData
from privgate.models import ContingencyTable, SmoothedNeighbors
from privgate.theorems import catalogue
from privgate.theorems.theorem import Units

rng = np.random.default_rng(0)
CODES = rng.integers(0, 3, (30, 3))
REAL = rng.random((30, 3))
Y = np.arange(30) % 2
BOX = Domain.read([(0, 1)] * 3)


def subject(estimator, X, domain=None, y=Y, groups=None):
    return Subject.local(
        Recipe(estimator), TrainingData(X, y, domain=domain, groups=groups, one_record_each=groups is None)
    )


def bound(name, s):
    assert catalogue.THEOREMS[name].refusal(s) == ""
    return catalogue.THEOREMS[name].certify(Units(s, np.arange(len(s.data.units)), None))


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
        ("bernoulli_nb", BernoulliNB(binarize=None), CODES % 2, Domain.read([(0, 1)] * 3), "other than 0 and 1"),
        ("bernoulli_nb", BernoulliNB(), CODES, Domain(categories=(2, 2, 2)), "outside the declared domain"),
        ("gaussian_nb", GaussianNB(priors=[0.0, 1.0]), REAL, BOX, "rules out a class"),
        ("gaussian_nb", GaussianNB(), REAL.astype(np.float32), BOX, "single precision"),
        ("newton", LogisticRegression(l1_ratio=0.5, solver="saga"), REAL, BOX, "not L2"),
        ("newton", LogisticRegression(), REAL.astype(np.float32), BOX, "single precision"),
        ("newton", LogisticRegression(C=1e4, max_iter=2, solver="newton-cg"), REAL, BOX, "did not end by its gradient"),
        ("newton", LogisticRegression(tol=0.1, solver="newton-cholesky"), REAL, BOX, "set solver='newton-cholesky'"),
        ("newton", LogisticRegression(tol=1e-18, solver="newton-cg"), REAL, BOX, "gradient"),
        ("newton", LogisticRegression(solver="sag"), REAL, BOX, "sag does not stop by its gradient"),
        ("smoothed_neighbors", SmoothedNeighbors(alpha=0.0), REAL, None, "without smoothing"),
    ],
)
def test_a_hypothesis_that_fails_is_named(name, estimator, X, domain, said):
    assert said in catalogue.THEOREMS[name].refusal(subject(estimator, X, domain))


FULL = [
    ("categorical_nb", CategoricalNB(min_categories=3), CODES, None),
    ("bernoulli_nb", BernoulliNB(), CODES, None),
    ("gaussian_nb", GaussianNB(var_smoothing=0.1), REAL, BOX),
    ("newton", LogisticRegression(tol=1e-9, solver="newton-cholesky"), REAL, BOX),
    ("contingency_table", ContingencyTable(), CODES, None),
    ("smoothed_neighbors", SmoothedNeighbors(), REAL, None),
]


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize(("name", "estimator", "X", "domain"), FULL, ids=[f[0] for f in FULL])
def test_who_holds_all_of_a_class_is_infinite_and_nobody_else(name, estimator, X, domain, several):
    y, groups = Y.copy(), np.arange(30)
    y[[5, 9] if several else 5], groups[9] = 2, 5
    bounds = bound(name, subject(estimator, X, domain, y=y, groups=groups if several else None))
    assert np.isinf([bounds.upper[5], bounds.lower[5]]).all()
    assert np.isfinite(np.delete(bounds.upper, 5)).all()


@pytest.mark.parametrize("form", [sp.csr_matrix, sp.csc_matrix, sp.coo_matrix])
@pytest.mark.parametrize(("name", "estimator", "X", "domain"), FULL[1:4], ids=[f[0] for f in FULL[1:4]])
def test_sparse_records_in_any_form_say_the_same(name, estimator, X, domain, form):
    dense, sparse = (bound(name, subject(estimator, data, domain)) for data in (X, form(X)))
    np.testing.assert_allclose(dense.upper, sparse.upper, rtol=1e-9)


@pytest.mark.parametrize("K", [2, 3])
def test_probabilities_that_float64_cannot_hold_are_refused(K):
    """docs/mathematics.md, section 16: 1 - p is 0 from a margin of 36.7, and exp from one of 745."""
    y = np.digitize(REAL[:, 0], [0.5] if K == 2 else [0.3, 0.7])
    estimator = LogisticRegression(C=10.0, tol=1e-9, solver="newton-cholesky")
    near, far = (Domain.read([(-size, size)] * 3) for size in (1.0, 100.0 if K == 2 else 1000.0))
    assert catalogue.THEOREMS["newton"].refusal(subject(estimator, REAL, near, y=y)) == ""
    assert "too few digits" in catalogue.THEOREMS["newton"].refusal(subject(estimator, REAL, far, y=y))


def test_a_category_that_one_record_holds_alone_is_infinite_unless_it_is_declared():
    """docs/mathematics.md, section 3.1: training without the record knows one category less."""
    X = CODES.copy()
    X[7, 1] = 3
    learnt = bound("categorical_nb", subject(CategoricalNB(), X))
    assert np.isinf(learnt.upper[7])
    assert np.isfinite(np.delete(learnt.upper, 7)).all()
    declared = subject(CategoricalNB(min_categories=[3, 4, 3]), X, Domain(categories=(3, 4, 3)))
    assert np.isfinite(bound("categorical_nb", declared).upper).all()


def test_fewer_declared_categories_than_the_classifier_knows_ask_less():
    domains = (Domain(categories=(size,) * 3) for size in (5, 3))
    wide, narrow = (bound("categorical_nb", subject(CategoricalNB(min_categories=5), CODES, d)) for d in domains)
    assert (narrow.upper <= wide.upper + 1e-12).all()


@pytest.mark.parametrize("k", [29, 30, 31, 500])
def test_fewer_records_than_neighbors_are_bounded_too(k):
    s = subject(SmoothedNeighbors(n_neighbors=k, alpha=0.6), REAL)
    assert bound("smoothed_neighbors", s).upper.max() <= np.log1p(1 / 0.6) + 1e-9


LABELS = ["a", "b", "c", "d"]
OWN = {
    "contingency_table": ContingencyTable(alpha=0.5, classes=LABELS),
    "smoothed_neighbors": SmoothedNeighbors(n_neighbors=3, alpha=0.5, classes=LABELS),
}


@pytest.mark.parametrize("name", OWN)
def test_leaving_out_the_only_holder_of_a_class_is_bounded_where_the_classes_are_declared(name):
    """Section 12.3: labels that are read off the data change every cell when one of them goes."""
    model = OWN[name]
    y = np.where(Y == 0, "a", "b").astype(object).astype(str)
    y[5] = "c"
    declared = bound(name, subject(model, REAL, y=y))
    assert np.isfinite(declared.upper).all()
    keep = np.arange(30) != 5
    with_, without = clone(model).fit(REAL, y), clone(model).fit(REAL[keep], y[keep])
    Q = np.concatenate([REAL, rng.random((100, 3))])
    change = np.abs(np.log(with_.predict_proba(Q)) - np.log(without.predict_proba(Q))).max()
    assert declared.lower[5] <= change <= declared.upper[5]
    undeclared = bound(name, subject(clone(model).set_params(classes=None), REAL, y=y))
    assert np.isinf(undeclared.upper[5])
    with pytest.raises(ValueError, match="declared classes"):
        clone(model).set_params(classes=["a", "b"]).fit(REAL, y)


def test_neighbors_keep_dtp_1_from_a_smoothing_of_0_582():
    above, below = (bound("smoothed_neighbors", subject(SmoothedNeighbors(alpha=a), REAL)) for a in (0.582, 0.58))
    assert above.upper.max() <= 1.0 < below.upper.max()
