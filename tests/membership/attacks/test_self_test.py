"""The known-answer test refuses attacks that are blind, credulous or broken."""

import numpy as np
import pytest

from privgate.errors import MeasurementError
from privgate.membership.attacks.self_test import CLASSES, RECORDS, SHADOWS, balanced_mask, self_test
from privgate.membership.attacks.yeom import LabelGap


def toss(attack, signals, rng):
    return rng.random(len(signals.labels))


def invert(attack, signals, rng):
    return -LabelGap().scores(signals, rng)


def peek(attack, signals, rng):
    """Replay the draw of the members, right after the shadow masks: it has nothing to do with the model."""
    for leak in (True, False):
        again = np.random.default_rng([7, leak])
        if (again.integers(0, CLASSES, RECORDS) == signals.labels).all():
            again.normal(0.0, 0.5, RECORDS)
            for _ in range(SHADOWS // 2):
                balanced_mask(again, RECORDS)
            return balanced_mask(again, RECORDS).astype(float)
    raise AssertionError


def fail(attack, signals, rng):
    raise MeasurementError("no answer")


def give_nan(attack, signals, rng):
    return np.full(len(signals.labels), np.nan)


@pytest.mark.parametrize(
    ("scores", "why"),
    [(toss, "misses a planted leak"), (invert, "misses a planted leak"), (peek, "finds a leak where there is none"),
     (fail, "no answer"), (give_nan, "NaN")],
    ids=lambda v: getattr(v, "__name__", ""),
)  # fmt: skip
def test_an_attack_that_cannot_be_believed_is_named(scores, why):
    assert why in self_test(type("Odd", (LabelGap,), {"name": "odd", "scores": scores})()).problem
