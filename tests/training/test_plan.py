"""Cost is said before work starts; a budget draws units before anything is looked at, and says what it costs."""

from types import SimpleNamespace

import numpy as np
import pytest

from privgate.errors import MeasurementError, UsageError
from privgate.training import plan


def test_a_plan_counts_what_is_missing_and_times_a_sample_that_is_kept(fleet, subject):
    fits = plan.leave_out_fits(subject(), np.arange(20), (1,))
    first = plan.estimate(subject(), [*fits, fits[0]], fleet)

    assert (first.fits, first.remembered, first.missing) == (20, plan.TIMED, 20 - plan.TIMED)
    assert fleet.calls == plan.TIMED
    assert first.seconds_each > 0
    assert first.training_seconds == pytest.approx(first.missing * first.seconds_each)
    assert first.memory_bytes > 10 * 2**20
    assert f"20 retrains, {plan.TIMED} remembered" in first.sentence

    fleet.fits(subject(), fits)
    assert plan.estimate(subject(), fits, fleet).sentence == "20 retrains, all remembered: nothing to train"


def test_a_recipe_that_never_trains_has_no_cost(fleet, subject):
    always = subject(trouble="raises")
    fits = [f for f in plan.leave_out_fits(always, np.arange(20), (1,)) if f.left_out[0] == 7]

    with pytest.raises(MeasurementError, match="none of 1 timed retrains succeeded: training raised"):
        plan.estimate(always, fits, fleet)


def test_a_budget_draws_units_and_a_larger_one_keeps_them(fleet, subject):
    small = plan.select(subject(), fleet, (1, 2), max_retrains=11)
    large = plan.select(subject(), fleet, (1, 2), max_retrains=21)

    assert (len(small.units), len(large.units)) == (5, 10)
    assert set(small.units) < set(large.units)
    assert "5 of 20 people" in small.lost
    assert "nothing of the largest risk" in small.lost
    np.testing.assert_array_equal(small.units, plan.select(subject(), fleet, (3, 4), max_retrains=11).units)
    assert set(small.units) != set(plan.select(subject(other=1), fleet, (1, 2), max_retrains=11).units)


def test_a_budget_that_reaches_for_everybody_loses_nothing(fleet, subject):
    chosen = plan.select(subject(), fleet, (1,), budget_seconds=1e6)

    np.testing.assert_array_equal(chosen.units, np.arange(20))
    assert chosen.lost == ""


def test_a_budget_in_seconds_is_turned_into_units_by_a_timed_sample(fleet, subject):
    slow = subject(pause=0.25)
    chosen = plan.select(slow, fleet, (1,), budget_seconds=2.5)

    assert 1 <= len(chosen.units) <= 10


def test_a_budget_for_nobody_is_refused(fleet, subject):
    with pytest.raises(UsageError, match="single person"):
        plan.select(subject(), fleet, (1, 2, 3), max_retrains=2)


def test_the_usual_time_leaves_out_the_first_import_and_what_failed(monkeypatch):
    answers = {1: ("", 7.3), 2: ("", 0.4), 3: ("no memory", 0.1), 4: None}
    monkeypatch.setattr(plan.context, "decode", lambda body: (SimpleNamespace(problem=body[0]), body[1]))
    fleet = SimpleNamespace(keys=lambda _, fits: fits, ledger=SimpleNamespace(read=lambda ks: [answers[k] for k in ks]))

    assert plan.remembered_seconds(None, [1, 2, 3, 4], fleet) == 0.4
    assert plan.remembered_seconds(None, [3, 4], fleet) == 0.0
