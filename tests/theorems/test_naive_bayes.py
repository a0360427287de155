"""Limits of counts against refits, where the endpoint refuses some of the questions that a case is about."""

from itertools import product

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.naive_bayes import BernoulliNB, CategoricalNB, GaussianNB

from privgate import Domain, Recipe, Subject, TrainingData
from privgate.theorems import catalogue


def moved(model, X, y, unit, asked):
    """Return the largest change of an answer at the questions without one record."""
    both = [clone(model).fit(X, y), clone(model).fit(np.delete(X, unit, axis=0), np.delete(y, unit))]
    return float(np.abs(np.subtract(*(np.log(m.predict_proba(asked)) for m in both))).max())


def limits(model, X, y, name, *, domain=None, limit=1e-4):
    subject = Subject.local(Recipe(model), TrainingData(X, y, domain=domain, one_record_each=True))
    theorem = catalogue.THEOREMS[name]
    assert not theorem.applies(subject)
    found = theorem.bound(subject, np.arange(len(y)), None, limit=limit)
    return found.lower, found.upper


@pytest.mark.parametrize(("model", "name"), [(BernoulliNB(), "bernoulli_nb"), (CategoricalNB(), "categorical_nb")])
def test_a_domain_of_short_questions_names_no_long_one(model, name):
    rng = np.random.default_rng(0)
    X = (rng.random((40, 6)) < 0.2).astype(int)
    X, y = X[X.sum(axis=1) <= 2], rng.integers(0, 2, 40)[: (X.sum(axis=1) <= 2).sum()]
    X[0], X[1] = 0, [1, 0, 0, 0, 0, 1]
    more = {"min_categories": 2} if name == "categorical_nb" else {}
    domain = Domain(categories=(2,) * 6, max_length=2)
    low, high = limits(clone(model).set_params(**more), X, y, name, domain=domain)

    asked = np.array([q for q in product((0, 1), repeat=6) if sum(q) <= 2])
    for unit in range(len(y)):
        truth = moved(clone(model).set_params(**more), X, y, unit, asked)
        assert low[unit] <= truth + 1e-9
        assert truth <= high[unit]


def test_a_side_wholly_above_the_threshold_is_never_asked_below_it():
    rng = np.random.default_rng(0)
    X, y = rng.uniform(0.9, 1.0, (1100, 14)), rng.integers(0, 2, 1100)
    X[:, :2] = rng.uniform(0, 1, (1100, 2))
    domain = Domain(box=((0.0, 1.0),) * 2 + ((0.9, 1.0),) * 12)
    model = BernoulliNB(alpha=1e-3, binarize=0.5)
    low, _ = limits(model, X, y, "bernoulli_nb", domain=domain)

    asked = np.array([[a, b, *[0.95] * 12] for a, b in product((0.1, 0.9), repeat=2)])
    for unit in np.argsort(-low)[:20]:
        assert low[unit] <= moved(model, X, y, unit, asked) + 1e-9


def test_a_class_that_is_left_without_variance_ends_in_no_traceback():
    X = np.array([[1.0, 2.0], [1.0, 3.0], [2.0, 2.5], [4.0, 1.0], [4.5, 0.0], [5.0, 1.5], [3.0, 3.0]])
    y = np.array([0, 0, 0, 1, 1, 1, 1])
    subject = Subject.local(
        Recipe(GaussianNB(var_smoothing=0.0)),
        TrainingData(X, y, domain=Domain(box=((0, 6),) * 2), one_record_each=True),
    )
    if not catalogue.THEOREMS["gaussian_nb"].applies(subject):
        upper = catalogue.THEOREMS["gaussian_nb"].bound(subject, np.arange(7), None, limit=1.0).upper
        assert np.isinf(upper[2])
