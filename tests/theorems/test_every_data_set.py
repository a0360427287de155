"""Bounds by design hold whatever the data are: never broken on hostile small data sets."""

import itertools

import numpy as np
import pytest
from sklearn.tree import DecisionTreeClassifier

from privgate import Recipe, Subject, TrainingData
from privgate.models import ContingencyTable, Sharded, SmoothedNeighbors
from privgate.theorems import catalogue
from privgate.theorems.theorem import Units

CASES = {
    "contingency_table": ContingencyTable(alpha=1.0, classes=[0, 1]),
    "smoothed_neighbors": SmoothedNeighbors(n_neighbors=3, alpha=1.0, classes=[0, 1]),
    "sharded": Sharded(DecisionTreeClassifier(random_state=0), shards=4, classes=[0, 1]),
}
ASKED = np.array([[-50.0], [0.0], [1.0], [1.5], [3.0]])


def log_p(estimator, X, y):
    return np.log(type(estimator)(**estimator.get_params(deep=False)).fit(X, y).predict_proba(ASKED))


@pytest.mark.parametrize("name", CASES)
def test_no_small_data_set_breaks_it(name):
    estimator, shares = CASES[name], []
    for n in (2, 3):
        for X in itertools.product([0.0, 3.0] if name == "sharded" else [0.0, 1.0, 3.0], repeat=n):
            for y in itertools.product([0, 1], repeat=n):
                rows, labels = np.array(X)[:, None], np.array(y)
                subject = Subject.local(Recipe(estimator), TrainingData(rows, labels, one_record_each=True))
                upper = catalogue.THEOREMS[name].certify(Units(subject, np.arange(n), None)).upper
                whole = log_p(estimator, rows, labels)
                less = [log_p(estimator, np.delete(rows, k, 0), np.delete(labels, k)) for k in range(n)]
                shares += [np.abs(whole - z).max() / u for z, u in zip(less, upper, strict=True)]
    assert 1 / 6 < max(shares) <= 1  # it says something
