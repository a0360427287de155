"""Limits of logistic regression hold the truth, whatever the certificate; an honest one says something."""

from dataclasses import replace
from decimal import Decimal, localcontext
from functools import cache

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

from privgate.kernel import Refused, everybody, limits, near
from privgate.kernel.softmax_minimum import Metric, Problem, radius
from tests.kernel import fuzz_logistic as fuzz
from tests.kernel import problems_logistic as problems

#: problems of each check in the default run, and how many times as many in the long one
FEW, LONG = {"own": 30, "sharp": 24, "stops": 40, "any": 12}, 40


@cache
def run(check, first, number):
    tally = fuzz.Tally()
    for seed in range(first, first + number):
        getattr(fuzz, f"check_{check}")(np.random.default_rng([2026, seed]), tally)
    return tally


@pytest.mark.quick(2)
@pytest.mark.parametrize("check", FEW)
def test_the_truth_is_never_outside(check):
    tally = run(check, 0, FEW[check])
    assert tally.outside == 0, tally.worst[:5]
    assert tally.checked >= 200


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("check", FEW)
def test_the_truth_is_never_outside_in_the_long_run(check):
    tally = run(check, 1000, LONG * FEW[check])
    assert tally.outside == 0, tally.worst[:5]


@pytest.mark.parametrize("K", [2, 3, 4])
def test_steps_taken_again_decide_nearly_everybody_and_a_minimum_of_their_own_the_rest(K):
    s = problems.sample(np.random.default_rng(K), K=K)
    s = replace(s, penalty=np.where(s.penalty > 0, 3.0, 0.0))
    again = fuzz.refined(s, fuzz.honest(s))
    holds = np.array([s.kept(i) is not None for i in range(s.people)])
    for certificate, typical, worst in ((again, 1e-5, np.inf), (fuzz.alone(s, again, np.arange(s.people)), 1e-6, 1e-6)):
        found = limits(s.case(certificate))
        width = (found.high - found.low)[holds]
        assert np.median(width) <= typical
        assert width.max() <= worst
        assert np.isinf(found.low[~holds]).all()


def test_distances_are_nearly_what_is_proved_of_them():
    widths = run("sharp", 0, FEW["sharp"]).widths
    refined, honest, zero = (np.median(widths[name]) for name in ("refined", "honest", "zero"))
    assert refined < 1e-11 < honest < zero


def test_the_radius_is_rounded_outward_and_infinite_where_nothing_is_left():
    rng = np.random.default_rng(0)
    R = 10.0 ** rng.uniform(-200, 100, 2000)
    g = (1 - 10.0 ** rng.uniform(-15, 0, 2000)) * rng.choice([1, 1e-3, 1e-12, 1e-180], 2000) / R
    with np.errstate(all="ignore"):
        far = radius(R, g)
        none = np.append(radius(R, 1 / R), radius(np.array(1.0), np.array([np.nan, np.inf, 2.0])))
    with localcontext() as exact:
        exact.prec = 60
        for one, r, length in zip(far, map(Decimal, R), map(Decimal, g), strict=True):
            assert np.isinf(one) or Decimal(one) >= -(1 - r * length).ln() / r
    assert np.isinf(none).all()
    assert np.isfinite(radius(np.array(2.0), np.array((1 - 1e-11) / 2)))


def test_no_column_s_parameters_move_farther_however_far_the_factor_is_off():
    """The axes of a metric, which only rounding is multiplied with: the laws above would not notice."""
    rng, seen = np.random.default_rng(3), 0
    for _ in range(60):
        s = problems.sample(rng, small=True)
        c = fuzz.honest(s)
        W = c["factor"] @ (np.eye(len(c["factor"])) + 10.0 ** rng.uniform(-9, -1) * rng.normal(size=c["factor"].shape))
        try:
            M = Metric.from_factor(Problem.from_case(s.case(c)), c["at"], W)
        except Refused:
            continue
        C, p = c["at"].shape
        P = np.exp(problems.log_p(c["at"].astype(np.longdouble), s.X))[:, s.K - C :]
        L = np.linalg.cholesky(s._hessian(P, s.X, s.w, (s.penalty == 0) & (C > 1)))
        length = np.linalg.norm(np.linalg.inv(L), axis=0).reshape(C, p).max(axis=0)
        assert (M.axis >= length * (1 - 1e-7 * np.linalg.cond(L / np.linalg.norm(L, axis=1)[:, None]))).all()
        seen += 1
    assert seen >= 30


def test_rounding_is_bounded_where_it_can_be_seen():
    rng = np.random.default_rng(4)
    seen = []
    for K in (2, 3) * 10:
        X = np.column_stack([1e7 + rng.normal(size=(300, 3)), np.ones(300)])
        s = problems.Sample(X, np.arange(300) % K, np.ones(300), np.ones(4), np.arange(300), K, True)
        u = rng.normal(size=(1 if K == 2 else K, 4))
        u[:, 3] = -1e7 * u[:, :3].sum(axis=1)
        problem = Problem.from_case(s.case({}))
        Z, exact = X @ u.T, X.astype(np.longdouble) @ u.T.astype(np.longdouble)
        off = problem.off(problem.size @ np.abs(u).max(axis=0))
        apart = np.ptp(problem.scores(Z - exact), axis=1)
        pull, lost = problem.pulls(Z, off, problem.label)
        P = np.exp(problems.log_p(u.astype(np.longdouble), X))[:, K - len(u) :]
        wrong = np.abs(pull - (P - (s.y[:, None] == np.arange(K))[:, K - len(u) :])).max(axis=1)
        assert (apart <= off).all()
        assert (wrong <= lost).all()
        seen += [apart.max() / off.max(), (wrong / lost).max()]
    assert np.median(seen) >= 1e-3


def sample(**kwargs):
    return problems.sample(np.random.default_rng(5), K=3, small=True, **kwargs)


@pytest.mark.parametrize("asked", ["own", "any"])
def test_who_has_no_move_spoils_nobody_however_often_they_are_listed(asked):
    s = sample()
    c, box = fuzz.honest(s), np.array([[-1.0] * s.d, [1.0] * s.d])
    before = limits(s.case(c, asked=asked, arrays={"box": box}))
    for odd in (np.nan, np.inf, -1e300):
        moves = c["moves"].copy()
        moves[3, 0, 1] = odd
        found = limits(s.case({**c, "moves": moves, "swept": np.array([4, 3, 4])}, asked=asked, arrays={"box": box}))
        rest = np.delete(np.arange(s.people), [3, 4])
        assert np.isinf(found.high[3])
        assert (found.high[rest] == before.high[rest]).all()
        assert (found.low[rest] == before.low[rest]).all()


def test_who_takes_a_label_along_is_infinite_even_if_somebody_shows_a_minimum():
    s = sample()
    label = np.where((s.y == 2) & (s.person != 1), 0, s.y)
    label[s.person == 1] = 2
    s = replace(s, y=label)
    c = fuzz.honest(s)
    shown = {**c, "alone_people": np.array([1]), "alone_at": c["at"][None], "alone_factor": c["factor"][None]}
    for certificate in (c, shown):
        found = limits(s.case(certificate))
        assert np.isinf(found.low[1])
        assert np.isinf(found.high).sum() < s.people


BROKEN = {
    "no label is missing": lambda a: {"label": np.where(a["label"] == 1, 0, a["label"])},
    "a label too many": lambda a: {"label": a["label"] + 1},
    "labels are whole": lambda a: {"label": a["label"].astype(float)},
    "records are finite": lambda a: {"X": np.where(np.arange(a["X"].shape[1]) == 0, np.inf, a["X"])},
    "records are of float64": lambda a: {"X": a["X"].astype(np.float32)},
    "the last column is of ones": lambda a: {"X": np.column_stack([a["X"][:, :-1], 2 * a["X"][:, -1]])},
    "weights are positive": lambda a: {"weight": a["weight"] * np.where(np.arange(len(a["weight"])) == 2, -1, 1)},
    "weights are as many": lambda a: {"weight": a["weight"][1:]},
    "penalties are not negative": lambda a: {"penalty": -a["penalty"]},
    "there is a penalty": lambda a: {"penalty": 0 * a["penalty"]},
    "gradients are not negative": lambda a: {"allowed": a["allowed"] - 1},
    "gradients are numbers": lambda a: {"allowed": a["allowed"] + np.nan},
    "trainings end somewhere": lambda a: {"allowed": a["allowed"] + 1e9},
    "everybody has a move": lambda a: {"moves": a["moves"][1:]},
    "moves are of float64": lambda a: {"moves": a["moves"].astype(np.float32)},
    "parameters have a shape": lambda a: {"at": a["at"][0]},
    "parameters are numbers": lambda a: {"at": a["at"] * np.nan},
    "the factor is square": lambda a: {"factor": a["factor"][1:]},
    "the factor is near": lambda a: {"factor": a["factor"] / 2},
    "the factor is not 0": lambda a: {"factor": 0 * a["factor"]},
    "everybody holds a record": lambda a: {"person": a["person"] + (a["person"] == 0) * 10_000},
    "people are there": lambda a: {"swept": np.array([-1])},
    "people have minima": lambda a: {"alone_people": np.array([0])},
    "people are alone once": lambda a: {
        "alone_people": np.zeros(2, dtype=np.int64),
        **{f"alone_{n}": np.repeat(a[n][None], 2, axis=0) for n in ("at", "factor")},
    },
}


@pytest.mark.parametrize("broken", BROKEN)
def test_what_is_no_such_problem_or_no_certificate_is_refused(broken):
    s = replace(sample(), intercept=False)
    s = replace(s, X=np.column_stack([s.X, np.ones(len(s.y))]), penalty=np.append(s.penalty, 0.0), intercept=True)
    case = s.case(fuzz.honest(s))
    limits(case)
    with pytest.raises(Refused):
        limits(replace(case, arrays={**case.arrays, **BROKEN[broken](case.arrays)}))


@pytest.mark.parametrize("K", [2, 3])
def test_axiom_newton_cholesky_ends_within_its_test_and_releases_by_the_formulas(K):
    rng, seen = np.random.default_rng(K), 0
    for _ in range(40):
        s = problems.sample(rng, K=K, library=True, small=True)
        if (model := s.refit()) is None:
            continue
        u = np.column_stack([model.coef_, model.intercept_]) if s.intercept else model.coef_
        P = np.exp(problems.log_p(u.astype(np.longdouble), s.X))
        hot = s.y[:, None] == np.arange(K)
        first = int(K == 2)
        g = (s.w[:, None] * (P - hot)[:, first:]).T @ s.X + s.penalty * u
        assert (np.abs(g) <= s.allowed()).all()
        assert abs(u[:, -1].sum()) <= 1e-9 * max(1.0, np.abs(u).max()) or K == 2 or not s.intercept
        z = s.X[:, : s.d] @ model.coef_.T + model.intercept_
        if K == 2:
            p = 1 / (1 + np.exp(-z[:, 0]))
            expected = np.stack([1 - p, p], axis=1)
        else:
            expected = np.exp(z - z.max(axis=1, keepdims=True))
            expected /= expected.sum(axis=1, keepdims=True)
        got = model.predict_proba(s.X[:, : s.d])
        assert np.abs(got - expected).max() <= 1e-12
        seen += 1
    assert seen >= 25


def test_a_question_that_is_named_shows_what_it_shows_if_it_is_accepted():
    rng, n = np.random.default_rng(8), 60
    X, y = rng.normal(size=(n, 2)), (rng.random(n) < 0.4).astype(np.int64)
    penalty, box = np.array([1.0, 1.0, 0.0]), np.array([X.min(axis=0), X.max(axis=0)])
    s = problems.Sample(np.column_stack([X, np.ones(n)]), y, np.ones(n), penalty, np.arange(n), 2, intercept=True)
    certificate = fuzz.refined(s, fuzz.honest(s))

    def shown(question):
        arrays = {"box": box, "question": np.repeat(question[None], n, axis=0)}
        return limits(s.case(certificate, asked="any", arrays=arrays, allowed=np.full(3, 1e-7)))

    plain, named, outside = (shown(q) for q in (np.full(2, np.nan), box[1], box[1] + 1))
    full = LogisticRegression(C=1.0, tol=1e-10, solver="newton-cholesky").fit(X, y)
    for k in range(0, n, 6):
        without = clone(full).fit(np.delete(X, k, 0), np.delete(y, k))
        gap = np.abs(full.predict_log_proba(box[1:]) - without.predict_log_proba(box[1:])).max()
        assert gap * 0.99 - 1e-4 <= named.low[k] <= max(gap, plain.low[k]) + 1e-9
    assert (named.low > plain.low).any()
    assert (named.high == plain.high).all()
    assert (outside.low == plain.low).all()


@pytest.mark.quick(2)
@pytest.mark.parametrize("K", [2, 3])
@pytest.mark.parametrize("how", ["honest", "moves are off", "alone"])
def test_no_minimum_is_farther_than_near_says(K, how):
    """At rows of everybody, for whoever is gone: minima in long double lie within the bounds, also of a wrong move."""
    for seed in range(4):
        rng = np.random.default_rng([seed, K])
        s = problems.sample(rng, K=K, small=True)
        c = fuzz.honest(s)
        if how == "moves are off":
            c["moves"] *= rng.uniform(0.5, 1.5, (s.people, 1, 1))
        if how == "alone":
            c = fuzz.alone(s, c, np.arange(min(s.people, 5)))
        whose, rows = rng.integers(0, s.people, 40), s.X[rng.integers(0, len(s.X), 40)]
        z0, e0, z1, e1 = near(s.case({**c, "rows": rows, "whose": whose}))
        holds = np.array([s.kept(one) is not None for one in whose])
        assert np.isfinite(e0).all()
        assert np.isinf(e1[~holds]).all()
        assert holds.sum() > 20
        for k in np.flatnonzero(holds):
            for z, e, u in ((z0, e0, s.minimum()), (z1, e1, s.minimum(s.kept(whose[k])))):
                off = np.append((rows[k] @ u.T - z[k]).astype(float), [0.0] * (K == 2))
                assert np.ptp(off) <= e[k]


def test_near_is_refused_for_rows_of_another_design():
    s = problems.sample(np.random.default_rng(3), K=2, small=True)
    c = fuzz.honest(s)
    nobody, rows = np.array([s.people]), s.X[:1]
    for arrays in ({"rows": rows[:, 1:], "whose": nobody * 0}, {"rows": rows, "whose": nobody}):
        with pytest.raises(Refused):
            near(s.case({**c, **arrays}))
    with pytest.raises(Refused, match="no scores of"):
        near(replace(s.case({**c, "rows": rows, "whose": nobody * 0}), family="squares"))


def test_what_is_known_of_everybody_saves_time_only_and_is_asked_again_where_it_is_of_another_problem():
    s = problems.sample(np.random.default_rng(3), K=2)
    c = {**fuzz.honest(s), "rows": s.X.copy(), "whose": s.person}
    case, known = s.case(c), everybody(s.case(c))
    looser = s.case(c, allowed=np.full(len(s.penalty), 1e-6))
    heavier = s.case({**c, "penalty": 1.001 * s.penalty})
    for other in (case, looser, heavier):
        for told, again in zip(near(other, known), near(other), strict=True):
            np.testing.assert_array_equal(told, again)
    case.arrays["X"][0, 0] += 1.0  # whoever changes an array in place has another problem
    for told, again in zip(near(case, known), near(case), strict=True):
        np.testing.assert_array_equal(told, again)
