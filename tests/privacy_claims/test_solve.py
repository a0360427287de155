"""From a goal back to ε and noise: every solution achieves its goal, and a little more ε does not."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from privgate.errors import UsageError
from privgate.privacy_claims import accountant, tradeoff
from privgate.privacy_claims.accountant import Mechanism, recompute
from privgate.privacy_claims.tradeoff import EpsilonDelta


@given(st.floats(0.51, 0.99), st.sampled_from([0.0, 1e-5, 0.005]))
def test_accuracy(goal, delta):
    epsilon = accountant.epsilon_for_accuracy(goal, 0.5, delta=delta)
    assert EpsilonDelta(epsilon, delta).accuracy(0.5) == pytest.approx(goal, abs=1e-9)


@given(st.floats(0.01, 0.6), st.floats(0.05, 0.9))
def test_positive_accuracy_without_delta(prior, up):
    goal = prior + (1 - prior) * up
    epsilon = accountant.epsilon_for_positive_accuracy(goal, prior)
    assert tradeoff.positive_accuracy(epsilon, prior)[1] == pytest.approx(goal, abs=1e-12)


@pytest.mark.parametrize("fpr", [1e-3, 0.01, 0.1])
@pytest.mark.parametrize("goal", [0.6, 0.8, 0.9])
def test_positive_accuracy_at_an_fpr(fpr, goal):
    epsilon = accountant.epsilon_for_positive_accuracy(goal, 0.5, delta=1e-5, fpr=fpr)
    assert EpsilonDelta(epsilon, 1e-5).positive_accuracy(0.5, fpr) <= goal + 1e-9
    assert EpsilonDelta(epsilon + 0.01, 1e-5).positive_accuracy(0.5, fpr) > goal


@pytest.mark.parametrize("sampling", [pytest.param("poisson", marks=pytest.mark.slow), "shuffled"])
def test_noise(sampling):
    setting = {"sample_rate": 0.05, "steps": 200, "sampling": sampling, "adjacency": "add_remove"}
    sigma = accountant.noise_multiplier(2.0, 1e-5, **setting)
    mechanism = {"sampling": sampling, "adjacency": "add_remove", "sample_rate": 0.05, "steps": 200}
    assert recompute(Mechanism(noise_multiplier=sigma, **mechanism), 1e-5).epsilon <= 2.0
    assert recompute(Mechanism(noise_multiplier=sigma - 0.001, **mechanism), 1e-5).epsilon > 2.0


@pytest.mark.parametrize(
    "call",
    [
        lambda: accountant.epsilon_for_accuracy(0.6, 0.1),  # guessing "not a member" reaches 0.9
        lambda: accountant.epsilon_for_accuracy(1.0, 0.5),
        lambda: accountant.epsilon_for_positive_accuracy(0.4, 0.5),
        lambda: accountant.epsilon_for_positive_accuracy(0.9, 0.5, delta=1e-5),
        lambda: accountant.epsilon_for_positive_accuracy(0.6, 0.5, fpr=0.9),
        lambda: accountant.epsilon_for_capacity(0, 0.9, 0.1),
    ],
)
def test_goals_without_a_solution_are_refused_with_the_reason(call):
    with pytest.raises(UsageError):
        call()


def test_a_threshold_on_positive_accuracy_is_a_difference_of_log_odds():
    assert accountant.epsilon_for_positive_accuracy(0.9, 0.5) == pytest.approx(math.log(9), abs=1e-12)
