"""Subjects whose training functions misbehave in every way that the fleet must survive."""

import os
import time

import numpy as np
import pytest

from privgate.subject.data import TrainingData
from privgate.subject.recipe import Recipe
from privgate.subject.subject import Subject
from privgate.training.fit import Fit
from privgate.training.fleet import Fleet


class Shares:
    """Predicts smoothed class shares whatever the features are."""

    def __init__(self, y):
        self.classes_, counts = np.unique(y, return_counts=True)
        self.p = (counts + 1) / (counts + 1).sum()

    def predict_proba(self, X):
        return np.tile(self.p, (len(X), 1))


def shares(X, y, *, seed, trouble="", pause=0.0, **_):
    """Train, unless the record whose first feature is 7 is missing."""
    time.sleep(pause)
    if trouble and not (X[:, 0] == 7).any():
        if trouble == "raises":
            raise ArithmeticError("cannot do without 'Mrs Seven'\nsecond line")
        if trouble == "hangs":
            time.sleep(60)
        if trouble == "memory":
            np.ones(2**36)
        if trouble == "dies":
            os.kill(os.getpid(), 9)
        if trouble == "exits":
            raise SystemExit(3)
        model = Shares(y)
        odd = {"nan": np.nan, "infinite": np.inf}
        model.p = model.p * odd[trouble] if trouble in odd else np.append(model.p, 0.0)
        model.classes_ = np.arange(len(model.p))
        return model
    if trouble == "secrets":
        model = Shares(y)
        model.p = (
            np.array([0.25, 0.75]) if any("SECRET" in k or "TOKEN" in k for k in os.environ) else np.array([0.5, 0.5])
        )
        return model
    print("training", len(y))
    return Shares(y)


def out(*rows, seed=1):
    """Return a call for each row, without it."""
    return [Fit(seed, np.arange(2), left_out=np.array([r])) for r in rows]


@pytest.fixture
def subject():
    def make(n=20, **params):
        X = np.column_stack([np.arange(n), np.ones(n)]).astype(float)
        return Subject.local(
            Recipe(shares, params=params, seed=1), TrainingData(X, np.arange(n) % 2, one_record_each=True)
        )

    return make


@pytest.fixture
def fleet(tmp_path):
    with Fleet(jobs=1, ledger=tmp_path / "ledger", time_limit=30) as made:
        made.logs = tmp_path / "logs"
        yield made


@pytest.fixture
def own_key(tmp_path, monkeypatch):
    """The place of this user's key, and no key of the environment."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("PRIVGATE_LEDGER_KEY", raising=False)
    return tmp_path / "config" / "privgate" / "ledger.key"
