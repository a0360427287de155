"""Limits of proportions and quantiles: exact values, and coverage by enumeration."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, hypergeom

from privgate.statistics import intervals


@pytest.mark.parametrize("p", [0.0, 0.01, 0.2, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("n", [1, 7, 40, 200])
def test_each_limit_misses_the_truth_with_at_most_its_level(n, p):
    k = np.arange(n + 1)
    weight = binom.pmf(k, n, p)

    assert weight[intervals.lower_limit(k, n, alpha=0.05) > p].sum() <= 0.05 + 1e-12
    assert weight[intervals.upper_limit(k, n, alpha=0.05) < p].sum() <= 0.05 + 1e-12


def test_no_trials_say_nothing():
    assert intervals.lower_limit(0, 0, alpha=0.05) == 0
    assert intervals.upper_limit(0, 0, alpha=0.05) == 1


@given(st.integers(1, 300), st.data(), st.floats(1e-6, 0.5))
def test_limits_surround_the_share_and_widen_with_confidence(n, data, alpha):
    k = data.draw(st.integers(0, n))

    low, high = intervals.clopper_pearson(k, n, alpha=alpha)
    lower, higher = intervals.clopper_pearson(k, n, alpha=alpha / 2)

    assert lower <= low <= k / n <= high <= higher


def test_more_successes_than_trials_are_refused():
    with pytest.raises(ValueError, match="between 0 and the number"):
        intervals.lower_limit(3, 2, alpha=0.05)
    with pytest.raises(ValueError, match="alpha"):
        intervals.upper_limit(1, 2, alpha=0.0)


@pytest.mark.parametrize(("m", "share"), [(59, 0.05), (299, 0.01), (2995, 0.001)])
def test_nothing_seen_gives_the_published_shares(m, share):
    # docs/mathematics.md 9.1: k = 0, alpha = .05
    assert intervals.upper_limit(0, m, alpha=0.05) == pytest.approx(share, rel=0.02)


def test_the_hypergeometric_limit_covers_by_enumeration_and_is_never_wider_than_binomial():
    n, m = 60, 20
    for truth in range(n + 1):
        k = np.arange(max(0, m - (n - truth)), min(m, truth) + 1)
        weight = hypergeom.pmf(k, n, truth, m)
        limit = np.array([intervals.exceeding_limit(int(i), m, n, alpha=0.05) for i in k])
        assert weight[limit < truth].sum() <= 0.05 + 1e-12
        assert (limit <= np.floor(n * intervals.upper_limit(k, m, alpha=0.05)) + 1e-9).all()


def test_everything_sampled_leaves_no_doubt():
    assert intervals.exceeding_limit(3, 50, 50, alpha=0.05) == 3


@pytest.mark.parametrize(("m", "q", "rank"), [(59, 0.95, 59), (300, 0.95, 292), (300, 0.99, 300)])
def test_order_statistics_are_those_of_the_reference(m, q, rank):
    assert intervals.quantile_rank(m, q, alpha=0.05) == rank


def test_a_quantile_limit_covers_in_simulation():
    rng = np.random.default_rng(5)
    draws = rng.random((4000, 120))  # the 0.9-quantile is 0.9

    rank = intervals.quantile_rank(120, 0.9, alpha=0.05)
    misses = (np.sort(draws, axis=1)[:, rank - 1] < 0.9).mean()

    assert misses <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 4000)
    assert intervals.quantile_rank(20, 0.9, alpha=0.05) is None
