"""The policies we stand behind: each loads, gives reasons and sources, and says what it cannot conclude."""

import json
from pathlib import Path

import numpy as np
import pytest
from jsonschema import Draft202012Validator

import privgate
from privgate import Policy, TrainingData
from privgate.kernel.sample import plan_looks
from privgate.policy import problems

SHIPPED = sorted(problems.shipped())


def test_the_shipped_policies_are_these():
    known = "attacks-1 deletion-1 dp-trained dtp-1 dtp-1-attacks pdtp-1 regression-1 regression-1-attacks release-1"
    assert [*known.split(), "share-1", "strict"] == SHIPPED


@pytest.mark.parametrize("name", SHIPPED)
def test_every_shipped_policy_is_named_like_its_file_and_gives_reasons_and_sources(name):
    policy = Policy.load(name)

    assert policy.name == name
    assert policy.description
    assert policy.approves.startswith("Can approve ")
    assert policy.approves.count(". ") == 0  # one sentence
    for rule in policy.rules:
        assert len(rule.reason) > 40, rule.name
        assert len(rule.source) > 10, rule.name


@pytest.mark.parametrize("name", SHIPPED)
def test_every_shipped_policy_names_the_schema_and_is_valid_by_it(name):
    path = problems.shipped()[name]
    first = path.read_text(encoding="utf-8").splitlines()[0]
    reference = first.removeprefix("# yaml-language-server: $schema=")

    shipped = Path(privgate.__file__).parent / "schemas" / "policy-v1.json"
    assert (path.parent / reference).resolve() == shipped
    assert list(Draft202012Validator(json.loads(shipped.read_text())).iter_errors(problems.read(path).value)) == []


def test_dtp_1_says_before_training_what_it_cannot_conclude_and_names_pdtp_1():
    (rule,) = Policy.load("dtp-1").rules

    assert rule.limit == 1.0
    assert "pdtp-1" in rule.cannot_conclude({"certificates": []})
    assert Policy.load("pdtp-1").rules[0].cannot_conclude({"certificates": []}) == ""


def test_dtp_1_with_attacks_is_dtp_1_and_sizes_that_conclude():
    policy, base = Policy.load("dtp-1-attacks"), Policy.load("dtp-1")

    rules = {r.name: r for r in policy.rules}
    assert rules["dtp"] == base.rules[0]
    assert policy.resolved["extends"] == ["dtp-1 3"]
    rate = rules["attack_tpr"]
    assert policy.audit.min_candidates >= rate.least
    facts = {"certificates": ["x"], "candidates": policy.audit.min_candidates}
    assert [r.cannot_conclude(facts) for r in policy.rules] == [""] * len(policy.rules)


def test_share_1_says_what_its_sample_shows_at_any_size_of_the_data():
    (rule,) = Policy.load("share-1").rules

    assert all(str(size) in rule.reason for size in plan_looks(10**7, round(rule.limit * 10**7)).sizes)
    for n in (300, 1_000, 20_000, 1_000_000):
        looks = plan_looks(n, round(rule.limit * n))
        assert [looks.share(k, k, m)[1] / n for k, m in zip((0, 2), looks.sizes, strict=True)] == [rule.limit] * 2


def test_strict_and_what_extends_it_carry_the_suite_about_people(load_policy):
    data = TrainingData(np.eye(120), [0] * 119 + [1], one_record_each=True)

    for policy in (Policy.load("strict"), load_policy("extends: strict\nvalid_days: 30\n")):
        found = {p.name: p for p in policy.check_data(data)}
        assert found["min_rows"].outcome == "passed"
        assert found["suite:people.json"].outcome == "failed"
        assert "no label is one person's alone" in found["suite:people.json"].message


@pytest.mark.parametrize("name", SHIPPED)
def test_every_rule_of_a_shipped_policy_can_fail_and_none_rests_on_one_attack_or_an_unseen_claim(name):
    """A temperature blinds ratios of probabilities, digits that mean nothing blind logits: some attack sees either."""
    policy = Policy.load(name)

    assert {r.name: r.vacuous({"n_units": 1000}) for r in policy.rules} == {r.name: "" for r in policy.rules}
    assert {getattr(r, "attack", "any") for r in policy.rules} == {"any"}
    assert not any(getattr(r, "accept_declared_claims", False) for r in policy.rules)
