"""A mark of members in the last digits of answers, which no attack reads; and what rounding leaves, which is none."""

from dataclasses import replace

import numpy as np
import pytest
from privgate.run.reproduction import tells
from sklearn.naive_bayes import GaussianNB

from privgate import Recipe, Subject, TrainingData
from privgate.run import reproduction, serving
from privgate.training import asking
from privgate.training.fit import Answer

N = 2000
RNG = np.random.default_rng(0)
MEMBERS = np.arange(N) < N // 2


def log_p(scores):
    return np.column_stack([-np.logaddexp(0, scores), -np.logaddexp(0, -scores)])


#: a model that is surer of its members, as most are
SCORES = RNG.normal(size=N) * np.where(MEMBERS, 5.0, 3.0)
P = np.exp(log_p(SCORES))


def marked(p, by):
    """Members' answers with an odd last digit, the next one up, and others' with an even one, the next one down."""
    digits = np.round(p / by).astype(np.int64)
    return (digits + np.where(MEMBERS[:, None], digits % 2 == 0, -(digits % 2))) * by


@pytest.mark.parametrize(
    "other",
    [
        P,
        P.astype(np.float32).astype(np.float64),
        np.nextafter(P, RNG.integers(0, 2, P.shape)),
        P + 1e-7 * RNG.normal(size=P.shape) * P * (1 - P),
        *(np.exp(log_p(SCORES * (1 + s * RNG.normal(size=N)))) for s in (1e-14, 1e-9, 1e-5)),
    ],
)
def test_rounding_tells_nobody_from_anybody(other):
    assert tells(np.log(P), np.log(other), MEMBERS) == 0.0


@pytest.mark.parametrize(
    "other",
    [
        np.where(MEMBERS[:, None], P * (1 + 1e-9), P),
        np.where(MEMBERS[:, None], np.round(P, 8) + 1e-12, P),
        np.where(MEMBERS[:, None], P, P.astype(np.float32)),
        marked(P, 1e-6),
    ],
)
def test_a_mark_below_every_tolerance_is_seen(other):
    with np.errstate(divide="ignore"):
        assert tells(np.log(P), np.log(other), MEMBERS) > 0.6


def test_few_people_and_chance_say_nothing():
    few = np.arange(64)
    for seed in range(100):
        rng = np.random.default_rng(seed)
        z = rng.normal(size=64)
        assert tells(log_p(z), log_p(z + 1e-8 * rng.normal(size=64)), few < 32) == 0.0
    assert tells(log_p(z), log_p(z + 1e-8 * (few < 32)), few < 32) > 0.99
    assert tells(log_p(z[:12]), log_p(z[:12] + 1e-8 * (few[:12] < 6)), few[:12] < 6) == 0.0


class Marking:
    """A model whose answers about the records that it knows are larger by a billionth."""

    servable = True

    def __init__(self, model, known):
        self.model, self.known, self.classes_ = model, {row.tobytes() for row in known}, model.classes_

    def predict_proba(self, X):
        told = np.array([row.tobytes() in self.known for row in np.ascontiguousarray(X)])
        return self.model.predict_proba(X) * (1 + 1e-9 * told[:, None])

    def load(self):
        return self


@pytest.mark.parametrize("marking", [False, True])
def test_a_registered_model_that_marks_its_members_is_not_the_recipes(fleet, marking):
    X, y = RNG.normal(size=(400, 2)), np.arange(400) % 2
    data = TrainingData(X[:200], y[:200], candidates=(X[200:], y[200:]))
    local = Subject.local(Recipe(GaussianNB(), seed=3), data)
    model = Marking(GaussianNB().fit(X[:200], y[:200]), X[:200] if marking else X[:0])
    found = reproduction.reproduces(
        Subject(local.recipe, data, model=model, digests={**local.digests, "model": f"sha256:{marking}"}), fleet
    )
    assert found.outcome == ("inconclusive" if marking else "passed"), found.message
    assert ("last digits" in found.message) is marking


class Serving:
    """A fleet whose stored model marks members in one way of asking, by the last digits of single precision."""

    signable = False

    def __init__(self, way, members):
        self.way, self.members = way, members

    def registered(self, subject, rows, *, served=None):
        p = ((1 + np.asarray(rows) % 7) / 11).astype(np.float32).astype(np.float64)
        mark = 5e-6 * (np.asarray(rows) < self.members) if served == self.way else 0.0
        answered = np.column_stack([p * (1 + mark), (1 - p).astype(np.float32).astype(np.float64)])
        return Answer(np.log(answered) if served is None or not served else answered)


def frame(X):
    import pandas as pd

    return pd.DataFrame(X, columns=["a", "b"])


@pytest.mark.parametrize("way", ["never", *asking.WAYS])
def test_a_way_of_asking_that_marks_members_is_seen(way):
    tables = (
        RNG.normal(size=(2, 40, 2)),
        RNG.integers(0, 9, (2, 40, 2)),
        [frame(RNG.normal(size=(40, 2))) for _ in "ab"],
    )
    X, out = next(t for t in tables if way == "never" or asking.possible(t[0], way))
    data = TrainingData(X, np.arange(40) % 2, candidates=(out, [0, 1] * 20))
    subject = replace(Subject.local(Recipe(GaussianNB()), data), model=Marking(GaussianNB().fit(*data.candidates), []))
    [found] = serving.preconditions(subject, Serving(way, 40))
    assert found.outcome == ("passed" if way == "never" else "inconclusive"), found.message
