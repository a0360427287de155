"""A second run of the same check trains nothing: real fits are counted in the library itself."""

import functools
from collections import deque
from dataclasses import replace

import numpy as np
import pytest
from lightgbm import LGBMClassifier
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier
from xgboost import XGBClassifier

from privgate import Policy, Recipe, Subject, TrainingData, evaluate
from privgate.families import catalogue
from privgate.models import KeyedForest, Sharded
from privgate.training import worker
from privgate.training.fleet import Fleet
from tests.families.test_every_engine import CASES

MORE = [
    ("tree_ensembles", LGBMClassifier(n_estimators=4, min_child_samples=2, n_jobs=1, verbose=-1), None, 0),
    ("tree_ensembles", XGBClassifier(n_estimators=4, max_depth=2, n_jobs=1, random_state=0), None, 0),
    ("keyed_forest", KeyedForest(n_estimators=3, random_state=0), None, 0),
    ("refit", SVC(probability=True, random_state=0), None, 0),
]
# where logistic regressions stop is not taken from a worker or a ledger: a yes by theorem rests on it
EVERY = {name: estimator for name, estimator, *_ in reversed((*CASES, *MORE)) if name != "logistic"}
EVERY["sharded"] = Sharded(DecisionTreeClassifier(max_depth=3, random_state=0), shards=4, classes=[0, 1])


class Here:
    """Workers in this very process, so that every fit of theirs is counted."""

    slots, chunk_seconds = 1, 0.2

    def __init__(self, limits):
        self.limits, self.done = limits, deque()

    def submit(self, payload, chunk):
        made = worker.run_chunk(replace(payload, owner=("elsewhere", 0)), list(chunk.fits), self.limits)
        self.done.append((chunk, made))

    def next(self):
        return self.done.popleft()

    def examined(self, payload, by):
        return worker.examined(replace(payload, owner=("elsewhere", 0)), self.limits, by)

    def peak_memory(self):
        return 0

    def close(self, *, kill=False):
        self.done.clear()


@pytest.fixture
def fits(monkeypatch):
    """Return a function that counts the fits of an estimator's class, and of what it holds."""
    counted = []

    def watch(estimator):
        for kind in {type(estimator), *(type(v) for v in estimator.get_params().values() if hasattr(v, "fit"))}:
            whole = kind.fit

            @functools.wraps(whole)
            def fit(self, *arguments, _whole=whole, **named):
                counted.append(type(self).__name__)
                return _whole(self, *arguments, **named)

            monkeypatch.setattr(kind, "fit", fit)
        return counted

    return watch


def checked(estimator, X, y, ledger, policy, *, signable=False):
    with Fleet(jobs=1, ledger=ledger, isolate="none", signable=signable) as fleet:
        fleet._pool = Here(fleet.limits)
        subject = Subject.local(Recipe(clone(estimator), seed=0), TrainingData(X, y))
        return evaluate(Policy.load(policy), subject, fleet=fleet)


def test_the_law_is_about_every_engine_that_trains():
    assert {e.name for e in catalogue.ALL if e.trains} <= {*EVERY}


@pytest.mark.quick(5)
@pytest.mark.parametrize("policy", ["pdtp-1", "dtp-1"])
@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] * (n == "sharded")) for n in EVERY])
def test_no_model_is_trained_twice(tmp_path, fits, name, policy):
    rng = np.random.default_rng(5)
    X = rng.integers(0, 3, (40, 3)).astype(float)
    y = np.arange(40) % 2
    counted = fits(EVERY[name])

    first = checked(EVERY[name], X, y, tmp_path, policy)
    made = len(counted)
    again = checked(EVERY[name], X, y, tmp_path, policy)

    assert made > 1
    assert len(counted) == made
    assert again.findings == first.findings


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    "kind", [SVC(probability=True), HistGradientBoostingClassifier(max_iter=3)], ids=["svc", "trees"]
)
def test_a_run_to_be_signed_leaves_nothing_to_train_for_one_that_is_not(tmp_path, fits, kind):
    """Both draw the same people, seeds and orders: whoever looks again with ``--remembered`` waits for nothing."""
    X = np.random.default_rng(5).integers(0, 3, (40, 3)).astype(float)
    counted = fits(kind)
    checked(kind, X, np.arange(40) % 2, tmp_path, "pdtp-1", signable=True)
    made = len(counted)

    checked(kind, X, np.arange(40) % 2, tmp_path, "pdtp-1")

    assert len(counted) == made > 40
