"""The known-answer test refuses attacks that are blind, credulous or broken."""

import numpy as np
import pytest

from privgate.errors import MeasurementError
from privgate.membership.attacks.label_gap import LabelGap
from privgate.membership.attacks.self_test import self_test


class Coin(LabelGap):
    name = "coin"

    def scores(self, signals, rng):
        return rng.random(len(signals.labels))


class Inverted(LabelGap):
    name = "inverted"

    def scores(self, signals, rng):
        return -super().scores(signals, rng)


class Peeking(LabelGap):
    """Uses something that has nothing to do with the model: finds a leak where there is none."""

    name = "peeking"

    def scores(self, signals, rng):
        # the members of the planted signals are drawn right after the shadow masks: replayed here
        from privgate.membership.attacks.self_test import CLASSES, RECORDS, SHADOWS, balanced_mask

        for leak in (True, False):
            again = np.random.default_rng([7, leak])
            if (again.integers(0, CLASSES, RECORDS) == signals.labels).all():
                again.normal(0.0, 0.5, RECORDS)
                for _ in range(SHADOWS // 2):
                    balanced_mask(again, RECORDS)
                return balanced_mask(again, RECORDS).astype(float)
        raise AssertionError


class Broken(LabelGap):
    name = "broken"

    def scores(self, signals, rng):
        raise MeasurementError("no answer")


class NotANumber(LabelGap):
    name = "nan"

    def scores(self, signals, rng):
        return np.full(len(signals.labels), np.nan)


@pytest.mark.parametrize(
    ("attack", "why"),
    [
        (Coin(), "misses a planted leak"),
        (Inverted(), "misses a planted leak"),
        (Peeking(), "finds a leak where there is none"),
        (Broken(), "no answer"),
        (NotANumber(), "NaN"),
    ],
    ids=lambda v: getattr(v, "name", ""),
)
def test_an_attack_that_cannot_be_believed_is_named(attack, why):
    assert why in self_test(attack).problem
