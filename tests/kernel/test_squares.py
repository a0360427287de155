"""Least squares: exact minima by fractions, real fits of the library, and certificates that cheat."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression, Ridge

from privgate.kernel import Case, Refused, limits
from privgate.theorems import least_squares

CHEATS = ("honest", "zero", "half", "noise", "other", "factor half", "factor noise", "at off", "nobody")


def problem(seed, *, groups=False, penalty=None):
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(6, 40)), int(rng.integers(1, 4))
    X = np.round(rng.normal(size=(n, d)) * 10.0 ** rng.uniform(-2, 2, d) + rng.normal(size=d) * 5, 3)
    y = np.round(X @ rng.normal(size=d) + rng.normal(size=n) * 3, 3)
    person = np.sort(rng.integers(0, max(2, n // 3), n)) if groups else np.arange(n)
    person = np.unique(person, return_inverse=True)[1]
    return X, y, person, float(10.0 ** rng.uniform(-3, 2)) if penalty is None else penalty


def case_of(X, y, person, alpha, asked="own", **more):
    design = np.column_stack([X, np.ones(len(X))])
    penalty = np.append(np.full(X.shape[1], alpha), 0.0)
    allowed = 1e-9 * (np.abs(design).T @ (np.abs(design) @ np.ones(design.shape[1]) + np.abs(y)) + 1e-9)
    arrays = {"X": design, "y": y, "penalty": penalty, "person": person, "allowed": allowed}
    arrays |= least_squares.propose(design, y, penalty, person)
    return Case("squares", asked, {"intercept": True}, {**arrays, **more})


def cheated(case, how, rng):
    a = dict(case.arrays)
    moves, factor = a["moves"], a["factor"]
    a |= {
        "honest": {},
        "zero": {"moves": 0 * moves},
        "half": {"moves": moves / 2},
        "noise": {"moves": moves + rng.normal(size=moves.shape) * np.nanmean(np.abs(moves))},
        "other": {"moves": moves[::-1].copy()},
        "factor half": {"factor": factor / 2},
        "factor noise": {"factor": factor * (1 + 1e-3 * rng.normal(size=factor.shape))},
        "at off": {"at": a["at"] * (1 + 1e-2 * rng.normal(size=len(a["at"])))},
        "nobody": {"moves": np.full_like(moves, np.nan)},
    }[how]
    return Case(case.family, case.asked, case.settings, a)


def model(X, y, alpha):
    return (Ridge(alpha=alpha, solver="cholesky") if alpha else LinearRegression()).fit(X, y)


@pytest.mark.quick(8)
@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("groups", [False, True])
def test_no_answer_of_real_fits_moves_farther_whatever_the_certificate(seed, groups):
    X, y, person, alpha = problem(seed, groups=groups)
    rng, alpha = np.random.default_rng(seed), 0.0 if seed % 3 == 0 and len(X) > 12 and not groups else alpha
    low, high = X.min(axis=0) - 1, X.max(axis=0) + 1
    asked = np.concatenate(
        [
            low + (high - low) * rng.random((50, X.shape[1])),
            np.array(list(itertools.product(*zip(low, high, strict=True)))),
            X,
        ]
    )
    everybody, unit = model(X, y, alpha), float(np.std(y))
    people = range(person.max() + 1)
    kept = [person != k for k in people]
    try:
        without = [model(X[k], y[k], alpha) for k in kept]
    except ValueError:
        return
    own = [np.abs(everybody.predict(X[~k]) - m.predict(X[~k])).max() / unit for k, m in zip(kept, without, strict=True)]
    anywhere = [np.abs(everybody.predict(asked) - m.predict(asked)).max() / unit for m in without]

    for how in CHEATS:
        for kind, truth in (("own", own), ("any", anywhere)):
            case = case_of(X, y, person, alpha, kind, **({"box": np.array([low, high])} if kind == "any" else {}))
            try:
                found = limits(cheated(case, how, rng))
            except Refused:
                assert how.startswith("factor")
                continue
            assert (np.array(truth) <= found.high).all(), how
            if kind == "own":
                assert (found.low <= np.array(truth)).all(), how
            if how == "honest":
                fine = np.isfinite(found.high)
                assert fine.mean() > 0.5
                assert (
                    found.high[fine] <= 1.05 * np.array(own if kind == "own" else anywhere)[fine] + 1e-3
                ).mean() > 0.5


def exact(x, t, alpha, at):
    """The answer of ridge regression on one feature, by fractions."""
    mx, mt = sum(x) / len(x), sum(t) / len(t)
    slope = sum((a - mx) * (b - mt) for a, b in zip(x, t, strict=True))
    slope /= sum((a - mx) ** 2 for a in x) + Fraction(float(alpha))
    return mt + slope * (at - mx)


def test_exact_minima_by_fractions_lie_within():
    for seed in range(12):
        X, y, person, alpha = problem(seed, penalty=0.5)
        X, y, person = X[:9, :1], y[:9], np.arange(min(9, len(X)))
        case = case_of(X, y, person, alpha)
        found, unit = limits(case), float(np.std(y))

        x, t = [Fraction(float(v)) for v in X[:, 0]], [Fraction(float(v)) for v in y]
        for k in range(len(X)):
            rest = [i for i in range(len(X)) if i != k]
            change = abs(
                float(exact(x, t, alpha, x[k]) - exact([x[i] for i in rest], [t[i] for i in rest], alpha, x[k]))
            )
            change /= unit
            assert found.low[k] <= change * (1 + 1e-12) <= found.high[k] * (1 + 1e-12)
            assert found.high[k] <= change + 1e-6 * (1 + change)


def test_who_holds_a_direction_alone_is_not_limited():
    X, y = np.array([[0.0], [0.0], [0.0], [1.0]]), np.array([0.0, 1.0, 2.0, 3.0])

    found = limits(case_of(X, y, np.arange(4), 0.0))

    assert np.isinf(found.high[3])
    assert np.isfinite(found.high[:3]).all()


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("X", lambda a: a[:, ::-1].copy()),
        ("X", lambda a: np.full_like(a, np.inf)),
        ("y", lambda a: a[:-1]),
        ("y", np.zeros_like),
        ("penalty", lambda a: -a - 1),
        ("factor", lambda a: np.full_like(a, np.nan)),
        ("factor", np.zeros_like),
        ("at", lambda a: a[:-1]),
        ("moves", lambda a: a[:-1]),
        ("moves", lambda a: a.astype(np.float32)),
        ("allowed", lambda a: -a),
        ("person", lambda a: a + 1),
        ("person", lambda a: a * 2**50),
    ],
)
def test_what_is_broken_is_refused(name, change):
    case = case_of(*problem(3))
    broken = Case("squares", "own", case.settings, {**case.arrays, name: change(case.arrays[name])})

    with pytest.raises(Refused):
        limits(broken)


def test_a_question_that_is_named_shows_what_it_shows_if_it_is_accepted():
    X, y, person, alpha = problem(5)
    low, high = X.min(axis=0), X.max(axis=0)
    full, unit, box = model(X, y, alpha), float(np.std(y)), np.array([low, high])
    plain = limits(case_of(X, y, person, alpha, "any", box=box))
    named = limits(case_of(X, y, person, alpha, "any", box=box, question=np.repeat(high[None], len(X), axis=0)))
    outside = limits(case_of(X, y, person, alpha, "any", box=box, question=np.repeat(high[None] + 1, len(X), axis=0)))
    nothing = limits(case_of(X, y, person, alpha, "any", box=box, question=np.full(X.shape, np.nan)))

    for k in range(len(X)):
        without = model(np.delete(X, k, 0), np.delete(y, k), alpha)
        seen = abs(full.predict(high[None])[0] - without.predict(high[None])[0]) / unit
        assert named.low[k] <= max(seen, plain.low[k]) * (1 + 1e-9)
        assert named.low[k] >= seen * (1 - 1e-3) - 1e-6
    assert (named.high == plain.high).all()
    assert (outside.low == plain.low).all()
    assert (nothing.low == plain.low).all()
