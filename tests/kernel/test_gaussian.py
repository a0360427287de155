"""Gaussian naive Bayes: no real refit answers outside the limits, far from 0 too."""

import numpy as np
import pytest
from sklearn.naive_bayes import GaussianNB

from privgate.kernel import Case, Refused, limits
from tests.kernel import fuzz_counts as fuzz


def judged(seed, asked):
    make, X, y, person, settings, arrays, questions = fuzz.gaussian(seed)
    truth = fuzz.changes(make, X, y, person, None if asked == "own" else questions)
    return fuzz.outside(Case("gaussian", asked, settings, arrays), truth)


@pytest.mark.parametrize("asked", ["own", "any"])
def test_no_refit_answers_outside_its_limits(asked):
    ratios = []
    for seed in range(24):
        bad, ratio = judged(seed, asked)
        assert not len(bad), (seed, bad)
        ratios.extend(ratio)
    assert len(ratios) > 200
    assert np.isinf(ratios).mean() < 0.15  # odds beyond e^700, at which a probability may be released as 0
    assert np.median(ratios) < {"own": 1.0001, "any": 1.2}[asked]


@pytest.mark.slow
@pytest.mark.parametrize("asked", ["own", "any"])
@pytest.mark.parametrize("first", range(1000, 1400, 50))
def test_no_refit_of_many_answers_outside_its_limits(asked, first):
    for seed in range(first, first + 50):
        assert not len(judged(seed, asked)[0]), seed


def small(**more):
    rng = np.random.default_rng(5)
    y = np.repeat([0, 1], 6)
    X = np.round(rng.normal(size=(12, 2)) + y[:, None], 2)
    settings = {"var_smoothing": 1e-2, "classes": 2} | more.pop("settings", {})
    arrays = {"X": X, "label": y, "box": np.array([[-2.0, -2.0], [3.0, 3.0]])}
    return Case("gaussian", more.pop("asked", "any"), settings, {**arrays, **more})


@pytest.mark.parametrize("offset", [1718452800.1, 1e6 + 0.1, 0.1])
@pytest.mark.parametrize("n", range(60, 1000, 157))
def test_a_constant_far_from_0_is_rounding_that_refits_show(n, offset):
    """Means of a class err by how many records it has; only another constant than the column's is asked about."""
    rng = np.random.default_rng(n)
    y = (rng.random(n) < 0.3).astype(np.int64)
    X = np.column_stack([np.full(n, offset), rng.normal(size=n) + y])
    wide = np.array([1e-3, 0.0])
    box = np.array([X.min(axis=0) - wide, X.max(axis=0) + wide])
    person = np.minimum(np.arange(n), 6)
    asked = np.concatenate([box, X])
    truth = fuzz.changes(GaussianNB, X, y, person, asked)
    arrays = {"X": X, "label": y, "box": box, "person": person}
    bad, _ = fuzz.outside(Case("gaussian", "any", {"var_smoothing": 1e-9, "classes": 2}, arrays), truth)
    assert not len(bad)


def test_whoever_leaves_a_class_empty_is_not_limited():
    y = np.repeat([0, 1], [11, 1])
    for asked in ("own", "any"):
        found = limits(small(label=y, asked=asked, settings={"var_smoothing": 1.0}))
        assert np.isinf(found.high).tolist() == [False] * 11 + [True]
        assert np.isinf(found.low).tolist() == [False] * 11 + [True]


def test_a_question_raises_what_is_shown():
    corners = np.array([[-2.0, -2.0], [-2.0, 3.0], [3.0, -2.0], [3.0, 3.0]])
    shown = np.max([limits(small(question=np.tile(q, (12, 1)))).low for q in corners], axis=0)
    found = limits(small())
    assert (shown > found.low + 1e-3).any()
    assert (shown <= found.high).all()
    beyond = limits(small(question=np.full((12, 2), 9.0)))
    assert np.array_equal(beyond.low, found.low)


@pytest.mark.parametrize(
    "broken",
    [
        {"X": np.full((12, 2), np.inf)},
        {"X": np.full((12, 2), np.nan)},
        {"X": np.zeros((12, 0))},
        {"label": np.zeros(12, dtype=np.int64)},
        {"settings": {"var_smoothing": -1.0}},
        {"settings": {"classes": 3}},
        {"settings": {"fit_prior": False}, "log_prior": np.array([0.0, -np.inf])},
        {"settings": {"fit_prior": True}, "log_prior": np.zeros(2)},
        {"box": np.array([[0.0, 0.0], [-1.0, 1.0]])},
        {"box": np.array([[-np.inf, 0.0], [1.0, 1.0]])},
        {"question": np.zeros((11, 2))},
    ],
)
def test_what_is_no_such_case_is_refused(broken):
    with pytest.raises(Refused):
        limits(small(**broken))
