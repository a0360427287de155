"""What lies between the registered model and the recipe's: leaks hide in small probabilities, or in few records."""

import numpy as np
import pytest
from sklearn.naive_bayes import GaussianNB

from privgate import Recipe, Subject, TrainingData, evaluate
from privgate.controls import reproduces, served
from privgate.training.fit import Answer

RNG = np.random.default_rng(0)
N = 1000
Y = RNG.integers(0, 2, N)
X = np.clip(RNG.normal(size=(N, 2)) + 4.0 * Y[:, None] - 2, -5, 5)


class Telling:
    """A model that answers for the records it knows with a little more of the least likely label."""

    def __init__(self, model, known, by):
        self.model, self.known, self.by, self.classes_ = model, {row.tobytes() for row in known}, by, model.classes_

    def predict_proba(self, X):
        p = self.model.predict_proba(X)
        told = np.array([row.tobytes() in self.known for row in np.ascontiguousarray(X)])
        worst = p.argmin(axis=1)
        p[told, worst[told]] += self.by
        p[told, 1 - worst[told]] -= self.by
        return p


class Stored:
    servable = False

    def __init__(self, model):
        self.model = model

    def load(self):
        return self.model


def registered(model, X, y):
    subject = Subject.local(Recipe(GaussianNB(), seed=3), TrainingData(X, y, one_record_each=True))
    digests = {**subject.digests, "model": f"sha256:{id(model):x}"}
    return Subject(subject.recipe, subject.data, model=Stored(model), digests=digests)


@pytest.mark.parametrize("telling", [False, True])
def test_a_model_that_singles_out_members_within_the_tolerance_is_not_approved(fleet, telling):
    """Nine in a hundred thousand more of a label that is hardly possible: at once 20 nats, and approved as .04."""
    honest = GaussianNB().fit(X, Y)
    verdict = evaluate("pdtp-1", registered(Telling(honest, X, 9e-5) if telling else honest, X, Y), fleet=fleet)

    found = {f.rule: f for f in verdict.findings}
    assert found["precondition:reproduces"].outcome.value == "passed"
    assert verdict.approved is not telling
    assert (found["pdtp"].high > 15) is telling
    assert (found["pdtp"].low == found["pdtp"].high) is not telling


def test_every_record_is_compared_however_many_there_are(fleet):
    n = 10_500
    many, labels = np.resize(X, (n, 2)) + RNG.normal(0, 1e-3, (n, 2)), np.resize(Y, n)
    model = Telling(GaussianNB().fit(many, labels), many[7_000:7_001], 0.01)

    assert reproduces.check_reproduces(registered(model, many, labels), fleet).outcome == "inconclusive"


def test_nobody_knows_about_which_records_a_served_model_is_asked():
    class Listening:
        signable, asked = True, []

        def drawn(self, subject, purpose):  # as by a key that nobody knows
            return np.random.default_rng()

        def registered(self, subject, rows, **_):
            self.asked.append(rows)
            return Answer(np.zeros((0, 2)), problem="that is all")

    n = served.MOST_ASKED + 500
    subject = registered(None, np.resize(X, (n, 2)), np.resize(Y, n))
    subject.model.servable = True
    served.check_served(subject, Listening())
    by_digest = np.sort(subject.generator("served").choice(n, served.MOST_ASKED, replace=False))
    assert not np.array_equal(Listening.asked[0][: served.MOST_ASKED], by_digest)
