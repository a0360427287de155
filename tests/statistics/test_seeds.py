"""Seeded training: errors of the limits of a mean effect, by simulation."""

import numpy as np
import pytest

from privgate.statistics import seeds


def margin(runs, level):
    return 3 * np.sqrt(level * (1 - level) / runs)


def test_no_effect_is_called_an_effect_at_most_as_often_as_stated():
    rng = np.random.default_rng(0)
    runs = 400
    found = sum((seeds.mean_effect(rng.normal(0, 0.4, (8, 20, 3)), alpha=0.05).low > 0).any() for _ in range(runs))

    assert found / runs <= 0.05 + margin(runs, 0.05)


def test_an_effect_at_the_limit_is_approved_at_most_as_often_as_stated():
    rng = np.random.default_rng(1)
    runs = 600
    base = np.zeros((20, 3))
    base[4, 1] = 1.0
    approved = sum(
        (seeds.mean_effect(base + rng.normal(0, 0.4, (10, 20, 3)), alpha=0.05).high <= 1.0).all() for _ in range(runs)
    )

    assert approved / runs <= 0.05 + margin(runs, 0.05)


def test_every_label_is_tested_not_the_own_label_alone():
    # correction to 9.4: own label unchanged, another label moves by ln 59
    changes = np.log([0.4, 0.59, 0.01]) - np.log([0.4, 0.01, 0.59])
    effect = seeds.mean_effect(np.tile(changes, (6, 1, 1)), alpha=0.05)

    assert effect.value[0] == pytest.approx(np.log(59))
    assert effect.low[0] == pytest.approx(np.log(59))


def test_a_single_seed_neither_blocks_nor_approves():
    effect = seeds.mean_effect(np.full((1, 2, 2), 3.0), alpha=0.05)

    assert effect.low.tolist() == [0, 0]
    assert effect.high.tolist() == [np.inf, np.inf]


def test_an_infinite_change_under_any_seed_is_infinite_and_nan_is_an_error():
    changes = np.zeros((5, 2, 2))
    changes[3, 1, 0] = -np.inf
    effect = seeds.mean_effect(changes, alpha=0.05)

    assert effect.low.tolist() == [0, np.inf]
    assert effect.value[1] == np.inf
    with pytest.raises(FloatingPointError):
        seeds.mean_effect(np.full((5, 1, 2), np.nan), alpha=0.05)


def test_sign_flips_are_exact_under_symmetry():
    rng = np.random.default_rng(2)
    p = seeds.sign_flip(rng.normal(size=(7, 4000)))

    assert (p <= 0.05).mean() <= 0.05 + margin(4000, 0.05)
    assert p.min() >= 2.0 ** (1 - 7)
    assert seeds.sign_flip(np.ones((6, 1)))[0] == 2.0 ** (1 - 6)


def test_equal_means_with_different_spread_are_told_apart():
    rng = np.random.default_rng(3)
    one, other = rng.normal(0, 0.3, (40, 1)), rng.normal(0, 0.9, (40, 1))

    assert seeds.spread_differs(one, other)[0] < 0.01


def test_the_noise_floor_is_the_spread_between_seeds():
    log_p = np.zeros((4, 2, 3))
    log_p[:, 1, 2] = [0, 0, 2, 2]

    assert seeds.noise_floor(log_p)[0] == 0
    assert seeds.noise_floor(log_p)[1] == pytest.approx(np.std([0, 0, 2, 2], ddof=1))


def test_single_query_advantage_of_a_known_pair():
    got = seeds.single_query_advantage(np.array([0.0, 2.0, 1.0, 0.0]), np.array([1.0, 1.0, 0.0, 0.0]))

    assert got == pytest.approx([0, 2 * 0.8413447 - 1, 1, 0])
