"""Great Expectations suites: counts out, never values; what could not be evaluated is an error."""

import json
import logging
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from privgate import Domain, TrainingData
from privgate.controls import suites
from privgate.errors import PolicyError
from privgate.policy import Policy

AGE = {"type": "expect_column_values_to_be_between", "kwargs": {"column": "age", "min_value": 17, "max_value": 99}}


def suite(*expectations):
    return suites.parse(json.dumps({"name": "s", "expectations": list(expectations)}), "s.json")


def run(frame, *expectations, min_rows=1):
    return {e.name: e for _, e in suites.evaluate(suite(*expectations), frame, file="s.json", min_rows=min_rows)}


def people(**columns):
    return pd.DataFrame({"age": [30.0, 40.0, 50.0, 60.0], **columns})


@pytest.mark.parametrize("saved", [{}, {"id": "c3b0ff3f-3cb0-4a3c-9a5c-1a0a4d1f7a55"}])  # as a context saves it
def test_what_holds_is_met_and_what_was_added_is_listed(saved):
    found = run(people(), AGE | saved)

    assert list(found) == [f"{AGE['type']}(age)", "at least 1 rows", "expect_column_values_to_not_be_null(age)"]
    assert all(e.met for e in found.values())
    assert not run(people().iloc[:0], AGE)["at least 1 rows"].met


@pytest.mark.parametrize(
    ("expectations", "met"),
    [
        # Great Expectations passes NaN over, so that not-null is added
        ([{"type": "expect_column_max_to_be_between", "kwargs": {"column": "age", "max_value": 99}}], [1, 1, 0]),
        # a suite that speaks of nulls itself is left alone
        ([AGE, {"type": suites.NOT_NULL, "kwargs": {"column": "age", "mostly": 0.5}}], [1, 1, 1]),
    ],
)
def test_nan_is_not_passed_over(expectations, met):
    found = run(people(age=[30.0, np.nan, 50.0, 60.0]), *expectations)

    assert [e.met for e in found.values()] == list(map(bool, met))


def test_counts_come_out_and_values_do_not(caplog, capsys):
    secret = {"type": "expect_column_values_to_be_in_set", "kwargs": {"column": "name", "value_set": ["x"]}}
    extremes = {"type": "expect_column_max_to_be_between", "kwargs": {"column": "age", "max_value": 10}}
    distinct = {"type": "expect_column_distinct_values_to_be_in_set", "kwargs": {"column": "name", "value_set": ["x"]}}
    order = {"type": "expect_column_values_to_be_between", "kwargs": {"column": "name", "min_value": 1, "max_value": 2}}
    frame = people(age=[31337.0] * 4, name=["zz-secret", "x", "zz-secret", "x"])
    data = TrainingData(frame, [0, 1, 0, 1], one_record_each=True)

    with caplog.at_level(logging.DEBUG):
        found = suites.check(data, suite(secret, extremes, distinct, order), file="s.json")

    out = capsys.readouterr()
    told = f"{found.message}{json.dumps(dict(found.detail))}{out.out}{out.err}"
    assert "secret" not in told
    assert "31337" not in told
    assert not [r for r in caplog.records if r.name.startswith("great_expectations")]
    first = found.detail["expectations"][0]
    assert (first["unexpected"], first["percent"]) == (2, 50.0)


MILD = {**AGE, "severity": "warning"}
ABSENT = {"type": "expect_column_max_to_be_between", "kwargs": {"column": "wage"}}


@pytest.mark.parametrize(
    ("youngest", "expectations", "rows", "outcome", "words"),
    [
        (5.0, [AGE], 1, "failed", "s: 1 of 3 expectations do not hold"),
        (5.0, [MILD], 1, "warned", ""),
        (5.0, [ABSENT], 1, "inconclusive", "there is no column 'wage'"),
        (5.0, [ABSENT, MILD], 1, "inconclusive", ""),
        (5.0, [ABSENT, AGE], 1, "failed", ""),
        (30.0, [AGE], 4, "passed", "all 3 expectations hold"),
        (30.0, [AGE], 5, "failed", "at least 5 rows"),
    ],
)
def test_violations_fail_errors_are_inconclusive_and_severity_is_the_authors(
    youngest, expectations, rows, outcome, words, monkeypatch
):
    data = TrainingData(people(age=[youngest, 40.0, 50.0, 60.0]), [0, 1, 0, 1], one_record_each=True)
    found = suites.check(data, suite(*expectations), file="s", min_rows=rows)
    assert found.outcome == outcome
    assert words in found.message
    monkeypatch.setattr(suites, "MOST_SENT", 99)
    assert suites.check(data, suite(AGE, AGE), lambda *_: [], file="s").outcome == "inconclusive"  # a worker says less


@pytest.mark.parametrize(
    ("X", "columns"),
    [
        (np.eye(3), ["x0", "x1", "x2", "label"]),
        (["a", "b", "c"], ["text", "label"]),
        (pd.DataFrame({0: [1, 2, 3], "label": [7, 8, 9]}), ["0", "label"]),
    ],
)
def test_every_table_has_named_columns(X, columns):
    frame = suites.as_frame(X, [0, 1, 0])

    assert list(frame.columns) == columns


@pytest.mark.parametrize("X", [sp.eye(4, format="csr"), np.zeros((4, 2, 2))])
def test_records_without_columns_are_inconclusive(X):
    data = TrainingData(X, [0, 1, 0, 1], one_record_each=True)

    assert suites.check(data, suite(AGE), file="s").outcome == "inconclusive"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "is not JSON"),
        ("[]", "is not a suite"),
        ('{"expectations": []}', "is empty"),
        ('{"expectations": [{"kwargs": {}}]}', r"expectations\.0: needs 'type'"),
        ('{"expectations": [{"expectation_type": "expect_x"}]}', r"before 1\.0; rename .expectation_type. to .type."),
        ('{"expectations": [{"type": "x", "kwargs": []}]}', r"expectations\.0\.kwargs: is not an object"),
        ('{"expectations": [{"type": "x"}], "meta": {"privgate_draft": ""}}', "is a draft that nobody has confirmed"),
    ],
)
def test_what_is_no_suite_is_refused_without_importing_anything(text, words):
    with pytest.raises(PolicyError, match=words):
        suites.parse(text, "s.json")


# -- what was declared, as columns of any data set --------------------------------------------------------------------

PEOPLE = suites.parse((Path(__file__).parents[2] / "policies" / "people.json").read_text(), "people.json")


def told_of(data, suite=PEOPLE):
    found = suites.check(data, suite, file="people.json")
    return found.outcome, {e["name"]: e["met"] for e in found.detail["expectations"]}


def test_the_shipped_suite_holds_for_any_data_set():
    y = [0, 1, 0, 1]
    for X in (np.eye(4), people(), ["a", "b", "c", "d"], sp.eye(4, format="csr"), np.zeros((4, 2, 2))):
        assert told_of(TrainingData(X, y, one_record_each=True))[0] == "passed"


EVERY, ALONE = "every record lies", "no label is one person's alone"


@pytest.mark.parametrize(
    ("X", "y", "declared", "broken"),
    [
        (np.eye(3), [0, 0, 1], {}, ALONE),
        (np.eye(4), [0, 0, 1, 1], {"groups": ["a", "b", "c", "c"]}, ALONE),
        (np.array([[0], [1], [7], [1]]), [0, 1, 0, 1], {"domain": Domain(categories=(3,))}, EVERY),
        (np.array([[0.5], [np.nan], [0.1], [1]]), [0, 1, 0, 1], {"domain": [(0.0, 1.0)]}, EVERY),
        (people(), [0, 1, 0, 1], {"domain": {"age": (17, 50)}}, EVERY),
        # a column of the data cannot pass for what was declared
        (people(**{"privgate.people_with_label": [9, 9, 9, 9]}), [0, 0, 0, 1], {}, ALONE),
    ],
)
def test_the_shipped_suite_finds_what_it_names(X, y, declared, broken):
    outcome, met = told_of(TrainingData(X, y, one_record_each="groups" not in declared, **declared))

    assert outcome == "failed"
    assert [name for name, fine in met.items() if not fine] == [n for n in met if n.startswith(broken)]


def test_two_expectations_of_one_kind_about_one_column_are_both_judged():
    """Adding one to a suite of Great Expectations replaces the other."""
    close = {"type": AGE["type"], "kwargs": {"column": "age", "min_value": 35, "max_value": 99}}
    found = [e for _, e in suites.evaluate(suite(close, AGE, AGE), people(), file="s.json")]

    assert [(e.met, e.error) for e in found[:3]] == [(False, ""), (True, ""), (True, "")]


FRAME = pd.DataFrame({"age": np.arange(20, 70), "work": ["a", "b"] * 25, "score": [0.5, None] * 25})


def test_release_1_looks_at_the_data_before_anything_is_trained():
    ids, domain = np.array([f"r{k}" for k in range(50)]), {"age": (18, 90), "work": ["a", "b"], "score": (0, 1, None)}
    fine = TrainingData(FRAME, np.arange(50) % 2, ids=ids, domain=domain, one_record_each=True)
    told = Policy.load("release-1").check_data(fine)
    assert [p.outcome for p in told] == ["passed"]
