"""Theorems 3 and 5 over a grid of errors and influences, each within Monte Carlo limits of its closed form."""

import numpy as np
import pytest

from papers import gaussian

#: of some 70 comparisons none may be further off than this, in standard errors
WITHIN = 4.5


@pytest.mark.parametrize("r", gaussian.RATIOS)
def test_adversary_2_is_theorem_3(r):
    for row in gaussian.oracle(r, np.random.default_rng(int(100 * r))):
        assert row.obtained == pytest.approx(row.due, abs=WITHIN * gaussian.ERROR), row.what


@pytest.mark.parametrize("r", gaussian.RATIOS)
@pytest.mark.parametrize("tau", gaussian.INFLUENCES)
def test_adversary_4_is_theorem_5(tau, r):
    for row in gaussian.inversion(tau, r, np.random.default_rng([int(100 * tau), int(100 * r)])):
        assert row.obtained == pytest.approx(row.due, abs=WITHIN * gaussian.ERROR), row.what


def test_figure_1_vanishes_at_both_ends():
    curve = [gaussian.theorem_5(tau, 1.0, 5.0) for tau in gaussian.INFLUENCES]

    assert curve[0] == 0
    assert max(curve) > 0.3
    assert curve[-1] < curve[int(np.argmax(curve))]
