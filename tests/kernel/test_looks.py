"""A sample that grows once errs no oftener than one that does not: counted over every outcome of both looks."""

from functools import cache

import numpy as np
import pytest
from scipy.stats import hypergeom

from privgate.influence.aggregate import share_above
from privgate.kernel.sample import Looks, exceeding_limit

ALPHA = 0.05


def plan(first, then, people, limit):
    return Looks((first, then), people, int(np.floor(limit * people + 1e-9)))


def naive(looks, k, sampled):
    """95 % limits at either look, as if there were no other."""
    most = exceeding_limit(k, sampled, looks.people, alpha=ALPHA)
    return looks.people - exceeding_limit(sampled - k, sampled, looks.people, alpha=ALPHA), most


def misses(looks, limits, M):
    """Return how often (an upper limit is below M, a lower one above it), over both looks."""
    n, (first, then) = looks.people, looks.sizes
    wrong = np.zeros(2)
    for k in range(max(0, first - (n - M)), min(first, M) + 1):
        p = hypergeom.pmf(k, n, M, first)
        least, most = limits(looks, k, first)
        if most <= looks.allowed or least > looks.allowed:
            wrong += p * np.array([most < M, least > M])
            continue
        more = np.arange(then - first + 1)
        p_more = p * hypergeom.pmf(more, n - first, M - k, then - first)
        for j in np.flatnonzero(p_more > 1e-12):
            least, most = limits(looks, k + j, then)
            wrong += p_more[j] * np.array([most < M, least > M])
    return wrong


def worst(looks, ask):
    limits = cache(ask)
    near = {*range(0, looks.people + 1, max(1, looks.people // 6)), looks.allowed, looks.allowed + 1}
    near |= {looks.allowed + d for d in (-3, -1, 3, 8) if 0 <= looks.allowed + d <= looks.people}
    return np.max([misses(looks, limits, M) for M in sorted(near)], axis=0)


@pytest.mark.parametrize(
    "looks", [plan(60, 180, 240, 0.05), plan(60, 120, 400, 0.05), plan(40, 160, 161, 0.1)], ids=str
)
def test_either_limit_is_wrong_as_rarely_as_it_says_whatever_the_truth(looks):
    assert (worst(looks, lambda at, k, m: at.share(k, k, m)) <= ALPHA + 1e-9).all()


def test_two_looks_at_95_percent_each_would_be_wrong_oftener():
    assert worst(plan(60, 120, 400, 0.05), naive).max() > ALPHA + 0.005


def test_what_is_left_for_the_second_look_is_what_the_first_did_not_use():
    upper, lower = plan(299, 1196, 2000, 0.01).left()

    assert ALPHA - upper == pytest.approx(hypergeom.cdf(0, 2000, 21, 299))
    counts = hypergeom.sf(np.arange(-1, 299), 2000, 20, 299)
    assert ALPHA - lower == pytest.approx(counts[counts <= ALPHA].max())


def test_a_few_above_among_the_first_are_outweighed_by_many_who_are_not():
    looks = plan(299, 1196, 20_000, 0.01)
    value = np.zeros(1196)
    value[:2] = 2.0
    first = share_above(value[:299], value[:299], value[:299], 20_000, threshold=1.0, looks=looks)
    second = share_above(value, value, value, 20_000, threshold=1.0, looks=looks)

    assert first.low <= 0.01 < first.high
    assert second.high <= 0.01
    assert second.confidence == 0.95


def test_everybody_is_counted_where_the_second_look_reaches_them():
    looks = plan(299, 400, 400, 0.01)
    value = np.append(np.full(4, 2.0), np.zeros(396))
    found = share_above(value, value, value, 400, threshold=1.0, looks=looks)

    assert (found.low, found.high) == (0.01, 0.01)
