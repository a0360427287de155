"""Least squares: exact minima by fractions, real fits of the library, and certificates that cheat."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression, Ridge

from privgate.kernel import Case, Refused, limits
from privgate.theorems import least_squares


def problem(seed, *, groups=False, penalty=None):
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(6, 40)), int(rng.integers(1, 4))
    X = np.round(rng.normal(size=(n, d)) * 10.0 ** rng.uniform(-2, 2, d) + rng.normal(size=d) * 5, 3)
    y = np.round(X @ rng.normal(size=d) + rng.normal(size=n) * 3, 3)
    person = np.sort(rng.integers(0, max(2, n // 3), n)) if groups else np.arange(n)
    person = np.unique(person, return_inverse=True)[1]
    return X, y, person, float(10.0 ** rng.uniform(-3, 2)) if penalty is None else penalty


def case_of(X, y, person, alpha, scope="own", **more):
    design = np.column_stack([X, np.ones(len(X))])
    penalty = np.append(np.full(X.shape[1], alpha), 0.0)
    allowed = 1e-9 * (np.abs(design).T @ (np.abs(design) @ np.ones(design.shape[1]) + np.abs(y)) + 1e-9)
    arrays = {"X": design, "y": y, "penalty": penalty, "person": person, "allowed": allowed}
    arrays |= least_squares.propose(design, y, penalty, person)
    return Case("squares", scope, {"intercept": True}, {**arrays, **more})


def cheats(arrays, rng):
    """Certificates, honest and not."""
    moves, factor, at = (arrays[name] for name in ("moves", "factor", "at"))
    yield "honest", {}
    for move in (0 * moves, moves / 2, moves[::-1].copy(), np.full_like(moves, np.nan)):
        yield "moves", {"moves": move}
    yield "moves", {"moves": moves + rng.normal(size=moves.shape) * np.nanmean(np.abs(moves))}
    for wrong in (factor / 2, factor * (1 + 1e-3 * rng.normal(size=factor.shape))):
        yield "factor", {"factor": wrong}
    yield "at", {"at": at * (1 + 1e-2 * rng.normal(size=len(at)))}


def model(X, y, alpha):
    return (Ridge(alpha=alpha, solver="cholesky") if alpha else LinearRegression()).fit(X, y)


@pytest.mark.quick(8)
@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("groups", [False, True])
def test_no_answer_of_real_fits_moves_farther_whatever_the_certificate(seed, groups):
    X, y, person, alpha = problem(seed, groups=groups)
    rng, alpha = np.random.default_rng(seed), 0.0 if seed % 3 == 0 and len(X) > 12 and not groups else alpha
    low, high = X.min(axis=0) - 1, X.max(axis=0) + 1
    corners = np.array(list(itertools.product(*zip(low, high, strict=True))))
    asked = np.concatenate([low + (high - low) * rng.random((50, X.shape[1])), corners, X])
    everybody, unit, kept = model(X, y, alpha), float(np.std(y)), [person != k for k in range(person.max() + 1)]
    try:
        without = [model(X[k], y[k], alpha) for k in kept]
    except ValueError:
        return
    pairs = list(zip(kept, without, strict=True))
    truths = {
        "own": np.array([np.abs(everybody.predict(X[~k]) - m.predict(X[~k])).max() / unit for k, m in pairs]),
        "any": np.array([np.abs(everybody.predict(asked) - m.predict(asked)).max() / unit for _, m in pairs]),
    }
    for kind, truth in truths.items():
        case = case_of(X, y, person, alpha, kind, **({"box": np.array([low, high])} if kind == "any" else {}))
        for how, changed in cheats(case.arrays, rng):
            try:
                found = limits(Case(case.family, case.scope, case.settings, {**case.arrays, **changed}))
            except Refused:
                assert how == "factor"
                continue
            assert (truth <= found.high).all(), how
            assert kind == "any" or (found.low <= truth).all(), how
            if how == "honest":
                fine = np.isfinite(found.high)
                assert fine.mean() > 0.5
                assert (found.high[fine] <= 1.05 * truth[fine] + 1e-3).mean() > 0.5


def exact(x, t, alpha, at):
    """The answer of ridge regression on one feature, by fractions."""
    mx, mt = sum(x) / len(x), sum(t) / len(t)
    slope = sum((a - mx) * (b - mt) for a, b in zip(x, t, strict=True))
    slope /= sum((a - mx) ** 2 for a in x) + Fraction(float(alpha))
    return mt + slope * (at - mx)


def test_exact_minima_by_fractions_lie_within():
    for seed in range(12):
        X, y, _, alpha = problem(seed, penalty=0.5)
        X, y = X[:9, :1], y[:9]
        found, unit = limits(case_of(X, y, np.arange(len(X)), alpha)), float(np.std(y))
        x, t = [Fraction(float(v)) for v in X[:, 0]], [Fraction(float(v)) for v in y]
        for k, at in enumerate(x):
            rest = exact(x[:k] + x[k + 1 :], t[:k] + t[k + 1 :], alpha, at)
            change = abs(float(exact(x, t, alpha, at) - rest)) / unit
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

    def shown(question):
        asked = np.repeat(question[None], len(X), axis=0)
        return limits(case_of(X, y, person, alpha, "any", box=box, question=asked))

    plain, named, outside = (shown(q) for q in (np.full(X.shape[1], np.nan), high, high + 1))
    for k in range(len(X)):
        without = model(np.delete(X, k, 0), np.delete(y, k), alpha)
        seen = abs(full.predict(high[None])[0] - without.predict(high[None])[0]) / unit
        assert named.low[k] <= max(seen, plain.low[k]) * (1 + 1e-9)
        assert named.low[k] >= seen * (1 - 1e-3) - 1e-6
    assert (named.high == plain.high).all()
    assert (outside.low == plain.low).all()
