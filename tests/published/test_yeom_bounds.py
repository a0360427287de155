"""Yeom et al. (2020): Theorem 1 as printed and as corrected, and the gap that a small epsilon forces."""

import math

import pytest

from privgate.claims import bounds
from privgate.claims.bounds import EpsilonDelta


@pytest.mark.parametrize(
    ("epsilon", "printed", "improved", "tight"),
    [(0.1, 0.1052, 0.0952, 0.0500), (1, 1.718, 0.632, 0.462), (2, 6.39, 0.865, 0.762)],
)
def test_theorem_1_as_printed_and_what_replaces_it(epsilon, printed, improved, tight):
    assert 2 * bounds.yeom_accuracy(epsilon) - 1 == pytest.approx(min(1.0, printed), abs=5e-4)
    assert 2 * bounds.erlingsson_accuracy(epsilon) - 1 == pytest.approx(improved, abs=5e-4)
    assert EpsilonDelta(epsilon).advantage() == pytest.approx(tight, abs=5e-4)


def test_theorem_1_says_nothing_from_ln_2_on():
    assert bounds.yeom_accuracy(math.log(2)) == pytest.approx(1.0)
    assert bounds.yeom_accuracy(5.0) == 1.0


def test_corollary_3_a_small_epsilon_forces_a_small_gap():
    assert 2 * bounds.generalization_gap(1.0) == pytest.approx(2 * 0.4621, abs=1e-4)
