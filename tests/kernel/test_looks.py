"""Two planned looks at one random order approve wrongly in 5 % of draws at most: summed exactly, and drawn."""

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import hypergeom

from privgate.influence.aggregate import quantile, share_above
from privgate.influence.riskiest import look_riskiest_first
from privgate.kernel.sample import LEVEL, plan_looks

#: six ways to rank people beforehand: right, off, reversed, silent about whoever exceeds, wrong for half, knowing
RANKERS = ("right", "off", "reversed", "silent", "half wrong", "knows the sample")


@cache
def approves(looks, exceeding, sampled):
    return looks.share(exceeding, exceeding, sampled)[1] <= looks.allowed


def level(looks, truth):
    """Return how often the looks approve and refuse where so many exceed, by sums over all outcomes of both."""
    n, (first, last) = looks.people, looks.sizes
    approved = refused = 0.0
    for k in range(max(0, first - (n - truth)), min(first, truth) + 1):
        p = hypergeom.pmf(k, n, truth, first)
        if approves(looks, k, first):
            approved += p
            continue
        more = np.arange(min(last - first, truth - k) + 1)
        weights = p * hypergeom.pmf(more, n - first, truth - k, last - first)
        approved += sum(w for j, w in zip(more, weights, strict=True) if w > 1e-15 and approves(looks, k + j, last))
        refused += weights[more + k >= looks.refusing].sum()
    return approved, refused


@settings(max_examples=40, deadline=None)
@given(people=st.integers(2, 2_000), share=st.floats(0.0, 0.1))
def test_either_error_has_5_percent_at_most_for_every_number_and_share(people, share):
    looks = plan_looks(people, min(people - 1, int(share * people)))
    assert level(looks, looks.allowed + 1)[0] <= LEVEL + 1e-9
    assert level(looks, looks.allowed)[1] <= LEVEL + 1e-9


@pytest.mark.parametrize(
    ("people", "share", "sizes", "refusing"),
    [
        (200, 0.01, (131, 200), 3),
        (1_000, 0.01, (253, 546), 9),
        (20_000, 0.01, (317, 754), 13),
        (10**7, 0.01, (321, 768), 13),
        (5_000, 0.001, (2_075, 4_059), 6),
        (1_000, 0.001, (800, 1_000), 2),
    ],
)
def test_the_sizes_are_those_of_the_reference(people, share, sizes, refusing):
    looks = plan_looks(people, round(share * people))
    assert looks.sizes[1] == sizes[1] or looks.allowed < 2
    assert (looks.sizes, looks.refusing)[: 1 + (looks.allowed >= 2)] == ((sizes, refusing)[: 1 + (looks.allowed >= 2)])


def judge(looks, exceeds, order, score):
    """Return whether the product approves one draw."""
    seen = [0]

    def see(now):
        seen[0] += int(exceeds[now].sum())
        return seen[0], seen[0] >= looks.refusing

    taken = look_riskiest_first([order[:m] for m in looks.sizes], score, see, refusing=looks.refusing)
    return taken in looks.sizes and approves(looks, seen[0], taken)


def rank(ranker, exceeds, order, size, rng):
    flipped, known = np.where(rng.random(len(exceeds)) < 0.5, exceeds, 1 - exceeds), np.zeros(len(exceeds))
    known[order[:size]] = exceeds[order[:size]]
    noisy = exceeds + rng.normal(0, 0.09, len(exceeds))
    return dict(zip(RANKERS, (exceeds, noisy, -exceeds, 0 * exceeds, flipped, known), strict=True))[ranker]


@pytest.mark.slow
@pytest.mark.parametrize("ranker", RANKERS)
def test_whoever_ranks_people_the_level_is_that_of_the_draw(ranker):
    rng, looks, runs = np.random.default_rng(RANKERS.index(ranker)), plan_looks(1_000, 10), 10_000
    exceeds = (np.arange(1_000) < looks.allowed + 1).astype(float)
    approved = 0
    for _ in range(runs):
        order = rng.permutation(1_000)
        approved += judge(looks, exceeds, order, rank(ranker, exceeds, order, looks.sizes[0], rng))
    due = level(looks, looks.allowed + 1)[0]
    assert abs(approved / runs - due) <= 3 * np.sqrt(due * (1 - due) / runs)


def test_the_second_look_outweighs_the_first_and_a_look_that_is_not_planned_says_nothing():
    looks, value = plan_looks(20_000, 200), np.where(np.arange(754) < 2, 2.0, 0.0)

    def share(people, total=20_000, plan=looks):
        return share_above(value[:people], value[:people], value[:people], total, threshold=1.0, looks=plan)

    assert share(317).low <= 0.01 < share(317).high
    assert (share(754).high, share(754).confidence) == (0.01, 0.95)
    assert share(500).high > 0.01
    whole = plan_looks(100, 1)  # everybody is counted where the second look reaches them
    assert (whole.sizes[1], share(100, 100, whole).low, share(100, 100, whole).high) == (100, 0.02, 0.02)


def test_a_quantile_is_approved_by_the_same_looks():
    looks, value = plan_looks(20_000, 200), np.linspace(0, 1, 754)
    for people, high in ((754, value[-3]), (317, value[316]), (400, np.inf)):
        some = value[:people]
        assert quantile(some, some, some, 20_000, q=0.99, looks=looks).high == high
