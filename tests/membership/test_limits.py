"""Limits of an attack against one model: how often they miss, by simulation and by exact sums."""

import numpy as np
import pytest
from scipy.stats import norm

from privgate.errors import MeasurementError
from privgate.membership import limits
from privgate.statistics.roc import Decisions, least_nonmembers


def margin(runs, level):
    """Three standard errors of a rate of ``level`` over ``runs`` runs."""
    return 3 * np.sqrt(level * (1 - level) / runs)


def test_published_ranks_and_sample_sizes():
    # docs/mathematics.md, correction to 9.2
    assert limits.threshold_ranks(2000, 0.01, low_alpha=0.025, high_alpha=0.025) == (12, 30)
    assert least_nonmembers(0.01, alpha=0.025) == 368
    assert least_nonmembers(0.001, alpha=0.025) == 3688


def test_a_rate_that_the_sample_cannot_resolve_is_refused_with_the_number_needed():
    scores, members = np.arange(734.0), np.arange(734) < 367

    with pytest.raises(MeasurementError, match="at least 368 candidates"):
        limits.tpr_limits(scores, members, fpr=0.01, low_alpha=0.05, high_alpha=0.05)
    # a stricter level for blocking leaves approving possible
    rng, members = np.random.default_rng(0), np.arange(800) < 400
    got = limits.tpr_limits(rng.normal(size=800), members, fpr=0.01, low_alpha=0.05 / 24, high_alpha=0.05)
    assert got.low == 0
    assert got.high < 1


@pytest.mark.parametrize("shift", [0.0, 1.0, 2.5])
def test_tpr_limits_miss_the_truth_at_most_as_often_as_they_say(shift):
    rng = np.random.default_rng(int(10 * shift))
    members = np.arange(1400) < 600
    truth = norm.sf(norm.isf(0.05) - shift)
    runs, low, high = 500, 0, 0
    for _ in range(runs):
        got = limits.tpr_limits(
            rng.normal(size=1400) + shift * members, members, fpr=0.05, low_alpha=0.05, high_alpha=0.05
        )
        low += got.low > truth
        high += got.high < truth

    assert low / runs <= 0.05 + margin(runs, 0.05)
    assert high / runs <= 0.05 + margin(runs, 0.05)


def test_approving_from_the_blocking_threshold_would_miss_far_more_often():
    rng = np.random.default_rng(3)
    members = np.arange(4000) < 2000
    truth = norm.sf(norm.isf(0.01) - 2.0)
    missed = 0
    for _ in range(60):
        s = rng.normal(size=4000) + 2 * members
        t = np.sort(s[~members])[::-1][12 - 1]
        missed += float(limits.upper_limit((s[members] > t).sum(), 2000, alpha=0.025)) < truth

    assert missed / 60 > 0.5  # the reference says .75-.97; the two thresholds are not interchangeable


@pytest.mark.parametrize(("tpr", "tnr"), [(0.5, 0.5), (0.9, 0.2), (0.99, 0.99)])
@pytest.mark.parametrize("sizes", [(200, 200), (60, 500)])
def test_balanced_accuracy_limits_cover(tpr, tnr, sizes):
    rng = np.random.default_rng(4)
    truth, runs, low, high = (tpr + tnr) / 2, 600, 0, 0
    for tp, tn in zip(rng.binomial(sizes[0], tpr, runs), rng.binomial(sizes[1], tnr, runs), strict=True):
        d = Decisions(int(tp), int(sizes[0] - tp), int(sizes[1] - tn), int(tn))
        got = limits.balanced_accuracy(d, low_alpha=0.05, high_alpha=0.05)
        low += got.low > truth
        high += got.high < truth

    assert max(low, high) / runs <= 0.05 + margin(runs, 0.05)
    got = limits.balanced_accuracy(Decisions(5, 5, 0, 0), low_alpha=0.05, high_alpha=0.05)
    assert got.low < 0.15  # without one side the limits are open
    assert got.high > 0.85
    assert np.isnan(got.value)
