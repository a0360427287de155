"""What was found about sensitive features leaves without a small count, in any format, and without one that follows."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.tree import DecisionTreeClassifier

from privgate import Policy, Recipe, Subject, TrainingData, evaluate, report
from privgate.evidence import Count
from privgate.kernel.sample import difference
from privgate.lab.attributes.attribute_advantage import _limits, _ranges, _told
from privgate.lab.attributes.attribute_rule import AttributeAdvantage
from privgate.training.fleet import Fleet

POLICY = """
schema: privgate/policy/v1
name: features
version: "1"
rules:
  - metric: attribute_advantage
    max: 0.3
"""


def told(right, members, wrong, others, asked=None):
    return _told({"name": "inversion", "title": "Inversion"}, (right, members, wrong, others), asked, 0.05)


@given(st.integers(30, 400), st.integers(30, 400), st.data())
def test_what_leaves_is_the_same_whichever_of_the_hidden_counts_is_true(members, others, data):
    right, wrong = data.draw(st.integers(0, members)), data.draw(st.integers(0, others))
    made = told(right, members, wrong, others)
    (low, high), (least, most) = Count(right, members).ends, Count(wrong, others).ends

    assert (made.inside is None, made.outside is None) == (low < high, least < most)
    for one, other in ((low, least), (high, most), (low, most), (high, least)):
        assert told(one, members, other, others) == made
        counts = (one, members, other, others)
        _, lower, upper = difference(counts, low_alpha=0.05, high_alpha=0.05)
        assert made.advantage.low <= lower <= upper <= made.advantage.high


@given(st.integers(30, 400), st.integers(1, 9), st.data())
def test_how_many_have_no_known_value_is_not_told(members, missing, data):
    other = data.draw(st.integers(1, 9))
    made = [told((members - m) // 2, members - m, 50, 100, (members, 100)) for m in (missing, other)]

    assert made[0].members == made[1].members == members - 9, made
    assert all(t.inside is None and t.advantage.value is None for t in made)


@pytest.fixture(scope="module")
def verdict(tmp_path_factory):
    """A tree that nearly always betrays one of two towns: all but a few of its members are guessed."""
    folder = tmp_path_factory.mktemp("sensitive")
    rng = np.random.default_rng(5)
    X = np.column_stack([rng.normal(size=120), rng.integers(0, 2, 120), rng.integers(0, 3, 120)])
    y = np.where(X[:, 0] + 2 * X[:, 1] + rng.logistic(size=120) > 1, "yes", "no")
    data = TrainingData(X[:60], y[:60], candidates=(X[60:], y[60:]), sensitive=(1, 2))
    (folder / "policy.yaml").write_text(POLICY, encoding="utf-8")
    with Fleet(jobs=1, ledger="none") as fleet:
        subject = Subject.local(Recipe(DecisionTreeClassifier(max_depth=4), seed=0), data)
        return evaluate(Policy.load(folder / "policy.yaml"), subject, fleet=fleet)


def test_no_format_of_a_real_run_tells_a_small_count(verdict, tmp_path):
    report.write(verdict, tmp_path, hash_key=b"k" * 32)
    doc = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))

    found = [
        g
        for one in doc["evidence"]["attributes"]["attributes"]
        for g in (*one["adversaries"], one["without_model"], *one["by_value"])
    ]
    withheld = [g for g in found for share in ("inside", "outside") if g[share] is None]
    assert withheld, "the run has nothing to hide: it tests nothing"
    assert all(g["advantage"]["value"] is None for g in withheld)
    for g in found:
        for n, share in ((g["members"], g["inside"]), (g["others"], g["outside"])):
            assert share is None or n is None or not Count(round(share * n), n).hidden
    assert (tmp_path / "report.html").read_text(encoding="utf-8").count(">suppressed<") >= len(withheld)


@pytest.mark.parametrize("limit", [0.05, 0.3, 0.9])
def test_what_a_rule_says_of_hidden_counts_stays_on_its_side_of_the_limit(verdict, limit):
    (measured,) = verdict.evidence.measurements.values()
    rule = AttributeAdvantage(max=limit)
    said = []
    for right in (54, 57):  # of 60: all but a few
        counts = (right, 60, 20, 60)
        ranges, alike = _ranges(counts, (60, 60))
        value, low, high = difference(counts, low_alpha=0.05, high_alpha=0.05)
        made = replace(measured, value=value, low=low, high=high, told_as=_limits(ranges, 0.05, 0.05))
        told_ = made.against(limit).told
        assert not alike
        assert told_.low <= low <= high <= told_.high
        assert (told_.low > limit, told_.high <= limit) == (low > limit, high <= limit)
        said.append((told_.low, told_.high, rule.judge(made).message))
    assert said[0] == said[1]  # both lie on one side of each limit
