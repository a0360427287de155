"""Units that a closed form cannot answer go on to the next engine; without the hand-over the answer would be wrong."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.tree import DecisionTreeClassifier

from privgate.families import closed_form, discriminants, nearest
from privgate.families.answering import answer
from privgate.families.engine import Asked, Declined
from privgate.families.retrained import Retrained, Status
from privgate.subject.data import TrainingData
from privgate.subject.recipe import Recipe
from privgate.subject.subject import Subject


def test_tied_neighbors_are_handed_on_and_would_be_wrong_otherwise(direct, fleet, monkeypatch):
    rng = np.random.default_rng(0)
    estimator = KNeighborsClassifier(3)
    subject = direct.subject(estimator, rng.integers(0, 2, (80, 5)), rng.integers(0, 2, 80))

    made, handed_on = nearest.K_NEAREST.answers(Asked(subject, np.arange(80), (None,), fleet))
    whole = answer(Asked(subject, np.arange(80), (None,), fleet)).retrained
    monkeypatch.setattr(nearest, "TIE", -1.0)
    careless, _ = nearest.K_NEAREST.answers(Asked(subject, np.arange(80), (None,), fleet))

    assert len(handed_on) > 40
    assert len(made.units) + len(handed_on) == 80
    assert direct.worst_difference(whole, estimator, subject) <= 1e-12
    assert direct.worst_difference(careless, estimator, subject) > 0.1


def test_neighbors_that_tie_by_what_multiplied_out_squares_round_are_handed_on(direct, fleet):
    # scikit-learn's |x|^2 - 2xy + |y|^2 keeps some 1e-7 of a squared distance this far from zero: like ones tie
    rng = np.random.default_rng(0)
    X = rng.integers(0, 4, (60, 3)) / 16 + rng.normal(size=(60, 3)) * 1e-6 + 1e4
    estimator = KNeighborsClassifier(3, algorithm="brute")
    subject = direct.subject(estimator, X, rng.integers(0, 2, 60))

    made, handed_on = nearest.K_NEAREST.answers(Asked(subject, np.arange(60), (None,), fleet))

    assert len(handed_on) > 0
    assert len(made.units) + len(handed_on) == 60
    assert direct.worst_difference(made, estimator, subject) <= 1e-12


def test_a_record_that_alone_holds_a_direction_is_handed_on_by_lda(direct, fleet, monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 4))
    X[:, 3] = rng.normal(size=60) * 1e-5
    X[9, 3] = 1.0  # nearly all of the fourth feature's variance
    estimator = LinearDiscriminantAnalysis(tol=1e-9)
    subject = direct.subject(estimator, X, rng.integers(0, 2, 60))

    monkeypatch.setattr(discriminants, "KEPT", 1e-6)
    made, handed_on = discriminants.LDA.answers(Asked(subject, np.arange(60), (None,), fleet))

    assert handed_on.tolist() == [9]
    assert direct.worst_difference(made, estimator, subject) <= 1e-7


@pytest.mark.parametrize("feature", ["constant", "copied"])
def test_a_singular_covariance_is_declined_by_lda(direct, fleet, feature):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 4))
    X[:, 2] = 1.0 if feature == "constant" else X[:, 1]
    subject = direct.subject(LinearDiscriminantAnalysis(), X, rng.integers(0, 2, 60))

    with pytest.raises(Declined):
        discriminants.LDA.answers(Asked(subject, np.arange(60), (None,), fleet))
    got = answer(Asked(subject, np.arange(60), (None,), fleet))

    assert set(got.retrained.engine) == {"refit"}


def test_qda_hands_on_where_a_refit_raises(direct, fleet):
    rng = np.random.default_rng(0)
    y = np.array([0] * 7 + [1] * 40)
    subject = direct.subject(QuadraticDiscriminantAnalysis(), rng.normal(size=(47, 5)), y)

    made, handed_on = discriminants.QDA.answers(Asked(subject, np.arange(47), (None,), fleet))

    assert set(handed_on) >= set(range(7))  # without one of them the class has d + 1 records
    assert direct.worst_difference(made, QuadraticDiscriminantAnalysis(), subject) <= 1e-9


def test_what_each_engine_handed_on_is_counted_by_reason(direct, fleet):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 4))
    X[:20] = np.round(X[:20])
    groups = np.append(np.arange(58), [57, 57])
    subject = direct.subject(DecisionTreeClassifier(random_state=0), X, rng.integers(0, 2, 60), groups=groups)

    fast, slow = answer(Asked(subject, np.arange(58), (None,), fleet)).shares

    assert (fast.engine, slow.engine) == ("decision_tree", "refit")
    assert fast.asked == 58
    assert fast.why["they have several records"] == 1
    assert fast.why["splits tie on their way"] == fast.asked - fast.answered - 1 > 0
    assert slow.answered == slow.asked == fast.asked - fast.answered
    assert slow.payload()["handed_on"] == 0


def test_an_engine_that_gives_up_hands_on_everybody_and_says_why(direct, fleet):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3))
    X[:, 2] = 1.0
    y = rng.integers(0, 2, 40)
    y[3] = 2  # nobody else has this label

    given_up, slow = answer(
        Asked(direct.subject(LinearDiscriminantAnalysis(), X, y), np.arange(40), (None,), fleet)
    ).shares

    assert (given_up.engine, given_up.answered) == ("lda", 0)
    assert list(given_up.why.values()) == [40]
    assert slow.without_limit == {"its class vanishes from the training data without it": 1}


def fragile(X, y, *, seed):
    if not (X[:, 0] == 7).any():
        raise ValueError("Jane Doe is missing")
    return KNeighborsClassifier(3).fit(X, y)


def test_what_training_said_when_it_failed_is_not_repeated(direct, fleet):
    X = np.column_stack([np.arange(30), np.arange(30) % 4]).astype(float)
    subject = Subject.local(Recipe(fragile), TrainingData(X, np.arange(30) % 2))

    (only,) = answer(Asked(subject, np.arange(30), (None,), fleet)).shares

    assert only.without_limit == {"training without them failed": 1}


@pytest.mark.quick(1)
@pytest.mark.parametrize("kind", ["lda", "logistic"])
def test_a_first_probability_that_rounding_swallows_is_not_answered_in_closed_form(direct, fleet, monkeypatch, kind):
    rng = np.random.default_rng(1)
    y = np.arange(120) % 2
    X = rng.normal(size=(120, 2))
    if kind == "lda":
        X[:, 0] = 0.3 * X[:, 0] + y * rng.uniform(5, 9, 120)
    else:
        X[:, 0] += y * np.where(np.arange(120) < 100, rng.uniform(2, 14, 120), 40.0)
    estimator = {
        "lda": LinearDiscriminantAnalysis(),
        "logistic": LogisticRegression(C=1e3, tol=1e-10, max_iter=10_000, solver="newton-cholesky"),
    }[kind]
    subject = direct.subject(estimator, X, y)

    got = answer(Asked(subject, np.arange(120), (None,), fleet))
    first = got.retrained.log_without[0, :, 0]
    assert got.rechecks[0].outcome == "passed"
    assert got.shares[0].why[closed_form.WHY] == (got.retrained.engine == "refit").sum() > 0
    # of who was refitted to compare, the real answer is known
    answered = (got.retrained.engine != "refit") & ~np.isin(got.retrained.shown, ("drawn", "chosen"))
    charged = (first < closed_form.WHOLE) & ~np.isneginf(first) & answered
    assert charged.sum() > 5
    assert (got.retrained.error[charged] > 2e-9).all()
    assert np.isneginf(first).any()  # the refits' own word, and the closed form's
    assert (first > closed_form.WHOLE).sum() > 40
    for k in range(120):
        refit = clone(estimator).fit(np.delete(X, k, axis=0), np.delete(y, k))
        with np.errstate(divide="ignore"):  # predict_log_proba would put a number in place of 0
            np.testing.assert_allclose(
                got.retrained.log_without[0, k],
                np.log(refit.predict_proba(X[[k]])[0]),
                rtol=1e-7,
                atol=1e-6 + got.retrained.error[k],
            )

    monkeypatch.setattr(closed_form, "as_released", lambda made, **_: (made, made.units[:0]))
    careless = answer(Asked(subject, np.arange(120), (None,), fleet))
    assert careless.rechecks[0].outcome == "warned"


def test_what_is_charged_covers_what_the_library_releases_and_no_hundred_times_more():
    """scikit-learn's own formula for 20,000 margins against logarithms of exact numbers."""
    from scipy.special import expit

    margin = np.sort(np.random.default_rng(0).uniform(18.1, 29.2, 20_000))
    exact = np.column_stack([-margin - np.log1p(np.exp(-margin)), -np.log1p(np.exp(-margin))])
    rows = np.arange(20_000), np.arange(20_000)
    made = Retrained.of("x", rows[0], (None,), rows, exact[None], exact[None], status=Status.CONVERGED, error=1e-12)

    kept, rounded = closed_form.as_released(made)

    released = np.log(1 - expit(margin))[kept.units]
    apart = np.abs(released - kept.log_without[0, :, 0])
    assert len(rounded) < 0.01 * 20_000
    assert (apart <= kept.error).all()
    assert apart.max() > 0.2 * kept.error.max()
    assert kept.error.max() <= closed_form.CHARGED + 1e-12


def test_what_rounding_could_shift_by_more_is_handed_on():
    first = np.array([-17.0, -20.0, -29.0, -31.0, -37.0, -39.0])
    values = np.column_stack([first, np.zeros(6)])
    rows = np.arange(6), np.arange(6)
    made = Retrained.of("x", rows[0], (None,), rows, values[None] * 0, values[None], status=Status.CONVERGED)

    kept, rounded = closed_form.as_released(made)

    assert rounded.tolist() == [3, 4]
    assert (kept.error > 0).tolist() == [False, True, True, False]
    wide = replace(made, error=np.full(6, 3.0))  # q may be twenty times smaller than it seems
    assert closed_form.as_released(wide)[1].tolist() == [2, 3, 4, 5]
