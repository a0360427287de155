"""Units that a closed form cannot answer go on to the next engine; without the hand-over the answer would be wrong."""

import numpy as np
import pytest
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
from sklearn.neighbors import KNeighborsClassifier

from privgate.engines import answer, k_nearest, lda, qda
from privgate.engines.base import Declined


def test_tied_neighbors_are_handed_on_and_would_be_wrong_otherwise(direct, fleet, monkeypatch):
    rng = np.random.default_rng(0)
    estimator = KNeighborsClassifier(3)
    subject = direct.subject(estimator, rng.integers(0, 2, (80, 5)), rng.integers(0, 2, 80))

    made, handed_on = k_nearest.ENGINE.leave_out(subject, np.arange(80), (None,), fleet)
    whole = answer(subject, np.arange(80), (None,), fleet).retrained
    monkeypatch.setattr(k_nearest, "TIE", -1.0)
    careless, _ = k_nearest.ENGINE.leave_out(subject, np.arange(80), (None,), fleet)

    assert len(handed_on) > 40
    assert len(made.units) + len(handed_on) == 80
    assert direct.worst_difference(whole, estimator, subject) <= 1e-12
    assert direct.worst_difference(careless, estimator, subject) > 0.1


def test_a_record_that_alone_holds_a_direction_is_handed_on_by_lda(direct, fleet, monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 4))
    X[:, 3] = rng.normal(size=60) * 1e-5
    X[9, 3] = 1.0  # nearly all of the fourth feature's variance
    estimator = LinearDiscriminantAnalysis(tol=1e-9)
    subject = direct.subject(estimator, X, rng.integers(0, 2, 60))

    monkeypatch.setattr(lda, "KEPT", 1e-6)
    made, handed_on = lda.ENGINE.leave_out(subject, np.arange(60), (None,), fleet)

    assert handed_on.tolist() == [9]
    assert direct.worst_difference(made, estimator, subject) <= 1e-7


@pytest.mark.parametrize("feature", ["constant", "copied"])
def test_a_singular_covariance_is_declined_by_lda(direct, fleet, feature):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 4))
    X[:, 2] = 1.0 if feature == "constant" else X[:, 1]
    subject = direct.subject(LinearDiscriminantAnalysis(), X, rng.integers(0, 2, 60))

    with pytest.raises(Declined):
        lda.ENGINE.leave_out(subject, np.arange(60), (None,), fleet)
    got = answer(subject, np.arange(60), (None,), fleet)

    assert set(got.retrained.engine) == {"refit"}


def test_qda_hands_on_where_a_refit_raises(direct, fleet):
    rng = np.random.default_rng(0)
    y = np.array([0] * 7 + [1] * 40)
    subject = direct.subject(QuadraticDiscriminantAnalysis(), rng.normal(size=(47, 5)), y)

    made, handed_on = qda.ENGINE.leave_out(subject, np.arange(47), (None,), fleet)

    assert set(handed_on) >= set(range(7))  # without one of them the class has d + 1 records
    assert direct.worst_difference(made, QuadraticDiscriminantAnalysis(), subject) <= 1e-9
