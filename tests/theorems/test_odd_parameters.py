"""Parameters that no training accepts: looking at them says nothing and raises nothing; training says what is wrong."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import BernoulliNB, GaussianNB, MultinomialNB
from sklearn.neighbors import KNeighborsClassifier

from privgate import Domain, Recipe, Subject, TrainingData, evaluate
from privgate.models import ContingencyTable, Sharded, SmoothedNeighbors
from privgate.theorems import catalogue

X = np.random.default_rng(0).integers(0, 2, (24, 2)).astype(float)
ODD = [
    LogisticRegression(C=-1),
    LogisticRegression(random_state=[0.5]),
    GaussianNB(var_smoothing="auto"),
    BernoulliNB(alpha=["a", "b"]),
    MultinomialNB(alpha=10**400),
    KNeighborsClassifier("l1"),
    ContingencyTable(alpha="l1"),
    SmoothedNeighbors(alpha=[0.5, 0.5]),
    Sharded(GaussianNB(), shards=[[1]], classes=[0, 1]),
]


@pytest.mark.parametrize("estimator", ODD, ids=lambda e: type(e).__name__)
def test_nothing_is_said_of_what_cannot_be_looked_at(estimator):
    data = TrainingData(X, np.arange(24) % 2, domain=Domain(box=((0, 1), (0, 1))), one_record_each=True)
    subject = Subject.local(Recipe(estimator), data)
    assert all(c.needs_retrained for c in catalogue.applicable(subject)[0])  # there will be no models
    assert all(isinstance(e.refusal(subject), str) for e in catalogue.CLOSED_FORMS)


def test_a_check_of_such_a_recipe_ends_in_a_sentence(fleet):
    data = TrainingData(X, np.arange(24) % 2, domain=Domain(box=((0, 1), (0, 1))), one_record_each=True)
    verdict = evaluate("dtp-1", Subject.local(Recipe(LogisticRegression(C=-1)), data), fleet=fleet)
    assert verdict.outcome.value == "inconclusive"
    found = {f.rule: f.message for f in verdict.findings}
    assert "InvalidParameterError" in found["precondition:reproduces"]
