"""Membership bounds of DP, against enumeration of mechanisms that attain or approach them."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privgate.claims import bounds
from privgate.errors import UsageError

epsilons = st.floats(0, 12)
priors = st.floats(0.001, 0.999)


@given(epsilons, priors)
def test_randomized_response_attains_theorem_1(epsilon, prior):
    tell = bounds.sigmoid(epsilon)  # says the truth about membership with this probability
    fires_in, fires_out = tell, 1 - tell
    posterior = prior * fires_in / (prior * fires_in + (1 - prior) * fires_out)
    assert bounds.positive_accuracy(epsilon, prior)[1] == pytest.approx(posterior, abs=1e-12)
    silent = (1 - prior) * (1 - fires_out) / ((1 - prior) * (1 - fires_out) + prior * (1 - fires_in))
    assert bounds.negative_accuracy(epsilon, prior)[1] == pytest.approx(silent, abs=1e-12)
    assert bounds.advantage(epsilon) == pytest.approx(fires_in - fires_out, abs=1e-12)


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
        low, high = bounds.positive_accuracy(epsilon, p)
        assert posterior.max() <= high + 1e-12
        assert posterior.min() >= low - 1e-12
        right = np.maximum(p * inside, (1 - p) * out).sum()
        assert right <= bounds.accuracy(epsilon, p) + 1e-12
        assert np.maximum(inside - out, 0).sum() <= bounds.advantage(epsilon) + 1e-12


def test_side_information_about_others_does_not_help_when_inclusion_is_independent():
    # 3 records, randomized response on their count parity: the adversary may know the others or not
    epsilon, p = 1.0, 0.3
    tell = bounds.sigmoid(epsilon)
    high = bounds.positive_accuracy(epsilon, p)[1]
    for known in (None, (0, 0), (1, 0), (1, 1)):
        mass = np.zeros((2, 2))
        for bits in np.ndindex(2, 2, 2):
            if known is not None and bits[1:] != known:
                continue
            weight = math.prod(p if b else 1 - p for b in bits)
            for answer in (0, 1):
                mass[bits[0], answer] += weight * (tell if answer == sum(bits) % 2 else 1 - tell)
        posterior = mass[1] / mass.sum(axis=0)
        assert posterior.max() <= high + 1e-12


def test_two_records_that_come_together_break_the_bound_as_documented():
    tell = bounds.sigmoid(1.0)
    both = tell**2 / (tell**2 + (1 - tell) ** 2)
    assert both == pytest.approx(0.8808, abs=5e-5)
    assert both > bounds.positive_accuracy(1.0, 0.5)[1]
    assert both == pytest.approx(bounds.positive_accuracy(2.0, 0.5)[1], abs=1e-12)


def test_fixed_size_inclusion_needs_twice_the_add_remove_epsilon():
    # two records, exactly one is used; one bit of randomized response a record
    tell = bounds.sigmoid(1.0)
    posterior = tell**2 / (tell**2 + (1 - tell) ** 2)
    doubled, delta = bounds.effective_guarantee(1.0, 0.0, adjacency="add_remove", inclusion="fixed_size")
    assert (doubled, delta) == (2.0, 0.0)
    assert bounds.positive_accuracy(doubled, 0.5)[1] == pytest.approx(posterior, abs=1e-12)


@given(st.floats(0.01, 5), st.floats(0.01, 1))
def test_amplification_for_the_pool_is_exact_for_randomized_response(epsilon, keep):
    tell = bounds.sigmoid(epsilon)
    inside = keep * tell + (1 - keep) * (1 - tell)
    assert math.log(inside / (1 - tell)) == pytest.approx(bounds.pool_epsilon(epsilon, keep), abs=1e-9)


@given(epsilons)
def test_every_earlier_bound_is_weaker(epsilon):
    ours = bounds.accuracy(epsilon, 0.5)
    assert ours <= bounds.erlingsson_accuracy(epsilon) + 1e-12
    assert ours <= bounds.sablayrolles_positive_accuracy(epsilon, 0.5) + 1e-12
    assert ours <= bounds.yeom_accuracy(epsilon) + 1e-12


@pytest.mark.parametrize(
    "call",
    [
        lambda: bounds.positive_accuracy(-1, 0.5),
        lambda: bounds.positive_accuracy(math.nan, 0.5),
        lambda: bounds.positive_accuracy(math.inf, 0.5),
        lambda: bounds.accuracy(1, 0),
        lambda: bounds.accuracy(1, 1.0),
        lambda: bounds.generalization_gap(1, math.inf),
        lambda: bounds.pool_epsilon(1, 0),
        lambda: bounds.effective_guarantee(1, 0, adjacency="replace_one", inclusion="independent"),
        lambda: bounds.effective_guarantee(1, 0, adjacency="", inclusion="independent"),
        lambda: bounds.effective_guarantee(1, 1.0, adjacency="add_remove", inclusion="independent"),
    ],
)
def test_numbers_that_mean_nothing_are_refused(call):
    with pytest.raises(UsageError):
        call()
