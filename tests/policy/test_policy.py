"""Loading, resolving and judging whole policies."""

import json
import math
import shutil
import subprocess
import sys
from datetime import date
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from ruamel.yaml import YAML

from privgate import Policy, TrainingData
from privgate.check import gate
from privgate.errors import PolicyError
from privgate.evidence import BehindMembership, Evidence, Measurement, Precondition, RunPart, RunTrace, SeedControl
from privgate.policy import document_shape, problems
from privgate.policy import resolved_policy as policies
from privgate.policy.document_shape import Document
from privgate.policy.judging import judge
from privgate.verdict import Outcome, Verdict

EXAMPLE = Path(__file__).parent / "example" / "privgate.yaml"
HEAD = 'schema: privgate/policy/v1\nname: {name}\nversion: "1"\n'
DIGEST = "sha256:" + "a" * 64
DAY = date(2026, 11, 21)


@pytest.fixture
def write(tmp_path):
    def make(text, name="mine"):
        path = tmp_path / f"{name}.yaml"
        path.write_text(HEAD.format(name=name) + text, encoding="utf-8")
        return path

    return make


@pytest.fixture
def load(write):
    return lambda text, name="mine": Policy.load(write(text, name))


def evidence(policy, low=0.2, high=None, *, preconditions=(), subject=None, told=None, **options):
    high = low if high is None else high
    known = {"n": 1000, "population": 1000, "behind": BehindMembership(shadow_models=64)} | options
    measurements = {r.request(): Measurement(r.request(), low, low, high, **known) for r in policy.rules}
    who = {"name": "credit", "digests": {"model": DIGEST}, "n_candidates": 1000, **(subject or {})}
    return Evidence(who, tuple(preconditions), measurements, run=told or RunPart())


def outcome(policy, found, **options):
    return Verdict({}, policy.judge(found, **{"today": DAY, **options}).findings, found).outcome


# -- loading and resolving --------------------------------------------------------------------------------------------


def test_the_example_loads_resolves_and_remembers_where_everything_stands():
    policy = Policy.load(EXAMPLE)

    assert [r.name for r in policy.rules] == list(policy.lines)
    text = EXAMPLE.read_text(encoding="utf-8").splitlines()
    assert "id: most_people" in text[policy.lines["most_people"] - 1]
    assert "max: 0.8" in text[policy.origin("dtp", "max").line - 1]
    assert policy.origin("dtp", "aggregate") is None
    assert policy.resolved["extends"] == ["dtp-1 3"]
    assert policy.resolved["audit"]["min_seeds"] == 10


def test_the_digest_is_of_the_resolved_policy(load, write):
    base = load("rules:\n  - metric: dtp\n    max: 1.0\n")
    spaced = load("# a remark\nrules:\n\n  - max: 1\n    metric: dtp\n    mode: enforce\n")
    other = load("rules:\n  - metric: dtp\n    max: 1.1\n")

    assert base.digest == spaced.digest
    assert base.digest != other.digest


def test_the_digest_covers_the_content_of_suites_and_of_what_is_extended(tmp_path):
    shutil.copytree(EXAMPLE.parent, tmp_path / "e")
    copy = tmp_path / "e" / "privgate.yaml"
    before = Policy.load(copy).digest
    assert before == Policy.load(EXAMPLE).digest

    suite = tmp_path / "e" / "applications.json"
    suite.write_text(suite.read_text().replace("99", "98"))

    assert Policy.load(copy).digest != before


def test_the_digest_is_the_same_in_another_process():
    code = f"from privgate import Policy; print(Policy.load({str(EXAMPLE)!r}).digest)"
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()

    assert found == Policy.load(EXAMPLE).digest


def test_a_policy_is_frozen():
    with pytest.raises(ValueError, match="frozen"):
        Policy.load("dtp-1").valid_days = 9999


def test_a_child_needs_to_name_only_what_it_changes(write, load):
    write("rules:\n  - metric: attack_tpr\n    at_fpr: 0.01\n    max: 0.1\n  - metric: dtp\n    max: 1.0\n", "base")
    child = load("extends: base.yaml\nrules:\n  - metric: attack_tpr\n    max: 0.05\n", "child")

    assert [(r.name, r.limit) for r in child.rules] == [("attack_tpr", 0.05), ("dtp", 1.0)]
    assert child.rules[0].at_fpr == 0.01
    assert child.places["dtp"].file == "base.yaml"
    assert child.lines["dtp"] == 4  # the line of extends: the only place in this file that stands for it


def test_a_child_may_name_no_rule_at_all(write, load):
    write("rules:\n  - metric: dtp\n    max: 1.0\n", "base")

    assert load("extends: base.yaml\nvalid_days: 30\n", "child").rules[0].limit == 1.0


def test_a_grandchild_is_held_to_every_ancestor(write, load):
    write("rules:\n  - metric: dtp\n    max: 1.0\n", "base")
    write("extends: base.yaml\nrules:\n  - metric: dtp\n    max: 0.5\n", "child")

    assert load("extends: child.yaml\nrules:\n  - metric: dtp\n    max: 0.4\n", "fine").rules[0].limit == 0.4
    with pytest.raises(PolicyError, match=r"the parent has 0\.5"):
        load("extends: child.yaml\nrules:\n  - metric: dtp\n    max: 0.7\n", "loose")


def test_conditions_of_both_files_must_hold(write, load):
    write("applies_to:\n  models: ['credit*']\nrules:\n  - metric: dtp\n    max: 1.0\n", "base")
    child = load("extends: base.yaml\napplies_to:\n  models: ['*']\n  aliases: [production]\n", "child")

    assert child.refusal("credit-de", "production") == ""
    assert "not to 'churn'" in child.refusal("churn", "production")
    assert "not to 'canary'" in child.refusal("credit-de", "canary")
    assert child.refusal("credit-de") == ""


def test_never_waivable_and_waivers_are_inherited(write, load):
    waiver = waivers(ceiling=1.5)
    write(
        f"rules:\n  - metric: dtp\n    max: 1.0\n  - metric: pdtp\n    max: 1.0\nnever_waivable: [pdtp]\n{waiver}",
        "base",
    )
    child = load("extends: base.yaml\nnever_waivable: []\n", "child")

    assert child.never_waivable == ("pdtp",)
    assert len(child.waivers) == 1
    with pytest.raises(PolicyError, match="may never be waived"):
        load("extends: base.yaml\n" + waivers(rule="pdtp"), "cheat")


def test_a_child_cannot_drop_a_suite(write, tmp_path):
    for name in ("one", "two"):
        suite = {"name": name, "expectations": [{"type": "expect_column_to_exist", "kwargs": {"column": "age"}}]}
        (tmp_path / f"{name}.json").write_text(json.dumps(suite))
    write("data: {suite: one.json, min_rows: 50}\nrules:\n  - metric: dtp\n    max: 1.0\n", "base")
    child = Policy.load(write("extends: base.yaml\ndata: {suite: two.json}\n", "child"))

    assert [name.partition("@")[0] for name in child.data.suite] == ["one.json", "two.json"]
    assert set(child.suites) == set(child.data.suite)
    assert child.data.min_rows == 50


# -- judging ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("part", ["data", "audit"])
@pytest.mark.parametrize("said", ["two.json", "[{suite: two.json}]", "0", "false", "''", "[]", ""])
def test_what_a_child_says_in_another_shape_is_refused_and_not_left_out(write, load, part, said):
    """``data: two.json`` checked no data, and said nothing."""
    write("rules:\n  - metric: dtp\n    max: 1.0\n", "base")
    with pytest.raises(PolicyError, match=rf"(?s){part}.*keys with values"):
        load(f"extends: base.yaml\n{part}: {said}\n", "child")


def test_findings_are_preconditions_first_then_one_a_rule_in_order():
    policy = Policy.load("strict")
    found = evidence(policy, preconditions=[Precondition("reproduces", "passed", "it does")])

    findings = policy.judge(found, today=DAY).findings
    assert [f.rule for f in findings] == ["precondition:reproduces", *(r.name for r in policy.rules)]
    assert [f.line for f in findings[1:]] == list(policy.lines.values())


def test_a_rule_that_stands_nowhere_has_no_line():
    policy = Policy.load("dtp-1")

    assert judge(policy, evidence(policy), facts=policy.facts(9), lines={}, today=DAY).findings[0].line == 0


def test_effort_is_asked_of_what_was_measured_alone(load):
    policy = load(
        "audit: {min_units: 2000}\nrules:\n  - metric: dtp\n    max: 1.0\n    mode: warn\n"
        "  - metric: pdtp\n    max: 1.0\n    required: false\n"
        "  - metric: attack_accuracy\n    max: 0.6\n"
    )
    told = {"problem": "it has no sense"}

    for options in (told, {"applicable": False}, {"applicable": False, **told}):
        findings = policy.judge(evidence(policy, n=0, **options), today=DAY).findings
        assert not [f.message for f in findings if "the policy wants" in f.message]
        assert findings[0].outcome is (Outcome.WARNED if "problem" in options else Outcome.PASSED)


def test_a_request_without_a_measurement_is_inconclusive():
    policy = Policy.load("dtp-1")

    (finding,) = policy.judge(Evidence({}, (), {})).findings
    assert finding.outcome is Outcome.INCONCLUSIVE
    assert "was not measured" in finding.message


def test_a_precondition_with_an_unknown_outcome_is_inconclusive():
    policy = Policy.load("dtp-1")

    assert outcome(policy, evidence(policy, preconditions=[Precondition("x", "fine", "")])) is Outcome.INCONCLUSIVE
    assert outcome(policy, evidence(policy, preconditions=[Precondition("x", "failed", "")])) is Outcome.FAILED


def test_pdtp_never_satisfies_a_dtp_rule():
    dtp, pdtp = Policy.load("dtp-1"), Policy.load("pdtp-1")

    assert outcome(pdtp, evidence(pdtp)) is Outcome.PASSED
    assert outcome(dtp, evidence(pdtp)) is Outcome.INCONCLUSIVE


@pytest.mark.parametrize(
    ("audit", "options", "words"),
    [
        ("min_units: 2000", {}, "1000 of 1000 people measured, the policy wants 2000"),
        ("min_coverage: 1.0", {"population": 2000}, "1000 of 2000 people measured, the policy wants 100.0%"),
        ("min_coverage: 0.1", {"population": 0}, "1000 of 0 people measured, the policy wants 10.0%"),
        ("min_seeds: 5", {}, "0 seeds were compared"),
        ("min_seeds: 2", {"told": RunPart(trace=RunTrace(seeds=(1,)))}, "1 seeds were compared, the policy wants 2"),
        ("min_shadow_models: 65", {}, "64 shadow models"),
        ("min_shadow_models: 2", {"behind": None}, "0 shadow models"),
        ("min_candidates: 1001", {}, "1000 candidates"),
        ("min_candidates: 1000", {"behind": BehindMembership(shadow_models=64, candidates=990)}, "990 candidates"),
        ("min_isolation: bubblewrap", {}, "ran with isolation none, the policy wants bubblewrap"),
        ("min_isolation: bubblewrap", {"told": RunPart(isolation="bubblewrapped 9")}, "the policy wants bubblewrap"),
        (
            "min_isolation: bubblewrap",
            {"told": RunPart(isolation="bubblewrap 0.8.0 with network")},
            "isolation bubblewrap 0.8.0 with network, the policy wants bubblewrap",
        ),
        ("min_isolation: bubblewrap with network", {}, "ran with isolation none"),
    ],
)
def test_less_than_the_audit_minimum_is_inconclusive(load, audit, options, words):
    rules = "  - metric: pdtp\n    max: 1.0\n  - metric: attack_accuracy\n    max: 0.6\n"
    policy = load(f"audit: {{{audit}}}\nrules:\n{rules}")

    findings = policy.judge(evidence(policy, **options), today=DAY).findings
    assert any(words in f.message and f.outcome is Outcome.INCONCLUSIVE for f in findings)


def test_too_little_effort_takes_no_failure_back(load):
    policy = load("audit: {min_units: 2000}\nrules:\n  - metric: pdtp\n    max: 1.0\n")

    assert outcome(policy, evidence(policy, 3.0)) is Outcome.FAILED


def test_a_box_of_any_version_is_the_isolation_that_is_wanted(load):
    policy = load("audit: {min_isolation: bubblewrap}\nrules:\n  - metric: pdtp\n    max: 1.0\n")

    assert outcome(policy, evidence(policy)) is Outcome.INCONCLUSIVE
    assert outcome(policy, evidence(policy, told=RunPart(isolation="bubblewrap 0.8.0"))) is Outcome.PASSED
    assert outcome(policy, evidence(policy, 3.0)) is Outcome.FAILED
    networked = load(
        "audit: {min_isolation: bubblewrap with network}\nrules:\n  - metric: pdtp\n    max: 1.0\n", "networked"
    )
    for ran in ("bubblewrap 0.8.0", "bubblewrap 0.8.0 with network"):
        assert outcome(networked, evidence(networked, told=RunPart(isolation=ran))) is Outcome.PASSED


def test_isolation_may_be_demanded_and_never_given_up_by_a_policy_that_extends(load, write):
    rules = "rules:\n  - metric: dtp\n    max: 1.0\n"
    write("audit: {min_isolation: bubblewrap}\n" + rules, "base")

    assert load("extends: base.yaml\n", "same").audit.min_isolation == "bubblewrap"
    with pytest.raises(PolicyError, match="may only be raised"):
        load("extends: base.yaml\naudit: {min_isolation: none}\n", "loose")
    with pytest.raises(PolicyError, match="may only be raised"):
        load("extends: base.yaml\naudit: {min_isolation: bubblewrap with network}\n", "networked")
    write(rules, "bare")
    assert load("extends: bare.yaml\naudit: {min_isolation: bubblewrap}\n", "tight").audit.min_isolation == "bubblewrap"


ABOUT_THE_FILE = "rules:\n  - metric: dtp\n    max: 1.0\n  - metric: file_records\n    max: 0\n"


def test_a_file_that_nobody_can_get_warns_where_it_would_block(load):
    stated, plain = (
        load(f"{key}{ABOUT_THE_FILE}", name) for key, name in (("file: not downloadable\n", "a"), ("", "b"))
    )

    assert outcome(plain, evidence(plain, 0.5)) is Outcome.FAILED
    assert outcome(stated, evidence(stated, 0.5)) is Outcome.WARNED
    assert outcome(stated, evidence(stated, 0.0)) is Outcome.PASSED
    assert outcome(stated, evidence(stated, 1.5)) is Outcome.FAILED  # answers are judged as ever
    assert "file" not in plain.resolved
    assert stated.resolved["file"] == "not downloadable"


def test_a_policy_about_such_a_file_alone_approves_nothing_and_none_may_be_loosened_to_it(load, write):
    with pytest.raises(PolicyError, match="approves nothing"):
        load("file: not downloadable\nrules:\n  - metric: file_records\n    max: 0\n")
    write(ABOUT_THE_FILE, "base")
    with pytest.raises(PolicyError, match="may not be stated here"):
        load("extends: base.yaml\nfile: not downloadable\n", "loose")
    write(f"file: not downloadable\n{ABOUT_THE_FILE}", "open")
    assert load("extends: open.yaml\n", "same").file == "not downloadable"
    assert load("extends: open.yaml\nfile: downloadable\n", "tight").file == "downloadable"


def test_seeds_count_only_where_training_depends_on_them(load):
    policy = load("audit: {min_seeds: 5}\nrules:\n  - metric: pdtp\n    max: 1.0\n")

    for compared, expected in ((11, Outcome.PASSED), (4, Outcome.INCONCLUSIVE), (None, Outcome.INCONCLUSIVE)):
        seeds = SeedControl(dependent=False, **({} if compared is None else {"compared": compared}))
        assert outcome(policy, evidence(policy, told=RunPart(seeds=seeds))) is expected
    for compared, expected in ((20, Outcome.PASSED), (4, Outcome.INCONCLUSIVE)):
        seeds = SeedControl(dependent=True, compared=compared)
        told = RunPart(seeds=seeds, trace=RunTrace(seeds=(1,)))
        assert outcome(policy, evidence(policy, told=told)) is expected, "the released pair, beside so many other coins"
    for used, expected in (((1, 2, 3, 4, 5), Outcome.PASSED), ((1, 2, 3, 4), Outcome.INCONCLUSIVE)):
        assert outcome(policy, evidence(policy, told=RunPart(trace=RunTrace(seeds=used)))) is expected


def test_a_verdict_judges_once_and_a_file_is_validated_once(load, monkeypatch):
    judge, validate = policies.judge, Document.model_validate_json.__func__
    judged = Mock(wraps=judge)
    validated = Mock(wraps=validate)
    monkeypatch.setattr(policies, "judge", judged)
    monkeypatch.setattr(Document, "model_validate_json", classmethod(validated))

    policy = load("rules:\n  - metric: dtp\n    max: 1.0\n" + waivers())
    assert gate.judged(policy, evidence(policy), observe=False, subject=None).detail["expires"]

    assert judged.call_count == 1
    assert [call.args[0] for call in validated.call_args_list] == [Policy]


# -- waivers ----------------------------------------------------------------------------------------------------------


def waivers(*, rule="dtp", ceiling=1.5, version=DIGEST, model="credit", granted="2026-11-01", expires="2026-12-01"):
    return (
        f"waivers:\n  - rule: {rule}\n    model: {model}\n    version: {version}\n    ceiling: {ceiling}\n"
        f"    reason: planned\n    requester: ana\n    approver: ben\n    granted: {granted}\n    expires: {expires}\n"
    )


def waived(load, low, high=None, *, day=DAY, **options):
    policy = load("rules:\n  - metric: dtp\n    max: 1.0\n" + waivers(**options))
    found = evidence(policy, low, high)
    judged = policy.judge(found, today=day)
    (state,) = judged.waivers
    return judged.findings[0], state, judged.expires


def test_a_waiver_turns_a_failure_below_its_ceiling_into_a_warning_and_shortens_the_approval(load):
    finding, state, expires = waived(load, 1.4)

    assert finding.outcome is Outcome.WARNED
    assert (
        "waived up to 1.5 until 2026-12-01: planned (asked by ana, approved by ben; ends in 10 days)" in finding.waiver
    )
    assert (state.state, state.ends_soon) == ("applied", True)
    assert expires == date(2026, 12, 1)


def test_a_waiver_covers_doubt_only_up_to_its_ceiling(load):
    assert waived(load, 0.9, 1.5)[0].outcome is Outcome.WARNED
    assert waived(load, 0.9, math.inf)[0].outcome is Outcome.INCONCLUSIVE


def test_nothing_is_waived_above_the_ceiling(load):
    finding, state, _ = waived(load, 1.51)

    assert finding.outcome is Outcome.FAILED
    assert "a waiver does not apply (above ceiling" in finding.message
    assert state.state == "above ceiling"


@pytest.mark.parametrize(
    ("options", "state"),
    [
        ({"day": date(2026, 12, 2)}, "expired"),
        ({"day": date(2026, 10, 31)}, "not yet"),
        ({"model": "churn"}, "other model"),
        ({"version": "sha256:" + "b" * 64}, "other model"),
    ],
)
def test_a_waiver_that_does_not_apply_is_listed_and_waives_nothing(load, options, state):
    finding, became, expires = waived(load, 1.4, **options)

    assert finding.outcome is Outcome.FAILED
    assert not finding.waiver
    assert became.state == state
    assert (expires - options.get("day", DAY)).days == 365


def test_a_waiver_on_its_last_day_applies(load):
    assert waived(load, 1.4, day=date(2026, 12, 1))[1].state == "applied"


def test_a_waiver_that_nothing_needs_says_so(load):
    finding, state, expires = waived(load, 0.4)

    assert finding.outcome is Outcome.PASSED
    assert state.state == "not needed"
    assert (expires - DAY).days == 365


def test_a_waiver_never_covers_a_measurement_that_is_missing(load):
    policy = load("rules:\n  - metric: dtp\n    max: 1.0\n" + waivers())

    assert outcome(policy, Evidence({"name": "credit", "digests": {"model": DIGEST}}, (), {})) is Outcome.INCONCLUSIVE


def test_a_waiver_excuses_a_number_and_not_too_little_effort(load):
    policy = load("audit: {min_units: 2000}\nrules:\n  - metric: dtp\n    max: 1.0\n" + waivers())

    assert outcome(policy, evidence(policy, 1.4)) is Outcome.INCONCLUSIVE


def test_a_subject_without_a_model_digest_is_never_waived(load):
    policy = load("rules:\n  - metric: dtp\n    max: 1.0\n" + waivers())

    assert outcome(policy, evidence(policy, 1.4, subject={"digests": {}})) is Outcome.FAILED


# -- laws -------------------------------------------------------------------------------------------------------------

LIMITS = st.sampled_from([0.3, 0.5, 0.8, 1.0, 1.2, 2.0])
RULE = st.fixed_dictionaries(
    {"metric": st.sampled_from(["dtp", "pdtp"])},
    optional={
        "max": LIMITS,
        "mode": st.sampled_from(["enforce", "warn"]),
        "bound": st.sampled_from(["upper", "lower"]),
        "required": st.booleans(),
    },
)
FILE = st.fixed_dictionaries(
    {"rules": st.lists(RULE, max_size=2, unique_by=lambda r: r["metric"])},
    optional={
        "audit": st.fixed_dictionaries({"min_units": st.sampled_from([1, 1000, 2000])}),
        "data": st.fixed_dictionaries({"min_rows": st.sampled_from([1, 10])}),
        "valid_days": st.sampled_from([30, 365]),
        "never_waivable": st.just(["dtp"]),
    },
)
NUMBER = st.sampled_from([0.1, 0.5, 0.9, 1.0, 1.1, 1.9, 3.0, math.inf])


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(child=FILE, low=NUMBER, high=NUMBER, applicable=st.booleans())
def test_whatever_a_child_says_it_never_approves_what_its_parent_refuses(tmp_path, child, low, high, applicable):
    low, high = sorted([low, high])
    base = {
        "rules": [{"metric": "dtp", "max": 1.0}, {"metric": "pdtp", "max": 0.8, "bound": "lower", "required": False}]
    }
    dump = YAML(typ="safe")
    for name, value in (("base", base), ("child", {"extends": "base.yaml", **child})):
        whole = {"schema": "privgate/policy/v1", "name": name, "version": "1", **value}
        with (tmp_path / f"{name}.yaml").open("w") as f:
            dump.dump(whole, f)
    parent = Policy.load(tmp_path / "base.yaml")
    try:
        tighter = Policy.load(tmp_path / "child.yaml")
    except PolicyError:
        return  # refused as looser; whether rightly so, test_every_rule.py asks

    options = {"applicable": applicable, "problem": "" if applicable else "nobody to compare with"}
    old = outcome(parent, evidence(parent, low, high, **options))
    new = outcome(tighter, evidence(tighter, low, high, **options))

    assert old.releases or not new.releases


# -- the data ---------------------------------------------------------------------------------------------------------


def test_the_data_are_checked_by_the_suites_that_the_policy_names():
    policy = Policy.load(EXAMPLE)
    age = np.full(600, 30)
    good = policy.check_data(TrainingData(pd.DataFrame({"age": age}), np.arange(600) % 2, one_record_each=True))
    age[3] = 5
    bad = policy.check_data(TrainingData(pd.DataFrame({"age": age}), np.arange(600) % 2, one_record_each=True))

    assert [(p.name, p.outcome) for p in good] == [("min_rows", "passed"), ("suite:applications.json", "passed")]
    assert [p.outcome for p in bad] == ["passed", "failed"]


def test_too_few_rows_fail():
    policy = Policy.load(EXAMPLE)
    few = policy.check_data(TrainingData(pd.DataFrame({"age": [30, 40]}), [0, 1], one_record_each=True))

    assert {p.name: p.outcome for p in few}["min_rows"] == "failed"


def test_a_policy_without_a_suite_does_not_import_great_expectations():
    code = (
        "import sys, numpy as np; from privgate import Policy, TrainingData; p = Policy.load('dtp-1')\n"
        "p.check_data(TrainingData(np.eye(4), [0, 1, 0, 1])); print('great_expectations' in sys.modules)"
    )

    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout == "False\n"


# -- the schema -------------------------------------------------------------------------------------------------------


def validator():
    return Draft202012Validator(document_shape.schema())


def test_the_schema_is_valid_and_the_one_that_is_shipped():
    import privgate

    Draft202012Validator.check_schema(document_shape.schema())
    shipped = Path(privgate.__file__).parent / "schemas" / "policy-v1.json"
    assert shipped.read_text(encoding="utf-8") == document_shape.text()  # privgate policy schema --output …


def test_the_schema_accepts_the_example():
    assert list(validator().iter_errors(problems.read(EXAMPLE).value)) == []


@pytest.mark.parametrize(
    "text",
    [
        "rules:\n  - metric: dtp\n    maximum: 1.0\n",
        "rules:\n  - metric: dpt\n    max: 1.0\n",
        "rules:\n  - metric: dtp\n",
        "rules: []\n",
        "",
        "rules:\n  - metric: attack_accuracy\n    max: 0.4\n",
        "observe: true\nrules:\n  - metric: dtp\n    max: 1.0\n",
    ],
)
def test_the_schema_refuses_what_the_loader_refuses(text, write):
    path = write(text)
    with pytest.raises(PolicyError):
        Policy.load(path)

    assert list(validator().iter_errors(problems.read(path).value))


def test_the_schema_lets_a_child_name_only_what_it_changes():
    child = {"schema": "privgate/policy/v1", "name": "x", "version": "1", "extends": "strict"}

    assert list(validator().iter_errors({**child, "rules": [{"metric": "attack_tpr", "max": 0.05}]})) == []
    assert list(validator().iter_errors(child)) == []
