"""What a metric can reach: a rule that cannot fail says so, and every rule that says so really cannot."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from privgate.claims.bounds import EpsilonDelta
from privgate.claims.capacity import deletion_capacity
from privgate.evidence import BehindClaim, Measurement
from privgate.evidence.verdict import Outcome
from privgate.policy.rules import ALL
from privgate.policy.rules.rule_base import NATS, PEOPLE, explain_reach
from tests.policy.rules.rule_pages import EXAMPLES

FACTS = {"n_units": 1000, "n_records": 1000}


def with_limit(metric, number):
    """Return a rule as its page shows it, but with another limit, and the worst value that can be measured at all."""
    about = ALL[metric].about
    number = max(0, round(number)) if about.unit == "people" else number
    rule = ALL[metric].model_validate({**EXAMPLES[metric], about.direction: number})
    most = {"file_records": 1000.0}.get(metric, 1.0)  # of records, as its page shows it
    return rule, most if about.unit == "" else about.worst


@given(
    metric=st.sampled_from(sorted(ALL)),
    limit=st.sampled_from([0.5, 0.6, 1 - 1e-12, 1.0, 2.0, 3.0, 22.0, 23.0, 700.0, 1e308]) | st.floats(0.5, 40),
)
def test_what_is_not_vacuous_fails_on_the_worst_value_there_is(metric, limit):
    try:
        rule, worst = with_limit(metric, limit)
    except ValueError:
        return  # outside the range that a policy may name at all

    found = rule.judge(Measurement(rule.request(), worst, worst, worst, n=3, population=3))

    if not rule.vacuous(FACTS):
        assert found.outcome is Outcome.FAILED
    if found.outcome is Outcome.PASSED:
        assert rule.vacuous(FACTS)


@pytest.mark.parametrize(
    ("metric", "keys"),
    [
        ("dtp", {"max": 1e308}),
        ("pdtp", {"max": 23.0}),
        ("dtp", {"max": 1.0, "aggregate": "quantile", "q": 0.01}),
        ("pdtp", {"max": 0.51, "aggregate": "share_above", "threshold": 1.0}),
        ("pdtp", {"max": 0.1, "aggregate": "share_above", "threshold": 800.0}),
        ("attack_accuracy", {"max": 1.0}),
        ("attack_accuracy", {"max": 0.99999999999}),
        ("attack_advantage", {"max": 1.0}),
        ("attack_tpr", {"max": 1.0, "at_fpr": 0.01}),
        ("attack_tpr", {"max": 0.95, "at_fpr": 0.9}),
        ("generalization_gap", {"max": 1.0}),
        ("dp_epsilon", {"max": 1e6}),
        ("dp_epsilon", {"max": 1.0, "delta": 0.9}),
        ("dp_epsilon", {"max": 1.0, "delta": 0.001}),  # with 1,000 people
        ("dp_attack_accuracy_bound", {"max": 1.0}),
        ("dp_epsilon_lower_bound", {"max": 1e6, "delta": 1e-5}),
        ("dp_epsilon_lower_bound", {"max": 4.0, "delta": 0.7}),
        ("deletion_capacity", {"min": 1, "rho": 1e-9, "prior": 1e-12}),
    ],
)
def test_limits_that_limit_nobody_are_named(metric, keys):
    assert ALL[metric](**keys).vacuous(FACTS)


@given(metric=st.sampled_from(sorted(set(ALL) - {"deletion_capacity"})), a=st.floats(0, 60), b=st.floats(0, 60))
def test_a_wider_limit_is_vacuous_where_a_narrower_one_is(metric, a, b):
    narrow, wide = (ALL[metric].model_construct(**{**EXAMPLES[metric], "max": x}) for x in sorted([a, b]))

    assert not narrow.vacuous(FACTS) or wide.vacuous(FACTS)


def test_the_common_measure_is_one_in_all_people_alive():
    # a guarantee of so many nats leaves an attack right but for fewer than one in all people alive
    assert 1 - EpsilonDelta(NATS).accuracy(0.5) == pytest.approx(1 / PEOPLE, rel=1e-6)
    assert explain_reach(1 - 0.5 / PEOPLE, 1.0)
    assert not explain_reach(1 - 2 / PEOPLE, 1.0)


@given(m=st.integers(1, 50), rho=st.floats(0.01, 0.99), prior=st.floats(1e-12, 0.5))
def test_a_capacity_is_vacuous_where_the_hopeless_guarantee_still_has_it(m, rho, prior):
    rule = ALL["deletion_capacity"](min=m, rho=rho, prior=prior)
    assert bool(rule.vacuous({})) is (deletion_capacity(NATS, prior, rho).people >= m)


def test_a_claim_that_no_audit_could_contradict_shows_nothing():
    rule = ALL["dp_epsilon_lower_bound"]()
    asked = rule.request()

    def judged(low, claimed):
        return rule.judge(Measurement(asked, low, low, math.inf, behind=BehindClaim(claimed_epsilon=claimed))).outcome

    assert judged(1.0, 4.0) is Outcome.PASSED
    assert judged(1.0, 1e6) is Outcome.INCONCLUSIVE
    assert judged(30.0, 25.0) is Outcome.FAILED
