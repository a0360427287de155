"""Trade-off curves, against scans of the whole region and simulated mechanisms."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from privgate.claims.accounting import Mechanism, recompute
from privgate.claims.tradeoff import Composed, EpsilonDelta, Gaussian
from privgate.errors import UsageError

GRID = np.linspace(0, 1, 20001)


@given(st.floats(0, 6), st.floats(0, 0.3), st.floats(0.01, 0.99))
def test_epsilon_delta_formulas_equal_a_scan_of_the_region(epsilon, delta, prior):
    curve = EpsilonDelta(epsilon, delta)
    u = np.array([curve.tpr(f) for f in GRID[::20]])
    f = GRID[::20]
    assert curve.accuracy(prior) == pytest.approx((prior * u + (1 - prior) * (1 - f)).max(), abs=2e-3)
    assert curve.accuracy(prior) >= (prior * u + (1 - prior) * (1 - f)).max() - 1e-12
    stated = max(
        (math.exp(epsilon) + delta) / (1 + math.exp(epsilon)), 1 - prior + prior * delta, prior + (1 - prior) * delta
    )
    assert curve.accuracy(prior) == pytest.approx(stated, abs=1e-12)
    assert curve.advantage() == pytest.approx((math.exp(epsilon) - 1 + 2 * delta) / (math.exp(epsilon) + 1), abs=1e-12)


@given(st.floats(0.01, 4), st.floats(0.01, 0.99))
def test_gaussian_formulas_equal_a_scan_of_thresholds(mu, prior):
    t = np.linspace(-8, 12, 40001)
    tpr, fpr = norm.sf(t - mu), norm.sf(t)
    curve = Gaussian(mu)
    assert curve.advantage() == pytest.approx(2 * norm.cdf(mu / 2) - 1, abs=1e-12)
    assert curve.accuracy(prior) == pytest.approx((prior * tpr + (1 - prior) * (1 - fpr)).max(), abs=1e-5)


def test_least_advantage_over_all_epsilon_is_the_gaussian_one():
    mu = 1.3
    curve = Gaussian(mu)
    found = min(EpsilonDelta(e, curve.hockey_stick(e)).advantage() for e in np.linspace(0, 5, 500))
    assert found == pytest.approx(curve.advantage(), abs=1e-9)


@given(st.floats(0, 4), st.floats(0, 0.2))
def test_positive_accuracy_falls_with_the_false_positive_rate(epsilon, delta):
    curve = EpsilonDelta(epsilon, delta)
    found = [curve.positive_accuracy(0.5, f) for f in (1e-6, 1e-4, 1e-2, 0.1, 0.5, 1.0)]
    assert all(a >= b - 1e-12 for a, b in pairwise(found))


def test_a_composed_gaussian_has_the_curve_of_one_gaussian():
    exact, grid = Gaussian(1.0), np.linspace(0, 60, 1200)
    composed = Composed(grid, np.array([exact.hockey_stick(e) for e in grid]), "100 releases")
    for f in (1e-4, 0.01, 0.1, 0.5):
        assert exact.tpr(f) - 1e-9 <= composed.tpr(f) <= exact.tpr(f) * 1.002 + 1e-6
    for p in (0.01, 0.3, 0.5, 0.9):
        assert exact.accuracy(p) - 1e-9 <= composed.accuracy(p) <= exact.accuracy(p) + 1e-3


def test_a_simulated_subsampled_gaussian_mechanism_never_beats_its_curve():
    rng = np.random.default_rng(1)
    steps, rate, sigma, runs = 20, 0.2, 1.0, 40_000
    curve = recompute(Mechanism(sigma, rate, steps, "poisson", "add_remove"), 1e-5).curve
    out = rng.normal(0, sigma, (runs, steps))
    inside = rng.normal(0, sigma, (runs, steps)) + (rng.random((runs, steps)) < rate)

    def log_ratio(w):  # the most powerful test
        return np.log1p(rate * np.expm1((2 * w - 1) / (2 * sigma**2))).sum(axis=1)

    a, b = np.sort(log_ratio(out)), log_ratio(inside)
    for f in (0.01, 0.05, 0.2, 0.5):
        cut = a[-max(1, int(f * runs))]
        tpr, fpr = (b >= cut).mean(), (a >= cut).mean()
        noise = 4 * math.sqrt(0.25 / runs)
        assert tpr <= curve.tpr(fpr) + noise
        assert tpr >= curve.tpr(fpr) - noise - 0.02  # and the bound is not idle: the best test nearly reaches it


def test_without_an_fpr_there_is_no_bound_on_positive_accuracy():
    with pytest.raises(UsageError, match="false-positive rate"):
        EpsilonDelta(1, 1e-5).positive_accuracy(0.5, 0.0)
    assert EpsilonDelta(1, 1e-3).positive_accuracy(0.5, 1e-9) > 0.999


def test_rounding_and_grids_only_loosen():
    curve = Gaussian(1.5)
    grid = np.array([0.0, 0.5, 1.0, 3.0, 9.0])
    coarse = Composed(grid, np.array([curve.hockey_stick(e) for e in grid]), "coarse")
    for x in np.linspace(-8, 8, 161):
        assert coarse.hockey_stick(x) >= curve.hockey_stick(x) - 1e-12
    for f in (1e-5, 1e-3, 0.1, 0.7):
        assert coarse.tpr(f) >= curve.tpr(f) - 1e-12


@pytest.mark.parametrize("mu", [-1.0, math.nan, math.inf])
def test_a_mu_that_means_nothing_is_refused(mu):
    with pytest.raises(UsageError):
        Gaussian(mu)
