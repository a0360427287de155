"""Designs made to break the hat matrix: it equals refits, or says that it cannot; and no bound lies below a refit."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LinearRegression, Ridge

from privgate import Domain, Recipe, Subject, TrainingData
from privgate.families import least_squares
from privgate.families.engine import Asked, Declined
from privgate.families.least_squares import ENGINE

#: relative to the change itself, or in deviations of the targets where it is next to nothing
CLOSE = {"rtol": 2e-4, "atol": 1e-7}


def subject_of(estimator, X, y, **options):
    return Subject.local(Recipe(clone(estimator), seed=0), TrainingData(X, y, **options))


def compared(estimator, X, y, **options):
    """Return how many units the engine answered, after comparing each change with a refit's."""
    subject = subject_of(estimator, X, y, **options)
    try:
        made, _ = ENGINE.answers(Asked(subject, np.arange(len(subject.data.units)), (0,), None))
    except Declined:
        return 0
    full, (_, deviation) = clone(estimator).fit(X, y).predict(X), subject.scale
    for k, (u, row) in enumerate(zip(made.row_unit, made.row_query, strict=True)):
        kept = np.setdiff1d(np.arange(len(y)), subject.data.units[made.units[u]])
        refit = clone(estimator).fit(X[kept], y[kept]).predict(X[[row]])[0]
        moved = made.log_with[0, k, 0] - made.log_without[0, k, 0]
        np.testing.assert_allclose(moved, (full[row] - refit) / deviation, **CLOSE)
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
def test_ridge_equals_refits_or_hands_on(seed, n, d, alpha, intercept, collinear, outlier, people):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    X[:, -1] = X[:, 0] + collinear * X[:, -1]
    X[0] *= outlier
    # the dual form of scikit-learn is as badly conditioned as ours: singular values are the truth
    groups = np.arange(n) // 2 if people else None
    compared(Ridge(alpha, fit_intercept=intercept, solver="svd"), X, rng.normal(size=n), groups=groups)


def test_more_features_than_records_and_next_to_no_penalty_is_left_to_refits():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(5, 12)), rng.normal(size=5)  # what is left of each record is smaller than rounding
    domain = Domain(box=((-3.0, 3.0),) * 12)

    assert compared(Ridge(1e-8), X, y) == 0
    assert np.isinf(least_squares.over_domain(subject_of(Ridge(1e-8), X, y, domain=domain), np.arange(5)).upper).all()
    assert compared(Ridge(1.0), X, y) == 5


@pytest.mark.parametrize(
    "estimator", [KernelRidge(kernel="rbf", alpha=1e-10), GaussianProcessRegressor(optimizer=None)]
)
def test_kernels_of_twins_and_without_noise_are_left_to_refits(estimator):
    X = np.random.default_rng(0).normal(size=(20, 2))

    compared(estimator, X, X[:, 0])
    assert compared(estimator, np.vstack([X, X]), np.tile(X[:, 0], 2)) == 0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda X, y: (X, y + 1e13), "targets lie so far from 0"),
        (lambda X, y: (X + 1e12, y), "a feature lies so far from 0"),
        (lambda X, y: (X * 1e-160, y), "leave the range of numbers"),
        (lambda X, y: (X * 1e160, y), "leave the range of numbers"),
    ],
)
@pytest.mark.parametrize("estimator", [Ridge(), LinearRegression(), KernelRidge(kernel="rbf")])
def test_numbers_whose_rounding_decides_are_left_to_refits(change, said, estimator):
    rng = np.random.default_rng(0)
    X, y = change(rng.normal(size=(40, 3)), rng.normal(size=40))
    subject = subject_of(estimator, X, y, domain=[(-1e13, 1e13)] * 3)

    with pytest.raises(Declined, match=said):
        ENGINE.answers(Asked(subject, np.arange(40), (0,), None))
    if not isinstance(estimator, KernelRidge):
        assert said in least_squares.over_domain(subject, np.arange(40)).why


@pytest.mark.parametrize("domain", [Domain(box=((-2.0, 5.0),) * 3, norm=2.0), Domain(box=((0.0, 9.0),) * 3, norm=4.0)])
def test_what_is_said_to_be_seen_is_what_a_refit_shows(domain):
    rng = np.random.default_rng(1)
    X, y = np.abs(rng.normal(size=(30, 3))), rng.normal(size=30)
    subject = subject_of(Ridge(0.1), X, y, domain=domain)
    found, full = least_squares.over_domain(subject, np.arange(30)), Ridge(0.1).fit(X, y)

    for u in range(0, 30, 6):
        without = Ridge(0.1).fit(np.delete(X, u, axis=0), np.delete(y, u))
        moved = np.abs(full.predict(found.where[[u]]) - without.predict(found.where[[u]]))[0] / y.std()
        assert found.seen[u] == pytest.approx(moved, rel=1e-6)
        assert found.seen[u] <= found.upper[u]
    # several constraints: nothing attains the smallest of their maxima, and nothing is said to
    assert (found.seen < found.upper / 1.05).any()


def awkward(rng):
    """Records and targets of badly scaled, offset and nearly collinear features."""
    n, d = int(rng.integers(5, 80)), int(rng.integers(1, 12))
    X = rng.normal(size=(n, d)) * 10.0 ** rng.uniform(-4, 4, d) + rng.normal(size=d) * 10.0 ** rng.uniform(-3, 5)
    if d > 1 and rng.random() < 0.2:
        X[:, 1] = X[:, 0] * (1 + 1e-6 * rng.normal(size=n))
    noise, offset = rng.normal(size=n) * 10.0 ** rng.uniform(-3, 3), 10.0 ** rng.uniform(-2, 4)
    return X, X @ (rng.normal(size=d) / np.abs(X).max(axis=0)) + noise + offset


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
        X, y = awkward(rng)
        domain = [(float(a) - 1, float(b) + 1) for a, b in zip(X.min(axis=0), X.max(axis=0), strict=True)]
        subject = subject_of(clone(estimator), X, y, domain=domain)
        found = least_squares.over_domain(subject, np.arange(len(y)))
        if found.why:
            continue
        arrays, _settings = least_squares._case(subject, np.arange(len(y)))
        for k in np.flatnonzero(np.isfinite(found.upper))[:4]:
            kept = np.arange(len(y)) != k
            made, Z = clone(estimator).fit(X[kept], y[kept]), arrays["X"][kept]
            u = np.append(made.coef_, made.intercept_) if made.fit_intercept else made.coef_
            left = np.abs(Z.T @ (Z @ u - y[kept]) + arrays["penalty"] * u)
            seen.append(float((left / arrays["allowed"]).max()))
            limited += 1

    assert limited > 20
    assert max(seen) <= 0.5  # with room for what was not tried
