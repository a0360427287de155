"""Answers of networks depend on the size of the batch in their last digits: no other model is served for that."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.naive_bayes import GaussianNB

from privgate import Recipe, Subject, TrainingData
from privgate.controls import served as controls
from privgate.training.fit import Answer

LABELS = 2


class Answering:
    """A fleet whose stored model answers otherwise, by a factor, where it is asked otherwise."""

    signable = False

    def __init__(self, single, apart):
        self.single, self.apart = single, apart

    def registered(self, subject, rows, *, served=None):
        p = (1 + np.asarray(rows) % 7) / 11
        p = p.astype(np.float32).astype(np.float64) if self.single else p
        first = p if served in (None, controls.WHOLE) else p * (1 + self.apart)
        rest = (1 - p).astype(np.float32).astype(np.float64) if self.single else 1 - p
        answered = np.log(np.column_stack([first, rest]))
        return Answer(answered if served is None else np.exp(answered))


@pytest.fixture
def subject():
    data = TrainingData(np.random.default_rng(0).normal(size=(40, 2)), np.arange(40) % LABELS, one_record_each=True)
    made = Subject.local(Recipe(GaussianNB()), data)
    return replace(made, model=SimpleNamespace(servable=True))


@pytest.mark.parametrize(
    ("single", "apart", "outcome", "added"),
    [
        (True, 0.0, "passed", 0.0),
        (True, 6e-6, "passed", controls.SINGLE_TOLERANCE),  # a convolution on digits, measured: 5.8e-6
        (True, 1e-3, "inconclusive", controls.SINGLE_TOLERANCE),
        (False, 6e-6, "inconclusive", 0.0),
    ],
)
def test_what_another_batch_takes_from_single_precision_is_no_other_model(subject, single, apart, outcome, added):
    found = controls.check_served(subject, Answering(single, apart))

    assert [p.outcome for p in found] == [outcome], found[0].message
    if outcome == "passed":
        assert found[0].detail.get("ways_apart", 0.0) == added
