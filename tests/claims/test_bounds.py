"""Membership bounds of DP, against enumeration of mechanisms that attain or approach them."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from privgate.claims import bounds
from privgate.claims.accounting import Mechanism, recompute
from privgate.claims.bounds import Composed, EpsilonDelta, Gaussian
from privgate.errors import UsageError

epsilons = st.floats(0, 12)
priors = st.floats(0.001, 0.999)


@given(epsilons, priors)
def test_randomized_response_attains_theorem_1(epsilon, prior):
    tell = bounds.sigmoid(epsilon)  # says the truth about membership with this probability
    fires_in, fires_out = tell, 1 - tell
    posterior = prior * fires_in / (prior * fires_in + (1 - prior) * fires_out)
    assert bounds.positive_accuracy(epsilon, prior) == pytest.approx(posterior, abs=1e-12)
    silent = (1 - prior) * (1 - fires_out) / ((1 - prior) * (1 - fires_out) + prior * (1 - fires_in))
    assert bounds.positive_accuracy(epsilon, 1 - prior) == pytest.approx(silent, abs=1e-12)
    assert EpsilonDelta(epsilon).advantage() == pytest.approx(fires_in - fires_out, abs=1e-12)


def test_no_random_mechanism_with_many_outputs_beats_theorem_1_or_the_accuracy_bound():
    rng = np.random.default_rng(0)
    for _ in range(500):
        out = rng.dirichlet(np.ones(6))
        inside = out * np.exp(rng.uniform(-1, 1, 6))
        inside /= inside.sum()
        ratio = np.log(inside / out)
        epsilon = float(np.abs(ratio).max())
        p = float(rng.uniform(0.02, 0.98))
        posterior = p * inside / (p * inside + (1 - p) * out)
        assert posterior.max() <= bounds.positive_accuracy(epsilon, p) + 1e-12
        assert 1 - posterior.min() <= bounds.positive_accuracy(epsilon, 1 - p) + 1e-12
        right = np.maximum(p * inside, (1 - p) * out).sum()
        assert right <= EpsilonDelta(epsilon).accuracy(p) + 1e-12
        assert np.maximum(inside - out, 0).sum() <= EpsilonDelta(epsilon).advantage() + 1e-12


def test_two_records_that_come_together_or_a_known_size_need_twice_the_epsilon():
    # also where exactly one of two records is used, with one bit of randomized response a record
    tell = bounds.sigmoid(1.0)
    both = tell**2 / (tell**2 + (1 - tell) ** 2)
    assert bounds.convert_to_inclusion(1.0, 0.0, adjacency="add_remove", inclusion="fixed_size") == (2.0, 0.0)
    assert both == pytest.approx(0.8808, abs=5e-5)
    assert both > bounds.positive_accuracy(1.0, 0.5)
    assert both == pytest.approx(bounds.positive_accuracy(2.0, 0.5), abs=1e-12)


# -- trade-off curves, against scans of the whole region and simulated mechanisms --------------------------------------

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


@pytest.mark.parametrize(
    "call",
    [
        lambda: bounds.positive_accuracy(-1, 0.5),
        lambda: bounds.positive_accuracy(math.nan, 0.5),
        lambda: bounds.positive_accuracy(math.inf, 0.5),
        lambda: EpsilonDelta(1).accuracy(0),
        lambda: EpsilonDelta(1).accuracy(1.0),
        lambda: EpsilonDelta(1, 1.0),
        lambda: Gaussian(-1.0),
        lambda: Gaussian(math.inf),
        lambda: bounds.convert_to_inclusion(1, 0, adjacency="replace_one", inclusion="independent"),
    ],
)
def test_numbers_that_mean_nothing_are_refused(call):
    with pytest.raises(UsageError):
        call()
