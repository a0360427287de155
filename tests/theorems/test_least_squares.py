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

from privgate import Domain, Recipe, Subject, TrainingData
from privgate.linear_scores import softmax_scores
from privgate.theorems import least_squares
from privgate.theorems.closed_form import Asked, Declined
from privgate.theorems.least_squares import LEAST_SQUARES, RIDGE, over_domain

X, Y = (v[:90] for v in load_diabetes(return_X_y=True))
COVERED = [
    Ridge(1.0),
    Ridge(0.1, fit_intercept=False, solver="svd"),
    LinearRegression(),
    LinearRegression(fit_intercept=False),
]
IDS = [f"{type(e).__name__}-{k}" for k, e in enumerate(COVERED)]
#: relative to the change itself, or in deviations of the targets where it is next to nothing
CLOSE = {"rtol": 2e-4, "atol": 1e-7}


def where(found):
    """Return a question at which each limit is largest, or nearly where several constraints are stated."""
    return found.cases[0].case.arrays["question"]


def subject_of(estimator, x=X, y=Y, **options):
    return Subject.local(Recipe(clone(estimator), seed=0), TrainingData(x, y, **options))


def classified(estimator, x, y, **options):
    return Subject.local(Recipe(estimator, predict=softmax_scores), TrainingData(x, y, **options))


def leave_out(engine, subject, **options):
    return engine.answers(Asked(subject, np.arange(len(subject.data.units)), (0,), None, **options))


def refitted(estimator, x, y, gone, queries):
    """Return scikit-learn's own answers without some records."""
    kept = np.setdiff1d(np.arange(len(y)), gone)
    return clone(estimator).fit(x[kept], y[kept]).predict(queries)


def compared(estimator, x, y, **options):
    """Return how many people are answered about, after comparing each change with a refit's."""
    subject = subject_of(estimator, x, y, **options)
    try:
        made, _ = leave_out(LEAST_SQUARES, subject)
    except Declined:
        return 0
    full, (_, deviation) = clone(estimator).fit(x, y).predict(x), subject.scale
    for k, (u, row) in enumerate(zip(made.row_unit, made.row_query, strict=True)):
        refit = refitted(estimator, x, y, subject.data.units[made.units[u]], x[[row]])[0]
        moved = made.log_with[0, k, 0] - made.log_without[0, k, 0]
        np.testing.assert_allclose(moved, (full[row] - refit) / deviation, **CLOSE)
    return len(made.units)


@pytest.mark.parametrize("groups", [None, np.arange(90) // 3], ids=["records", "people"])
@pytest.mark.parametrize("estimator", COVERED, ids=IDS)
def test_equals_refits_in_the_unit_of_the_targets(estimator, groups):
    subject = subject_of(estimator, groups=groups, candidates=(X[:5] + 0.01, Y[:5]))
    units = subject.data.units
    queries = np.repeat(np.arange(len(units)), 4), np.random.default_rng(0).integers(0, 95, 4 * len(units))

    made, handed_on = leave_out(LEAST_SQUARES, subject, queries=queries)

    mean, deviation = subject.scale
    pool = subject.data.pool()[0]
    full = clone(estimator).fit(X, Y).predict(pool)
    assert not len(handed_on)
    np.testing.assert_allclose(made.log_with[0, :, 0] * deviation + mean, full[queries[1]], atol=1e-8)
    for u in range(0, len(units), 3):
        rows = made.row_unit == u
        expected = refitted(estimator, X, Y, units[u], pool[made.row_query[rows]])
        np.testing.assert_allclose(made.log_without[0, rows, 0] * deviation + mean, expected, atol=1e-8)


def test_more_features_than_records_and_a_lone_column():
    rng = np.random.default_rng(1)
    wide, y = rng.normal(size=(20, 50)), rng.normal(size=20)
    lone = rng.normal(size=(20, 3))
    lone[4, 2], lone[np.arange(20) != 4, 2] = 7.0, 0.0  # a column that one record holds alone: leverage 1

    assert compared(Ridge(0.5), wide, y) == 20
    assert leave_out(LEAST_SQUARES, subject_of(LinearRegression(), lone, y))[1].tolist() == [4]
    with pytest.raises(Declined, match=r"no penalty|singular"):
        leave_out(LEAST_SQUARES, subject_of(LinearRegression(), wide, y))


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


def test_more_features_than_records_and_next_to_no_penalty_is_left_to_refits():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(5, 12)), rng.normal(size=5)  # what is left of each record is smaller than rounding
    domain = Domain(box=((-3.0, 3.0),) * 12)

    assert compared(Ridge(1e-8), x, y) == 0
    assert np.isinf(over_domain(subject_of(Ridge(1e-8), x, y, domain=domain), np.arange(5)).upper).all()
    assert compared(Ridge(1.0), x, y) == 5


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
        leave_out(LEAST_SQUARES, subject)
    assert said in over_domain(subject, np.arange(40)).why


@pytest.mark.parametrize(
    ("estimator", "said"),
    [
        (Lasso(), "no least squares"),
        (make_pipeline(StandardScaler(), Ridge()), "no least squares"),
        (Ridge(solver="saga"), "iterative"),
        (LinearRegression(positive=True), "constrained"),
        (Ridge(alpha=np.array([1.0])), "not one number"),
    ],
)
def test_says_why_it_leaves_others_to_refits(estimator, said):
    assert said in LEAST_SQUARES.refusal(subject_of(estimator))


def test_a_classifier_is_never_a_regression_and_needs_the_declared_release():
    labels = (Y.mean() < Y).astype(int)
    bare = Subject.local(Recipe(RidgeClassifier()), TrainingData(X, labels, one_record_each=True))

    assert "classification" in LEAST_SQUARES.refusal(classified(RidgeClassifier(), X, labels))
    assert "softmax_scores" in RIDGE.refusal(bare)
    assert RIDGE.refusal(classified(RidgeClassifier(solver="sag"), X, labels))
    assert RIDGE.refusal(classified(Ridge(), X, labels + 1))
    assert RIDGE.refusal(subject_of(Ridge()))


@pytest.mark.quick(3)
@pytest.mark.parametrize(
    ("estimator", "K"),
    [
        (RidgeClassifier(), 2),
        (RidgeClassifier(alpha=0.1, fit_intercept=False), 4),
        (RidgeClassifier(solver="svd"), 3),
        (Ridge(alpha=2.0), 2),
        (LinearRegression(), 2),
    ],
)
@pytest.mark.parametrize(("n", "d"), [(60, 5), (20, 35)])
def test_classifiers_equal_refits_at_any_query(estimator, K, n, d):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(n, d)) + 3, rng.integers(0, K, n)
    y[: 2 * K] = np.tile(np.arange(K), 2)
    outside = (rng.normal(size=(9, d)), np.zeros(9, dtype=int))
    subject = classified(estimator, x, y, candidates=outside, groups=np.arange(n) // 2 if K == 3 else None)
    if isinstance(estimator, LinearRegression) and d > n:
        with pytest.raises(Declined):
            leave_out(RIDGE, subject)
        return
    units = subject.data.units
    queries = np.repeat(np.arange(len(units)), 2), rng.integers(0, n + 9, 2 * len(units))

    assert RIDGE.supports(subject) == ""
    for asked in ({}, {"queries": queries}):
        made, rest = leave_out(RIDGE, subject, **asked)
        assert not len(rest)
        assert difference(made, estimator, subject) <= 1e-9


def difference(made, estimator, subject):
    worst = 0.0
    pool, _ = subject.data.pool()
    for k, u in enumerate(made.units):
        rows = made.row_unit == k
        keep = np.setdiff1d(np.arange(subject.data.n), subject.data.units[u])
        model = clone(estimator).fit(subject.data.X[keep], subject.data.y[keep])
        expected = np.log(softmax_scores(model, pool[made.row_query[rows]]))
        worst = max(worst, np.abs(expected - made.log_without[0, rows]).max())
    return worst


def test_a_record_that_fits_itself_and_nearly_singular_equations_are_left_to_refits():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(40, 4)), rng.integers(0, 2, 40)
    x[:, 3] = 0
    x[7, 3] = 1e6  # its own coefficient
    subject = classified(RidgeClassifier(alpha=1e-3), x, y)
    twins = rng.normal(size=(30, 40))
    twins[15:] = twins[:15] + 1e-6 * rng.normal(size=(15, 40))  # more features than records, each nearly twice

    made, rest = leave_out(RIDGE, subject)

    assert rest.tolist() == [7]
    assert difference(made, RidgeClassifier(alpha=1e-3), subject) <= 1e-7
    with pytest.raises(Declined, match="nearly singular"):
        leave_out(RIDGE, classified(RidgeClassifier(alpha=1e-12), twins, np.tile([0, 1], 15)))


BOX = Domain(box=tuple((float(a) - 0.05, float(b) + 0.02) for a, b in zip(X.min(axis=0), X.max(axis=0), strict=True)))


@pytest.mark.parametrize("groups", [None, np.arange(90) // 3], ids=["records", "people"])
@pytest.mark.parametrize("estimator", COVERED, ids=IDS)
def test_no_question_of_the_box_moves_an_answer_more_and_the_corner_named_attains_it(estimator, groups):
    subject = subject_of(estimator, domain=BOX, groups=groups)
    units, (_, deviation) = np.arange(len(subject.data.units)), subject.scale
    low, high = np.array(BOX.box).T
    rng = np.random.default_rng(2)
    asked = np.concatenate(
        [low + (high - low) * rng.random((200, 10)), np.where(rng.random((200, 10)) < 0.5, low, high)]
    )

    found = over_domain(subject, units)

    full = clone(estimator).fit(X, Y)
    for u in units[::15]:
        gone = subject.data.units[u]
        corner = where(found)[[u]]
        moved = np.abs(full.predict(asked) - refitted(estimator, X, Y, gone, asked)).max() / deviation
        there = np.abs(full.predict(corner) - refitted(estimator, X, Y, gone, corner))[0] / deviation
        assert moved <= found.upper[u]
        assert there <= found.upper[u] <= there * (1 + 1e-4)


def test_a_domain_of_codes_and_wide_records_are_limited_too():
    rng = np.random.default_rng(3)
    codes, y = rng.integers(0, 3, (40, 4)), rng.normal(size=40)
    wide = rng.normal(size=(15, 30))
    for x, target, domain in [(codes.astype(float), y, [3] * 4), (wide, y[:15], [(-3.0, 3.0)] * 30)]:
        found = over_domain(subject_of(Ridge(0.3), x, target, domain=domain), np.arange(len(x)))
        full = Ridge(0.3).fit(x, target)
        for u in range(0, len(x), 5):
            corner = where(found)[[u]]
            there = np.abs(full.predict(corner) - refitted(Ridge(0.3), x, target, [u], corner))[0]
            assert there / target.std() == pytest.approx(found.upper[u], rel=1e-4)


@pytest.mark.parametrize(
    ("estimator", "domain", "said"), [(Ridge(), None, "no domain is declared"), (Lasso(), BOX, "no least squares")]
)
def test_nothing_is_limited_where_no_theorem_speaks(estimator, domain, said):
    found = over_domain(subject_of(estimator, domain=domain), np.arange(3))

    assert said in found.why
    assert np.isinf(found.upper).all()


@pytest.mark.parametrize("domain", [Domain(box=((-2.0, 5.0),) * 3, norm=2.0), Domain(box=((0.0, 9.0),) * 3, norm=4.0)])
def test_what_is_said_to_be_seen_is_what_a_refit_shows(domain):
    rng = np.random.default_rng(1)
    x, y = np.abs(rng.normal(size=(30, 3))), rng.normal(size=30)
    found, full = over_domain(subject_of(Ridge(0.1), x, y, domain=domain), np.arange(30)), Ridge(0.1).fit(x, y)

    for u in range(0, 30, 6):
        moved = (
            np.abs(full.predict(where(found)[[u]]) - refitted(Ridge(0.1), x, y, [u], where(found)[[u]]))[0] / y.std()
        )
        assert found.lower[u] == pytest.approx(moved, rel=1e-6)
        assert found.lower[u] <= found.upper[u]
    # several constraints: nothing attains the smallest of their maxima, and nothing is said to
    assert (found.lower < found.upper / 1.05).any()


def awkward(rng):
    """Records and targets of badly scaled, offset and nearly collinear features."""
    n, d = int(rng.integers(5, 80)), int(rng.integers(1, 12))
    x = rng.normal(size=(n, d)) * 10.0 ** rng.uniform(-4, 4, d) + rng.normal(size=d) * 10.0 ** rng.uniform(-3, 5)
    if d > 1 and rng.random() < 0.2:
        x[:, 1] = x[:, 0] * (1 + 1e-6 * rng.normal(size=n))
    noise, offset = rng.normal(size=n) * 10.0 ** rng.uniform(-3, 3), 10.0 ** rng.uniform(-2, 4)
    return x, x @ (rng.normal(size=d) / np.abs(x).max(axis=0)) + noise + offset


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    "estimator",
    [
        Ridge(1e-3, solver="cholesky"),
        Ridge(10.0, solver="svd"),
        Ridge(1.0),
        Ridge(0.5, fit_intercept=False),
        LinearRegression(),
    ],
    ids=str,
)
def test_axiom_of_solvers(estimator):
    """No training of the library, of those that are limited, ends at a larger gradient than the kernel is told."""
    rng, seen, limited = np.random.default_rng(7), [], 0
    for _ in range(60):
        x, y = awkward(rng)
        domain = [(float(a) - 1, float(b) + 1) for a, b in zip(x.min(axis=0), x.max(axis=0), strict=True)]
        subject = subject_of(clone(estimator), x, y, domain=domain)
        found = over_domain(subject, np.arange(len(y)))
        if found.why:
            continue
        arrays = least_squares.pose(subject, np.arange(len(y))).arrays
        for k in np.flatnonzero(np.isfinite(found.upper))[:4]:
            kept = np.arange(len(y)) != k
            made, Z = clone(estimator).fit(x[kept], y[kept]), arrays["X"][kept]
            u = np.append(made.coef_, made.intercept_) if made.fit_intercept else made.coef_
            left = np.abs(Z.T @ (Z @ u - y[kept]) + arrays["penalty"] * u)
            seen.append(float((left / arrays["allowed"]).max()))
            limited += 1

    assert limited > 20
    assert max(seen) <= 0.5  # with room for what was not tried
