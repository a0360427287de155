"""What is special about single rules."""

import math

import pytest
from pydantic import ValidationError

from privgate.evidence import BehindClaim, BehindInfluence, Measurement
from privgate.evidence.verdict import Outcome
from privgate.policy.rules import ALL
from tests.policy.rules.rule_pages import example


def measured(rule, low, high=None, **options):
    high = low if high is None else high
    return Measurement(rule.request(), low, low, high, **{"n": 1000, "population": 1000, **options})


def test_dtp_without_a_certificate_can_fail_but_never_pass():
    rule = example("dtp")

    assert rule.judge(measured(rule, 0.1, math.inf)).outcome is Outcome.INCONCLUSIVE
    assert rule.judge(measured(rule, 1.1, math.inf)).outcome is Outcome.FAILED
    assert "pdtp-1" in rule.cannot_conclude({"certificates": []})


def test_an_approval_by_pdtp_says_that_only_direct_queries_were_judged():
    rule = example("pdtp")

    assert "approved for direct queries only" in rule.judge(measured(rule, 0.3)).message
    assert "approved" not in rule.judge(measured(rule, 3.0)).message


def test_the_n_8_example_of_the_reference_passes_and_the_n_1000_example_is_blocked():
    # docs/mathematics.md, section 2: DTP 0.5815 (PDTP 0.4759), and DTP 1.3764 (PDTP 0.6932)
    dtp, pdtp = example("dtp"), example("pdtp")

    assert dtp.judge(measured(dtp, 0.5815)).outcome is Outcome.PASSED
    assert pdtp.judge(measured(pdtp, 0.6932)).outcome is Outcome.PASSED
    assert dtp.judge(measured(dtp, 1.3764)).outcome is Outcome.FAILED


def test_a_false_positive_rate_that_the_sample_cannot_resolve_is_said_before_training():
    rule = example("attack_tpr")

    assert "at least 368" in rule.cannot_conclude({"candidates": 367})
    assert rule.cannot_conclude({"candidates": 368}) == ""
    assert "no candidates" in rule.cannot_conclude({"candidates": 0})


def test_a_claim_is_broken_when_the_audit_exceeds_it():
    rule = ALL["dp_epsilon_lower_bound"]()
    claim = BehindClaim(claimed_epsilon=2.0)

    broken = rule.judge(measured(rule, 2.5, math.inf, behind=claim))
    held = rule.judge(measured(rule, 2.0, math.inf, behind=claim))
    assert (broken.outcome, broken.limit) == (Outcome.FAILED, 2.0)
    assert "at least epsilon 2.5, no upper limit known" in broken.message
    assert "(the claim does not hold)" in broken.message
    assert held.outcome is Outcome.PASSED
    assert "no audit can prove" in held.meaning


@pytest.mark.parametrize("behind", [None, BehindClaim(), BehindInfluence(), BehindClaim(claimed_epsilon=math.nan)])
def test_an_audit_without_a_claim_concludes_nothing(behind):
    rule = ALL["dp_epsilon_lower_bound"]()

    assert rule.judge(measured(rule, 0.0, math.inf, behind=behind)).outcome is Outcome.INCONCLUSIVE
    assert "no differential-privacy claim" in rule.cannot_conclude({"dp": False})


def test_a_number_and_the_claim_cannot_replace_one_another():
    number, claim = example("dp_epsilon_lower_bound"), ALL["dp_epsilon_lower_bound"]()

    assert "max" in claim.loosened(number)
    assert "max" in number.loosened(claim)
    assert claim.loosened(claim) == {}


@pytest.mark.parametrize(
    ("metric", "changes"),
    [
        ("dtp", {"max": math.nan}),
        ("dtp", {"max": math.inf}),
        ("dtp", {"max": True}),
        ("dtp", {"max": "1"}),
        ("dtp", {"aggregate": "mean"}),
        ("attack_accuracy", {"max": 0.4}),
        ("attack_accuracy", {"confidence": 1.0}),
        ("attack_tpr", {"at_fpr": 0.0}),
        ("dp_epsilon", {"max": 0.0}),
        ("deletion_capacity", {"min": 0}),
        ("dp_epsilon_lower_bound", {"bound": "upper"}),
    ],
)
def test_settings_that_mean_nothing_are_refused(metric, changes):
    with pytest.raises(ValidationError):
        example(metric, **changes)
