"""Limits over all questions that an endpoint accepts: sets of vectors, and what two models answer over them."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from scipy.optimize import minimize

from privgate.kernel import Refused, limits
from privgate.kernel.accepted import Accepted
from privgate.kernel.softmax_release import over_questions
from tests.kernel import fuzz_logistic as fuzz
from tests.kernel import problems_logistic as problems


@pytest.mark.parametrize(
    ("arrays", "settings"),
    [
        ({}, {}),
        ({"box": [[0.0] * 3, [2.0] * 3]}, {"length": 1.0}),
        ({"box": [[0.0] * 3, [2.0] * 3]}, {"norm": 1.0}),
        ({"box": [[0.0] * 3] * 3}, {}),
        ({"box": [[0.0], [1.0]]}, {}),
        ({"box": [[1.0] * 3, [0.0] * 3]}, {}),
        ({"box": [[0.0] * 3, [np.inf] * 3]}, {}),
        ({"box": [[0.0] * 3, [2.0] * 3], "blocks": [0, 0, -1]}, {}),
        ({"blocks": [0, 0, -1]}, {}),
        ({"box": [[0.0] * 3, [1.0] * 3], "blocks": [0, 0]}, {}),
    ],
)
def test_questions_that_nothing_limits_or_that_cannot_be_are_refused(arrays, settings):
    rng = np.random.default_rng(0)
    s = problems.Sample(rng.normal(size=(20, 3)), np.arange(20) % 2, np.ones(20), np.ones(3), np.arange(20), 2, False)
    given = {k: np.array(v, dtype=np.int64 if k == "blocks" else np.float64) for k, v in arrays.items()}
    with pytest.raises(Refused):
        limits(s.case(fuzz.honest(s), asked="any", arrays=given, **settings))


def test_linear_functions_of_accepted_questions_are_bounded_closely():
    rng = np.random.default_rng(1)
    gaps = []
    for _ in range(40):
        s = problems.sample(rng, small=True)
        for arrays, settings, asked in fuzz.questions(rng, s):
            accepted = Accepted.from_case(s.case({}, asked="any", arrays=arrays, **settings), s.d)
            w, A, b = rng.normal(size=(5, s.d)), rng.normal(size=(4, s.d)), rng.normal(size=4)
            assert (accepted.bound_dot(w)[:, None] >= w @ asked.T).all()
            assert accepted.bound_norm(A, b) >= np.linalg.norm(asked @ A.T + b, axis=1).max()
            assert (accepted.absolutes.bound_dot(np.abs(w))[:, None] >= np.abs(w) @ np.abs(asked).T).all()
            assert accepted.inside(asked).mean() >= 0.2  # the rest are a rounding outside
            assert not accepted.inside(asked + 1e9).any()
            if set(arrays) | set(settings) == {"box"}:
                gaps.append((accepted.bound_dot(w) - (w @ asked.T).max(axis=1)) / np.abs(accepted.bound_dot(w)))
    assert np.max(gaps) <= 1e-12


def test_over_a_box_two_classes_are_bounded_within_a_hundredth_of_what_a_question_shows():
    rng = np.random.default_rng(2)
    ratios = []
    for _ in range(40):
        d = int(rng.integers(1, 5))
        box = np.array([-np.ones(d), np.ones(d)]) * rng.uniform(0.2, 3, d)
        accepted = Accepted(*box, np.ones(d, bool), (), whole=False)
        w, m = rng.normal(size=d + 1) * 2, rng.normal(size=(1, d + 1)) * rng.uniform(0.1, 2)
        u, moves = np.stack([0 * w, w]), np.stack([0 * m, m], axis=1)

        def change(x, w=w, m=m[0]):
            before, after = x @ w[:-1] + w[-1], x @ (w + m)[:-1] + (w + m)[-1]
            return [np.logaddexp(0, t * after) - np.logaddexp(0, t * before) for t in (1, -1)]

        best = 0.0
        for start, k, sign in product(rng.uniform(*box, (2, d)), (0, 1), (1, -1)):
            got = minimize(lambda x: -sign * change(x)[k], start, bounds=box.T)  # noqa: B023  used at once
            best = max(best, -got.fun, *np.abs(change(np.clip(got.x, *box))).ravel())
        top = max(float(np.abs(change(np.array(x))).max()) for x in product(*box.T))
        best, none = max(best, top), (0.0, np.zeros(1))
        simple = over_questions(accepted, u, moves, errors=none, rounded=none, limit=1e9)[0]
        tight = over_questions(accepted, u, moves, errors=none, rounded=none, limit=simple * 0.75)[0]
        assert best <= tight <= simple
        assert best >= simple / 2 * (1 - 1e-9)
        ratios.append((tight - best) / max(best, 0.02))
    assert np.quantile(ratios, 0.9) <= 0.01


def test_what_own_records_show_counts_for_any_question_only_where_they_are_accepted():
    s = problems.sample(np.random.default_rng(8), K=2, small=True)
    c, X = fuzz.refined(s, fuzz.honest(s)), s.X[:, : s.d]
    box = np.array([X.min(axis=0), np.median(X, axis=0)])
    found, own = limits(s.case(c, asked="any", arrays={"box": box})), limits(s.case(c))
    inside = (np.clip(X, *box) == X).all(axis=1)
    holds = np.isin(np.arange(s.people), s.person[inside])
    finite = np.isfinite(own.low)
    assert (found.low[~holds & finite] == 0).all()
    assert (found.low[holds] > 0).any()
    assert (found.low <= own.low).all()


def test_a_column_that_nobody_has_moves_no_question_unless_a_gradient_is_allowed_there():
    s = problems.sample(np.random.default_rng(11), K=3, library=True, small=True)
    more = replace(s, X=np.insert(s.X, 1, 0.0, axis=1), penalty=np.insert(s.penalty, 1, s.penalty[0]))
    box = np.array([[-1.0] * s.d, [1.0] * s.d])
    wide = np.insert(box, 1, [-100.0, 100.0], axis=1)
    allowed = np.full(len(s.penalty), 1e-6)
    plain = limits(s.case(fuzz.honest(s), allowed=allowed, asked="any", arrays={"box": box}))
    idle, other = (
        limits(more.case(fuzz.honest(more), allowed=np.insert(allowed, 1, a), asked="any", arrays={"box": wide}))
        for a in (0.0, 1e-6)
    )
    shown = np.isfinite(plain.high)
    assert (np.isfinite(idle.high) == shown).all()
    assert np.abs(idle.high / plain.high - 1)[shown].max() <= 1e-9
    assert (other.high > 1.001 * plain.high)[shown].all()


def test_a_column_of_one_person_alone_still_moves_questions_where_their_own_minimum_is_wrong_about_it():
    s = problems.sample(np.random.default_rng(11), K=3, library=True, small=True)
    s = replace(s, X=np.insert(s.X, 0, s.person == 3, axis=1), penalty=np.insert(s.penalty, 0, s.penalty[0]))
    x = np.zeros((2, s.X.shape[1]))
    x[:, 0], x[:, -1] = (1000, -1000), 1
    c = fuzz.alone(s, fuzz.honest(s), np.array([3]))
    wrong = c["alone_at"].copy()
    wrong[0, :, 0] = c["at"][:, 0]  # as if the column told nothing of who is there
    box = np.stack([np.append(-1000.0, np.zeros(s.d - 1)), np.append(1000.0, np.zeros(s.d - 1))])
    u = s.minimum()
    true = float(np.abs(problems.log_p(u, x) - problems.log_p(s.minimum(s.kept(3), u), x)).max())
    found = limits(s.case({**c, "alone_at": wrong}, asked="any", arrays={"box": box}))
    assert true >= 0.1
    assert found.high[3] >= true
