"""What a hostile author would write: waivers of one person, chains of them, and policies that nothing can break."""

import math
import unicodedata
from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from privgate import Policy, Recipe, Subject, TrainingData, evaluate
from privgate.cli import cli
from privgate.errors import ExitCode, PolicyError, UsageError
from privgate.evidence import BehindMembership, Evidence, Measurement
from privgate.policy import policy_part as people
from privgate.policy.fixtures import verdict
from privgate.verdict import Outcome

HEAD = 'schema: privgate/policy/v1\nname: {name}\nversion: "1"\n'
DIGEST = "sha256:" + "a" * 64
TODAY = datetime.now(UTC).date()
DTP = "rules:\n  - metric: dtp\n    max: 1.0\n"


@pytest.fixture
def load(tmp_path):
    def make(text, name="mine"):
        path = tmp_path / f"{name}.yaml"
        path.write_text(HEAD.format(name=name) + text, encoding="utf-8")
        return Policy.load(path)

    return make


def waiver(
    *, requester="ana", approver="ben", ceiling=1.5, begins=-10, days=30, model="credit", rule="dtp", digest=DIGEST
):
    begin = TODAY + timedelta(days=begins)
    return (
        f"  - rule: {rule}\n    model: {model}\n    version: {digest}\n    ceiling: {ceiling}\n    reason: r\n"
        f"    requester: {requester!r}\n    approver: {approver!r}\n    granted: {begin}\n"
        f"    expires: {begin + timedelta(days=days)}\n"
    )


# -- two people ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "other",
    ["ann", "ANN", " ann ", "ann.", "a n n", "ánn", "ａｎｎ", "𝐚𝐧𝐧", "an-n", "aⓝn", "Ann’", "ann!"],
)
def test_what_a_reader_takes_for_one_name_is_one_person(load, other):
    with pytest.raises(PolicyError, match="same person"):
        load(f"{DTP}waivers:\n{waiver(requester='ann', approver=other)}")


@pytest.mark.parametrize("one", ["José", "Ann+gate@example.org", "IAN", "bill1", "Zoë Łuk"])
def test_forms_and_tags_of_one_name_are_one_person(one):
    for form in ("NFC", "NFD", "NFKC", "NFKD"):
        assert people.same(one, unicodedata.normalize(form, one))
    assert people.same(one, one.swapcase())
    assert people.same("ann+x@example.org", "ann+y@example.org")


HIDDEN = (0x200B, 0x200D, 0x2060, 0xFEFF, 0xAD, 0x202E, 0x3164, 0x34F, 0x180E, 0xFE0F, 0xE0061, 0xA0, 0x2028, 7, 0x115F)


@pytest.mark.parametrize("hidden", [chr(c) for c in HIDDEN])
def test_a_name_with_something_that_nobody_sees_is_refused(load, hidden):
    text = f"{DTP}waivers:\n{waiver(requester='ann', approver='ben')}".replace("'ben'", f'"be\\U{ord(hidden):08x}n"')
    with pytest.raises(PolicyError, match=r"approver holds U\+[0-9A-F]{4,}, which nobody sees"):
        load(text)


@pytest.mark.parametrize(
    ("one", "other"), [("\u0430nn", "ann"), ("\u0391nn", "ann"), ("---", "ann"), ("\U0001f600", "ann")]
)
def test_mixed_scripts_and_no_letters_name_nobody(load, one, other):
    with pytest.raises(PolicyError, match=r"mixes letters of several scripts|names nobody"):
        load(f"{DTP}waivers:\n{waiver(requester=one, approver=other)}")


def test_a_name_in_another_script_that_looks_the_same_is_the_same():
    assert people.same("\u0430\u0441\u0435", "ace")  # Cyrillic throughout
    assert people.same("\u0410\u041d\u041d\u0410", "AHHA")
    assert people.same("\u039d\u0399\u039a\u039f", "NIKO")  # Greek capitals
    assert people.same("\u0141ukasz", "Lukasz")


def test_a_name_in_another_order_or_as_an_address_is_the_same():
    assert people.same("Lee, Ann", "Ann Lee")
    assert people.same("Ann Lee", "ann.lee+x@example.org")
    assert people.same("lee.ann@example.org", "Ann Lee")


@given(st.text(st.characters(categories=["L", "N", "M", "Z", "P", "C"]), max_size=12))
@example("ann\u200b")
def test_a_name_that_counts_is_the_same_however_it_is_spelled(name):
    if people.unfit(name):
        return
    for other in (name.upper(), name.lower(), f" {name}.", unicodedata.normalize("NFD", name), name.replace(" ", "")):
        assert people.same(name, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("ana", "ben"),
        ("ana@x.org", "ana.b@x.org"),
        ("ana@x.org", "ana@y.org"),
        ("Anna", "Ann"),
        ("李雷", "韩梅梅"),
        ("Иван", "Пётр"),
    ],
)
def test_two_people_are_two_people(load, one, other):
    assert load(f"{DTP}waivers:\n{waiver(requester=one, approver=other)}").waivers


# -- how long, and how far -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gap", [0, 1, 5])
def test_waivers_for_the_same_thing_count_as_one(load, gap):
    chain = waiver(begins=-80, days=80) + waiver(begins=gap, days=80, model="credit-again")
    with pytest.raises(PolicyError, match="2 waivers excuse rule 'dtp' for the same version over"):
        load(f"{DTP}waivers:\n{chain}")
    assert load(f"{DTP}waivers:\n{waiver(begins=-40, days=40)}{waiver(begins=gap - 6, days=40)}").waivers


@settings(max_examples=25)
@given(st.lists(st.tuples(st.integers(-200, 0), st.integers(0, 90)), min_size=1, max_size=4))
def test_no_file_excuses_one_rule_of_one_version_for_more_than_ninety_days(tmp_path_factory, spans):
    path = tmp_path_factory.mktemp("spans") / "mine.yaml"
    path.write_text(HEAD.format(name="mine") + DTP + "waivers:\n" + "".join(waiver(begins=b, days=d) for b, d in spans))
    covered = max(b + d for b, d in spans) - min(b for b, _ in spans)
    if covered > 90:
        with pytest.raises(PolicyError):
            Policy.load(path)
    else:
        assert len(Policy.load(path).waivers) == len(spans)


def test_a_waiver_that_is_still_to_be_granted_is_refused(load):
    with pytest.raises(PolicyError, match="which is still to come"):
        load(f"{DTP}waivers:\n{waiver(begins=2)}")
    assert load(f"{DTP}waivers:\n{waiver(begins=0)}").waivers


RULES = {
    "dtp": ("max: 1.0", 1e9),
    "pdtp": ("max: 0.1\n    aggregate: share_above\n    threshold: 1.0", 0.6),
    "attack_accuracy": ("max: 0.6", 1.0),
    "attack_advantage": ("max: 0.2", 1.0),
    "attack_tpr": ("at_fpr: 0.01\n    max: 0.1", 1.0),
    "generalization_gap": ("max: 0.1", 1.0),
    "dp_epsilon": ("max: 8.0", 50.0),
    "dp_attack_accuracy_bound": ("max: 0.75", 1.0),
    "dp_epsilon_lower_bound": ("max: 4.0\n    delta: 1.0e-5", 50.0),
    "deletion_capacity": ("min: 10\n    rho: 0.9\n    prior: 0.01", 0),
}


@pytest.mark.parametrize("metric", sorted(RULES))
def test_a_ceiling_that_nothing_can_exceed_is_refused(load, metric):
    keys, everything = RULES[metric]
    rules = f"rules:\n  - metric: {metric}\n    {keys}\n"
    with pytest.raises(PolicyError, match="waives everything"):
        load(f"{rules}waivers:\n{waiver(rule=metric, ceiling=everything)}")


def test_a_ceiling_is_not_inherited_by_a_tighter_limit(load):
    load(f"{DTP}waivers:\n{waiver(ceiling=2.0)}", "base")
    tight = "extends: base.yaml\nrules:\n  - metric: dtp\n    max: 0.3\n"

    assert load("extends: base.yaml\n", "same").waivers[0].ceiling == 2.0
    with pytest.raises(PolicyError, match=r"inherited waiver .* up to 2 was approved for the rule as it was"):
        load(tight, "silent")
    with pytest.raises(PolicyError, match="waives more than the 2 of the policy"):
        load(f"{tight}waivers:\n{waiver(ceiling=2.5)}", "more")
    said = load(f"{tight}waivers:\n{waiver(ceiling=0.8)}", "said")
    assert [w.ceiling for w in said.waivers] == [0.8]


@pytest.mark.parametrize("name", ["*", "cred*", "?redit"])
def test_a_waiver_for_a_pattern_is_for_a_model_of_that_name_only(load, name):
    policy = load(f"{DTP}waivers:\n{waiver(model=repr(name))}")
    (rule,) = policy.rules
    found = {rule.request(): Measurement(rule.request(), 1.4, 1.4, 1.4, n=9, population=9)}
    evidence = Evidence({"name": "credit", "digests": {"model": DIGEST}}, (), found)

    assert policy.judge(evidence, today=TODAY).findings[0].outcome is Outcome.FAILED


# -- policies that nothing can break ---------------------------------------------------------------------------------

VAIN = [
    "metric: dtp\n    max: 1.0e+308",
    "metric: dtp\n    max: 1.0\n    aggregate: quantile\n    q: 0.01",
    "metric: attack_accuracy\n    max: 1.0",
    "metric: attack_tpr\n    at_fpr: 0.9\n    max: 0.95",
    "metric: dp_epsilon\n    max: 1.0\n    delta: 0.9",
]


@pytest.mark.parametrize("rule", VAIN)
def test_a_policy_that_nothing_can_break_is_refused_and_says_why(load, rule):
    with pytest.raises(PolicyError, match="cannot refuse") as caught:
        load(f"rules:\n  - {rule}\n")
    assert caught.value.exit_code is ExitCode.USAGE
    with pytest.raises(PolicyError, match="cannot refuse"):  # a rule that only warns does not help
        load(f"rules:\n  - {rule}\n  - id: other\n    metric: pdtp\n    max: 1.0\n    mode: warn\n")
    with pytest.raises(PolicyError, match="cannot refuse"):  # nor one that need not apply
        load(f"rules:\n  - {rule}\n  - id: other\n    metric: pdtp\n    max: 1.0\n    required: false\n")


@pytest.mark.parametrize("rule", VAIN)
def test_beside_a_rule_that_can_fail_it_is_marked_everywhere_and_counts_for_nothing(load, rule, capsys):
    policy = load(f"rules:\n  - id: vain\n    {rule}\n  - id: real\n    metric: pdtp\n    max: 1.0\n")

    cli.main(["policy", "lint", str(policy.path)], standalone_mode=False)
    assert "vain: cannot refuse: " in capsys.readouterr().out
    cli.main(["policy", "explain", str(policy.path), "vain"], standalone_mode=False)
    assert "CANNOT REFUSE: " in capsys.readouterr().out
    good = {
        r.request(): Measurement(
            r.request(), 0.0, 0.0, 0.0, n=9, population=9, behind=BehindMembership(shadow_models=9)
        )
        for r in policy.rules
    }
    found = {f.rule: f for f in policy.judge(Evidence({"n_candidates": 9}, (), good)).findings}
    assert found["vain"].outcome is Outcome.WARNED
    assert found["vain"].meaning.startswith("Cannot refuse: ")
    assert found["vain"].message.startswith("this rule cannot refuse: ")
    assert found["real"].outcome is Outcome.PASSED


def test_a_delta_of_one_in_all_people_is_seen_when_their_number_is_known(load):
    policy = load("rules:\n  - metric: dp_epsilon\n    max: 1.0\n    delta: 0.01\n")
    (rule,) = policy.rules
    asked = rule.request()
    measured = {asked: Measurement(asked, 0.5, 0.5, 0.5, unit="nats", kind="bound")}

    def outcome(people):
        return verdict(policy, Evidence({"n_units": people}, (), measured)).outcome

    assert outcome(99) is Outcome.PASSED
    assert outcome(100) is Outcome.INCONCLUSIVE
    X = [[float(i)] for i in range(120)]
    from sklearn.naive_bayes import GaussianNB

    with pytest.raises(UsageError, match="approves nothing"):
        evaluate(
            policy,
            Subject.local(Recipe(GaussianNB()), TrainingData(X, [i % 2 for i in range(120)], one_record_each=True)),
        )


def test_an_infinite_influence_still_fails_a_rule_that_cannot_fail_otherwise(load):
    policy = load("rules:\n  - id: vain\n    metric: dtp\n    max: 900\n  - metric: pdtp\n    max: 1.0\n")
    asked = policy.rules[0].request()
    found = policy.judge(
        Evidence({}, (), {asked: Measurement(asked, math.inf, math.inf, math.inf, n=1, population=1)})
    ).findings

    assert found[0].outcome is Outcome.FAILED


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("base: &b {metric: dtp, max: 1.0}\nrules: [*b]\n", "alias"),
        ("rules:\n  - <<: {max: 9}\n    metric: dtp\n    max: 1.0\n", "unknown key|not text|tag"),
        ("rules:\n  - metric: dtp\n    max: 1.0\n    m\u0430x: 9\n", "unknown key"),
        ("rules:\n  - metric: dtp\n    max: true\n", "cannot be used"),
        ("rules:\n  - metric: dtp\n    max: -1\n", "cannot be used"),
        ("rules:\n  - metric: dtp\n    max: 1.0\n    mode: warn\n", "no rule can refuse"),
        ("rules:\n  - metric: dtp\n    max: 1.0\n    required: false\n", "no rule can refuse"),
        ("rules:\n  - metric: dtp\n    max: 1.0\n    aggregate: quantile\n    q: 0\n", "cannot be used"),
        ("rules:\n  - metric: dtp\n    max: 1.0\n    aggregate: share_above\n    threshold: 1\n", "must be below 1"),
        ("audit: {min_units: 0}\n" + DTP, "cannot be used"),
        ("audit: {min_coverage: -1}\n" + DTP, "cannot be used"),
        ("audit: {min_seeds: true}\n" + DTP, "cannot be used"),
        ("data: {min_rows: 0}\n" + DTP, "cannot be used"),
        ("valid_days: 100000\n" + DTP, "cannot be used"),
        ("applies_to: {models: []}\n" + DTP, "at least one"),
    ],
)
def test_ways_to_say_less_than_it_looks(load, text, words):
    with pytest.raises(PolicyError, match=words):
        load(text)


def test_an_expired_waiver_is_expired_by_the_day_that_statements_use(load, monkeypatch):
    monkeypatch.setenv("TZ", "Pacific/Pago_Pago")  # eleven hours behind
    policy = load(f"{DTP}waivers:\n{waiver(begins=-31, days=30)}")
    assert (
        policy.judge(Evidence({"name": "credit", "digests": {"model": DIGEST}}, (), {})).waivers[0].state == "expired"
    )
    assert policy.judge(Evidence({}, (), {}), today=date(2026, 1, 1)).expires == date(2027, 1, 1)
