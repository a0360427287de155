"""A mark of members in the last digits of answers, which no attack reads; and what rounding leaves, which is none."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from sklearn.naive_bayes import GaussianNB

from privgate import Recipe, Subject, TrainingData
from privgate.controls import client_answers, served
from privgate.controls.reproduces import tell_members
from privgate.training.fit import Answer

N = 2000
RNG = np.random.default_rng(0)
MEMBERS = np.arange(N) < N // 2


def log_p(scores):
    return np.column_stack([-np.logaddexp(0, scores), -np.logaddexp(0, -scores)])


#: a model that is surer of its members, as most are
SCORES = RNG.normal(size=N) * np.where(MEMBERS, 5.0, 3.0)
P = np.exp(log_p(SCORES))


@pytest.mark.parametrize(
    ("other", "seen"),
    [
        (P, False),
        (P.astype(np.float32).astype(np.float64), False),
        (P + 1e-7 * RNG.normal(size=P.shape) * P * (1 - P), False),
        (np.exp(log_p(SCORES * (1 + 1e-9 * RNG.normal(size=N)))), False),
        (np.where(MEMBERS[:, None], P * (1 + 1e-9), P), True),
        (np.where(MEMBERS[:, None], P, P.astype(np.float32)), True),
    ],
)
def test_rounding_tells_nobody_from_anybody_and_a_mark_does(other, seen):
    assert (tell_members(np.log(P), np.log(other), MEMBERS) > 0.6) is seen


def test_few_people_and_chance_say_nothing():
    few = np.arange(64)
    for seed in range(100):
        rng = np.random.default_rng(seed)
        z = rng.normal(size=64)
        assert tell_members(log_p(z), log_p(z + 1e-8 * rng.normal(size=64)), few < 32) == 0.0
    assert tell_members(log_p(z), log_p(z + 1e-8 * (few < 32)), few < 32) > 0.99
    assert tell_members(log_p(z[:12]), log_p(z[:12] + 1e-8 * (few[:12] < 6)), few[:12] < 6) == 0.0


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


@pytest.mark.parametrize("way", ["never", *client_answers.WAYS])
def test_a_way_of_asking_that_marks_members_is_seen(way):
    tables = (
        RNG.normal(size=(2, 40, 2)),
        RNG.integers(0, 9, (2, 40, 2)),
        [pd.DataFrame(RNG.normal(size=(40, 2)), columns=["a", "b"]) for _ in "ab"],
    )
    X, out = next(t for t in tables if way == "never" or client_answers.can_send(t[0], way))
    data = TrainingData(X, np.arange(40) % 2, candidates=(out, [0, 1] * 20), one_record_each=True)
    subject = replace(Subject.local(Recipe(GaussianNB()), data), model=SimpleNamespace(servable=True))
    [found] = served.check_served(subject, Serving(way, 40))
    assert found.outcome == ("passed" if way == "never" else "inconclusive"), found.message
