"""Units that a closed form cannot answer go on to the next engine; without the hand-over the answer would be wrong."""

from dataclasses import replace

import numpy as np
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier

from privgate.families import closed_form
from privgate.families.answering import answer
from privgate.families.engine import Asked
from privgate.families.retrained import Retrained, Status
from privgate.subject.data import TrainingData
from privgate.subject.recipe import Recipe
from privgate.subject.subject import Subject


def fragile(X, y, *, seed):
    if not (X[:, 0] == 7).any():
        raise ValueError("Jane Doe is missing")
    return KNeighborsClassifier(3).fit(X, y)


def test_what_training_said_when_it_failed_is_not_repeated(direct, fleet):
    X = np.column_stack([np.arange(30), np.arange(30) % 4]).astype(float)
    subject = Subject.local(Recipe(fragile), TrainingData(X, np.arange(30) % 2, one_record_each=True))

    (only,) = answer(Asked(subject, np.arange(30), (None,), fleet)).shares

    assert only.without_limit == {"training without them failed": 1}


def test_a_first_probability_that_rounding_swallows_is_not_answered_in_closed_form(direct, fleet, monkeypatch):
    rng = np.random.default_rng(1)
    y = np.arange(120) % 2
    X = rng.normal(size=(120, 2))
    X[:, 0] += y * np.where(np.arange(120) < 100, rng.uniform(2, 14, 120), 40.0)
    estimator = LogisticRegression(C=1e3, tol=1e-10, max_iter=10_000, solver="newton-cholesky")
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

    monkeypatch.setattr(closed_form, "as_released", lambda made: (made, made.units[:0]))
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
