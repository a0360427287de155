"""Cost is said before work starts; a budget draws units before anything is looked at, and says what it costs."""

import numpy as np
import pytest

from privgate.errors import MeasurementError, UsageError
from privgate.training import budget
from privgate.training.fit import Answer, Fit
from privgate.training.fleet import Fleet
from privgate.training.ledger import encode


def out(row):
    rows = np.array([row])
    return Fit(1, rows, left_out=rows)


def test_one_training_is_timed_by_a_few_that_are_remembered(fleet, subject):
    fits = [out(row) for row in range(budget.TIMED)]
    each = budget.time_training(subject(pause=0.05), fits, fleet)

    assert 0.05 <= each < 5
    assert fleet.calls == budget.TIMED
    assert budget.time_training(subject(pause=0.05), fits, fleet) == each
    assert fleet.calls == budget.TIMED


def test_a_recipe_that_never_trains_has_no_cost(fleet, subject):
    with pytest.raises(MeasurementError, match="none of 1 timed retrains succeeded: training raised"):
        budget.time_training(subject(trouble="raises"), [out(7)], fleet)


def test_a_budget_is_turned_into_people(fleet, subject):
    assert budget.count_affordable(subject(), fleet, (1, 2), max_retrains=11) == 5
    assert budget.count_affordable(subject(), fleet, (1,), budget_seconds=1e6) == 20
    assert 1 <= budget.count_affordable(subject(pause=0.25), fleet, (1,), budget_seconds=2.5) <= 10
    with pytest.raises(UsageError, match="single person"):
        budget.count_affordable(subject(), fleet, (1, 2, 3), max_retrains=2)


def test_people_are_drawn_by_data_and_code(fleet, subject):
    one, again, other = (budget.order(subject(other=k), fleet).tolist() for k in (0, 0, 1))

    assert one == again != other
    assert sorted(one) == sorted(other) == list(range(20))


def test_the_usual_time_leaves_out_the_first_import(subject):
    with Fleet(1, "none", isolate="none") as fleet:
        for name, seconds in zip(fleet.names(subject(), [out(1), out(2)]), (7.3, 0.4), strict=True):
            fleet.ledger.write(name, encode(Answer(np.zeros((1, 2)), seconds)))

        assert budget.time_training(subject(), [out(1), out(2)], fleet) == 0.4
