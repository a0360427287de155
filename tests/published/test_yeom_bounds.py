"""Yeom et al. (2020): Theorem 1 as printed and as corrected, and the gap that a small epsilon forces."""

import pytest

from privgate.claims import bounds
from privgate.claims.bounds import EpsilonDelta


@pytest.mark.parametrize(("epsilon", "printed", "tight"), [(0.1, 0.1052, 0.0500), (1, 1.718, 0.462), (2, 6.39, 0.762)])
def test_theorem_1_as_printed_and_what_replaces_it(epsilon, printed, tight):
    assert EpsilonDelta(epsilon).advantage() == pytest.approx(tight, abs=5e-4)
    assert tight < printed


def test_corollary_3_a_small_epsilon_forces_a_small_gap():
    rows = bounds.list_bounds(1.0, 0.0, 0.5, adjacency="add_remove", inclusion="independent")
    (gap,) = (row.bound for row in rows if row.name.startswith("generalization gap"))
    assert 2 * gap == pytest.approx(2 * 0.4621, abs=1e-4)
