"""Regressions without each person, against refits; designs made to break the hat matrix."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.datasets import load_diabetes
from sklearn.linear_model import Lasso, LinearRegression, LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from privgate import Domain, Recipe, Subject, TrainingData
from privgate.theorems.closed_form import Declined, RefitRequest
from privgate.theorems.least_squares import LEAST_SQUARES, over_domain

X, Y = (v[:90] for v in load_diabetes(return_X_y=True))
COVERED = [
    Ridge(1.0),
    Ridge(0.1, fit_intercept=False, solver="svd"),
    LinearRegression(),
    LinearRegression(fit_intercept=False),
]
IDS = [f"{type(e).__name__}-{k}" for k, e in enumerate(COVERED)]
GROUPS = {"argvalues": [None, np.arange(90) // 3], "ids": ["records", "people"]}


def where(found):
    """Return a question at which each limit is largest, or nearly where several constraints are stated."""
    return found.cases[0].case.arrays["question"]


def subject_of(estimator, x=X, y=Y, **options):
    return Subject.local(Recipe(clone(estimator), seed=0), TrainingData(x, y, **options))


def leave_out(subject, **options):
    return LEAST_SQUARES.answers(RefitRequest(subject, np.arange(len(subject.data.units)), (0,), None, **options))


def refitted(estimator, subject, gone, queries):
    """Return scikit-learn's own answers without some records."""
    kept = np.setdiff1d(np.arange(subject.data.n), gone)
    return clone(estimator).fit(subject.data.X[kept], subject.data.y[kept]).predict(queries)


def worst(made, subject, estimator):
    """Return the largest difference of an answer with or without somebody, in the targets' deviation."""
    pool, gaps = subject.data.pool()[0], []
    mean, deviation = subject.scale
    for k, unit in enumerate(made.units):
        rows = made.row_unit == k
        for ours, gone in ((made.log_without, subject.data.units[unit]), (made.log_with, [])):
            theirs = refitted(estimator, subject, gone, pool[made.row_query[rows]]).reshape(rows.sum(), -1)
            gaps.append(np.abs((theirs - mean) / deviation - ours[0, rows]).max())
    return max(gaps)


@pytest.mark.quick(6)
@pytest.mark.parametrize("estimator", COVERED, ids=IDS)
@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize(("n", "d"), [(60, 5), (20, 35)])
def test_equals_refits_at_any_query(estimator, n, d, grouped):
    rng = np.random.default_rng(0)
    x = (rng.normal(size=(n, d)) + 3) * np.resize([1, 10, 0.1], d)
    y = rng.normal(size=n)
    groups = np.repeat(np.arange(n), 1 + np.arange(n) % 12)[:n] if grouped else None  # people of 1 to 12 records
    subject = subject_of(
        estimator, x, y, candidates=(rng.normal(size=(9, d)), np.zeros(9, dtype=y.dtype)), groups=groups
    )
    assert LEAST_SQUARES.supports(subject) == ""
    if isinstance(estimator, LinearRegression) and d > n:
        with pytest.raises(Declined, match="no penalty"):
            leave_out(subject)
        return
    units = len(subject.data.units)
    for asked in ({}, {"queries": (np.repeat(np.arange(units), 2), rng.integers(0, n + 9, 2 * units))}):
        made, rest = leave_out(subject, **asked)
        assert not len(rest)
        assert worst(made, subject, estimator) <= 1e-9


def compared(estimator, x, y, **options):
    """Return how many people are answered about, after comparing each change with a refit's."""
    subject = subject_of(estimator, x, y, **options)
    try:
        made, _ = leave_out(subject)
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
    assert leave_out(subject_of(LinearRegression(), lone, y))[1].tolist() == [4]
    with pytest.raises(Declined, match=r"no penalty|singular"):
        leave_out(subject_of(LinearRegression(), wide, y))
    with pytest.raises(Declined, match="nearly singular"):
        leave_out(subject_of(Ridge(alpha=1e-12), twins, rng.normal(size=30)))
    # next to no penalty: what is left of each record is smaller than rounding
    few, target, domain = rng.normal(size=(5, 12)), rng.normal(size=5), Domain(box=((-3.0, 3.0),) * 12)
    assert compared(Ridge(1e-8), few, target) == 0
    assert np.isinf(over_domain(subject_of(Ridge(1e-8), few, target, domain=domain), np.arange(5)).upper).all()


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
    subject = subject_of(estimator, x, y, domain=[(-1e13, 1e13)] * 3)
    with pytest.raises(Declined, match=said):
        leave_out(subject)
    assert said in over_domain(subject, np.arange(40)).why


@pytest.mark.parametrize("estimator", [LinearRegression(), Ridge(alpha=1e-9)])
def test_what_scikit_learn_itself_computes_to_few_digits_is_refused_beforehand(estimator):
    rng = np.random.default_rng(11)
    x = rng.normal(size=(60, 3))
    if isinstance(estimator, Ridge):
        x[:, 0] = x[:, 1] + 1e-5 * x[:, 0]
    else:
        x = x * [1e3, 1, 1e-4]  # drops singular values below 1e-6 of the largest
    with pytest.raises(Declined):
        leave_out(subject_of(estimator, x, rng.normal(size=60)))


@pytest.mark.parametrize(
    ("subject", "said"),
    [
        (subject_of(Lasso()), "no least squares"),
        (subject_of(make_pipeline(StandardScaler(), Ridge())), "no least squares"),
        (subject_of(Ridge(solver="saga")), "iterative"),
        (subject_of(LinearRegression(positive=True)), "constrained"),
        (subject_of(Ridge(alpha=np.array([1.0]))), "not one number"),
        (subject_of(LogisticRegression(), y=(Y.mean() < Y).astype(int)), "classification"),
    ],
)
def test_says_why_it_leaves_others_to_refits(subject, said):
    assert said in LEAST_SQUARES.refusal(subject)


BOX = Domain(box=tuple((float(a) - 0.05, float(b) + 0.02) for a, b in zip(X.min(axis=0), X.max(axis=0), strict=True)))


@pytest.mark.parametrize("groups", **GROUPS)
@pytest.mark.parametrize("estimator", COVERED, ids=IDS)
def test_no_question_of_the_box_moves_an_answer_more_and_the_corner_named_attains_it(estimator, groups):
    subject = subject_of(estimator, domain=BOX, groups=groups)
    units, (_, deviation), (low, high) = np.arange(len(subject.data.units)), subject.scale, np.array(BOX.box).T
    rng = np.random.default_rng(2)
    asked = np.concatenate(
        [low + (high - low) * rng.random((200, 10)), np.where(rng.random((200, 10)) < 0.5, low, high)]
    )
    found, full = over_domain(subject, units), clone(estimator).fit(X, Y)
    for u in units[::15]:
        at = np.concatenate([where(found)[[u]], asked])
        moved = np.abs(full.predict(at) - refitted(estimator, subject, subject.data.units[u], at)) / deviation
        assert moved.max() <= found.upper[u] <= moved[0] * (1 + 1e-4)


def wide_records():
    rng = np.random.default_rng(3)
    return rng.normal(size=(15, 30)), rng.normal(size=15)


CODES = np.random.default_rng(3).integers(0, 3, (40, 4)).astype(float)


@pytest.mark.parametrize(
    ("x", "domain"), [(CODES, Domain(categories=(3,) * 4)), (wide_records()[0], [(-3.0, 3.0)] * 30)]
)
def test_what_is_said_to_be_seen_is_what_a_refit_shows(x, domain):
    y = np.random.default_rng(4).normal(size=len(x))
    subject, full = subject_of(Ridge(0.3), x, y, domain=domain), Ridge(0.3).fit(x, y)
    found = over_domain(subject, np.arange(len(x)))
    for u in range(0, len(x), 6):
        at = where(found)[[u]]
        moved = np.abs(full.predict(at) - refitted(Ridge(0.3), subject, [u], at))[0] / y.std()
        assert found.lower[u] == pytest.approx(moved, rel=1e-4)
        assert found.lower[u] <= found.upper[u]
        assert found.lower[u] >= found.upper[u] / 1.05


def awkward(rng):
    """Records and targets of badly scaled, offset and nearly collinear features."""
    n, d = int(rng.integers(5, 80)), int(rng.integers(1, 12))
    x = rng.normal(size=(n, d)) * 10.0 ** rng.uniform(-4, 4, d) + rng.normal(size=d) * 10.0 ** rng.uniform(-3, 5)
    if d > 1 and rng.random() < 0.2:
        x[:, 1] = x[:, 0] * (1 + 1e-6 * rng.normal(size=n))
    noise, offset = rng.normal(size=n) * 10.0 ** rng.uniform(-3, 3), 10.0 ** rng.uniform(-2, 4)
    return x, x @ (rng.normal(size=d) / np.abs(x).max(axis=0)) + noise + offset


SOLVERS = [Ridge(1e-3, solver="cholesky"), Ridge(10.0, solver="svd"), Ridge(1.0), Ridge(0.5, fit_intercept=False)]


@pytest.mark.quick(2)
@pytest.mark.parametrize("estimator", [*SOLVERS, LinearRegression()], ids=str)
def test_axiom_of_solvers(estimator):
    """No training of the library, of those that are limited, ends at a larger gradient than the kernel is told."""
    rng, seen = np.random.default_rng(7), []
    for _ in range(60):
        x, y = awkward(rng)
        domain = [(float(a) - 1, float(b) + 1) for a, b in zip(x.min(axis=0), x.max(axis=0), strict=True)]
        found = over_domain(subject_of(estimator, x, y, domain=domain), np.arange(len(y)))
        arrays = found.cases[0].case.arrays if found.cases else {}
        for k in np.flatnonzero(np.isfinite(found.upper))[:4]:
            kept = np.arange(len(y)) != k
            made, Z = clone(estimator).fit(x[kept], y[kept]), arrays["X"][kept]
            u = np.append(made.coef_, made.intercept_) if made.fit_intercept else made.coef_
            left = np.abs(Z.T @ (Z @ u - y[kept]) + arrays["penalty"] * u)
            seen.append(float((left / arrays["allowed"]).max()))
    assert len(seen) > 20
    assert max(seen) <= 0.5  # with room for what was not tried
