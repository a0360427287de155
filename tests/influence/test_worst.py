"""The worst of many: family-wise errors by simulation."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privgate.influence import worst


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


def test_nan_is_never_rejected_and_counts_as_searched():
    assert worst.holm(np.array([np.nan, 0.04]), alpha=0.05).tolist() == [False, False]


@pytest.mark.parametrize("trials", [20, 40, 100])
def test_guessing_on_thousands_of_records_is_rarely_called_an_attack(trials):
    # docs/mathematics.md 9.3: 3000 tests, accuracy .5 everywhere; naive blocking errs always
    rng = np.random.default_rng(trials)
    runs, blocked, naive = 150, 0, 0
    for _ in range(runs):
        k = rng.binomial(trials, 0.5, 3000)
        blocked += worst.exceeds(k, np.full(3000, trials), threshold=0.5, alpha=0.05).any()
        naive += (k / trials).max() > 0.6
    assert blocked / runs <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / runs)
    assert naive == runs


def test_blocking_agrees_with_the_simultaneous_limits():
    rng = np.random.default_rng(0)
    for _ in range(200):
        k = rng.binomial(60, rng.uniform(0.3, 0.95, 25))
        n = np.full(25, 60)
        rejected = worst.exceeds(k, n, threshold=0.7, alpha=0.05).any()
        assert rejected == (worst.simultaneous_low(k, n, alpha=0.05).max() > 0.7)


def test_approving_all_records_needs_no_correction():
    rng = np.random.default_rng(2)
    runs, approved = 1500, 0
    for _ in range(runs):
        truth = np.full(200, 0.5)
        truth[7] = 0.6  # one record above the limit
        approved += worst.largest_high(rng.binomial(400, truth), np.full(200, 400), alpha=0.05) <= 0.599
    assert approved / runs <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / runs)


def test_nothing_searched_approves_nothing():
    assert worst.largest_high(np.zeros(0), np.zeros(0), alpha=0.05) == 1.0
