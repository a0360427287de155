"""Deletion capacity, against mechanisms that attain it and the reference tables."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privgate.claims import capacity
from privgate.claims.capacity import deletion_capacity, group_capacity
from privgate.errors import UsageError


def test_randomized_response_a_record_attains_the_capacity():
    epsilon, p, rho = 1.0, 0.05, 0.7
    tell = 1 / (1 + math.exp(-epsilon))
    out = (1 - p) * (1 - tell) / ((1 - p) * (1 - tell) + p * tell)  # answered "in" for every record
    m = deletion_capacity(epsilon, p, rho).people
    assert out**m >= rho - 1e-12
    assert out ** (m + 1) < rho


@pytest.mark.parametrize(
    ("prior", "rho", "records"),
    [(0.5, 0.9, 0), (0.01, 0.9, 3), (0.01, 0.5, 25), (0.001, 0.9, 38), (0.001, 0.5, 255)],
)
def test_the_reference_table_at_epsilon_1(prior, rho, records):
    assert deletion_capacity(1.0, prior, rho).people == records


@given(st.floats(0, 5), st.floats(1e-5, 0.5), st.floats(0.05, 0.99), st.sampled_from([0.0, 1e-8, 1e-5]))
def test_the_capacity_is_the_largest_number_that_is_covered(epsilon, prior, rho, delta):
    m = deletion_capacity(epsilon, prior, rho, delta=delta).people
    assert m <= deletion_capacity(epsilon, prior, rho).people
    odds = prior / (1 - prior)

    def covered(k):
        return (1 + (math.exp(epsilon) + k * delta / (rho * 0.001)) * odds) ** -k >= rho * (1 - 1e-9)

    assert m == 0 or covered(m)
    assert not (1 + (math.exp(epsilon) + (m + 1) * delta / (rho * 0.001)) * odds) ** -(m + 1) >= rho * (1 + 1e-9)


def test_with_delta_the_statement_fails_for_no_more_models_than_stated(monkeypatch):
    # the worst (ε, δ) mechanism a record: with probability δ it gives membership away
    epsilon, delta, p, rho, failure = 0.5, 1e-3, 0.005, 0.8, 0.05
    monkeypatch.setattr(capacity, "FAILURE", failure)
    m = deletion_capacity(epsilon, p, rho, delta=delta).people
    assert m >= 2
    tell = (1 - delta) / (1 + math.exp(-epsilon))
    # answers of one record: gives "in" away, says in, says out, gives "out" away
    inside = np.array([delta, tell, 1 - delta - tell, 0.0])
    outside = np.array([0.0, 1 - delta - tell, tell, delta])
    posterior_out = (1 - p) * outside / ((1 - p) * outside + p * inside)
    rng = np.random.default_rng(0)
    answers = rng.choice(4, size=(20_000, m), p=outside)  # models given that none of them was used
    ok = posterior_out[answers].prod(axis=1) >= rho
    assert (~ok).mean() <= failure + 4 * math.sqrt(failure / 20_000)


@pytest.mark.parametrize(
    ("epsilon", "delta", "most_epsilon", "most_delta", "people"),
    [
        (1.0, 0.0, 4.0, 0.0, 4),
        (0.5, 1e-9, 4.0, 1e-5, 8),
        (0.5, 2e-7, 4.0, 1e-5, 7),  # delta grows to 9.9e-6 with seven people, to 1.7e-5 with eight
        (5.0, 0.0, 4.0, 0.0, 0),
        (0.0, 0.0, 4.0, 0.0, math.inf),
        (0.0, 1e-6, 4.0, 1e-5, 10),
    ],
)
def test_the_capacity_without_a_prior_is_that_of_group_privacy(epsilon, delta, most_epsilon, most_delta, people):
    """docs/mathematics.md, section 7.3a: the largest m whose (m epsilon, delta of m) are within the budget."""
    assert group_capacity(epsilon, delta, most_epsilon=most_epsilon, most_delta=most_delta).people == people


@pytest.mark.parametrize(
    ("epsilon", "prior", "rho"), [(-1, 0.1, 0.9), (1, 0, 0.9), (1, 0.1, 1.0), (math.nan, 0.1, 0.9)]
)
def test_numbers_that_mean_nothing_are_refused(epsilon, prior, rho):
    with pytest.raises(UsageError):
        deletion_capacity(epsilon, prior, rho)
