"""What an undecided attack rule says is missing: how many people would decide it."""

import re

import pytest

from privgate.evidence import BehindMembership, Measurement
from privgate.evidence.verdict import Outcome
from privgate.policy.rules.attacks import AttackAccuracy

RULE = AttackAccuracy(max=0.6)


def measured(value, high, candidates=1000, removed=0, **more):
    gone = {"also_in_training": removed, "members_with_a_double": 5}
    behind = BehindMembership(candidates=candidates, removed_candidates=gone)
    return Measurement(RULE.request(), value, 0.5, high, n=candidates, behind=behind, **more)


@pytest.mark.parametrize(
    ("value", "high", "candidates", "removed", "needed"),
    [(0.56, 0.619, 1000, 0, 2200), (0.55, 0.62, 1000, 0, 2000), (0.5, 0.7, 400, 0, 1600), (0.5, 0.7, 400, 600, 4000)],
)
def test_an_open_attack_says_how_many_candidates_decide_it(value, high, candidates, removed, needed):
    m = measured(value, high, candidates, removed)
    told = RULE.advice(m, Outcome.INCONCLUSIVE)

    assert int(re.search(r"about ([\d,]+) candidates", told)[1].replace(",", "")) == needed
    # an interval of that many ends at the limit
    assert value + (high - value) * ((candidates + removed) / needed) ** 0.5 <= RULE.max


def test_of_whom_a_part_was_drawn_more_are_tried_only_where_the_policy_says_so():
    told = [RULE.advice(measured(0.56, 0.619, population=n), Outcome.INCONCLUSIVE) for n in (1000, 30_000)]

    assert ["audit.min_candidates" in text for text in told] == [False, True]


def test_where_the_figure_itself_is_above_more_people_do_not_help():
    assert "none are enough" in RULE.advice(measured(0.61, 0.65), Outcome.INCONCLUSIVE)
    assert "the model must change" in RULE.advice(measured(0.599, 0.65), Outcome.INCONCLUSIVE)


def test_where_no_upper_limit_was_found_no_number_of_candidates_is_promised():
    """One of 64 shadow models failed, or an attack did not run: an interval to 1 is not wide for want of people."""
    assert RULE.advice(measured(0.5, 1.0), Outcome.INCONCLUSIVE) == (
        "no upper limit was found: let every attack run and, at a level, every shadow model be trained"
    )


def test_a_failure_and_a_problem_promise_nothing():
    assert "candidates decide it" not in RULE.advice(measured(0.7, 0.75), Outcome.FAILED)
    assert "candidates decide it" not in RULE.advice(measured(0.5, 0.7, problem="none"), Outcome.INCONCLUSIVE)
