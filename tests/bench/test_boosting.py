"""Histogram boosting without each record next to refits: CPU against CPU time in one process, on one core.

Models of people drawn at random are trained both ways; the replay's compilation, and the one model with everybody, are
paid once and stand apart. Each case appends a line to ``bench-results.jsonl``.
"""

import time
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.ensemble import HistGradientBoostingClassifier as Boosting
from threadpoolctl import threadpool_limits

from privgate.families.engine import Asked
from privgate.families.trees import hist_boosting
from privgate.families.trees.hist_boosting import ENGINE
from privgate.subject.data import TrainingData
from privgate.subject.recipe import Recipe
from privgate.subject.subject import Subject
from tests.bench.results_table import note

pytestmark = pytest.mark.bench

DEFAULTS = Boosting(early_stopping=False, random_state=0)
#: what pdtp-1 approves at 1,000 records: little of anybody is learnt
CAUTIOUS = Boosting(
    max_iter=30, max_leaf_nodes=6, learning_rate=0.05, min_samples_leaf=100, early_stopping=False, random_state=0
)
ADULT = ["age", "workclass", "education", "marital_status", "occupation", "relationship", "race", "sex"]


def numbers(n, shared_data):
    """Every value its own: bins are percentiles, which everybody moves."""
    return make_classification(n, 20, n_informative=8, flip_y=0.1, random_state=0)


def rounded(n, shared_data):
    X, y = numbers(n, shared_data)
    return np.round(4 * X), y


def adult(n, shared_data):
    frame = pd.read_csv(shared_data("adult.csv.gz"), keep_default_na=False)
    frame = frame.iloc[np.random.default_rng(0).permutation(len(frame))[:n]]
    codes = [frame[c].to_numpy() if c == "age" else pd.factorize(frame[c], sort=True)[0] for c in ADULT]
    return np.column_stack(codes).astype(float), (frame["income"] == ">50K").to_numpy().astype(int)


def cpu(function):
    begin = time.process_time()
    made = function()
    return time.process_time() - begin, made


@pytest.mark.parametrize("make", [adult, rounded, numbers], ids=lambda f: f.__name__)
@pytest.mark.parametrize(("n", "timed", "wanted"), [(1_000, 20, 10), (10_000, 6, 4)])
@pytest.mark.parametrize(("kind", "model"), [("defaults", DEFAULTS), ("cautious", CAUTIOUS)])
def test_people_next_to_as_many_refits(shared_data, make, n, timed, wanted, kind, model):
    X, y = make(n, shared_data)
    subject = Subject.local(Recipe(model, seed=0), TrainingData(X, y))
    some = np.sort(np.random.default_rng(1).choice(n, timed, replace=False))

    def refits():
        made = [clone(model).fit(np.delete(X, i, 0), np.delete(y, i)).predict_proba(X[i : i + 1])[0] for i in some]
        return np.log(made)

    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert ENGINE.supports(subject) == ""
        once, _ = cpu(lambda: hist_boosting._posed(subject))
        pairs = [(cpu(lambda: ENGINE.answers(Asked(subject, some, (0,), None))), cpu(refits)) for _ in range(3)]
        spent, theirs = (min(p[k][0] for p in pairs) for k in (0, 1))
    (made, left), expected = pairs[0][0][1], pairs[0][1][1]
    ratio = theirs / spent

    assert not len(left)
    assert np.abs(made.log_without[0] - expected).max() <= 1e-9
    note(
        bench="boosting",
        model=kind,
        data=make.__name__,
        n=n,
        milliseconds=1e3 * spent / timed,
        refit_milliseconds=1e3 * theirs / timed,
        seconds_once=once,
        ratio=ratio,
        wanted=wanted,
        reached=bool(ratio >= wanted),
        largest_difference=float(np.abs(made.log_without[0] - expected).max()),
        people=timed,
    )
    assert ratio > 1
