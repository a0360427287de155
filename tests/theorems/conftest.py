"""A fleet that trains in this process, direct refits of scikit-learn, and designs that are hard on closed forms."""

import sys
import warnings
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.base import clone

from privgate.subject.data import TrainingData
from privgate.subject.recipe import Recipe
from privgate.subject.subject import Subject
from tests.in_process import RAISED, InProcess

sys.path.insert(0, str(Path(__file__).parent))  # families.py and nasty.py, shared by the laws and their slow versions


@pytest.fixture
def fleet():
    return InProcess()


def log_probabilities(estimator, subject, left_out, queries):
    """What scikit-learn itself says without some rows, columns in the subject's classes; None if training raises."""
    keep = np.setdiff1d(np.arange(subject.data.n), left_out)
    X, _ = subject.data.pool()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fitted = clone(estimator).fit(np.asarray(subject.data.X)[keep], subject.data.y[keep])
            if hasattr(fitted, "predict_log_proba"):
                got = fitted.predict_log_proba(np.asarray(X)[queries])
            else:
                got = np.log(fitted.predict_proba(np.asarray(X)[queries]))
    except RAISED:
        return None
    full = np.full((len(queries), len(subject.classes)), -np.inf)
    full[:, np.searchsorted(subject.classes, fitted.classes_)] = got
    return None if np.isnan(full).any() else full


def worst_difference(made, estimator, subject, *, every=1):
    """Largest |log p| difference between an engine and refits; inf where only one of them says infinite.

    Beyond 100 nats the difference is relative to them: float64 has no more to give.
    A unit that the engine calls undefined must be one where scikit-learn raises, or where a class disappears.
    """
    worst = 0.0
    full = log_probabilities(estimator, subject, [], made.row_query)
    for k in range(0, len(made.units), every):
        rows = np.flatnonzero(made.row_unit == k)
        unit = subject.data.units[int(made.units[k])]
        expected = log_probabilities(estimator, subject, unit, made.row_query[rows])
        if made.status[k] == "undefined":
            if expected is not None and not (np.isneginf(expected) & ~np.isneginf(made.log_with[0, rows])).any():
                return np.inf
            continue
        if expected is None:
            return np.inf
        for ours, theirs in ((made.log_without[0, rows], expected), (made.log_with[0, rows], full[rows])):
            with np.errstate(invalid="ignore"):
                gap = np.abs(np.where(ours == theirs, 0.0, ours - theirs)) / np.maximum(1.0, np.abs(theirs) / 100)
            worst = max(worst, float(np.nan_to_num(gap, nan=np.inf).max()))
    return worst


def subject_of(estimator, X, y, **kwargs):
    return Subject.local(Recipe(estimator), TrainingData(X, y, **kwargs))


@pytest.fixture(scope="session")
def direct():
    return SimpleNamespace(worst_difference=worst_difference, subject=subject_of, log_probabilities=log_probabilities)
