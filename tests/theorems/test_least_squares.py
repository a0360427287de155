"""Regressions and ridge classifiers without each person, against refits; designs made to break the hat matrix."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.datasets import load_diabetes
from sklearn.linear_model import Lasso, LinearRegression, Ridge, RidgeClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from privgate import Recipe, Subject, TrainingData
from privgate.linear_scores import softmax_scores
from privgate.theorems.catalogue import find_closed_form
from privgate.theorems.closed_form import Declined, RefitRequest
from privgate.theorems.least_squares import LEAST_SQUARES, RIDGE

X, Y = (v[:90] for v in load_diabetes(return_X_y=True))
LABELS = (Y.mean() < Y).astype(int)
COVERED = [
    Ridge(1.0),
    Ridge(0.1, fit_intercept=False, solver="svd"),
    LinearRegression(),
    LinearRegression(fit_intercept=False),
]


def subject_of(estimator, x=X, y=Y, **options):
    return Subject.local(Recipe(clone(estimator), seed=0), TrainingData(x, y, **options))


def classified(estimator, x, y, **options):
    return Subject.local(Recipe(estimator, predict=softmax_scores), TrainingData(x, y, **options))


def leave_out(engine, subject, **options):
    return engine.answers(RefitRequest(subject, np.arange(len(subject.data.units)), (0,), None, **options))


def refitted(estimator, subject, gone, queries):
    """Return scikit-learn's own answers without some records."""
    kept = np.setdiff1d(np.arange(subject.data.n), gone)
    fitted = clone(estimator).fit(subject.data.X[kept], subject.data.y[kept])
    return fitted.predict(queries) if subject.task == "regression" else np.log(softmax_scores(fitted, queries))


def worst(made, subject, estimator):
    """Return the largest difference of an answer with or without somebody, in the targets' deviation, or nats."""
    pool, gaps = subject.data.pool()[0], []
    mean, deviation = subject.scale if subject.task == "regression" else (0.0, 1.0)
    for k, unit in enumerate(made.units):
        rows = made.row_unit == k
        for ours, gone in ((made.log_without, subject.data.units[unit]), (made.log_with, [])):
            theirs = refitted(estimator, subject, gone, pool[made.row_query[rows]]).reshape(rows.sum(), -1)
            gaps.append(np.abs((theirs - mean) / deviation - ours[0, rows]).max())
    return max(gaps)


@pytest.mark.quick(6)
@pytest.mark.parametrize(
    ("estimator", "K"),
    [
        *((estimator, 0) for estimator in COVERED),
        (RidgeClassifier(), 2),
        (RidgeClassifier(alpha=0.1, fit_intercept=False), 4),
        (RidgeClassifier(solver="svd"), 3),
        (Ridge(alpha=2.0), 2),
        (LinearRegression(), 2),
    ],
)
@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize(("n", "d"), [(60, 5), (20, 35)])
def test_equals_refits_at_any_query(estimator, K, n, d, grouped):
    rng = np.random.default_rng(0)
    x = (rng.normal(size=(n, d)) + 3) * np.resize([1, 10, 0.1], d)
    y = rng.integers(0, K, n) if K else rng.normal(size=n)
    y[: 2 * K] = np.tile(np.arange(K), 2)
    groups = np.repeat(np.arange(n), 1 + np.arange(n) % 12)[:n] if grouped else None  # people of 1 to 12 records
    make, engine = (classified, RIDGE) if K else (subject_of, LEAST_SQUARES)
    subject = make(estimator, x, y, candidates=(rng.normal(size=(9, d)), np.zeros(9, dtype=y.dtype)), groups=groups)
    assert engine.supports(subject) == ""
    if isinstance(estimator, LinearRegression) and d > n:
        with pytest.raises(Declined, match="no penalty"):
            leave_out(engine, subject)
        return
    units = len(subject.data.units)
    for asked in ({}, {"queries": (np.repeat(np.arange(units), 2), rng.integers(0, n + 9, 2 * units))}):
        made, rest = leave_out(engine, subject, **asked)
        assert not len(rest)
        assert worst(made, subject, estimator) <= 1e-9


def compared(estimator, x, y, **options):
    """Return how many people are answered about, after comparing each change with a refit's."""
    subject = subject_of(estimator, x, y, **options)
    try:
        made, _ = leave_out(LEAST_SQUARES, subject)
    except Declined:
        return 0
    full, (_, deviation) = clone(estimator).fit(x, y).predict(x), subject.scale
    for k, (u, row) in enumerate(zip(made.row_unit, made.row_query, strict=True)):
        refit = refitted(estimator, subject, subject.data.units[made.units[u]], x[[row]])[0]
        moved = made.log_with[0, k, 0] - made.log_without[0, k, 0]
        # relative to the change itself, or in deviations of the targets where it is next to nothing
        np.testing.assert_allclose(moved, (full[row] - refit) / deviation, rtol=2e-4, atol=1e-7)
    return len(made.units)


@settings(max_examples=40)
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(3, 14),
    d=st.integers(1, 16),
    alpha=st.sampled_from([1e-10, 1e-8, 1e-4, 1.0, 1e4]),
    intercept=st.booleans(),
    collinear=st.sampled_from([1.0, 1e-2, 3e-4, 1e-6, 0.0]),
    outlier=st.sampled_from([1.0, 1e2, 1e5]),
    people=st.booleans(),
)
def test_ridge_equals_refits_or_leaves_them_to_refits(seed, n, d, alpha, intercept, collinear, outlier, people):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d))
    x[:, -1] = x[:, 0] + collinear * x[:, -1]
    x[0] *= outlier
    # the dual form of scikit-learn is as badly conditioned as ours: singular values are the truth
    groups = np.arange(n) // 2 if people else None
    compared(Ridge(alpha, fit_intercept=intercept, solver="svd"), x, rng.normal(size=n), groups=groups)


def test_who_fits_themselves_and_what_is_nearly_singular_is_left_to_refits():
    rng = np.random.default_rng(0)
    wide, y, lone = rng.normal(size=(20, 50)), rng.normal(size=20), rng.normal(size=(20, 3))
    lone[4, 2], lone[np.arange(20) != 4, 2] = 7.0, 0.0  # a column that one record holds alone: leverage 1
    twins = rng.normal(size=(30, 40))
    twins[15:] = twins[:15] + 1e-6 * rng.normal(size=(15, 40))  # more features than records, each nearly twice

    assert compared(Ridge(0.5), wide, y) == 20
    assert leave_out(LEAST_SQUARES, subject_of(LinearRegression(), lone, y))[1].tolist() == [4]
    made, rest = leave_out(RIDGE, own := classified(RidgeClassifier(alpha=1e-3), lone * [1, 1, 1e5], LABELS[:20]))
    assert rest.tolist() == [4]
    assert worst(made, own, RidgeClassifier(alpha=1e-3)) <= 1e-7
    with pytest.raises(Declined, match=r"no penalty|singular"):
        leave_out(LEAST_SQUARES, subject_of(LinearRegression(), wide, y))
    with pytest.raises(Declined, match="nearly singular"):
        leave_out(RIDGE, classified(RidgeClassifier(alpha=1e-12), twins, np.tile([0, 1], 15)))
    # next to no penalty: what is left of each record is smaller than rounding
    assert compared(Ridge(1e-8), rng.normal(size=(5, 12)), rng.normal(size=5)) == 0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda x, y: (x, y + 1e13), "targets lie so far from 0"),
        (lambda x, y: (x + 1e12, y), "a feature lies so far from 0"),
        (lambda x, y: (x * 1e-160, y), "leave the range of numbers"),
        (lambda x, y: (x * 1e160, y), "leave the range of numbers"),
    ],
)
@pytest.mark.parametrize("estimator", [Ridge(), LinearRegression()])
def test_numbers_whose_rounding_decides_are_left_to_refits(change, said, estimator):
    rng = np.random.default_rng(0)
    x, y = change(rng.normal(size=(40, 3)), rng.normal(size=40))
    subject = subject_of(estimator, x, y)
    with pytest.raises(Declined, match=said):
        leave_out(LEAST_SQUARES, subject)


@pytest.mark.parametrize("estimator", [LinearRegression(), Ridge(alpha=1e-9)])
def test_what_scikit_learn_itself_computes_to_few_digits_is_refused_beforehand(estimator):
    rng = np.random.default_rng(11)
    x = rng.normal(size=(60, 3))
    if isinstance(estimator, Ridge):
        x[:, 0] = x[:, 1] + 1e-5 * x[:, 0]
    else:
        x = x * [1e3, 1, 1e-4]  # drops singular values below 1e-6 of the largest
    subject = classified(estimator, x, rng.integers(0, 2, 60))
    with pytest.raises(Declined):
        leave_out(find_closed_form(subject)[0], subject)


@pytest.mark.parametrize(
    ("engine", "subject", "said"),
    [
        (LEAST_SQUARES, subject_of(Lasso()), "no least squares"),
        (LEAST_SQUARES, subject_of(make_pipeline(StandardScaler(), Ridge())), "no least squares"),
        (LEAST_SQUARES, subject_of(Ridge(solver="saga")), "iterative"),
        (LEAST_SQUARES, subject_of(LinearRegression(positive=True)), "constrained"),
        (LEAST_SQUARES, subject_of(Ridge(alpha=np.array([1.0]))), "not one number"),
        (LEAST_SQUARES, classified(RidgeClassifier(), X, LABELS), "classification"),
        (RIDGE, Subject.local(Recipe(RidgeClassifier()), TrainingData(X, LABELS)), "softmax_scores"),
        (RIDGE, classified(RidgeClassifier(solver="sag"), X, LABELS), "iterative"),
        (RIDGE, classified(Ridge(), X, LABELS + 1), "for labels 0 and 1 only"),
        (RIDGE, subject_of(Ridge()), "the recipe is a regression"),
    ],
)
def test_says_why_it_leaves_others_to_refits(engine, subject, said):
    assert said in engine.refusal(subject)
