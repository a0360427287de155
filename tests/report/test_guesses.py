"""What was found about sensitive features leaves without a small count, in any format, and without one that follows."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.tree import DecisionTreeClassifier

from privgate import Policy, Recipe, Subject, TrainingData, evaluate, report
from privgate.evidence.json_values import bounds, hidden
from privgate.kernel.sample import difference
from privgate.lab.attributes.attribute_advantage import _told
from privgate.report import guesses
from privgate.training.fleet import Fleet

POLICY = """
schema: privgate/policy/v1
name: features
version: "1"
rules:
  - metric: attribute_advantage
    max: 0.3
"""


def row(right, members, wrong, others):
    return _told("inversion", "Inversion", "", (right, members, wrong, others), 0.05).payload()


@given(st.integers(30, 400), st.integers(30, 400), st.data())
def test_what_leaves_is_the_same_whichever_of_the_hidden_counts_is_true(members, others, data):
    right, wrong = data.draw(st.integers(0, members)), data.draw(st.integers(0, others))
    asked = {"members": members, "others": others}
    told = guesses.told(row(right, members, wrong, others), asked, 0.05)
    (low, high), (least, most) = bounds(right, members), bounds(wrong, others)

    assert (told["inside"] is None, told["outside"] is None) == (low < high, least < most)
    if low < high or least < most:
        for one, other in ((low, least), (high, most), (low, most), (high, least)):
            assert guesses.told(row(one, members, other, others), asked, 0.05) == told
            own = row(one, members, other, others)["advantage"]
            assert told["advantage"]["low"] <= own["low"] <= own["high"] <= told["advantage"]["high"]
    else:
        assert told == row(right, members, wrong, others)


@given(st.integers(30, 400), st.integers(1, 9), st.data())
def test_how_many_have_no_known_value_is_not_told(members, missing, data):
    other = data.draw(st.integers(1, 9))
    asked = {"members": members, "others": 100}
    rows = [row((members - m) // 2, members - m, 50, 100) for m in (missing, other)]
    told = [guesses.told(r, asked, 0.05) for r in rows]

    assert told[0]["members"] == told[1]["members"] == members - 9, told
    assert all(t["inside"] is None and t["advantage"]["value"] is None for t in told)


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


def rows_of(part):
    return [
        ((found["name"], kind, i), g)
        for found in part["attributes"]
        for kind in ("adversaries", "without_model", "by_value")
        for i, g in enumerate([found[kind]] if kind == "without_model" else found[kind])
    ]


def test_no_format_of_a_real_run_tells_a_small_count(verdict, tmp_path):
    raw = dict(rows_of(verdict.evidence.attributes.payload()))
    report.write(verdict, tmp_path, hash_key=b"k" * 32)
    doc = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))

    withheld = 0
    for place, g in rows_of(doc["evidence"]["attributes"]):
        for side, share in guesses.SIDES:
            n, rate = raw[place][side], float(raw[place][share])
            if n and hidden(round(rate * n), n):
                withheld += 1
                assert g[share] is None
                assert g["advantage"]["value"] is None
    assert withheld, "the run has nothing to hide: it tests nothing"
    assert (tmp_path / "report.html").read_text(encoding="utf-8").count(">suppressed<") >= withheld


@pytest.mark.parametrize("limit", [0.05, 0.3, 0.9])
def test_what_a_rule_says_of_hidden_counts_stays_on_its_side_of_the_limit(verdict, limit):
    payload = verdict.evidence.payload()
    said = {}
    for right in (54, 57):  # of 60: all but a few
        counts = (right, 60, 20, 60)
        payload["attributes"] = {
            "attributes": [{**payload["attributes"]["attributes"][0], "adversaries": [row(*counts)]}]
        }
        (m,) = payload["measurements"]
        _, low, high = difference(counts, low_alpha=0.05, high_alpha=0.05)
        m |= {"low": low, "high": high}
        rule = {"request": m["request"]["key"], "limit": limit, "outcome": "failed"}
        said[right] = guesses.differences(payload, [rule])[rule["request"]]
        assert said[right]["low"] <= low <= high <= said[right]["high"]
        assert (said[right]["low"] > limit, said[right]["high"] <= limit) == (low > limit, high <= limit)
        assert "failed" in guesses.finding(rule, said[right])["message"]
    assert said[54] == said[57]  # both lie on one side of each limit
