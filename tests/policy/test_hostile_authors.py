"""What a hostile author would write: policies that nothing can break."""

import pytest

from privgate.errors import ExitCode, PolicyError

DTP = "rules:\n  - metric: dtp\n    max: 1.0\n"


VAIN = [
    "metric: dtp\n    max: 1.0e+308",
    "metric: dtp\n    max: 1.0\n    aggregate: quantile\n    q: 0.01",
    "metric: attack_accuracy\n    max: 1.0",
    "metric: attack_tpr\n    at_fpr: 0.9\n    max: 0.95",
    "metric: dp_epsilon\n    max: 1.0\n    delta: 0.9",
]


@pytest.mark.parametrize("rule", VAIN)
def test_a_policy_that_nothing_can_break_is_refused_and_says_why(load_policy, rule):
    with pytest.raises(PolicyError, match="cannot refuse") as caught:
        load_policy(f"rules:\n  - {rule}\n")
    assert caught.value.exit_code is ExitCode.USAGE
    for other in ("mode: warn", "required: false"):  # a rule that only warns, or need not apply, does not help
        with pytest.raises(PolicyError, match="cannot refuse"):
            load_policy(f"rules:\n  - {rule}\n  - id: other\n    metric: pdtp\n    max: 1.0\n    {other}\n")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("base: &b {metric: dtp, max: 1.0}\nrules: [*b]\n", "alias"),
        ("rules:\n  - <<: {max: 9}\n    metric: dtp\n    max: 1.0\n", "unknown key|not text|tag"),
        ("rules:\n  - metric: dtp\n    max: 1.0\n    m\u0430x: 9\n", "unknown key"),
        ("rules:\n  - metric: dtp\n    max: true\n", "cannot be used"),
        ("rules:\n  - metric: dtp\n    max: 1.0\n    required: false\n", "no rule can refuse"),
        ("rules:\n  - metric: dtp\n    max: 1.0\n    aggregate: share_above\n    threshold: 1\n", "must be below 1"),
        ("audit: {min_units: 0}\n" + DTP, "cannot be used"),
        ("data: {min_rows: 0}\n" + DTP, "cannot be used"),
        ("valid_days: 100000\n" + DTP, "cannot be used"),
        ("applies_to: {models: []}\n" + DTP, "at least 1 item"),
    ],
)
def test_ways_to_say_less_than_it_looks(load_policy, text, words):
    with pytest.raises(PolicyError, match=words):
        load_policy(text)
