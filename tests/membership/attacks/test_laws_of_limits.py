"""What attacks may be believed: nothing found where nobody is known, planted leaks found, in every kind of answer."""

import numpy as np
import pytest
from scipy.stats import binomtest

from privgate.errors import MeasurementError
from privgate.membership import attacks, limits
from privgate.membership.attacks.self_test import plant
from privgate.statistics.roc import Decisions, best_threshold, tpr_at_fpr

FORMS = ["continuous", "votes", "labels"]
CHEAP = [a for a in attacks.ALL if a.name not in ("shokri", "long_untargeted", "quantile")]
FPR, ALPHA, RECORDS = 0.1, 0.05, 240


def limits_of(attack, signals, rng, tries):
    """The two figures that rules judge, as the gate computes them, for one attack."""
    scores = attack.scores(signals.without_truth(), rng)
    known = rng.permutation(len(scores)) < len(scores) // 2
    at = best_threshold(scores[known], signals.members[known])
    tried = Decisions.from_flags(scores[~known] >= at, signals.members[~known])
    yield limits.balanced_accuracy(tried, low_alpha=ALPHA / tries, high_alpha=ALPHA), 0.5
    ranks = limits.untied(scores, rng)
    yield limits.tpr_limits(ranks, signals.members, fpr=FPR, low_alpha=ALPHA / tries, high_alpha=ALPHA), FPR


def simulated(form, runs):
    """Return (runs in which some limit blocked without cause, worst count of upper limits below the truth)."""
    blocked, missed = 0, np.zeros((2, len(CHEAP)), dtype=int)
    for k in range(runs):
        rng = np.random.default_rng([41, FORMS.index(form), k])
        signals = plant(rng, leak=False, records=RECORDS, shadows=8, form=form)
        found = [list(limits_of(a, signals, rng, len(CHEAP))) for a in CHEAP]
        blocked += any(got.low > truth for two in found for got, truth in two)
        for i, two in enumerate(found):
            missed[:, i] += [got.high < truth for got, truth in two]
    return blocked, int(missed.max())


@pytest.mark.quick(1)
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("runs", [25, pytest.param(1000, marks=pytest.mark.slow)])
def test_nobody_is_accused_where_nothing_is_known(form, runs):
    blocked, missed = simulated(form, runs)
    print(f"{form}: {blocked} of {runs} runs blocked without cause, at most {missed} upper limits below the truth")

    # two figures share what was searched, each at 5 %; both counts may not be shown to exceed their level
    assert binomtest(blocked, runs, 2 * ALPHA, alternative="greater").pvalue > 0.01
    # one attack of ten in two figures: the worst of twenty is looked at
    assert binomtest(missed, runs, ALPHA, alternative="greater").pvalue > 0.01 / (2 * len(CHEAP))


@pytest.mark.parametrize("form", FORMS)
def test_a_planted_leak_blocks_by_both_figures(form):
    for k in range(8):
        rng = np.random.default_rng([43, k])
        signals = plant(rng, leak=True, records=600, form=form)
        found = [list(limits_of(a, signals, rng, len(CHEAP))) for a in CHEAP]

        # limits of the shipped policy: 0.6 on accuracy; three times guessing on members found
        assert max(two[0][0].low for two in found) > 0.6
        assert max(two[1][0].low for two in found) > 3 * FPR


def test_ties_are_broken_by_chance_and_find_at_least_what_a_threshold_finds():
    rng = np.random.default_rng(0)
    members = np.arange(4000) < 2000
    right = rng.random(4000) < np.where(members, 0.9, 0.6)  # right or wrong: two scores only
    ranks = limits.untied(right.astype(float), rng)

    assert sorted(ranks) == list(range(4000))
    assert ranks[right].min() > ranks[~right].max()
    assert tpr_at_fpr(right.astype(float), members, fpr=0.1) == 0.0
    # one in six of those who are right is accused: 0.9 / 6 of the members; five standard errors
    assert tpr_at_fpr(ranks, members, fpr=0.1) == pytest.approx(0.15, abs=5 * 0.012)
    got = limits.tpr_limits(ranks, members, fpr=0.1, low_alpha=0.05, high_alpha=0.05)
    assert got.low < 0.15 < got.high < 0.25


def test_scores_that_are_equal_find_nobody_infinite_ones_have_a_place_and_nan_has_none():
    rng, members = np.random.default_rng(1), np.arange(2000) < 1000
    got = limits.tpr_limits(limits.untied(np.zeros(2000), rng), members, fpr=0.1, low_alpha=0.05, high_alpha=0.05)

    assert got.low <= 0.1 <= got.high < 0.2
    ranks = limits.untied(np.array([np.inf, -np.inf, 0.0, np.inf]), rng)
    assert ranks[1:3].tolist() == [0, 1]
    with pytest.raises(MeasurementError, match="NaN"):
        limits.untied(np.array([0.0, np.nan]), rng)
