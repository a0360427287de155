"""Cells of trees: real libraries asked at every cell's ends, under honest, lazy, wild and broken partitions."""

import contextlib
import itertools
import warnings
from dataclasses import replace

import numpy as np
import pytest
from lightgbm import LGBMClassifier
from sklearn.base import clone
from sklearn.ensemble import GradientBoostingClassifier, HistGradientBoostingClassifier, RandomForestClassifier
from xgboost import XGBClassifier

from privgate.engines import cell_partitions
from privgate.engines.cell_partitions import Effort
from privgate.families.trees import reading
from privgate.families.trees.ensemble import case_of
from privgate.kernel import Case, Refused, limits
from privgate.models import Floored

PEOPLE = 3


def proposed(case, effort):
    return cell_partitions.proposed(case, effort).case


def model(name, rng):
    depth, seed, trees = int(rng.integers(1, 4)), int(rng.integers(100)), int(rng.integers(1, 6))
    boosted = {
        "n_estimators": trees,
        "max_depth": depth,
        "learning_rate": float(rng.choice([0.1, 0.5])),
        "random_state": seed,
    }
    forest = RandomForestClassifier(trees, max_depth=depth, random_state=seed)
    return {
        "histogram": lambda: HistGradientBoostingClassifier(
            max_iter=trees, max_depth=depth, min_samples_leaf=2, random_state=seed
        ),
        "gradient": lambda: GradientBoostingClassifier(**boosted),
        "lightgbm": lambda: LGBMClassifier(min_child_samples=2, min_data_in_bin=1, n_jobs=1, verbose=-1, **boosted),
        "xgboost": lambda: XGBClassifier(n_jobs=1, min_child_weight=0.1, **boosted),
        "forest": lambda: Floored(forest, floor=float(rng.choice([0.01, 0.3]))),
    }[name]()


class Subject:
    """A small training, the same without each of a few people, and the questions at which anything can change."""

    def __init__(self, name, seed, classes=2, *, missing=False, most=25):
        rng = np.random.default_rng(seed)
        n, d = int(rng.integers(14, 30)), int(rng.integers(1, 4))
        X = np.round(rng.normal(size=(n, d)) * 2, int(rng.integers(0, 3)))
        y = (X[:, 0] + rng.normal(size=n) > 0).astype(int) + (classes > 2) * rng.integers(0, 2, n)
        y[: 2 * classes] = np.repeat(np.arange(classes), 2)
        if missing:
            X[rng.random(X.shape) < 0.2] = np.nan
        estimator = model(name, rng)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.models = [clone(estimator).fit(X, y)]
            self.models += [
                clone(estimator).fit(np.delete(X, i, 0), np.delete(y, i))
                for i in range(2 * classes, 2 * classes + PEOPLE)
            ]
        self.lost = np.full(d, missing)
        self.read = [reading.read(m, X=X, missing=self.lost) for m in self.models]
        low, high = np.nanmin(X, axis=0) - 1, np.nanmax(X, axis=0) + 1
        self.box = np.array([low, high])
        double = np.concatenate([self.box, np.array([np.zeros(d), self.lost])], axis=1) if missing else self.box
        self.case = case_of(self.read, double)
        ends = [
            np.unique(np.concatenate([[low[f], high[f]], *(e.cut[e.feature == f] for e in self.read)]))
            for f in range(d)
        ]
        ends = [
            np.clip(
                np.concatenate([e, np.nextafter(e, np.inf), np.nextafter(e.astype(np.float32), np.float32(np.inf))]),
                low[f],
                high[f],
            )
            for f, e in enumerate(ends)
        ]
        ends = [rng.permutation(np.unique(np.append(e, np.nan) if missing else e))[:most] for e in ends]
        self.questions = np.array(list(itertools.product(*ends)))

    def truth(self):
        """Largest change of any label's released log-probability, by person."""
        with np.errstate(divide="ignore", invalid="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            logs = [np.log(m.predict_proba(self.questions).astype(np.float64)) for m in self.models]
            return np.array([np.abs(logs[0] - other).max() for other in logs[1:]])


NAMES = ["histogram", "gradient", "lightgbm", "xgboost", "forest"]


@pytest.mark.quick(5)
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("name", NAMES)
def test_no_question_goes_beyond_a_limit_whatever_the_partition(name, classes, seed):
    subject = Subject(name, 100 * seed + classes, classes)
    truth, rng = subject.truth(), np.random.default_rng(seed)

    effort = Effort(boxes=300, limit=max(float(truth.max()), 1e-3))
    honest = proposed(subject.case, effort)
    lazy = proposed(subject.case, Effort(boxes=1))
    wild = Case(
        "cells", "any", honest.settings, {**honest.arrays, "cuts": rng.normal(size=len(honest.arrays["cuts"])) * 3}
    )

    found = limits(honest)
    assert (found.high >= truth).all()
    assert (limits(lazy).high >= truth).all()
    assert (limits(wild).high >= truth).all()
    assert (found.high <= limits(lazy).high + effort.close).all()  # so near to what is attained a search ends
    assert (found.low == 0).all()


@pytest.mark.quick(2)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", ["histogram", "lightgbm", "xgboost"])
def test_missing_values_are_questions_too(name, seed):
    subject = Subject(name, seed, missing=True)

    assert (limits(proposed(subject.case, Effort(boxes=300))).high >= subject.truth()).all()


def test_with_enough_boxes_a_limit_is_the_largest_change_of_the_log_odds():
    close = []
    for seed in range(3):
        subject = Subject("histogram", seed, most=None)
        log_odds = [np.diff(np.log(m.predict_proba(subject.questions)), axis=1) for m in subject.models]
        truth = np.array([np.abs(log_odds[0] - other).max() for other in log_odds[1:]])
        close.append(limits(proposed(subject.case, Effort(boxes=2_000, close=0.0))).high - truth)

    assert np.max(close) < 1e-6


@pytest.fixture(scope="module")
def good():
    return proposed(Subject("gradient", 7).case, Effort(boxes=20))


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("partition", lambda a: a[:-1]),
        ("partition", lambda a: np.append(a, -1)),
        ("partition", lambda a: np.where(a >= 0, 99, a)),
        ("partition", np.zeros_like),
        ("partition_start", lambda a: a[:-1]),
        ("partition_start", lambda a: a * 2),
        ("partition_start", lambda a: a[:0]),
        ("partition_start", np.ndarray.tolist),
        ("cuts", lambda a: np.full_like(a, np.nan)),
        ("cuts", lambda a: a.astype(np.float32)),
        ("value", lambda a: np.full_like(a, np.inf)),
        ("value", lambda a: np.full_like(a, np.nan)),
        ("left", lambda a: np.where(a > 0, 0, a)),
        ("left", lambda a: a + 10_000),
        ("feature", lambda a: np.where(a >= 0, 99, a)),
        ("tree", lambda a: a[::-1].copy()),
        ("model", lambda a: a[:-1]),
        ("group", lambda a: a + 1),
        ("base", lambda a: a[:1]),
        ("base", lambda a: np.full_like(a, np.inf)),
        ("box", lambda a: a[::-1].copy()),
        ("box", lambda a: np.full_like(a, np.nan)),
        ("box", lambda a: a[:, :0]),
    ],
)
def test_what_is_broken_limits_nobody(good, name, change):
    assert np.isfinite(limits(good).high).all()
    broken = Case("cells", "any", good.settings, {**good.arrays, name: change(good.arrays[name])})

    try:
        found = limits(broken)
    except Refused:
        return
    assert np.isinf(found.high).all()


@pytest.mark.parametrize(
    "change",
    [
        {"base_off": -1e-3},
        {"base_off": 10**400},
        {"link": "probit"},
        {"scale": 0.0},
        {"scale": float("nan")},
        {"link": "mean", "floor": 0.0},
    ],
)
def test_settings_that_are_none_are_refused(good, change):
    with contextlib.suppress(Refused):
        assert np.isinf(limits(Case("cells", "any", {**good.settings, **change}, good.arrays)).high).all()
    with pytest.raises(Refused, match="real models"):
        limits(Case("cells", "own", good.settings, good.arrays))


def test_what_single_precision_releases_as_0_is_not_limited():
    """XGBoost computes 1 - p in single precision: from a score of 16.6 on it is 0."""
    X, y = np.repeat([[0.0], [1.0]], 40, axis=0), np.repeat([0, 1], 40)
    deep = [
        XGBClassifier(n_estimators=60, learning_rate=1.0, reg_lambda=0.0, min_child_weight=0.0, n_jobs=1).fit(
            X[k:], y[k:]
        )
        for k in (0, 1)
    ]
    case = case_of([reading.read(m, X=X) for m in deep], np.array([[0.0], [1.0]]))

    assert deep[0].predict_proba([[1.0]]).min() < 1e-7
    assert np.isinf(limits(proposed(case, Effort())).high).all()


def answered(models, Q):
    """The questions that no model refuses."""
    try:
        for m in models:
            m.predict_proba(Q)
    except ValueError:
        return Q[:0] if len(Q) == 1 else np.concatenate([answered(models, half) for half in np.array_split(Q, 2)])
    return Q


@pytest.mark.quick(1)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("name", NAMES)
def test_without_a_box_infinity_and_the_ends_of_a_number_type_are_questions(name, kind, seed):
    """What is missing tells the label, so that some splits ask of a value only whether it is there."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(40, 2)).astype(kind)
    y = (X[:, 0] > 0).astype(int)
    if learns := name in ("histogram", "lightgbm", "xgboost"):
        X[::3, 0] = np.nan
        y = np.isnan(X[:, 0]).astype(int)
    y[:8] = [0, 1] * 4
    estimator, lost = model(name, np.random.default_rng(seed)), np.full(2, name != "gradient")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        models = [clone(estimator).fit(X, y)]
        models += [clone(estimator).fit(np.delete(X, i, 0), np.delete(y, i)) for i in (0, 3, 9)]
        read = [reading.read(m, X=X, missing=lost) for m in models]
        far, ends = float(np.finfo(kind).max), list[np.ndarray]()
        for f in range(2):
            cuts = np.concatenate([e.cut[e.feature == f] for e in read]).astype(kind)
            beside = np.concatenate([cuts, np.nextafter(cuts, kind(np.inf)), np.nextafter(cuts, kind(-np.inf))])
            ends.append(np.unique(np.append(beside, [far, -far, np.inf, -np.inf, np.nan, 0.0]).astype(kind)))
        Q = answered(models, np.array(list(itertools.product(*ends)), dtype=kind))
        logs = [np.log(m.predict_proba(Q).astype(np.float64)) for m in models]
    truth = np.array([np.abs(logs[0] - other).max() for other in logs[1:]])
    box = np.array([[-np.inf] * 2, [np.inf] * 2])
    if lost.any():
        box = np.concatenate([box, [np.zeros(2), lost]], axis=1)

    found = limits(proposed(case_of(read, box), Effort(boxes=300))).high

    assert len(Q) > 3
    assert (np.isinf(Q).any() and np.isnan(Q).any()) or not learns or name == "xgboost"
    assert (found >= truth).all()


def test_infinity_is_beyond_every_finite_cut_and_beyond_no_infinite_one():
    """A split on whether a value is missing has an infinite cut: the library sends infinity left there, too."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 1))
    X[::3] = np.nan
    y = np.isnan(X[:, 0]).astype(int)
    y[:4] = [0, 1, 0, 1]
    models = [
        HistGradientBoostingClassifier(max_iter=1, max_depth=1, min_samples_leaf=2).fit(X[k:], y[k:]) for k in (0, 1)
    ]
    read = [reading.read(m, X=X) for m in models]
    assert all(np.isinf(e.cut).any() for e in read)
    log_odds = [np.diff(np.log(m.predict_proba([[np.inf], [-1e308], [0.0]])), axis=1) for m in models]
    everything = np.array([[-np.inf], [np.inf]])

    found = limits(proposed(case_of(read, everything), Effort())).high[0]
    largest = [replace(e, cut=np.minimum(e.cut, np.finfo(np.float64).max)) for e in read]
    wider = limits(proposed(case_of(largest, everything), Effort())).high[0]

    assert found == pytest.approx(np.abs(log_odds[0] - log_odds[1]).max(), abs=1e-9)
    assert wider > found + 1e-3  # beyond the largest finite cut lies infinity


def test_where_questions_are_whole_numbers_a_cut_says_what_the_whole_number_below_it_does():
    X, y = np.arange(8.0)[:, None], np.array([0, 0, 0, 0, 1, 1, 1, 1])
    one = reading.read(GradientBoostingClassifier(n_estimators=1, max_depth=1, init="zero").fit(X, y), X=X)
    box = np.array([[0.0], [7.0]])
    assert one.cut.max() == 3.5

    for other, changes in ((3.1, False), (2.9, True)):
        pair = one, replace(one, cut=np.where(one.feature >= 0, other, 0.0))
        assert (limits(proposed(case_of(pair, box, whole=True), Effort())).high[0] > 0.1) == changes
        assert limits(proposed(case_of(pair, box), Effort())).high[0] > 0.1
