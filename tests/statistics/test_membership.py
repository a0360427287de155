"""Attack metrics: against definitions by brute force, and invariances."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from privgate.errors import MeasurementError
from privgate.statistics import roc
from privgate.statistics.roc import Decisions


@st.composite
def trials(draw):
    n = draw(st.integers(2, 40))
    scores = draw(hnp.arrays(np.float64, n, elements=st.sampled_from([-2.0, -1.0, 0.0, 0.5, 1.0, 3.0])))
    members = np.zeros(n, dtype=bool)
    members[: draw(st.integers(1, n - 1))] = True
    return scores, members


@given(trials())
def test_auc_counts_pairs_with_ties_as_halves(case):
    scores, members = case
    a, b = scores[members][:, None], scores[~members][None]

    assert roc.auc(scores, members) == pytest.approx(((a > b) + 0.5 * (a == b)).mean())


@given(trials())
def test_an_increasing_transform_changes_nothing(case):
    scores, members = case
    moved = np.exp(scores) * 3 - 1

    assert roc.auc(moved, members) == pytest.approx(roc.auc(scores, members))
    assert roc.tpr_at_fpr(moved, members, fpr=0.2) == roc.tpr_at_fpr(scores, members, fpr=0.2)


@given(trials(), st.floats(0, 1))
def test_tpr_at_fpr_is_the_best_threshold_by_brute_force(case, fpr):
    scores, members = case
    best = 0.0
    for t in np.unique(scores):
        d = Decisions.from_flags(scores >= t, members)
        if d.false_positive_rate <= fpr:
            best = max(best, d.recall)

    assert roc.tpr_at_fpr(scores, members, fpr=fpr) == pytest.approx(best)


@given(trials())
def test_the_best_threshold_has_the_largest_advantage(case):
    scores, members = case
    every = [0.0, *(Decisions.from_flags(scores >= t, members).advantage for t in np.unique(scores))]

    chosen = Decisions.from_flags(scores >= roc.best_threshold(scores, members), members)

    assert chosen.advantage == pytest.approx(max(every))


def test_decisions_follow_their_definitions():
    d = Decisions(tp=30, fn=10, fp=15, tn=45)

    assert (d.recall, d.false_positive_rate) == (0.75, 0.25)
    assert d.advantage == 0.5
    assert d.balanced_accuracy == 0.75


@pytest.mark.parametrize(
    ("scores", "members"), [([np.nan, 1], [True, False]), ([1, 2], [True, True]), ([1, 2], [False, False])]
)
def test_nan_and_one_sided_samples_have_no_value(scores, members):
    with pytest.raises(MeasurementError):
        roc.auc(np.array(scores, dtype=float), np.array(members))
