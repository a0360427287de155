"""A policy with suites, judged through the whole route on a small model."""

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB

from privgate import Policy, Recipe, Subject, TrainingData, evaluate
from privgate.check.prepare import prepare
from privgate.errors import UsageError

POLICY = """schema: privgate/policy/v1
name: with-suites
version: "1"
applies_to: {models: [credit]}
data: {suite: people.json, min_rows: 30}
rules:
  - metric: pdtp
    max: 3.0
"""


@pytest.fixture
def policy(tmp_path):
    kwargs = {"column": "age", "min_value": 0, "max_value": 99}
    suite = {"expectations": [{"type": "expect_column_values_to_be_between", "kwargs": kwargs}]}
    (tmp_path / "people.json").write_text(json.dumps({"name": "age", **suite}))
    (tmp_path / "policy.yaml").write_text(POLICY)
    return Policy.load(tmp_path / "policy.yaml")


@pytest.fixture
def data():
    age = np.random.default_rng(0).integers(20, 80, 60)
    return TrainingData(pd.DataFrame({"age": age.astype(float)}), (age > 50).astype(int), one_record_each=True)


def test_suites_run_on_the_data_before(policy, data, fleet):
    bounded = LogisticRegression(C=0.01, solver="newton-cholesky", tol=1e-8)
    verdict = evaluate(policy, Subject.local(Recipe(bounded), data), fleet=fleet)
    found = {f.rule: f.outcome.value for f in verdict.findings}
    assert found["precondition:min_rows"] == "passed"
    assert found["precondition:suite:people.json"] == "passed"
    assert found["pdtp"] == "passed"


def test_a_policy_for_other_models_is_refused_before_anything_is_trained(policy, data):
    local = Subject.local(Recipe(GaussianNB()), data, name="churn")
    registered = Subject(local.recipe, data, name="churn", uri="models:/churn/1")

    assert prepare(policy, local, fleet=None, limits=None)
    with pytest.raises(UsageError, match="applies to model credit, not to 'churn'"):
        prepare(policy, registered, fleet=None, limits=None)
