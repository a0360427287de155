"""Limits of proportions and quantiles: exact values, coverage by enumeration, and scipy's beside them."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import betainccinv, betaincinv
from scipy.stats import binom, hypergeom

from privgate.kernel import Case, Refused, limits, sample


@pytest.mark.parametrize("p", [0.0, 0.01, 0.2, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("n", [1, 7, 40, 200])
def test_each_limit_misses_the_truth_with_at_most_its_level(n, p):
    k = np.arange(n + 1)
    weight = binom.pmf(k, n, p)
    assert weight[sample.lower_limit(k, n, alpha=0.05) > p].sum() <= 0.05 + 1e-12
    assert weight[sample.upper_limit(k, n, alpha=0.05) < p].sum() <= 0.05 + 1e-12


@given(st.integers(1, 300), st.data(), st.floats(1e-6, 0.5))
def test_limits_surround_the_share_and_widen_with_confidence(n, data, alpha):
    k = data.draw(st.integers(0, n))
    low, high = (limit(k, n, alpha=alpha) for limit in (sample.lower_limit, sample.upper_limit))
    lower, higher = (limit(k, n, alpha=alpha / 2) for limit in (sample.lower_limit, sample.upper_limit))
    assert lower <= low <= k / n <= high <= higher


def test_what_is_no_count_of_successes_is_refused_and_no_trials_say_nothing():
    for k, n, alpha in ((3, 2, 0.05), (1, 2, 0.0), (0.5, 2, 0.05), (float("nan"), 2, 0.05)):
        with pytest.raises(ValueError, match=r"successes lie|whole numbers"):
            sample.upper_limit(k, n, alpha=alpha)
    assert (sample.lower_limit(0, 0, alpha=0.05), sample.upper_limit(0, 0, alpha=0.05)) == (0, 1)


@pytest.mark.parametrize("n", [1, 10, 299, 5_000])
@pytest.mark.parametrize("alpha", [0.05, 0.001, 1e-7])
def test_limits_lie_outside_those_of_another_library_and_close_to_them(n, alpha):
    k = np.unique(np.r_[0, 1, n // 100, n // 3, n - 1, n])
    with np.errstate(invalid="ignore"):
        high = np.where(k < n, betainccinv(k + 1, np.maximum(n - k, 1), alpha), 1.0)
        low = np.where(k > 0, betaincinv(np.maximum(k, 1), n - k + 1, alpha), 0.0)
    over, under = sample.upper_limit(k, n, alpha=alpha) - high, low - sample.lower_limit(k, n, alpha=alpha)
    assert (over >= -1e-12).all()
    assert (under >= -1e-12).all()
    assert max(over.max(), under.max()) < 1e-7


def test_tails_hold_those_that_fractions_give():
    rng = np.random.default_rng(3)
    for _ in range(60):
        n = int(rng.integers(1, 300))
        m, marked, k = (int(v) for v in rng.integers(0, n + 1, 3))
        p, some = Fraction(int(rng.integers(1, 64)), 64), range(min(k, m) + 1)
        ways = sum(math.comb(marked, i) * math.comb(n - marked, m - i) for i in some)
        exact = sum(math.comb(m, i) * p**i * (1 - p) ** (m - i) for i in some)
        for (least, most), truth in (
            (sample.hypergeometric(k, n, marked, m), Fraction(ways, math.comb(n, m))),
            (sample.binomial(k, m, float(p)), exact),
        ):
            assert least <= truth <= most <= least + 1e-9


def test_a_case_of_a_sample_is_a_share():
    told = {"surely": 0, "possibly": 0, "sampled": 317, "people": 20_000, "allowed": 200}
    found = limits(Case("sample", "own", told, {}))
    assert found.low[0] == 0
    assert found.high[0] == pytest.approx(0.01)
    assert limits(Case("sample", "own", told | {"sampled": 316}, {})).high[0] > 0.01
    for wrong in ({"possibly": 318}, {"people": 0}, {"allowed": 20_000}, {"surely": 1}):
        with pytest.raises(Refused):
            limits(Case("sample", "own", told | wrong, {}))


@pytest.mark.parametrize(("m", "share"), [(59, 0.05), (299, 0.01), (2995, 0.001)])
def test_nothing_seen_gives_the_published_shares(m, share):
    # docs/mathematics.md 9.1: k = 0, alpha = .05
    assert sample.upper_limit(0, m, alpha=0.05) == pytest.approx(share, rel=0.02)


def test_the_hypergeometric_limit_covers_by_enumeration_and_is_never_wider_than_binomial():
    n, m = 60, 20
    assert sample.exceeding_limit(3, 50, 50, alpha=0.05) == 3  # everything sampled leaves no doubt
    for truth in range(n + 1):
        k = np.arange(max(0, m - (n - truth)), min(m, truth) + 1)
        weight = hypergeom.pmf(k, n, truth, m)
        limit = np.array([sample.exceeding_limit(int(i), m, n, alpha=0.05) for i in k])
        assert weight[limit < truth].sum() <= 0.05 + 1e-12
        assert (limit <= np.floor(n * sample.upper_limit(k, m, alpha=0.05)) + 1e-9).all()


@pytest.mark.parametrize(("m", "q", "rank"), [(59, 0.95, 59), (300, 0.95, 292), (300, 0.99, 300)])
def test_order_statistics_are_those_of_the_reference(m, q, rank):
    assert sample.quantile_rank(m, q, alpha=0.05) == rank


def test_a_quantile_limit_covers_in_simulation():
    rng = np.random.default_rng(5)
    draws, rank = rng.random((4000, 120)), sample.quantile_rank(120, 0.9, alpha=0.05)  # the 0.9-quantile is 0.9
    misses = (np.sort(draws, axis=1)[:, rank - 1] < 0.9).mean()
    assert misses <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 4000)
    assert sample.quantile_rank(20, 0.9, alpha=0.05) is None
