"""Limits of a mean change over paired seeds: how often they err, by simulation."""

import numpy as np
import pytest

from privgate.statistics.paired import mean_changes, noise_floor


def margin(runs, level):
    return 3 * np.sqrt(level * (1 - level) / runs)


def test_no_effect_is_called_an_effect_at_most_as_often_as_stated():
    rng = np.random.default_rng(0)
    runs = 400
    found = sum((mean_changes(rng.normal(0, 0.4, (8, 20, 3)), n_tests=20).low > 0).any() for _ in range(runs))

    assert found / runs <= 0.05 + margin(runs, 0.05)


def test_an_effect_at_the_limit_is_approved_at_most_as_often_as_stated():
    rng = np.random.default_rng(1)
    runs = 600
    base = np.zeros((20, 3))
    base[4, 1] = 1.0
    approved = sum(
        (mean_changes(base + rng.normal(0, 0.4, (10, 20, 3)), n_tests=20).high <= 1.0).all() for _ in range(runs)
    )

    assert approved / runs <= 0.05 + margin(runs, 0.05)


def test_every_label_is_tested_not_the_own_label_alone():
    # correction to 9.4: own label unchanged, another label moves by ln 59
    changes = np.log([0.4, 0.59, 0.01]) - np.log([0.4, 0.01, 0.59])
    effect = mean_changes(np.tile(changes, (6, 1, 1)), n_tests=1)

    assert effect.value[0] == pytest.approx(np.log(59))
    assert effect.low[0] == pytest.approx(np.log(59))


def test_an_infinite_change_under_any_seed_is_infinite():
    changes = np.zeros((5, 2, 2))
    changes[3, 1, 0] = -np.inf
    effect = mean_changes(changes, n_tests=2)

    assert effect.low.tolist() == [0, np.inf]
    assert effect.value.tolist() == [0, np.inf]


def test_the_noise_floor_is_the_spread_of_a_difference_of_two_seeds():
    rng = np.random.default_rng(2)
    log_p = rng.normal(0, 0.3, (4000, 1, 1))

    assert noise_floor(log_p)[0] == pytest.approx(np.sqrt(2) * 0.3, rel=0.05)  # 4 standard errors of an sd
