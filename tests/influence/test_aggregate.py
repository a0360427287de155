"""Aggregates over units: exact at full coverage, honest limits on a sample."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privgate.evidence import Request
from privgate.influence import aggregate
from privgate.influence.measures import add_doubts

VALUES = st.lists(st.floats(0, 10), min_size=1, max_size=60)


@given(VALUES)
def test_the_maximum_at_full_coverage_is_the_maximum(values):
    v = np.array(values)
    found = aggregate.maximum(v, v, v, len(v))

    assert (found.low, found.value, found.high) == (v.max(), v.max(), v.max())
    assert v[found.where] == v.max()
    assert not found.claim


@given(VALUES)
def test_nothing_is_claimed_about_the_maximum_of_a_sample(values):
    v = np.array(values)
    found = aggregate.maximum(v, v, v, len(v) + 1)

    assert found.high == np.inf
    assert found.low == v.max()
    assert "nothing is claimed" in found.claim


@given(VALUES, st.floats(0.05, 0.95))
def test_a_quantile_at_full_coverage_is_the_order_statistic(values, q):
    v = np.array(values)
    found = aggregate.quantile(v, v, v, len(v), q=q)

    assert np.mean(v <= found.value) >= q - 1e-12
    assert found.low == found.value == found.high


def test_the_order_statistic_of_the_reference_is_used():
    # docs/mathematics.md 9.1: m = 59, q = 0.95 -> j = 59; m = 300: q = 0.95 j = 292, q = 0.99 j = 300
    for m, q, j in ((59, 0.95, 59), (300, 0.95, 292), (300, 0.99, 300)):
        v = np.arange(1.0, m + 1)
        assert aggregate.quantile(v, v, v, 10 * m, q=q).high == j


def test_too_small_a_sample_has_no_upper_limit():
    v = np.arange(10.0)
    assert aggregate.quantile(v, v, v, 100, q=0.99).high == np.inf


def test_no_exceedance_in_59_of_many_means_at_most_5_percent():
    # docs/mathematics.md 9.1: k = 0: fraction <= 1 - a^(1/m); m = 59: 5 %, 299: 1 %
    for m in (59, 299):
        v = np.zeros(m)
        found = aggregate.share_above(v, v, v, 48842, threshold=1.0)
        assert found.low == 0
        assert found.high == pytest.approx(1 - 0.05 ** (1 / m), abs=1e-4)


def test_share_limits_cover_the_truth_at_least_nominally():
    rng = np.random.default_rng(11)
    population, bad, m = 400, 40, 60
    truth = np.zeros(population)
    truth[:bad] = 2.0
    hits = 0
    for _ in range(400):
        v = rng.choice(truth, size=m, replace=False)
        found = aggregate.share_above(v, v, v, population, threshold=1.0)
        hits += found.low <= bad / population <= found.high
    # two one-sided 95 % limits: at least 90 %, less three standard errors of 400 draws
    assert hits / 400 >= 0.90 - 3 * np.sqrt(0.09 / 400)


def test_doubt_about_a_unit_widens_the_share():
    value, low, high = np.array([0.5, 0.9, 1.5]), np.array([0.4, 0.8, 1.4]), np.array([0.6, 1.1, 1.6])
    found = aggregate.share_above(value, low, high, 3, threshold=1.0)

    assert (found.low, found.value, found.high) == (1 / 3, 1 / 3, 2 / 3)


@pytest.mark.parametrize(
    ("options", "high", "beyond"),
    [
        ({"aggregate": "share_above", "threshold": 0.65}, 0.5, None),
        ({"aggregate": "share_above", "threshold": 0.05}, 1.0, None),
        ({"aggregate": "quantile", "q": 0.5}, 0.6, None),
        ({"aggregate": "quantile", "q": 0.8}, np.inf, None),
        ({}, 0.9, 0.2),
    ],
)
def test_two_of_ten_of_whom_a_closed_form_may_be_wrong_raise_the_upper_limit(options, high, beyond):
    v = np.arange(10) / 10
    found = aggregate.summarize(Request.build("pdtp", **options), v, v, v, 10, unsure=2)

    assert (found.high, found.beyond, found.confidence) == (pytest.approx(high), beyond, 1 - aggregate.LEVEL)
    assert ("for all but" in found.claim) == (beyond is not None)


def test_errors_of_a_sample_and_of_seeds_add_up():
    assert add_doubts(None, None) is None
    assert add_doubts(0.95, None) == add_doubts(None, 0.95) == 0.95
    assert add_doubts(0.95, 0.95) == 0.9


@pytest.mark.parametrize(
    ("value", "low", "where"), [([1, 1], [0.5, 1], 1), ([1, 2], [1, 0.5], 1), ([2, 1], [0.5, 1], 0)]
)
def test_the_worst_unit_is_the_one_that_is_surely_so_large(value, low, where):
    value, low = np.array(value, float), np.array(low, float)
    assert aggregate.maximum(value, low, value, 2).where == where
