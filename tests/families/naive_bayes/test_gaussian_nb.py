"""Where the algebra of Gaussian naive Bayes loses digits, and where a first-order treatment would be wrong."""

import numpy as np
import pytest
from sklearn.naive_bayes import GaussianNB

from privgate.families.engine import Asked
from privgate.families.naive_bayes.gaussian import ENGINE


def base(rng):
    y = rng.integers(0, 3, 200)
    return rng.normal(size=(3, 8))[y] + rng.normal(size=(200, 8)), y


def offset(X):
    return X + 1e6


def one_scale_dominates_the_floor(X):
    return X * np.where(np.arange(8) == 0, 1e5, 1.0)


def constant_but_for_one_record(X):
    X = X.copy()
    X[:, 0] = 0
    X[0, 0] = 1
    return X


def nearly_all_variance_is_one_record(X):
    X = X.copy()
    X[:, 1] *= 1e-6
    X[3, 1] = 10
    return X


def the_floor_hangs_on_one_record(X):
    X = X * 1e-3
    X[7, 2] = 1e4
    return X


def the_floor_is_one_record(X):
    X = X * 1e-7
    X[7, 2] = 1e6
    return X


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    ("alter", "tolerance"),
    [
        (offset, 1e-7),  # scikit-learn does not centre first
        (one_scale_dominates_the_floor, 1e-9),
        # without the record every joint log-likelihood is about -1e8: 16 digits of it leave 1e-8 in scikit-learn too
        (constant_but_for_one_record, 1e-6),
        (nearly_all_variance_is_one_record, 1e-6),
        (the_floor_hangs_on_one_record, 1e-6),
        # with the record the mean is 5e3, about which the others' 1e-7 keep five digits; it is the record's own log p
        # of -1e24 alone that shows it
        (the_floor_is_one_record, 0.05),
    ],
)
def test_equals_refits_where_digits_are_lost(direct, fleet, alter, tolerance):
    X, y = base(np.random.default_rng(0))
    subject = direct.subject(GaussianNB(), alter(X), y)

    made, _ = ENGINE.answers(Asked(subject, np.arange(200), (None,), fleet))

    assert direct.worst_difference(made, GaussianNB(), subject) <= tolerance


def test_declines_single_precision_in_which_scikit_learn_computes(direct):
    X, y = base(np.random.default_rng(0))

    assert "single precision" in ENGINE.supports(direct.subject(GaussianNB(), X.astype(np.float32), y))
