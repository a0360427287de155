"""Seeded training: tests of an effect, by simulation."""

import numpy as np
import pytest

from privgate.influence import seeds


def margin(runs, level):
    return 3 * np.sqrt(level * (1 - level) / runs)


def test_sign_flips_are_exact_under_symmetry():
    rng = np.random.default_rng(2)
    p = seeds.sign_flip(rng.normal(size=(7, 4000)))

    assert (p <= 0.05).mean() <= 0.05 + margin(4000, 0.05)
    assert p.min() >= 2.0 ** (1 - 7)
    assert seeds.sign_flip(np.ones((6, 1)))[0] == 2.0 ** (1 - 6)


def test_single_query_advantage_of_a_known_pair():
    got = seeds.single_query_advantage(np.array([0.0, 2.0, 1.0, 0.0]), np.array([1.0, 1.0, 0.0, 0.0]))

    assert got == pytest.approx([0, 2 * 0.8413447 - 1, 1, 0])
