"""Sweeps over many records at once: their bounds hold in both precisions, wherever they start and however they end."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from privgate.families.logistic import binary_sweeps, objective, sweeps
from privgate.families.logistic.binary import Binary
from privgate.families.logistic.softmax import Softmax, hessian
from privgate.families.logistic.sweeps import Accelerated


def solver(direct, n, d, K, C=1.0, seed=0, strength=4.0):
    rng = np.random.default_rng(seed)
    X = (rng.random((n, d)) < rng.beta(1, 2, d)).astype(float)
    Z = (X - X.mean(0)) @ rng.normal(size=(d, K)) / np.sqrt(d) * strength
    y = (Z + rng.gumbel(size=Z.shape)).argmax(axis=1)
    y[:K] = np.arange(K)
    problem = objective.objective(direct.subject(LogisticRegression(C=C), X, y))
    start = np.zeros(problem.X.shape[1]) if K == 2 else np.zeros((K, problem.X.shape[1]))
    return (Binary if K == 2 else Softmax).solve(problem, start)


def factor(made):
    return made.S.L


def distances(made, records, delta):
    """How far the shifts are from the minimisers without each record, in the Hessian's norm."""
    true = np.stack([made.without(np.array([i]))[0] - made.u for i in records])
    return np.linalg.norm((delta - true).reshape(len(records), -1) @ factor(made), axis=1)


@pytest.mark.parametrize("wanted", [1e-1, 1e-3, 1e-5, 1e-8])
@pytest.mark.parametrize(
    ("n", "d", "K", "C"), [(300, 6, 2, 1.0), (600, 12, 2, 100.0), (60, 50, 2, 1.0), (200, 6, 4, 1.0)]
)
def test_a_bound_holds_however_small_it_was_wanted(direct, wanted, n, d, K, C):
    made = solver(direct, n, d, K, C)
    records = np.arange(0, n, 7)

    delta, error = made.shifts(records, np.full(len(records), wanted))

    assert (error <= wanted).mean() > 0.9
    assert (distances(made, records, delta) <= error + 1e-10).all()


@pytest.mark.parametrize("strength", [1.0, 6.0, 30.0])
@pytest.mark.parametrize(("n", "d"), [(300, 6), (600, 40), (80, 60)])
def test_single_precision_rounds_no_more_than_it_says(direct, n, d, strength):
    S = solver(direct, n, d, 2, C=10.0, strength=strength).S
    records = np.arange(0, n, 3)
    c, _ = binary_sweeps.screen(S)
    D = S.A[records] * c[records, None]
    said = 0

    for _ in range(3):
        rough, *bounds = binary_sweeps.sweep(S, records, D, np.float32)
        exact, at_D, at_exact, rest = binary_sweeps.sweep(S, records, D, np.float64)
        sure = np.isfinite(bounds[2])
        said += sure.sum()
        assert (np.linalg.norm(rough - exact, axis=1) <= bounds[2] + rest)[sure].all()
        assert (bounds[0] >= at_D * (1 - 1e-12)).all()
        assert (bounds[1] >= at_exact * (1 - 1e-12)).all()
        D = exact
    assert said >= 2 * len(records)


@pytest.mark.parametrize("K", [2, 3])
def test_a_bound_holds_where_rounding_of_the_hessian_counts(direct, K):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(40, 4)) + 60  # next to the intercept, a condition number beyond 1e7
    y = np.arange(40) % K
    problem = objective.objective(direct.subject(LogisticRegression(C=1e4), X, y))
    start = np.zeros(5) if K == 2 else np.zeros((K, 5))
    made = (Binary if K == 2 else Softmax).solve(problem, start)
    true = np.stack([newton(problem, i, made.u) for i in range(40)])

    delta, error = made.shifts(np.arange(40), np.full(40, 1e-12))

    assert np.isfinite(error).mean() > 0.5
    apart = ((delta - true).reshape(40, -1) @ factor(made)).astype(float)
    assert (np.linalg.norm(apart, axis=1) <= error).all()
    for i in range(0, 40, 7):
        u, bound, _ = made.without(np.array([i]))
        z = (problem.X.astype(np.longdouble) @ (u - made.u - true[i]).T).astype(float)
        assert (np.ptp(np.column_stack([z, np.zeros(40)]) if K == 2 else z, axis=1) <= bound).all()


def newton(problem, out, start):
    """The shift of the minimiser without a record, by gradients of four digits more than float64 has."""
    keep = np.arange(problem.n) != out
    X, y, K = problem.X[: problem.n][keep].astype(np.longdouble), problem.y[keep], problem.K
    hot = (y[:, None] == np.arange(K)).astype(np.longdouble)
    u = start.astype(np.longdouble)
    for _ in range(30):
        Z = X @ (np.stack([0 * u[0], u[0]]) if K == 2 else u).T
        P = np.exp(Z - Z.max(axis=1, keepdims=True))
        P /= P.sum(axis=1, keepdims=True)
        g = ((P - hot).T @ X)[K - len(u) :] + problem.lam * u
        H = hessian(X.astype(float), P.astype(float), problem.lam, gauge=K > 2)
        H = H[-u.shape[1] :, -u.shape[1] :] if K == 2 else H
        scale = 1 / np.sqrt(np.diag(H))
        step = np.linalg.solve(H * scale * scale[:, None], g.ravel().astype(float) * scale) * scale
        u = u - step.reshape(u.shape)
    return u - start


@pytest.mark.parametrize("C", [0.1, 1.0, 30.0])
def test_the_interval_before_any_sweep_holds(direct, C):
    made = solver(direct, 300, 5, 2, C)
    records = np.arange(0, 300, 3)
    _, radius = made.screened()

    apart = distances(made, records, made.one_step(records))

    assert np.isfinite(radius).mean() > 0.5
    assert (apart <= radius[records] + 1e-10).all()


def contraction(rate, answer, *, rounding=0.0, calls=None):
    """A linear map towards ``answer``, with true bounds."""

    def sweep(some, D, precision):
        if calls is not None:
            calls.append((precision, len(some)))
        new = answer[some] + rate[some, None] * (D - answer[some])
        bounds = [np.linalg.norm(a - answer[some], axis=1) * 1.01 for a in (D, new)]
        return new, *bounds, np.full(len(some), rounding if precision is np.float32 else 0.0)

    return sweep


def test_only_those_that_are_not_sure_enough_are_swept_again():
    answer, rate, calls = np.ones((300, 4)), np.where(np.arange(300) < 10, 0.3, 1e-9), []
    start, wanted = np.zeros((300, 4)), np.full(300, 1e-6)

    best, error = sweeps.settle(contraction(rate, answer, calls=calls), start, np.full(300, np.inf), wanted, block=128)

    assert [size for _, size in calls[:4]] == [128, 128, 44, 10]
    assert (error <= wanted).all()
    assert np.abs(best - answer).max() <= 1e-6


def test_what_single_precision_cannot_certify_is_certified_in_double():
    answer, calls = np.ones((20, 4)), []
    sweep = contraction(np.full(20, 0.1), answer, rounding=np.inf, calls=calls)

    best, error = sweeps.settle(sweep, np.zeros((20, 4)), np.full(20, np.inf), np.full(20, 1e-6))

    assert {precision for precision, _ in calls} == {np.float32, np.float64}
    assert calls[-1][0] is np.float64
    assert (np.linalg.norm(best - answer, axis=1) <= error).all()
    assert (error <= 1e-6).all()


def test_bounds_that_are_estimates_are_never_reported():
    answer = np.ones((20, 4))

    def estimating(some, D, precision):
        new, at_D, at_new, _ = contraction(np.full(20, 0.1), answer)(some, D, precision)
        return new, at_D, at_new, np.full(len(some), np.inf)

    _, error = sweeps.settle(estimating, np.zeros((20, 4)), np.full(20, np.inf), np.full(20, 1e-6))

    assert np.isinf(error).all()


@pytest.mark.parametrize("nothing", [np.nan, np.inf])
def test_a_record_that_diverges_is_given_up_and_takes_no_other_with_it(nothing):
    answer, rate = np.ones((20, 4)), np.full(20, 0.1)

    def sweep(some, D, precision):
        new, at_D, at_new, rounding = contraction(rate, answer)(some, D, precision)
        new[some == 3], at_D[some == 3], at_new[some == 3] = nothing, np.inf, np.inf
        return new, at_D, at_new, rounding

    _, error = sweeps.settle(sweep, np.zeros((20, 4)), np.full(20, np.inf), np.full(20, 1e-6))

    assert np.isinf(error[3])
    assert (np.delete(error, 3) <= 1e-6).all()


def test_a_known_bound_that_is_small_enough_needs_no_sweep():
    calls = []
    start = np.zeros((20, 4))

    best, error = sweeps.settle(
        contraction(np.full(20, 0.1), np.ones((20, 4)), calls=calls), start, np.full(20, 1e-7), np.full(20, 1e-6)
    )

    assert calls == []
    assert (error == 1e-7).all()
    assert (best == start).all()


def test_acceleration_solves_slow_linear_problems_and_forgets_the_rows_that_left():
    rng = np.random.default_rng(0)
    rates = rng.uniform(0.5, 0.95, (30, 3))
    answer = rng.normal(size=(30, 3))
    plain = quick = np.zeros((30, 3))
    walk, rows = Accelerated(), np.arange(30)

    for count in range(8):
        plain = answer + rates * (plain - answer)
        quick = walk.next(quick, answer[rows] + rates[rows] * (quick - answer[rows]))
        if count == 2:
            walk.keep(rows % 2 == 0)
            rows, quick = rows[::2], quick[::2]

    assert np.abs(quick - answer[rows]).max() < 1e-6
    assert np.abs(plain - answer).min() > 1e-5


@pytest.mark.parametrize("K", [2, 3])
def test_records_that_are_not_trained_on_change_nothing(direct, K):
    """Candidates share the arrays of the pool; bounds count the training records alone."""
    rng = np.random.default_rng(4)
    X, y = rng.normal(size=(90, 20)), np.arange(90) % K
    X[::9] *= 12  # far from the others: their lost curvature is counted one by one
    made = []
    for candidates in (None, (rng.normal(size=(700, 20)) * 9, np.zeros(700, dtype=int))):
        problem = objective.objective(direct.subject(LogisticRegression(C=1.0), X, y, candidates=candidates))
        start = np.zeros(problem.X.shape[1]) if K == 2 else np.zeros((K, problem.X.shape[1]))
        made.append((Binary if K == 2 else Softmax).solve(problem, start).shifts(np.arange(90), np.full(90, 1e-5)))

    for alone, with_candidates in zip(*made, strict=True):
        np.testing.assert_allclose(with_candidates, alone, rtol=1e-6, atol=1e-12)
    assert np.isfinite(made[0][1]).any()
