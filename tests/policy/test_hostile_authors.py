"""What a hostile author would write: waivers of one person, chains of them, and policies that nothing can break."""

from datetime import UTC, date, datetime, timedelta

import pytest

from privgate.errors import ExitCode, PolicyError
from privgate.evidence import Evidence

DIGEST = "sha256:" + "a" * 64
TODAY = datetime.now(UTC).date()
DTP = "rules:\n  - metric: dtp\n    max: 1.0\n"


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


@pytest.mark.parametrize("other", ["ann", "ANN", " ann ", "ａｎｎ"])
def test_what_a_reader_takes_for_one_name_is_one_person(load_policy, other):
    with pytest.raises(PolicyError, match="same person"):
        load_policy(f"{DTP}waivers:\n{waiver(requester='ann', approver=other)}")


@pytest.mark.parametrize("hidden", [chr(c) for c in (0x200B, 0x202E, 7)])
def test_a_name_with_something_that_nobody_sees_is_refused(load_policy, hidden):
    text = f"{DTP}waivers:\n{waiver(requester='ann', approver='ben')}".replace("'ben'", f'"be\\U{ord(hidden):08x}n"')
    with pytest.raises(PolicyError, match=r"approver holds U\+[0-9A-F]{4,}, which nobody sees"):
        load_policy(text)


@pytest.mark.parametrize(("one", "other"), [("ana@x.org", "ana@y.org"), ("Anna", "Ann"), ("李雷", "韩梅梅")])
def test_two_people_are_two_people(load_policy, one, other):
    assert load_policy(f"{DTP}waivers:\n{waiver(requester=one, approver=other)}").waivers


# -- how long, and how far -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gap", [0, 5])
def test_waivers_for_the_same_thing_count_as_one(load_policy, gap):
    chain = waiver(begins=-80, days=80) + waiver(begins=gap, days=80, model="credit-again")
    with pytest.raises(PolicyError, match="2 waivers excuse rule 'dtp' for the same version over"):
        load_policy(f"{DTP}waivers:\n{chain}")
    assert load_policy(f"{DTP}waivers:\n{waiver(begins=-40, days=40)}{waiver(begins=gap - 6, days=40)}").waivers


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
def test_a_ceiling_that_nothing_can_exceed_is_refused(load_policy, metric):
    keys, everything = RULES[metric]
    rules = f"rules:\n  - metric: {metric}\n    {keys}\n"
    with pytest.raises(PolicyError, match="waives everything"):
        load_policy(f"{rules}waivers:\n{waiver(rule=metric, ceiling=everything)}")


# -- policies that nothing can break ---------------------------------------------------------------------------------


def test_a_policy_that_nothing_can_break_is_refused_and_says_why(load_policy):
    """Which rules those are, rules/test_reach.py asks."""
    rule = "metric: attack_accuracy\n    max: 1.0"
    with pytest.raises(PolicyError, match="cannot refuse") as caught:
        load_policy(f"rules:\n  - {rule}\n")
    assert caught.value.exit_code is ExitCode.USAGE
    for other in ("mode: warn", "required: false"):  # a rule that only warns, or need not apply, does not help
        with pytest.raises(PolicyError, match="cannot refuse"):
            load_policy(f"rules:\n  - {rule}\n  - id: other\n    metric: pdtp\n    max: 1.0\n    {other}\n")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("rules:\n  - <<: {max: 9}\n    metric: dtp\n    max: 1.0\n", "unknown key|not text|tag"),
        ("rules:\n  - metric: dtp\n    max: 1.0\n    m\u0430x: 9\n", "unknown key"),
        ("rules:\n  - metric: dtp\n    max: 1.0\n    required: false\n", "no rule can refuse"),
        ("rules:\n  - metric: dtp\n    max: 1.0\n    aggregate: share_above\n    threshold: 1\n", "must be below 1"),
        ("audit: {min_units: 0}\n" + DTP, "cannot be used"),
        ("data: {min_rows: 0}\n" + DTP, "cannot be used"),
        ("valid_days: 100000\n" + DTP, "cannot be used"),
    ],
)
def test_ways_to_say_less_than_it_looks(load_policy, text, words):
    with pytest.raises(PolicyError, match=words):
        load_policy(text)


def test_an_expired_waiver_is_expired_by_the_day_that_statements_use(load_policy, monkeypatch):
    monkeypatch.setenv("TZ", "Pacific/Pago_Pago")  # eleven hours behind
    policy = load_policy(f"{DTP}waivers:\n{waiver(begins=-31, days=30)}")
    assert (
        policy.judge(Evidence({"name": "credit", "digests": {"model": DIGEST}}, (), {})).waivers[0].state == "expired"
    )
    assert policy.judge(Evidence({}, (), {}), today=date(2026, 1, 1)).expires == date(2027, 1, 1)
