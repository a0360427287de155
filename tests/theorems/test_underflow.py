"""A probability that float64 does not hold is released as 0: no bound over logarithms speaks about it."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.naive_bayes import BernoulliNB, CategoricalNB, GaussianNB

from privgate import Domain, Recipe, Subject, TrainingData
from privgate.theorems import catalogue

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


CASES = {
    "gaussian_nb": (two_heaps, 37.4, 20.0),
    "bernoulli_nb": (lambda n: flags(n, BernoulliNB()), 194, 60),
    "categorical_nb": (lambda n: flags(n, CategoricalNB(min_categories=2)), 194, 60),
}
#: questions of flags lie nats apart, so none of a few people's may fall between the two models' ends
CROSSED_BY_CHANCE = {"bernoulli_nb", "categorical_nb"}


def released_change(estimator, X, gone, queries):
    keep = np.arange(len(X)) != gone
    with np.errstate(divide="ignore", invalid="ignore"):
        with_, without = (
            np.log(clone(estimator).fit(X[rows], LABELS[rows]).predict_proba(queries)) for rows in (keep | True, keep)
        )
        return np.where(with_ == without, 0.0, np.abs(with_ - without)).max()


@pytest.mark.quick(2)
@pytest.mark.parametrize("name", CASES)
def test_where_one_model_alone_releases_nothing_no_bound_is_stated(name):
    made, far, near = CASES[name]
    for size, underflows in ((far, True), (near, False)):
        estimator, X, domain, queries = made(size)
        subject = Subject.local(Recipe(estimator), TrainingData(X, LABELS, domain=domain, one_record_each=True))
        riskiest = int(np.abs(X - X[LABELS].mean(axis=0)).sum(axis=1).argmax())
        units = np.unique([0, 1, 2, 3, riskiest])
        upper = catalogue.THEOREMS[name].bound(subject, units, None).upper
        real = np.array([released_change(estimator, X, u, queries) for u in units])
        assert (real <= upper + 1e-9).all()
        if name not in CROSSED_BY_CHANCE:
            assert np.isinf(real).any() == underflows
        assert np.isinf(upper).all() == underflows
