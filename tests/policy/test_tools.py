"""``privgate policy``: lint, explain, diff, schema, from the command line."""

import json
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from privgate import Policy
from privgate.cli import cli
from privgate.errors import PolicyError, UsageError
from privgate.evidence import BehindMembership, Evidence, Measurement
from privgate.policy.explain import lint
from privgate.policy.problems import shipped

EXAMPLE = Path(__file__).parent / "example"
WHY = "    reason: agreed\n    source: minutes\n"


@pytest.fixture
def run(capsys):
    def call(*args):
        code = cli.main(["policy", *map(str, args)], standalone_mode=False)
        return code, capsys.readouterr().out

    return call


def report(path, **numbers):
    policy = Policy.load("strict")
    made = {}
    for rule in policy.rules:
        if rule.name in numbers:
            value = numbers[rule.name]
            behind = BehindMembership(shadow_models=64)
            made[rule.request()] = Measurement(rule.request(), value, value, value, n=9, population=9, behind=behind)
    found = Evidence({"name": "credit", "n_candidates": 1000}, (), made)
    path.write_text(json.dumps({"findings": [], "evidence": found.payload()}))
    return path


# -- lint -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(shipped()))
def test_shipped_policies_have_no_remarks(run, name):
    code, out = run("lint", name, "--strict")

    assert code == 0
    assert "0 remarks; sha256:" in out


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("  - metric: dtp\n    max: 1.0\n", "no 'reason' says why"),
        ("  - metric: dtp\n    max: 1.0\n", "no 'source' says where"),
        ("  - metric: attack_accuracy\n    max: 0.5\n" + WHY, "can never approve: guessing reaches"),
        ("  - metric: attack_advantage\n    max: 0\n" + WHY, "can never approve: guessing reaches"),
        ("  - metric: attack_tpr\n    at_fpr: 0.01\n    max: 0.01\n" + WHY, "can never approve: guessing finds 0.01"),
        ("  - metric: attack_tpr\n    at_fpr: 0.001\n    max: 0.1\n" + WHY, "is resolved by 3688 candidates or more"),
        ("  - metric: generalization_gap\n    max: 0\n" + WHY, "can never approve: the upper confidence limit"),
        ("  - metric: generalization_gap\n    max: 0.1\n" + WHY, "nothing enforced here can show"),
        ("  - metric: dp_epsilon_lower_bound\n" + WHY, "nothing enforced here can show"),
        ("  - metric: pdtp\n    max: 1.0\n    bound: lower\n" + WHY, "doubt only warns"),
        ("  - metric: pdtp\n    max: 1.0\n    bound: lower\n" + WHY, "nothing enforced here can show"),
        ("  - metric: attack_accuracy\n    max: 0.6\n    confidence: 0.6\n" + WHY, "in 40 % of releases"),
        ("  - metric: attack_accuracy\n    max: 0.6\n    attack: label_gap\n" + WHY, "only the attack 'label_gap'"),
        ("  - metric: dtp\n    max: 1\n    aggregate: quantile\n    q: 0.6\n" + WHY, "40 % of the people"),
        ("  - metric: dp_epsilon\n    max: 8\n    accept_declared_claims: true\n" + WHY, "ACCEPT_DECLARED_CLAIMS"),
        (
            f"  - metric: dtp\n    max: 1.0\n{WHY}  - id: again\n    metric: dtp\n    max: 0.9\n{WHY}",
            "rules 'dtp' and 'again' ask the same question",
        ),
    ],
)
def test_lint_remarks_on_what_is_allowed_and_probably_not_meant(run, write_policy, rule, words):
    code, out = run("lint", write_policy(f"rules:\n{rule}"))

    assert code == 0
    assert words in out
    assert "mine.yaml:" in out


@pytest.mark.parametrize(("days", "words"), [(-1, "expired on"), (5, "ends in 5 days"), (40, "")])
def test_lint_watches_the_dates_of_waivers(run, write_policy, days, words):
    today = datetime.now(UTC).date()  # a run may go on past midnight
    granted, expires = today - timedelta(days=30), today + timedelta(days=days)
    waiver = (
        f"waivers:\n  - rule: dtp\n    model: credit\n    version: sha256:{'a' * 64}\n    ceiling: 2\n    reason: r\n"
        f"    requester: a\n    approver: b\n    granted: {granted}\n    expires: {expires}\n"
    )
    _, out = run("lint", write_policy(f"rules:\n  - metric: dtp\n    max: 1.0\n{WHY}{waiver}"))

    assert words in out
    assert ("0 remarks" in out) == (not words)


def test_lint_says_what_can_never_pass_for_a_model():
    facts = {"certificates": [], "candidates": 0, "dp": False, "n_units": 9, "probabilities": True}
    remarks = lint(Policy.load("strict"), today=datetime.now(UTC).date(), facts=facts)

    assert {r.rule for r in remarks} == {"dtp", "attack_accuracy", "attack_accuracy_by_label", "attack_tpr"}
    assert any("pdtp-1" in r.text for r in remarks)


def test_lint_says_what_a_number_of_candidates_cannot_settle():
    facts = {"certificates": ["?"], "dp": True, "probabilities": True, "candidates": 100}
    remarks = [str(r) for r in lint(Policy.load("strict"), today=datetime.now(UTC).date(), facts=facts)]

    assert any("strict.yaml:43:5: attack_tpr: " in r and "at least 368 are needed" in r for r in remarks)


def test_lint_refuses_what_is_looser_than_its_parent(run, write_policy):
    with pytest.raises(PolicyError, match="may only be lowered"):
        run("lint", write_policy("extends: strict\nrules:\n  - metric: dtp\n    max: 0.9\n"))


def test_lint_refuses_an_expectation_that_does_not_exist(run, tmp_path):
    folder = shutil.copytree(EXAMPLE, tmp_path / "e")
    suite = folder / "applications.json"
    suite.write_text(suite.read_text().replace("expect_column_values_to_be_in_set", "expect_colum_values_to_be_in_set"))

    with pytest.raises(PolicyError, match="did you mean 'expect_column_values_to_be_in_set'"):
        run("lint", folder / "privgate.yaml")


# -- explain ----------------------------------------------------------------------------------------------------------


def test_explain_says_where_every_number_comes_from_and_what_it_means(run):
    code, out = run("explain", EXAMPLE / "privgate.yaml")

    assert code == 0
    lines = (EXAMPLE / "privgate.yaml").read_text().splitlines()
    number = next(i for i, line in enumerate(lines, 1) if "max: 0.8" in line)
    assert f"max = 0.8  ({EXAMPLE / 'privgate.yaml'}:{number})" in out
    assert "extends dtp-1 3" in out
    assert "aggregate = max  (default)" in out
    assert "approves if the whole interval is at most 0.8, refuses if all of it is above" in out
    assert "reason: Applicants are told" in out
    assert "may never be waived" in out
    assert "approved by ben@example.org" in out


def test_explain_names_the_nearest_rule(run):
    assert "audit's lower bound" in run("explain", "dp-trained", "dp_epsilon_lower_bound")[1]
    with pytest.raises(UsageError, match="did you mean 'dp_epsilon'"):
        run("explain", "dp-trained", "dp_epsilom")


# -- schema -----------------------------------------------------------------------------------------------------------


def test_schema_is_printed_or_written(run, tmp_path):
    code, out = run("schema")
    target = tmp_path / "policy.json"

    assert (code, json.loads(out)["$id"]) == (0, "urn:privgate:schema:policy-v1")
    assert f"$schema={target}" in run("schema", "--output", target)[1]
    assert target.read_text() == out
    with pytest.raises(UsageError, match="cannot be written"):
        run("schema", "--output", tmp_path / "no" / "folder.json")
