"""Recomputing ε: against Opacus, closed forms, and the hazards of sampling."""

import math
import warnings

import numpy as np
import pytest
from scipy.stats import binom, norm

from privgate.errors import MeasurementError, UsageError
from privgate.kernel import transcript
from privgate.claims import accountant
from privgate.claims.accountant import Mechanism, recompute
from privgate.claims.tradeoff import Gaussian

SETTINGS = [(1.0, 0.01, 1000), (1.1, 256 / 60000, 15_000), (0.7, 0.02, 500), (2.0, 0.05, 2000), (4.0, 0.1, 300)]


@pytest.mark.quick(1)
@pytest.mark.parametrize(("sigma", "rate", "steps"), SETTINGS)
def test_within_one_percent_of_opacus_for_standard_settings(sigma, rate, steps):
    from opacus.accountants import PRVAccountant, RDPAccountant

    ours = recompute(Mechanism(sigma, rate, steps, "poisson", "add_remove"), 1e-5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        prv, rdp = PRVAccountant(), RDPAccountant()
        prv.history = rdp.history = [(sigma, rate, steps)]
        assert ours.epsilon == pytest.approx(prv.get_epsilon(1e-5), rel=0.01)
        assert ours.epsilon <= rdp.get_epsilon(1e-5)


def test_full_batches_are_one_gaussian():
    found = recompute(Mechanism(5.0, 1.0, 25, "poisson", "add_remove"), 1e-5)
    assert found.epsilon == pytest.approx(Gaussian(1.0).epsilon(1e-5), abs=1e-9)
    assert found.epsilon == pytest.approx(4.377, abs=1e-3)


@pytest.mark.parametrize("sampling", ["poisson", "shuffled", "unknown"])
def test_replacing_a_record_costs_more_than_adding_one_and_no_more_than_two_steps(sampling):
    one, two = (recompute(Mechanism(6.0, 0.1, 50, sampling, a), 1e-5) for a in ("add_remove", "replace_one"))
    assert one.epsilon < two.epsilon
    for x in (0.2, 0.5, 1.0):
        delta = one.curve.hockey_stick(x)
        assert two.curve.hockey_stick(2 * x) <= (1 + math.exp(x)) * delta + 1e-9


def test_shuffled_batches_get_no_amplification():
    poisson = recompute(Mechanism(1.0, 0.01, 1000, "poisson", "add_remove"), 1e-5)
    shuffled = recompute(Mechanism(1.0, 0.01, 1000, "shuffled", "add_remove"), 1e-5)
    assert shuffled.epsilon > 5 * poisson.epsilon
    assert shuffled.curve == Gaussian(math.sqrt(10))
    assert "no amplification" in " ".join(shuffled.assumptions)


def test_unknown_sampling_counts_every_step():
    unknown = recompute(Mechanism(50.0, 0.01, 1000, "unknown", "add_remove"), 1e-5)
    assert unknown.curve == Gaussian(math.sqrt(1000) / 50)


def test_fixed_size_batches_are_accounted_for_replacement_alone():
    found = recompute(Mechanism(1.0, 0.01, 1000, "fixed_size", "replace_one", records=5000), 1e-5)
    assert math.isfinite(found.epsilon)
    with pytest.raises(accountant.MeasurementError, match="replaced"):
        recompute(Mechanism(1.0, 0.01, 1000, "fixed_size", "add_remove", records=5000), 1e-5)


def test_a_batch_of_all_records_moves_by_two_clipping_norms_where_one_is_replaced():
    """The noise multiplier counts clipping norms; replacing one record moves a sum by two of them."""
    all_of_them = recompute(Mechanism(8.0, 0.999, 10, "fixed_size", "replace_one", records=1000), 1e-5)
    least = recompute(Mechanism(8.0, 1.0, 10, "fixed_size", "replace_one", records=1000), 1e-5)
    assert all_of_them.epsilon > 0.99 * least.epsilon


@pytest.mark.parametrize("angle", [0.0, 0.5, 1.0])
def test_poisson_batches_cost_most_where_the_replaced_gradient_points_the_other_way(angle):
    """The privacy of one step for every pair of gradients in a plane is within that of opposite ones."""
    rate, sigma, epsilon = 0.3, 1.0, 0.4
    one = np.linspace(-9, 9, 361)
    x, y = np.meshgrid(one, one)
    turn = np.pi * angle

    def batch(a, b):
        return (1 - rate) * np.exp(-(x**2 + y**2) / 2) + rate * np.exp(-((x - a) ** 2 + (y - b) ** 2) / 2)

    with_, other = batch(1, 0), batch(np.cos(turn), np.sin(turn))
    delta = np.maximum(with_ - np.exp(epsilon) * other, 0).sum() * (one[1] - one[0]) ** 2 / (2 * np.pi)
    step = transcript.losses(Mechanism(sigma, rate, 1, "poisson", "replace_one").transcript)
    largest = step[0].delta(epsilon)
    assert delta <= largest + 1e-4
    assert (largest - delta < 1e-4) == (angle == 1)


def test_no_noise_is_infinite():
    found = recompute(Mechanism(0.0, 0.01, 1000, "poisson", "add_remove"), 1e-5)
    assert math.isinf(found.epsilon)
    assert found.curve is None


def test_delta_at_the_recomputed_epsilon_is_the_delta_asked_for():
    found = recompute(Mechanism(1.0, 0.01, 1000, "poisson", "add_remove"), 1e-5)
    assert found.curve.hockey_stick(found.epsilon) == pytest.approx(1e-5, rel=1e-3)


def test_basic_composition_and_groups():
    assert accountant.pure_composition([(0.5, 0.0), (0.25, 1e-6)]) == (0.75, 1e-6)
    assert accountant.pure_composition([(0.5, 0.0), (math.nan, 0.0)]) == (math.inf, 1.0)
    assert accountant.pure_composition([(0.5, 0.7), (0.5, 0.7)]) == (1.0, 1.0)
    assert accountant.for_groups(1.0, 0.0, 3) == (3.0, 0.0)
    epsilon, delta = accountant.for_groups(0.5, 1e-6, 4)
    assert epsilon == 2.0
    assert delta == pytest.approx(1e-6 * sum(math.exp(0.5 * i) for i in range(4)))


def test_a_declared_epsilon_may_round_but_not_understate():
    assert not accountant.understates(2.0, 2.01)
    assert accountant.understates(1.0, 2.3)
    assert accountant.understates(1.0, math.inf)
    assert accountant.understates(math.nan, 1.0)


@pytest.mark.parametrize(
    "mechanism",
    [
        lambda: Mechanism(-1.0, 0.1, 10, "poisson", "add_remove"),
        lambda: Mechanism(math.nan, 0.1, 10, "poisson", "add_remove"),
        lambda: Mechanism(1.0, 0.0, 10, "poisson", "add_remove"),
        lambda: Mechanism(1.0, 0.1, 0, "poisson", "add_remove"),
        lambda: Mechanism(1.0, 0.1, 10, "", "add_remove"),
        lambda: Mechanism(1.0, 0.1, 10, "poisson", "unknown"),
    ],
)
def test_what_is_no_mechanism_is_refused(mechanism):
    with pytest.raises(UsageError):
        mechanism()


def test_gaussian_noise_needs_a_delta():
    with pytest.raises(UsageError, match="delta"):
        recompute(Mechanism(1.0, 0.1, 10, "poisson", "add_remove"), 0.0)


def test_several_records_of_one_person_are_a_mixture_of_gaussians():
    # one step by brute force: with the person, the sum moves by i clipping norms with the chance that i of k are drawn
    sigma, rate, k, epsilon = 1.5, 0.3, 3, 1.0
    x = np.linspace(-15, 20, 400_001)
    without = norm.pdf(x, scale=sigma)
    inside = sum(binom.pmf(i, k, rate) * norm.pdf(x, loc=i, scale=sigma) for i in range(k + 1))
    gaps = [np.maximum(p - np.exp(epsilon) * q, 0) for p, q in ((inside, without), (without, inside))]
    delta = max(float(np.trapezoid(g, x)) for g in gaps)
    found = accountant.recompute(accountant.Mechanism(sigma, rate, 1, "poisson", "add_remove", copies=k), delta)
    assert epsilon * (1 - 1e-6) <= found.epsilon <= epsilon + 1e-3


@pytest.mark.parametrize("sampling", ["poisson", "shuffled", "unknown"])
def test_several_records_cost_more_than_one_and_no_more_than_the_conversion_of_groups(sampling):
    one = accountant.Mechanism(60.0, 0.05, 100, sampling, "add_remove")
    several = accountant.Mechanism(60.0, 0.05, 100, sampling, "add_remove", copies=3)
    single = accountant.recompute(one, 1e-8).epsilon
    converted, delta = accountant.for_groups(single, 1e-8, 3)
    assert accountant.recompute(one, delta).epsilon < accountant.recompute(several, delta).epsilon <= converted + 1e-3


def test_several_records_are_refused_where_no_theorem_covers_them():
    with pytest.raises(MeasurementError, match="several records"):
        accountant.recompute(accountant.Mechanism(2.0, 0.1, 10, "poisson", "replace_one", copies=2), 1e-5)
