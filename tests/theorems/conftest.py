"""A fleet that trains in this process, direct refits of scikit-learn, and designs that are hard on closed forms."""

import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from privgate.subject.data import TrainingData
from privgate.subject.recipe import Recipe
from privgate.subject.subject import Subject
from tests.in_process import InProcess

sys.path.insert(0, str(Path(__file__).parent))  # families.py and nasty.py, shared by the laws and their slow versions
from families import Instance


@pytest.fixture
def fleet():
    return InProcess()


def worst_difference(made, estimator, subject, *, every=1):
    """Largest |log p| difference between an engine and refits; inf where only one of them says infinite.

    Beyond 100 nats the difference is relative to them: float64 has no more to give.
    A unit that the engine calls undefined must be one where scikit-learn raises, or where a class disappears.
    """
    X, worst = np.asarray(subject.data.pool()[0]), 0.0
    instance = Instance(Subject.local(Recipe(estimator), subject.data), X)

    def answers(left_out, queries):
        model = instance.fit(np.setdiff1d(np.arange(subject.data.n), left_out))
        return None if model is None else instance.ask(model, X[queries])

    full = answers([], made.row_query)
    for k in range(0, len(made.units), every):
        rows = np.flatnonzero(made.row_unit == k)
        unit = subject.data.units[int(made.units[k])]
        expected = answers(unit, made.row_query[rows])
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
    return SimpleNamespace(worst_difference=worst_difference, subject=subject_of)
