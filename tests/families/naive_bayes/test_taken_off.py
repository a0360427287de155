"""Somebody who holds nearly all of a feature: taking them off its sum leaves no digits, so they are trained without."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.naive_bayes import ComplementNB, MultinomialNB

from privgate import Recipe, Subject, TrainingData
from privgate.families.engine import Asked
from privgate.families.naive_bayes import tokens

ENGINES = {MultinomialNB: tokens.MULTINOMIAL, ComplementNB: tokens.COMPLEMENT}


def subject_of(estimator, outlier, groups):
    rng = np.random.default_rng(0)
    X = rng.integers(0, 4, (200, 3)).astype(float)
    X[7] = outlier
    people = np.where(np.arange(200) == 8, 7, np.arange(200)) if groups else None
    return Subject.local(Recipe(estimator), TrainingData(X, np.arange(200) % 2, groups=people))


def change(estimator, subject, unit):
    X, y, rows = subject.data.X, subject.data.y, subject.data.units[unit]
    keep = np.setdiff1d(np.arange(len(y)), rows)
    with_, without = (clone(estimator).fit(X[k], y[k]).predict_joint_log_proba(X[rows]) for k in (np.arange(200), keep))
    odds = (with_ - without)[:, 0] - (with_ - without)[:, 1]
    return np.abs(odds).max()


@pytest.mark.parametrize("groups", [False, True])
@pytest.mark.parametrize("estimator", [MultinomialNB(), ComplementNB()], ids=str)
def test_who_holds_nearly_all_of_a_sum_is_handed_on(fleet, estimator, groups):
    """A wrong number among counts: what was left of the sums was rounding, and the change of odds made up."""
    subject = subject_of(estimator, 1e15 + 0.3, groups)
    made, left = ENGINES[type(estimator)].answers(Asked(subject, np.arange(len(subject.data.units)), (None,), fleet))

    assert left.tolist() == [7]
    assert change(estimator, subject, 7) > 1e6
    assert len(made.units) == len(subject.data.units) - 1


@pytest.mark.parametrize("outlier", [3.0, 1e6, 0.25])
@pytest.mark.parametrize("estimator", [MultinomialNB(), ComplementNB(), MultinomialNB(alpha=1e-10)], ids=str)
def test_ordinary_counts_and_weights_are_answered_for_everybody(fleet, estimator, outlier):
    subject = subject_of(estimator, outlier, groups=False)
    made, left = ENGINES[type(estimator)].answers(Asked(subject, np.arange(200), (None,), fleet))

    assert not len(left)
    assert len(made.units) == 200
