"""One question that several rules ask, and rules that are asked of some models alone."""

from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from privgate import Policy
from privgate.check.prepare import breaks
from privgate.errors import Outcome, PolicyError, approves, settled, together
from privgate.evidence import BehindMembership, Evidence, Measurement
from privgate.evidence.verdict import Finding
from privgate.guard.signing import _doubted
from privgate.policy.judging import conditions, judge

DAY = date(2026, 11, 26)
TWO = """rules:
  - {id: everybody, either: influence, when: [theorem], metric: dtp, max: 1}
  - {id: people, either: influence, when: [classifier], metric: pdtp, max: 1}
  - {metric: attack_accuracy, max: 0.6}
"""


def judged(policy, numbers, **subject):
    """Return rule -> outcome for numbers by rule; what is not named was not measured."""
    known = {"n": 1000, "population": 1000, "behind": BehindMembership(shadow_models=64)}
    found = {
        r.request(): Measurement(r.request(), numbers[r.name], numbers[r.name], numbers[r.name], kind="exact", **known)
        for r in policy.rules
        if r.name in numbers
    }
    made = policy.judge(Evidence({"n_candidates": 1000, **subject}, (), found), today=DAY)
    return {f.rule: f.outcome.value for f in made.findings}, together(made.findings)


THEOREM, NUMBERS = {"theorems": ["t"]}, {"task": "regression"}


@pytest.mark.parametrize(
    ("numbers", "subject", "everybody", "people", "all_"),
    [
        ({"everybody": 0.5, "people": 0.4}, THEOREM, "passed", "passed", "passed"),
        ({"everybody": 3.0, "people": 0.4}, THEOREM, "not needed", "passed", "passed"),  # the other rule is enough
        ({"everybody": 3.0, "people": 3.0}, THEOREM, "failed", "failed", "failed"),
        ({"people": 0.4}, {}, "not needed", "passed", "passed"),  # without a theorem the other rule has to answer
        ({}, {}, "not needed", "inconclusive", "inconclusive"),
        ({"people": 0.4}, NUMBERS, "not needed", "inconclusive", "inconclusive"),  # no rule is about such a model
    ],
)
def test_one_rule_of_a_question_is_enough_where_it_fits_the_model(
    load_policy, numbers, subject, everybody, people, all_
):
    found, whole = judged(load_policy(TWO), {"attack_accuracy": 0.5, **numbers}, **subject)
    assert (found["everybody"], found["people"], whole.value) == (everybody, people, all_)


def test_what_a_report_says_of_theorems_cannot_make_a_yes(load_policy):
    """Where it is wrong, the rule is asked in vain, or not asked and answers nothing."""
    for theorems in ([], ["made_up"]):
        _, all_ = judged(load_policy(TWO), {"people": 3.0, "attack_accuracy": 0.5}, theorems=theorems)
        assert not all_.releases


def test_a_rule_that_is_not_asked_leaves_its_waiver_listed(load_policy):
    digest = "sha256:" + "a" * 64
    policy = load_policy(
        "rules:\n  - {metric: attack_accuracy, max: 0.6}\n  - {metric: dp_epsilon, max: 8, when: [claim]}\n"
        f"waivers:\n  - {{rule: dp_epsilon, model: credit, version: '{digest}', ceiling: 9, reason: r, requester: Ann, "
        "approver: Bob, granted: 2026-11-20, expires: 2026-12-01}\n"
    )
    made = judge(policy, Evidence({}, (), {}), facts={}, today=DAY)
    assert [w.state for w in made.waivers] == ["not needed"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rules:\n  - {metric: dtp, max: 1, when: [theorem]}\n", "every rule has a 'when'"),
        (
            "rules:\n  - {metric: dtp, max: 1, either: q, mode: warn}\n  - {metric: attack_accuracy, max: 0.6}\n",
            "answers for others by 'either'",
        ),
        ("rules:\n  - {metric: dtp, max: 1, when: [sometimes]}\n", "'sometimes' is not known"),
    ],
)
def test_a_policy_that_could_ask_nothing_is_refused(load_policy, text, said):
    with pytest.raises(PolicyError, match=said):
        load_policy(text)


def test_a_policy_that_extends_cannot_add_another_way_to_answer(load_policy, tmp_path):
    load_policy(TWO, "base")
    easy = "extends: base.yaml\nrules:\n  - {id: easy, either: influence, metric: pdtp, max: 30}\n"
    with pytest.raises(PolicyError, match="another rule that is enough for it would weaken it"):
        load_policy(easy, "child")
    softer = "extends: base.yaml\nrules:\n  - {id: everybody, either: '', metric: dtp, max: 1}\n"
    with pytest.raises(PolicyError, match="another question"):
        load_policy(softer, "other")


def test_the_work_ends_early_only_where_no_other_rule_can_still_answer(load_policy):
    """Whoever's own answer changes too much breaks the same limit over all questions, and not the other way round."""
    policy = load_policy(TWO)
    assert [name for name, _ in breaks(policy).values()] == ["people"]
    weaker = TWO.replace("metric: dtp, max: 1", "metric: dtp, max: 2")
    assert not breaks(load_policy(weaker, "weaker"))


def test_release_1_asks_of_every_task_the_questions_of_a_release():
    policy = Policy.load("release-1")
    for subject in ({"theorems": ["t"]}, {}, {"task": "regression"}, {"recipe": {"dp": {"epsilon": 1}}}):
        asked = {r.about.question for r in policy.asked_of(conditions(subject)).rules}
        assert asked >= {"influence", "membership"}
        assert ("claim" in asked) == ("recipe" in subject)


# The law: a group releases only by a rule of its own that is met, and touches no rule outside.

OUTCOMES = st.sampled_from(list(Outcome))
FOUND = st.lists(st.tuples(OUTCOMES, st.sampled_from(["", "a", "b"]), st.booleans()), min_size=1, max_size=7)


@given(FOUND)
def test_one_question_is_answered_by_a_rule_that_is_met_and_by_nothing_else(found):
    findings = [Finding(f"r{k}", "", o, "said", waiver="w" if w else "") for k, (o, _, w) in enumerate(found)]
    groups = {f"r{k}": g for k, (_, g, _) in enumerate(found) if g}
    made = settled(findings, groups)

    assert [f.rule for f in made] == [f.rule for f in findings]
    for before, after in zip(findings, made, strict=True):
        if before.rule not in groups:
            assert after == before
    if approves(made, observed=False):
        for group in set(groups.values()):
            mine = [f for f in findings if groups.get(f.rule) == group]
            assert any(f.outcome is Outcome.PASSED or (f.waiver and f.outcome.releases) for f in mine) or all(
                f.outcome.releases for f in mine if f.outcome is not Outcome.NOT_NEEDED
            )
            assert any(f.outcome is not Outcome.NOT_NEEDED for f in mine)
    assert settled(made, groups) == made or not approves(made, observed=False)


def test_nothing_that_was_asked_is_no_yes():
    assert together([Finding("r", "", Outcome.NOT_NEEDED, "")]) is Outcome.INCONCLUSIVE
    assert not Outcome.NOT_NEEDED.releases


def test_a_signer_takes_doubt_of_one_rule_where_another_answers_and_nowhere_else():
    """A theorem that did not come out again of the data is open in the report, and passed by its numbers alone."""
    groups = {"everybody": "q", "people": "q"}
    own = [Finding(r, "", Outcome.PASSED, "") for r in ("everybody", "people", "attack")]
    said = {"everybody": "not needed", "people": "passed", "attack": "not needed"}
    again = settled(_doubted(said, groups, own), groups)
    assert [f.outcome.value for f in again] == ["not needed", "passed", "passed"]

    both = dict.fromkeys(said, "not needed")
    assert together(settled(_doubted(both, groups, own), groups)) is Outcome.INCONCLUSIVE
