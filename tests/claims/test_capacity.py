"""Deletion capacity: the largest number of people whose group privacy stays within the budget."""

import math

import pytest

from privgate.claims.capacity import group_capacity
from privgate.errors import UsageError


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
def test_the_capacity_is_that_of_group_privacy(epsilon, delta, most_epsilon, most_delta, people):
    """docs/mathematics.md, section 7.3a: the largest m whose (m epsilon, delta of m) are within the budget."""
    assert group_capacity(epsilon, delta, most_epsilon=most_epsilon, most_delta=most_delta) == people


@pytest.mark.parametrize(("epsilon", "delta"), [(-1, 0), (math.nan, 0), (1, 1.0)])
def test_numbers_that_mean_nothing_are_refused(epsilon, delta):
    with pytest.raises(UsageError):
        group_capacity(epsilon, delta, most_epsilon=4.0, most_delta=1e-5)
