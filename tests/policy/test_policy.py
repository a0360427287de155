"""Loading, resolving and judging whole policies."""

import json
import math
import os
import shutil
import subprocess
import sys
from datetime import date
from importlib.resources import files
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from ruamel.yaml import YAML

from privgate import Policy, TrainingData
from privgate.errors import PolicyError
from privgate.evidence import BehindMembership, Evidence, Measurement, Precondition, RunPart, RunTrace, SeedControl
from privgate.evidence.verdict import Outcome, Verdict
from privgate.policy import document_shape, problems
from privgate.policy.rules import ALL

EXAMPLE = Path(__file__).parent / "example" / "privgate.yaml"
DIGEST = "sha256:" + "a" * 64
DAY = date(2026, 11, 21)
DTP, PDTP = (f"rules:\n  - metric: {metric}\n    max: 1.0\n" for metric in ("dtp", "pdtp"))


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

    text = EXAMPLE.read_text(encoding="utf-8").splitlines()
    assert "max: 0.8" in text[policy.mark_of("rules", [r.name for r in policy.rules].index("dtp"), "max").line - 1]
    assert policy.mark_of("rules", [r.name for r in policy.rules].index("dtp"), "aggregate") is None
    assert policy.resolved["extends"] == ["dtp-1 3"]
    assert policy.resolved["audit"]["min_seeds"] == 10


def test_the_digest_is_of_the_resolved_policy(load_policy):
    base = load_policy(DTP)

    assert base.digest == load_policy("# a remark\nrules:\n\n  - max: 1\n    metric: dtp\n    mode: enforce\n").digest
    assert base.digest != load_policy(DTP.replace("1.0", "1.1")).digest


def test_the_digest_covers_suites_and_what_is_extended_and_is_the_same_in_another_process(tmp_path):
    shutil.copytree(EXAMPLE.parent, tmp_path / "e")
    copy = tmp_path / "e" / "privgate.yaml"
    before = Policy.load(copy).digest
    code = f"from privgate import Policy; print(Policy.load({str(EXAMPLE)!r}).digest)"
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()
    assert before == Policy.load(EXAMPLE).digest == found

    suite = tmp_path / "e" / "applications.json"
    suite.write_text(suite.read_text().replace("99", "98"))

    assert Policy.load(copy).digest != before


def test_a_child_needs_to_name_only_what_it_changes(write_policy, load_policy):
    write_policy(
        "rules:\n  - metric: attack_tpr\n    at_fpr: 0.01\n    max: 0.1\n  - metric: dtp\n    max: 1.0\n", "base"
    )
    child = load_policy("extends: base.yaml\nrules:\n  - metric: attack_tpr\n    max: 0.05\n", "child")

    assert [(r.name, r.limit) for r in child.rules] == [("attack_tpr", 0.05), ("dtp", 1.0)]
    assert child.rules[0].at_fpr == 0.01


def test_a_grandchild_is_held_to_every_ancestor(write_policy, load_policy):
    write_policy(DTP, "base")
    write_policy("extends: base.yaml\n" + DTP.replace("1.0", "0.5"), "child")

    assert load_policy("extends: child.yaml\n" + DTP.replace("1.0", "0.4"), "fine").rules[0].limit == 0.4
    with pytest.raises(PolicyError, match=r"the parent has 0\.5"):
        load_policy("extends: child.yaml\n" + DTP.replace("1.0", "0.7"), "loose")


def test_which_models_a_policy_is_for_is_said_by_the_guards_table(load_policy):
    with pytest.raises(PolicyError, match="unknown key 'applies_to'; expected rows of a guard's table"):
        load_policy("applies_to: {models: [credit]}\n" + DTP)


def test_a_child_inherits_which_rules_may_never_be_waived_and_no_waiver(write_policy, load_policy):
    both = DTP + PDTP.removeprefix("rules:\n")
    write_policy(f"{both}never_waivable: [pdtp]\n{waivers()}", "base")
    child = load_policy("extends: base.yaml\nnever_waivable: []\n", "child")

    assert child.never_waivable == ("pdtp",)
    assert child.waivers == ()
    with pytest.raises(PolicyError, match="may never be waived"):
        load_policy("extends: base.yaml\n" + waivers(rule="pdtp"), "cheat")


def test_a_child_cannot_drop_a_suite(write_policy, tmp_path):
    for name in ("one", "two"):
        suite = {"name": name, "expectations": [{"type": "expect_column_to_exist", "kwargs": {"column": "age"}}]}
        (tmp_path / f"{name}.json").write_text(json.dumps(suite))
    write_policy("data: {suite: one.json, min_rows: 50}\n" + DTP, "base")
    child = Policy.load(write_policy("extends: base.yaml\ndata: {suite: two.json}\n", "child"))

    assert [name.partition("@")[0] for name in child.data.suite] == ["one.json", "two.json"]
    assert set(child.suites) == set(child.data.suite)
    assert child.data.min_rows == 50


# -- judging ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("part", ["data", "audit"])
@pytest.mark.parametrize("said", ["two.json", "[{suite: two.json}]", "0", "false", "''", "[]", ""])
def test_what_a_child_says_in_another_shape_is_refused_and_not_left_out(write_policy, load_policy, part, said):
    """``data: two.json`` checked no data, and said nothing."""
    write_policy(DTP, "base")
    with pytest.raises(PolicyError, match=rf"(?s){part}.*keys with values"):
        load_policy(f"extends: base.yaml\n{part}: {said}\n", "child")


def test_findings_are_preconditions_first_then_one_a_rule_in_order():
    policy = Policy.load("strict")
    found = evidence(policy, preconditions=[Precondition("reproduces", "passed", "it does")])

    findings = policy.judge(found, today=DAY).findings
    assert [f.rule for f in findings] == ["precondition:reproduces", *(r.name for r in policy.rules)]


def test_a_rule_without_a_measurement_is_inconclusive():
    policy = Policy.load("dtp-1")

    (finding,) = policy.judge(Evidence({}, (), {})).findings
    assert finding.outcome is Outcome.INCONCLUSIVE
    assert "was not measured" in finding.message


def test_effort_is_asked_of_what_was_measured_alone(load_policy):
    policy = load_policy(
        "audit: {min_units: 2000}\nrules:\n  - metric: dtp\n    max: 1.0\n    mode: warn\n"
        "  - metric: pdtp\n    max: 1.0\n    required: false\n"
        "  - metric: attack_accuracy\n    max: 0.6\n"
    )
    told = {"problem": "it has no sense"}

    for options in (told, {"applicable": False}, {"applicable": False, **told}):
        findings = policy.judge(evidence(policy, n=0, **options), today=DAY).findings
        assert not [f.message for f in findings if "the policy wants" in f.message]
        assert findings[0].outcome is (Outcome.WARNED if "problem" in options else Outcome.PASSED)


def test_pdtp_never_satisfies_a_dtp_rule():
    dtp, pdtp = Policy.load("dtp-1"), Policy.load("pdtp-1")

    assert outcome(pdtp, evidence(pdtp)) is Outcome.PASSED
    assert outcome(dtp, evidence(pdtp)) is Outcome.INCONCLUSIVE


NETWORK = "bubblewrap 0.8.0 with network"


def boxed(isolation):
    return {"told": RunPart(isolation=isolation)}


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
        ("min_isolation: bubblewrap", boxed("bubblewrapped 9"), "the policy wants bubblewrap"),
        ("min_isolation: bubblewrap", boxed(NETWORK), f"isolation {NETWORK}, the policy wants bubblewrap"),
        ("min_isolation: bubblewrap with network", {}, "ran with isolation none"),
    ],
)
def test_less_than_the_audit_minimum_is_inconclusive(load_policy, audit, options, words):
    rules = "  - metric: pdtp\n    max: 1.0\n  - metric: attack_accuracy\n    max: 0.6\n"
    policy = load_policy(f"audit: {{{audit}}}\nrules:\n{rules}")

    findings = policy.judge(evidence(policy, **options), today=DAY).findings
    assert any(words in f.message and f.outcome is Outcome.INCONCLUSIVE for f in findings)


UNITS, SEEDS = "audit: {min_units: 2000}\n", "audit: {min_seeds: 5}\n" + PDTP
BOXED = "audit: {min_isolation: bubblewrap}\n"
NETWORKED = "audit: {min_isolation: bubblewrap with network}\n"
#: answers and a file's records, where nobody can get the file and where anybody can
FILE_RULES = DTP + "  - metric: file_records\n    max: 0\n"
STATED = "file: not downloadable\n" + FILE_RULES


def trained(*seeds, **control):
    """Return a run that used these seeds, and a control of them if one was made."""
    return {"told": RunPart(trace=RunTrace(seeds=seeds), **({"seeds": SeedControl(**control)} if control else {}))}


@pytest.mark.parametrize(
    ("text", "low", "options", "expected"),
    [
        (DTP, 0.2, {"preconditions": [Precondition("x", "fine", "")]}, "inconclusive"),
        (DTP, 0.2, {"preconditions": [Precondition("x", "failed", "")]}, "failed"),
        (UNITS + PDTP, 3.0, {}, "failed"),  # too little effort takes no failure back
        (BOXED + PDTP, 3.0, {}, "failed"),
        (BOXED + PDTP, 0.2, boxed("bubblewrap 0.8.0"), "passed"),  # of any version
        (NETWORKED + PDTP, 0.2, boxed("bubblewrap 0.8.0"), "passed"),
        (NETWORKED + PDTP, 0.2, boxed(NETWORK), "passed"),
        (FILE_RULES, 0.5, {}, "failed"),
        (FILE_RULES.replace("max: 0", "max: 9"), 0.5, {"subject": {"n_records": 10}}, "passed"),
        (FILE_RULES.replace("max: 0", "max: 9"), 0.5, {"subject": {"n_records": 9}}, "warned"),  # all may lie in it
        (STATED, 0.5, {}, "warned"),
        (STATED, 0.0, {}, "passed"),
        (STATED, 1.5, {}, "failed"),  # answers are judged as ever
        (SEEDS, 0.2, trained(dependent=False, compared=11), "passed"),  # seeds count where training depends on them
        (SEEDS, 0.2, trained(dependent=False, compared=4), "inconclusive"),
        (SEEDS, 0.2, trained(dependent=False), "inconclusive"),
        (SEEDS, 0.2, trained(1, dependent=True, compared=20), "passed"),  # the released pair, beside so many others
        (SEEDS, 0.2, trained(1, dependent=True, compared=4), "inconclusive"),
        (SEEDS, 0.2, trained(1, 2, 3, 4, 5), "passed"),
        (SEEDS, 0.2, trained(1, 2, 3, 4), "inconclusive"),
    ],
)
def test_what_was_done_beside_the_number_decides_too(load_policy, text, low, options, expected):
    policy = load_policy(text)

    assert outcome(policy, evidence(policy, low, **options)) == expected


@pytest.mark.parametrize(
    ("base", "child", "refusal"),
    [
        (BOXED + DTP, "", ""),
        (BOXED + DTP, "audit: {min_isolation: none}\n", "may only be raised"),
        (BOXED + DTP, NETWORKED, "may only be raised"),
        (DTP, BOXED, ""),
        (FILE_RULES, "file: not downloadable\n", "may not be stated here"),
        (STATED, "", ""),
        (STATED, "file: downloadable\n", ""),
    ],
)
def test_a_child_may_demand_isolation_and_the_file_and_gives_up_neither(
    load_policy, write_policy, base, child, refusal
):
    write_policy(base, "base")
    if refusal:
        with pytest.raises(PolicyError, match=refusal):
            load_policy("extends: base.yaml\n" + child, "child")
        return
    made = load_policy("extends: base.yaml\n" + child, "child")
    if base == STATED:
        assert made.file == ("downloadable" if child else "not downloadable")
    else:
        assert made.audit.min_isolation == "bubblewrap"


def test_a_file_that_nobody_can_get_is_stated_and_is_not_all_that_a_policy_is_about(load_policy):
    assert "file" not in load_policy(FILE_RULES).resolved
    assert load_policy(STATED).resolved["file"] == "not downloadable"
    with pytest.raises(PolicyError, match="approves nothing"):
        load_policy("file: not downloadable\nrules:\n  - metric: file_records\n    max: 0\n")


# -- waivers ----------------------------------------------------------------------------------------------------------


def waivers(*, rule="dtp", ceiling=1.5, version=DIGEST, model="credit", granted="2026-11-01", expires="2026-12-01"):
    return (
        f"waivers:\n  - rule: {rule}\n    model: {model}\n    version: {version}\n    ceiling: {ceiling}\n"
        f"    reason: planned\n    requester: ana\n    approver: ben\n    granted: {granted}\n    expires: {expires}\n"
    )


def waived(load_policy, low, high=None, *, day=DAY, **options):
    policy = load_policy(DTP + waivers(**options))
    found = evidence(policy, low, high)
    judged = policy.judge(found, today=day)
    (state,) = judged.waivers
    return judged.findings[0], state, judged.expires


def test_a_waiver_turns_a_failure_below_its_ceiling_into_a_warning_and_shortens_the_approval(load_policy):
    finding, state, expires = waived(load_policy, 1.4)

    assert finding.outcome is Outcome.WARNED
    assert (
        "waived up to 1.5 until 2026-12-01: planned (asked by ana, approved by ben; ends in 10 days)" in finding.waiver
    )
    assert (state.state, state.ends_in) == ("applied", 10)
    assert expires == date(2026, 12, 1)


@pytest.mark.parametrize(
    ("low", "high", "options", "expected", "state", "days"),
    [
        (0.9, 1.5, {}, "warned", "applied", 10),  # doubt, up to the ceiling
        (0.9, math.inf, {}, "inconclusive", "above ceiling", 365),
        (1.51, None, {}, "failed", "above ceiling", 365),
        (1.4, None, {"day": date(2026, 12, 2)}, "failed", "expired", 365),
        (1.4, None, {"day": date(2026, 12, 1)}, "warned", "applied", 0),  # its last day
        (1.4, None, {"day": date(2026, 10, 31)}, "failed", "not yet", 365),
        (1.4, None, {"model": "churn"}, "failed", "other model", 365),
        (1.4, None, {"version": "sha256:" + "b" * 64}, "failed", "other model", 365),
        (0.4, None, {}, "passed", "not needed", 365),
    ],
)
def test_a_waiver_is_listed_and_waives_what_it_says_alone(load_policy, low, high, options, expected, state, days):
    finding, became, expires = waived(load_policy, low, high, **options)

    assert (finding.outcome, became.state) == (expected, state)
    assert bool(finding.waiver) == (state == "applied")
    assert ("a waiver does not apply (above ceiling" in finding.message) == (state == "above ceiling")
    assert (expires - options.get("day", DAY)).days == days


def test_a_waiver_excuses_a_number_of_a_known_model_and_neither_its_absence_nor_too_little_effort(load_policy):
    policy, hasty = load_policy(DTP + waivers()), load_policy(UNITS + DTP + waivers())

    assert outcome(policy, Evidence({"name": "credit", "digests": {"model": DIGEST}}, (), {})) is Outcome.INCONCLUSIVE
    assert outcome(policy, evidence(policy, 1.4, subject={"digests": {}})) is Outcome.FAILED
    assert outcome(hasty, evidence(hasty, 1.4)) is Outcome.INCONCLUSIVE


# -- laws -------------------------------------------------------------------------------------------------------------

LIMITS = st.sampled_from([0.3, 0.5, 0.8, 1.0, 1.2, 2.0])
RULE = st.fixed_dictionaries(
    {"metric": st.sampled_from(["dtp", "pdtp"])},
    optional={"max": LIMITS, "mode": st.sampled_from(["enforce", "warn"]),
              "bound": st.sampled_from(["upper", "lower"]), "required": st.booleans()},
)  # fmt: skip
FILE = st.fixed_dictionaries(
    {"rules": st.lists(RULE, max_size=2, unique_by=lambda r: r["metric"])},
    optional={
        "audit": st.fixed_dictionaries({"min_units": st.sampled_from([1, 1000, 2000])}),
        "data": st.fixed_dictionaries({"min_rows": st.sampled_from([1, 10])}),
        "valid_days": st.sampled_from([30, 365]), "never_waivable": st.just(["dtp"]),
    },
)  # fmt: skip
NUMBER = st.sampled_from([0.1, 0.5, 0.9, 1.0, 1.1, 1.9, 3.0, math.inf])


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(child=FILE, low=NUMBER, high=NUMBER, applicable=st.booleans())
def test_whatever_a_child_says_it_never_approves_what_its_parent_refuses(tmp_path, child, low, high, applicable):
    low, high = sorted([low, high])
    lower = {"metric": "pdtp", "max": 0.8, "bound": "lower", "required": False}
    base = {"rules": [{"metric": "dtp", "max": 1.0}, lower]}
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

    def check(ages):
        data = TrainingData(pd.DataFrame({"age": ages}), np.arange(len(ages)) % 2, one_record_each=True)
        return [(p.name, p.outcome) for p in policy.check_data(data)]

    assert check(age) == [("min_rows", "passed"), ("suite:applications.json", "passed")]
    assert check(age[:2])[0] == ("min_rows", "failed")
    age[3] = 5
    assert [outcome for _, outcome in check(age)] == ["passed", "failed"]


def test_a_policy_without_a_suite_does_not_import_great_expectations():
    code = (
        "import sys, numpy as np; from privgate import Policy, TrainingData; p = Policy.load('dtp-1')\n"
        "p.check_data(TrainingData(np.eye(4), [0, 1, 0, 1])); print('great_expectations' in sys.modules)"
    )

    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout == "False\n"


# -- the schema -------------------------------------------------------------------------------------------------------


SCHEMA = files("privgate").joinpath("schemas/policy-v1.json")


def generate():
    """Return the JSON Schema of a policy file; where one extends another, hardly a key is demanded."""
    told = document_shape.Document.model_json_schema(by_alias=True)
    for rule in ALL.values():
        told["$defs"][rule.__name__] |= {"required": ["metric"], "description": rule.purpose()}
    suite = told["$defs"]["Data"]["properties"]["suite"]
    suite["anyOf"] = [{"type": "string", "minLength": 1}, {"type": "array", "items": suite.pop("items")}]
    del suite["type"]
    told["required"].remove("rules")
    about = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "urn:privgate:schema:policy-v1"}
    return json.dumps({**about, **told, "title": "privgate policy"}, indent=2, ensure_ascii=False) + "\n"


def refused_by_schema(value):
    return list(Draft202012Validator(json.loads(SCHEMA.read_text())).iter_errors(value))


def test_the_schema_is_valid_and_the_one_that_is_shipped():
    if os.environ.get("PRIVGATE_UPDATE_GOLDENS"):
        SCHEMA.write_text(generate(), encoding="utf-8")
    Draft202012Validator.check_schema(json.loads(generate()))
    assert SCHEMA.read_text(encoding="utf-8") == generate()


@pytest.mark.parametrize(
    "text",
    [
        DTP.replace("max", "maximum"), DTP.replace("dtp", "dpt"), "rules: []\n",
        "rules:\n  - metric: attack_accuracy\n    max: 0.4\n", "observe: true\n" + DTP,
    ],
)  # fmt: skip
def test_the_schema_refuses_what_the_loader_refuses(text, write_policy):
    path = write_policy(text)
    with pytest.raises(PolicyError):
        Policy.load(path)

    assert refused_by_schema(problems.read(path).value)


def test_the_schema_accepts_the_example_and_a_child_that_names_only_what_it_changes():
    assert refused_by_schema(problems.read(EXAMPLE).value) == []
    child = {"schema": "privgate/policy/v1", "name": "x", "version": "1", "extends": "strict"}

    assert refused_by_schema({**child, "rules": [{"metric": "attack_tpr", "max": 0.05}]}) == []
    assert refused_by_schema(child) == []
