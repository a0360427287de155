"""Logistic regression without each unit: every error bound holds, and what cannot be certified is handed on."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from privgate.theorems.closed_form import Declined, RefitRequest
from privgate.theorems.logistic_moves import Leaving
from privgate.theorems.newton import LOGISTIC as ENGINE
from privgate.theorems.newton import pose_problem

TIGHT = {"tol": 1e-10, "max_iter": 1000, "solver": "newton-cholesky"}


def sample(n, d, K, seed=0, strength=3.0):
    rng = np.random.default_rng(seed)
    X = (rng.random((n, d)) < rng.beta(1, 2, d)).astype(float)
    Z = (X - X.mean(0)) @ rng.normal(size=(d, K)) / np.sqrt(d) * strength
    y = (Z + rng.gumbel(size=Z.shape)).argmax(axis=1)
    y[:K] = np.arange(K)
    return X, y


def answer(subject):
    return ENGINE.answers(RefitRequest(subject, np.arange(len(subject.data.units)), (None,), None))


def true_errors(answers, subject, **changed):
    """How far answers are from the minimiser itself: Newton with Cholesky to machine precision."""
    X, y, errors = subject.data.X, subject.data.y, np.zeros(len(answers.units))
    estimator = subject.recipe.library_estimator.set_params(tol=1e-13, max_iter=1000, solver="newton-cholesky")
    estimator.set_params(**changed)
    for k, u in enumerate(answers.units):
        keep = np.setdiff1d(np.arange(len(y)), subject.data.units[u])
        rows = answers.row_unit == k
        expected = estimator.fit(X[keep], y[keep]).predict_log_proba(X[answers.row_query[rows]])
        errors[k] = np.abs(expected - answers.log_without[0, rows]).max()
    return errors


def check_everybody(subject):
    """Everybody is answered, within the stated error, and to 1e-6."""
    answers, handed_on = answer(subject)
    error = true_errors(answers, subject)
    assert len(handed_on) == 0
    assert (error <= answers.error + 1e-12).all()
    assert error.max() <= 1e-6
    return answers


@pytest.mark.quick(6)
@pytest.mark.parametrize("C", [0.1, 1.0, 30.0])
@pytest.mark.parametrize("K", [2, 4])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_every_unit_lies_within_its_certificate_and_the_certificate_is_small(direct, C, K, fit_intercept):
    subject = direct.subject(LogisticRegression(C=C, fit_intercept=fit_intercept, **TIGHT), *sample(60, 8, K))
    assert np.median(check_everybody(subject).error) <= 1e-4


@pytest.mark.parametrize("K", [2, 3])
def test_near_separable_data_and_weights_of_classes_are_answered_with_a_certificate(direct, K):
    check_everybody(direct.subject(LogisticRegression(C=10.0, **TIGHT), *sample(30, 25, K, strength=8.0)))
    weights = {k: 0.5 + 2.0 * k for k in range(K)}
    subject = direct.subject(LogisticRegression(class_weight=weights, **TIGHT), *sample(60, 5, K))
    assert true_errors(check_everybody(subject), subject, class_weight=None).max() > 0.1  # and they matter


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
def test_a_solver_that_may_stop_anywhere_is_refitted_and_told_so(direct, settings, said):
    subject = direct.subject(LogisticRegression(**settings), *sample(300, 30, 2, strength=8.0))
    with pytest.raises(Declined, match=said):
        answer(subject)
    assert said in ENGINE.declines(subject)


@pytest.mark.parametrize(
    ("estimator", "said"),
    [
        (LogisticRegression(C=np.inf), "no penalty"),
        (LogisticRegression(l1_ratio=0.5, solver="saga"), "not L2"),
        (LogisticRegression(class_weight="balanced"), "balanced"),
        (make_pipeline(StandardScaler(), LogisticRegression(**TIGHT)), "not scikit-learn's LogisticRegression"),
        (LogisticRegression(solver="sag"), "sag does not stop by its gradient"),
    ],
)
def test_other_objectives_and_solvers_are_not_covered_and_named(direct, estimator, said):
    assert said in ENGINE.supports(direct.subject(estimator, *sample(50, 3, 2)))


def test_records_of_single_precision_are_not_covered(direct):
    X, y = sample(50, 3, 2)
    single = direct.subject(LogisticRegression(**TIGHT), X.astype(np.float32), y, candidates=(X + 0.5, y))
    assert "single precision" in ENGINE.supports(single)


def test_lbfgs_is_believed_where_every_refit_was_seen_to_end_by_its_gradient(direct):
    estimator = LogisticRegression(tol=1e-5)
    subject = direct.subject(estimator, *sample(30, 3, 2))
    answers, handed_on = answer(subject)
    assert pose_problem(subject).seen == 30
    assert len(handed_on) < 30
    assert direct.worst_difference(answers, estimator, subject) <= answers.error.max()


@pytest.mark.parametrize("K", [2, 3])
def test_the_solver_s_own_slack_is_part_of_the_error(direct, K):
    estimator = LogisticRegression(tol=1e-5, solver="newton-cg")
    loose, tight = (direct.subject(e, *sample(80, 8, K)) for e in (estimator, LogisticRegression(**TIGHT)))
    (sloppy, _), (careful, _) = answer(loose), answer(tight)
    assert np.allclose(sloppy.log_without, careful.log_without, atol=1e-6)
    assert sloppy.error.min() > 10 * careful.error.max()
    assert direct.worst_difference(sloppy, estimator, loose) <= sloppy.error.max()


@pytest.mark.parametrize(("name", "times"), [("at", 5.0), ("factor", 3.0)])
def test_what_the_kernel_refuses_is_refitted(direct, monkeypatch, name, times):
    honest = Leaving.propose
    monkeypatch.setattr(Leaving, "propose", lambda *a: (c := honest(*a)) | {name: c[name] * times})
    with pytest.raises(Declined, match="for a certificate"):
        answer(direct.subject(LogisticRegression(**TIGHT), *sample(60, 5, 2)))


def test_moves_that_are_wrong_cost_an_answer_and_make_none(direct, monkeypatch):
    subject, honest = direct.subject(LogisticRegression(C=0.1, **TIGHT), *sample(200, 5, 2)), Leaving.propose
    for name in ("refine", "minimise_alone"):
        monkeypatch.setattr(Leaving, name, lambda own, certificate, people, rounds=1: certificate)
    right, _ = answer(subject)
    monkeypatch.setattr(Leaving, "propose", lambda *a: (c := honest(*a)) | {"moves": c["moves"] * 0.9})
    answers, handed_on = answer(subject)
    assert len(answers.units) + len(handed_on) == 200
    assert (true_errors(answers, subject) <= answers.error).all()
    assert len(answers.units) > 100
    assert np.median(answers.error) > 3 * np.median(right.error)


def test_models_of_few_units_at_a_time_are_the_same(direct, monkeypatch):
    groups = np.random.default_rng(1).integers(0, 25, 60)
    subject = direct.subject(LogisticRegression(**TIGHT), *sample(60, 5, 3), groups=groups)
    whole = check_everybody(subject)
    monkeypatch.setattr("privgate.theorems.newton._MOVES", 7 * 18)
    parts, _ = answer(subject)
    np.testing.assert_array_equal(parts.row_query, whole.row_query)
    np.testing.assert_allclose(parts.log_without, whole.log_without, atol=1e-7)
