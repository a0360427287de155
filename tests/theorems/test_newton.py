"""Logistic regression without each unit: every error bound holds, and what cannot be certified is handed on."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from privgate.theorems.closed_form import Asked, Declined
from privgate.theorems.logistic import LOGISTIC as ENGINE
from privgate.theorems.logistic_moves import Leaving

TIGHT = {"tol": 1e-10, "max_iter": 1000, "solver": "newton-cholesky"}


def sample(n, d, K, seed=0, strength=3.0):
    rng = np.random.default_rng(seed)
    X = (rng.random((n, d)) < rng.beta(1, 2, d)).astype(float)
    Z = (X - X.mean(0)) @ rng.normal(size=(d, K)) / np.sqrt(d) * strength
    y = (Z + rng.gumbel(size=Z.shape)).argmax(axis=1)
    y[:K] = np.arange(K)
    return X, y


def exact(C, X, y, **kwargs):
    """The minimiser itself: Newton with Cholesky to machine precision."""
    return LogisticRegression(C=C, tol=1e-13, max_iter=1000, solver="newton-cholesky", **kwargs).fit(X, y)


def true_errors(made, C, subject, **kwargs):
    X, y = subject.data.X, subject.data.y
    found = np.zeros(len(made.units))
    for k, u in enumerate(made.units):
        keep = np.setdiff1d(np.arange(len(y)), subject.data.units[u])
        rows = made.row_unit == k
        expected = exact(C, X[keep], y[keep], **kwargs).predict_log_proba(X[made.row_query[rows]])
        found[k] = np.abs(expected - made.log_without[0, rows]).max()
    return found


@pytest.mark.quick(6)
@pytest.mark.parametrize("C", [0.1, 1.0, 30.0])
@pytest.mark.parametrize("K", [2, 4])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_every_unit_lies_within_its_certificate_and_the_certificate_is_small(direct, fleet, C, K, fit_intercept):
    X, y = sample(60, 8, K)
    subject = direct.subject(LogisticRegression(C=C, fit_intercept=fit_intercept, **TIGHT), X, y)

    made, handed_on = ENGINE.answers(Asked(subject, np.arange(60), (None,), fleet))
    error = true_errors(made, C, subject, fit_intercept=fit_intercept)

    assert len(handed_on) == 0
    assert (error <= made.error + 1e-12).all()
    assert error.max() <= 1e-6
    assert np.median(made.error) <= 1e-4


@pytest.mark.parametrize("K", [2, 3])
def test_near_separable_data_are_still_answered_with_a_certificate(direct, fleet, K):
    X, y = sample(30, 25, K, strength=8.0)
    subject = direct.subject(LogisticRegression(C=10.0, **TIGHT), X, y)

    made, handed_on = ENGINE.answers(Asked(subject, np.arange(30), (None,), fleet))
    error = true_errors(made, 10.0, subject)

    assert len(handed_on) == 0
    assert (error <= made.error + 1e-12).all()
    assert error.max() <= 1e-6


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"C": 1e4, "max_iter": 5}, "did not end by its gradient"),
        ({"C": 1e4, "max_iter": 5, "solver": "newton-cg"}, "did not end by its gradient"),
        ({"tol": 1e-6}, "a refit by lbfgs may stop before its gradient is small"),
        ({"C": 1e4, "tol": 1e-2, "solver": "newton-cg"}, "its tolerance lets the solver stop far"),
        ({"C": 1.0, "tol": 1e-8, "solver": "newton-cholesky", "max_iter": 7}, "may need more than max_iter=7 steps"),
    ],
)
def test_a_solver_that_may_stop_anywhere_is_refitted_and_told_so(direct, fleet, settings, said):
    X, y = sample(300, 30, 2, strength=8.0)
    subject = direct.subject(LogisticRegression(**settings), X, y)

    with pytest.raises(Declined, match=said):
        ENGINE.answers(Asked(subject, np.arange(300), (None,), fleet))
    assert said in ENGINE.declines(subject)


@pytest.mark.parametrize("solver", ["sag", "saga", "liblinear"])
def test_solvers_that_test_no_gradient_are_refitted(direct, solver):
    X, y = sample(50, 3, 2)

    said = ENGINE.supports(direct.subject(LogisticRegression(solver=solver, tol=1e-8, max_iter=10_000), X, y))

    assert said.startswith(f"{solver} does not stop by its gradient")
    assert "set solver='newton-cholesky', tol=1e-8" in said


def test_lbfgs_is_believed_where_every_refit_was_seen_to_end_by_its_gradient(direct):
    X, y = sample(30, 3, 2)
    subject = direct.subject(LogisticRegression(tol=1e-5), X, y)

    made, handed_on = ENGINE.answers(Asked(subject, np.arange(30), (None,), None))

    assert ENGINE.notes(subject)["seen"] == 30
    assert len(handed_on) < 30
    assert direct.worst_difference(made, LogisticRegression(tol=1e-5), subject) <= made.error.max()


def test_the_solver_s_own_slack_is_part_of_the_error(direct, fleet):
    X, y = sample(80, 8, 2)
    estimator = LogisticRegression(C=1.0, tol=1e-4, solver="newton-cg")
    loose = direct.subject(estimator, X, y)
    tight = direct.subject(LogisticRegression(C=1.0, **TIGHT), X, y)

    sloppy, _ = ENGINE.answers(Asked(loose, np.arange(80), (None,), fleet))
    careful, _ = ENGINE.answers(Asked(tight, np.arange(80), (None,), fleet))

    assert np.allclose(sloppy.log_without, careful.log_without, atol=1e-6)
    assert sloppy.error.min() > 10 * careful.error.max()
    assert direct.worst_difference(sloppy, estimator, loose) <= sloppy.error.max()


@pytest.mark.parametrize("K", [2, 3])
def test_the_delivered_model_s_gradient_is_reported(direct, K):
    X, y = sample(80, 6, K)
    coarse = LogisticRegression(tol=1e-5, solver="newton-cg")
    notes = [ENGINE.notes(direct.subject(e, X, y)) for e in (LogisticRegression(**TIGHT), coarse)]

    assert notes[0]["gradient"] < 1e-7
    assert notes[0]["distance"] < 1e-5
    assert notes[1]["gradient"] > 10 * notes[0]["gradient"]
    assert notes[1]["distance"] <= notes[1]["allowed"]


def test_a_class_of_one_is_undefined(direct, fleet):
    X, y = sample(80, 5, 3)
    y[7] = 5
    subject = direct.subject(LogisticRegression(**TIGHT), X, y)

    made, _ = ENGINE.answers(Asked(subject, np.arange(80), (None,), fleet))

    assert made.status[7] == "undefined"
    assert np.isneginf(made.log_without[0, 7]).all()
    assert set(np.delete(made.status, 7)) == {"converged"}


@pytest.mark.parametrize(
    "estimator",
    [
        LogisticRegression(C=np.inf),
        LogisticRegression(l1_ratio=0.5, solver="saga"),
        LogisticRegression(l1_ratio=1.0, solver="liblinear"),
        LogisticRegression(class_weight="balanced"),
        make_pipeline(StandardScaler(), LogisticRegression(**TIGHT)),
    ],
)
def test_other_objectives_and_records_of_single_precision_are_not_covered(direct, estimator):
    X, y = sample(50, 3, 2)
    single = direct.subject(LogisticRegression(**TIGHT), X.astype(np.float32), y, candidates=(X + 0.5, y))

    assert ENGINE.supports(direct.subject(estimator, X, y)) != ""
    assert "single precision" in ENGINE.supports(single)


@pytest.mark.parametrize("K", [2, 3])
def test_weights_of_classes_count(direct, fleet, K):
    X, y = sample(60, 5, K)
    weights = {k: 0.5 + 2.0 * k for k in range(K)}
    subject = direct.subject(LogisticRegression(class_weight=weights, **TIGHT), X, y)

    made, handed_on = ENGINE.answers(Asked(subject, np.arange(60), (None,), fleet))
    error = true_errors(made, 1.0, subject, class_weight=weights)

    assert len(handed_on) == 0
    assert (error <= made.error + 1e-12).all()
    assert error.max() <= 1e-6
    assert true_errors(made, 1.0, subject).max() > 0.1  # and they matter


@pytest.mark.parametrize(("name", "times"), [("at", 5.0), ("factor", 3.0)])
def test_what_the_kernel_refuses_is_refitted(direct, fleet, monkeypatch, name, times):
    X, y = sample(60, 5, 2)
    subject = direct.subject(LogisticRegression(**TIGHT), X, y)
    honest = Leaving.propose
    monkeypatch.setattr(Leaving, "propose", lambda *a: (c := honest(*a)) | {name: c[name] * times})

    with pytest.raises(Declined, match="for a certificate"):
        ENGINE.answers(Asked(subject, np.arange(60), (None,), fleet))


def test_moves_that_are_wrong_cost_an_answer_and_make_none(direct, fleet, monkeypatch):
    X, y = sample(200, 5, 2)
    subject = direct.subject(LogisticRegression(C=0.1, **TIGHT), X, y)
    honest = Leaving.propose
    monkeypatch.setattr(Leaving, "refine", lambda own, c, people, rounds: c)
    monkeypatch.setattr(Leaving, "minimise_alone", lambda own, c, people: c)
    right, _ = ENGINE.answers(Asked(subject, np.arange(200), (None,), fleet))

    monkeypatch.setattr(Leaving, "propose", lambda *a: (c := honest(*a)) | {"moves": c["moves"] * 0.9})
    made, handed_on = ENGINE.answers(Asked(subject, np.arange(200), (None,), fleet))

    assert len(made.units) + len(handed_on) == 200
    assert (true_errors(made, 0.1, subject) <= made.error).all()
    assert len(made.units) > 100
    assert np.median(made.error) > 3 * np.median(right.error)


def test_models_of_few_units_at_a_time_are_the_same(direct, fleet, monkeypatch):
    X, y = sample(60, 5, 3)
    groups = np.random.default_rng(1).integers(0, 25, 60)
    subject = direct.subject(LogisticRegression(**TIGHT), X, y, groups=groups)
    units = np.arange(len(subject.data.units))
    whole, _ = ENGINE.answers(Asked(subject, units, (None,), fleet))

    monkeypatch.setattr("privgate.theorems.logistic._MOVES", 7 * 18)
    parts, _ = ENGINE.answers(Asked(subject, units, (None,), fleet))

    error = true_errors(whole, 1.0, subject)
    assert (error <= whole.error + 1e-12).all()
    assert error.max() <= 1e-6
    np.testing.assert_array_equal(parts.row_query, whole.row_query)
    np.testing.assert_allclose(parts.log_without, whole.log_without, atol=1e-7)
