"""The worst of many: family-wise errors by simulation."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import bdtrc

from papers import worst
from privgate.kernel.sample import upper_limit


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20), st.floats(0.001, 0.2))
def test_holm_rejects_what_its_definition_says(p, alpha):
    p = np.array(p)
    order = np.argsort(p, kind="stable")
    expected = np.zeros(len(p), dtype=bool)
    for rank, i in enumerate(order):
        if p[i] > alpha / (len(p) - rank):
            break
        expected[i] = True

    assert (worst.holm(p, alpha=alpha) == expected).all()


def test_the_step_down_goes_on_while_it_rejects():
    assert worst.holm(np.array([0.01, 0.04, 0.03, 0.005]), alpha=0.05).tolist() == [True, False, False, True]


def test_nan_is_never_rejected_and_counts_as_searched():
    assert worst.holm(np.array([np.nan, 0.04]), alpha=0.05).tolist() == [False, False]


@pytest.mark.parametrize("trials", [20, 40, 100])
def test_guessing_on_thousands_of_records_is_rarely_called_an_attack(trials):
    # docs/mathematics.md 9.3: 3000 tests, accuracy .5 everywhere; naive blocking errs always
    rng = np.random.default_rng(trials)
    runs, blocked, naive = 150, 0, 0
    for _ in range(runs):
        k = rng.binomial(trials, 0.5, 3000)
        blocked += worst.simultaneous_low(k, np.full(3000, trials), alpha=0.05).max() > 0.5
        naive += (k / trials).max() > 0.6
    assert blocked / runs <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / runs)
    assert naive == runs


def test_simultaneous_limits_exceed_a_threshold_exactly_where_holm_rejects_something():
    rng = np.random.default_rng(0)
    for _ in range(200):
        k = rng.binomial(60, rng.uniform(0.3, 0.95, 25))
        n = np.full(25, 60)
        rejected = worst.holm(bdtrc(k - 1.0, n, 0.7), alpha=0.05).any()  # P(as many or more), exact
        assert rejected == (worst.simultaneous_low(k, n, alpha=0.05).max() > 0.7)


def test_approving_all_records_needs_no_correction():
    rng = np.random.default_rng(2)
    runs, approved = 1500, 0
    for _ in range(runs):
        truth = np.full(200, 0.5)
        truth[7] = 0.6  # one record above the limit
        approved += upper_limit(rng.binomial(400, truth), 400, alpha=0.05).max() <= 0.599
    assert approved / runs <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / runs)
