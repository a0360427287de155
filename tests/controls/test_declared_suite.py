"""The suite of a declared domain: met by data that keep it; if not, a sentence with expectation, column and share."""

import json

import numpy as np
import pandas as pd
import pytest

from privgate import Domain, TrainingData
from privgate.controls import suites
from privgate.policy import Policy

FRAME = pd.DataFrame({"age": np.arange(20, 70), "work": ["a", "b"] * 25, "score": [0.5, None] * 25})
LABEL = np.array([0, 1] * 25)
DOMAINS = {
    "columns": (FRAME, {"age": (18, 90), "work": ["a", "b"], "score": (0, 1, None)}),
    "box": (FRAME[["age"]].to_numpy(dtype=float), Domain(box=((18.0, 90.0),))),
    "categories": ((FRAME[["age"]].to_numpy() % 4), Domain(categories=(4,))),
}


@pytest.mark.parametrize("kind", DOMAINS)
def test_what_was_declared_is_met_and_needs_no_reading(kind):
    X, domain = DOMAINS[kind]
    data = TrainingData(X, LABEL, domain=domain, one_record_each=True)
    made = suites.draft(data, "mine")
    assert suites.DRAFT not in made.get("meta", {})
    assert suites.check(data, suites.parse(json.dumps(made), "mine"), file="mine").outcome == "passed"


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("age", 300, "expect_column_values_to_be_between(age): 20 records (40 %)"),
        ("work", "z", "expect_column_values_to_be_in_set(work): 20 records (40 %)"),
        ("age", None, "expect_column_values_to_not_be_null(age): 20 records (40 %)"),
    ],
)
def test_data_that_break_it_are_told_by_expectation_column_and_share(column, value, said):
    X, domain = DOMAINS["columns"]
    suite = suites.draft(TrainingData(X, LABEL, domain=domain, one_record_each=True), "mine")
    suite["expectations"] = [e for e in suite["expectations"] if e["kwargs"].get("column") == column]
    broken = X.astype({"age": float})
    broken.loc[:19, column] = value
    found = suites.check(
        TrainingData(broken, LABEL, one_record_each=True), suites.parse(json.dumps(suite), "mine"), file="mine"
    )
    assert found.outcome == "failed"
    assert said in found.message


def test_without_a_declared_domain_it_is_a_draft():
    data = TrainingData(FRAME, LABEL, one_record_each=True)
    assert suites.DRAFT in suites.draft(data, "mine")["meta"]


def test_release_1_looks_at_the_data_before_anything_is_trained():
    X, domain = DOMAINS["columns"]
    ids = np.array([f"r{k}" for k in range(50)])
    fine = TrainingData(X, LABEL, ids=ids, domain=domain, one_record_each=True)
    told = Policy.load("release-1").check_data(fine)
    assert [p.outcome for p in told] == ["passed"]
