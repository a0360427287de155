"""Limits of counts and moments: what the endpoint refuses, what rounding takes, and what float64 does not hold."""

import itertools

import numpy as np
import pytest
from families import Instance
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_iris, load_wine
from sklearn.naive_bayes import BernoulliNB, CategoricalNB, GaussianNB

from privgate import Domain, Recipe, Subject, TrainingData, kernel
from privgate.models import ContingencyTable
from privgate.theorems import catalogue
from privgate.theorems.hypotheses import vanishing
from privgate.theorems.theorem import Units

#: nats; summing changes of log-probabilities in another order
ROUNDING = 1e-9


def subject_of(estimator, X, y, domain=None):
    return Subject.local(Recipe(estimator), TrainingData(X, y, domain=domain, one_record_each=True))


def bound(name, subject, units=None, **more):
    units = np.arange(min(20, len(subject.data.units))) if units is None else units
    return catalogue.THEOREMS[name].certify(Units(subject, units, None, **more))


def moved(subject, unit, queries):
    """Return the largest change of an answer at the questions without one record."""
    return Instance(subject, queries).changes([unit])[0]


def product(*sides):
    return np.array(list(itertools.product(*sides)))


# What the endpoint refuses.


def test_a_side_wholly_above_the_threshold_is_never_asked_below_it():
    rng = np.random.default_rng(0)
    X, y = rng.uniform(0.9, 1.0, (1100, 14)), rng.integers(0, 2, 1100)
    X[:, :2] = rng.uniform(0, 1, (1100, 2))
    domain = Domain(box=((0.0, 1.0),) * 2 + ((0.9, 1.0),) * 12)
    subject = subject_of(BernoulliNB(alpha=1e-3, binarize=0.5), X, y, domain)
    low = bound("bernoulli_nb", subject, np.arange(1100), limit=1e-4).lower
    asked = product((0.1, 0.9), (0.1, 0.9), *[(0.95,)] * 12)
    for unit in np.argsort(-low)[:20]:
        assert low[unit] <= moved(subject, unit, asked) + ROUNDING


def test_a_class_that_is_left_without_variance_ends_in_no_traceback():
    X = np.array([[1.0, 2.0], [1.0, 3.0], [2.0, 2.5], [4.0, 1.0], [4.5, 0.0], [5.0, 1.5], [3.0, 3.0]])
    subject = subject_of(GaussianNB(var_smoothing=0.0), X, [0, 0, 0, 1, 1, 1, 1], Domain(box=((0, 6),) * 2))
    if not catalogue.THEOREMS["gaussian_nb"].refusal(subject):
        assert np.isinf(bound("gaussian_nb", subject, limit=1.0).upper[2])


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("declared", [None, ["a", "b", "c", "d"]])
def test_a_class_vanishes_with_whoever_leaves_none_of_it_behind(grouped, declared):
    rng = np.random.default_rng(12)
    y = np.array(["a", "b", "c"])[np.minimum(rng.integers(0, 9, 40), 1)]
    y[:3] = "c"
    groups = np.where(np.arange(40) < 3, 7, rng.integers(0, 20, 40)) if grouped else None
    data = TrainingData(rng.normal(size=(40, 1)), y if grouped else np.append(y[2:], ["b", "b"]), groups=groups)
    subject = Subject.local(Recipe(ContingencyTable(classes=declared)), data)
    units = rng.permutation(len(data.units))
    left = [set(np.delete(data.y, data.units[u])) for u in units]
    expected = [declared is None and len(kept) < len(set(data.y)) for kept in left]
    assert vanishing(subject, units).tolist() == expected
    assert any(expected) == (declared is None)


# What float64 does to a deployed formula is in the limit, or the regime is refused; ordinary data lose nothing.


@pytest.mark.parametrize("offset", [0.0, 1.0, 1e3, 1e5])
def test_a_smaller_offset_costs_no_certificate(offset):
    rng = np.random.default_rng(1)
    X = np.column_stack([rng.random(300), np.full(300, offset)])
    box = Domain(box=((0.0, 1.0), (offset - 0.5, offset + 0.5)))
    assert bound("gaussian_nb", subject_of(GaussianNB(), X, np.arange(300) % 2, box)).upper.max() < 0.1


@pytest.mark.parametrize("alpha", [1e-300, 1e-12, 1e-10, 1e-8, 1e-6, 1e-3, 1.0])
def test_bernoulli_computes_the_absence_of_a_feature_that_everybody_has_from_its_presence(alpha):
    n, rng = 2000, np.random.default_rng(0)
    X = np.column_stack([np.ones((n, 3)), rng.integers(0, 2, (n, 2))])
    subject = subject_of(BernoulliNB(alpha=alpha), X, np.arange(n) % 2)
    said, found = catalogue.THEOREMS["bernoulli_nb"].refusal(subject), bound("bernoulli_nb", subject)
    changed = moved(subject, 0, product(*[(0.0, 1.0)] * 5))
    assert changed <= found.upper[0] + ROUNDING
    if alpha <= 1e-12:
        assert changed > 1
        assert "raise alpha" in said
        assert np.isinf(found.upper).all()
    if alpha >= 1e-8:
        assert not said
        assert found.upper.max() < (0.1 if alpha >= 1e-6 else 0.5)


@pytest.mark.parametrize("load", [load_iris, load_breast_cancer, load_wine])
@pytest.mark.parametrize("scaled", [False, True])
def test_ordinary_data_are_bounded_as_tightly_as_exact_arithmetic_would(monkeypatch, load, scaled):
    X, y = load(return_X_y=True)
    X = (X - X.mean(axis=0)) / X.std(axis=0) if scaled else X
    box = Domain(box=tuple(zip(X.min(axis=0).tolist(), X.max(axis=0).tolist(), strict=True)))
    subject = subject_of(GaussianNB(), X, y, box)
    monkeypatch.setattr(kernel.rounding, "DEEPEST", np.inf)  # corners of such boxes underflow: another matter
    found = bound("gaussian_nb", subject)
    monkeypatch.setattr(kernel.gaussian._Model, "off", lambda _, moments, __: np.zeros(len(moments.n)))
    exact = bound("gaussian_nb", subject)
    assert np.isfinite(found.upper).all()
    assert (found.upper - exact.upper).max() < 1e-7
    assert (exact.lower - found.lower).max() < 1e-7
    assert (found.upper > exact.upper).all()


# A probability that float64 does not hold is released as 0: no limit of logarithms speaks about it.

RNG = np.random.default_rng(5)
LABELS = np.arange(4000) % 2


def two_heaps(width):
    X = np.clip(RNG.normal(size=(4000, 1)), -3, 3) + 20.0 * LABELS[:, None] - 10
    return GaussianNB(), X, Domain(box=((-width, width),)), np.linspace(-width, width, 40_001)[:, None]


def flags(columns, estimator):
    same = RNG.random(4000) < 0.98
    X = np.repeat(np.where(same, LABELS, 1 - LABELS)[:, None], columns, axis=1)
    queries = (np.arange(columns) < np.arange(columns + 1)[:, None]).astype(int)
    return estimator, X, Domain(categories=(2,) * columns), queries


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    ("name", "made", "far", "near", "crossed"),
    [
        ("gaussian_nb", two_heaps, 37.4, 20.0, True),
        # questions of flags lie nats apart, so none of a few people's may fall between the two models' ends
        ("bernoulli_nb", lambda n: flags(n, BernoulliNB()), 194, 60, False),
        ("categorical_nb", lambda n: flags(n, CategoricalNB(min_categories=2)), 194, 60, False),
    ],
)
def test_where_one_model_alone_releases_nothing_no_bound_is_stated(name, made, far, near, crossed):
    for size, underflows in ((far, True), (near, False)):
        estimator, X, domain, queries = made(size)
        riskiest = int(np.abs(X - X[LABELS].mean(axis=0)).sum(axis=1).argmax())
        units = np.unique([0, 1, 2, 3, riskiest])
        upper = bound(name, subject_of(estimator, X, LABELS, domain), units).upper
        real = np.array([released_change(estimator, X, u, queries) for u in units])
        assert (real <= upper + ROUNDING).all()
        assert not crossed or np.isinf(real).any() == underflows
        assert np.isinf(upper).all() == underflows


def released_change(estimator, X, gone, queries):
    keep = np.arange(len(X)) != gone
    with np.errstate(divide="ignore", invalid="ignore"):
        with_, without = (
            np.log(clone(estimator).fit(X[rows], LABELS[rows]).predict_proba(queries)) for rows in (keep | True, keep)
        )
        return np.where(with_ == without, 0.0, np.abs(with_ - without)).max()
