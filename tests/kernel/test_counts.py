"""Counting models: no real refit of the library answers outside the limits, and what is not shown is refused."""

import numpy as np
import pytest
from sklearn.naive_bayes import BernoulliNB, GaussianNB

from privgate.kernel import Case, Refused, counts, limits
from privgate.models import ContingencyTable
from tests.kernel import fuzz_counts as fuzz

#: problems of each family in the default run, how near limits are to what refits show, and how many are infinite
DEFAULT = {"categorical": (14, 1.3, 0.05), "gaussian": (24, 1.2, 0.15), "partitions": (30, 1.3, 0.05)}


@pytest.mark.quick(2)
@pytest.mark.parametrize("asked", ["own", "any"])
@pytest.mark.parametrize("family", DEFAULT)
def test_no_refit_answers_outside_its_limits(family, asked):
    ratios, (number, near, infinite) = [], DEFAULT[family]
    for seed in range(number):
        bad, ratio = fuzz.judged(family, seed, asked)
        assert not len(bad), (seed, bad)
        ratios.extend(ratio)
    assert len(ratios) > (200 if family == "gaussian" else 50)
    assert np.isinf(ratios).mean() < infinite  # of odds beyond e^700 a probability may be released as 0
    assert np.median(ratios) < (1.0001 if asked == "own" else near)


@pytest.mark.slow
@pytest.mark.parametrize("asked", ["own", "any"])
@pytest.mark.parametrize("family", DEFAULT)
@pytest.mark.parametrize("first", range(1000, 1400, 50))
def test_no_refit_of_many_answers_outside_its_limits(family, asked, first):
    for seed in range(first, first + 50):
        assert not len(fuzz.judged(family, seed, asked)[0]), seed


@pytest.mark.quick(1)
@pytest.mark.parametrize("few", [True, False])
def test_few_questions_are_all_put_and_many_are_not(monkeypatch, few):
    """The same problems: all accepted questions by refits of the library, which the limits meet or hold."""
    ratios = []
    if not few:
        monkeypatch.setattr(counts, "_ANSWERS", 0)
    for seed in range(100, 125):
        bad, ratio = fuzz.judged("categorical", seed, "any")
        assert not len(bad), (seed, bad)
        ratios.extend(ratio[np.isfinite(ratio)])
    assert (np.quantile(ratios, 0.9) < 1.001) == few


@pytest.mark.quick(1)
@pytest.mark.parametrize("limit", [1e-9, 0.3])
def test_the_ends_of_two_classes_are_what_enumeration_finds(monkeypatch, limit):
    """Never below what every accepted question shows by refits, and for those above the limit no more."""
    near = []
    monkeypatch.setattr(counts, "_ANSWERS", 0)
    for seed in range(200, 350):
        make, X, y, person, settings, arrays, questions = fuzz.categorical(seed)
        if settings["classes"] > 2 or settings["alpha"] < 1e-3:
            continue
        truth, case = fuzz.changes(make, X, y, person, questions), Case("categorical", "any", settings, arrays)
        case.settings["limit"] = limit
        tight = limits(case)
        with monkeypatch.context() as without:
            without.setattr(counts, "_ENDS", 0)
            wide = limits(case)
        assert ((tight.low <= truth) & (truth <= tight.high) & (tight.high <= wide.high)).all(), seed
        above = np.isfinite(truth) & (wide.high > limit) & np.isfinite(wide.high)
        near.extend(tight.high[above] - truth[above])
    assert len(near) >= 49
    assert np.max(near) < 1e-6


@pytest.mark.parametrize("alpha", [1e-3, 1.0, 0.0])
def test_tables_without_smoothing_and_declared_classes_answer_inside_their_limits(alpha):
    """Shares of one table by refits of the model: a class may vanish where it is declared, and a cell may be empty."""
    rng, infinite = np.random.default_rng(5), 0
    for _ in range(15):
        n = int(rng.integers(6, 25))
        X, y = rng.integers(0, 3, (n, 1)), np.append(rng.integers(0, 2, n - 1), 2)
        y, classes = np.unique(y, return_inverse=True)[1], [0, 1, 2, 3] if alpha or rng.random() < 0.5 else None
        everybody, truth = ContingencyTable(alpha=alpha, classes=classes).fit(X, y).predict_proba(X), np.full(n, np.inf)
        for u in range(n):
            kept = np.arange(n) != u
            if classes is not None or len(np.unique(y[kept])) == len(np.unique(y)):
                p = ContingencyTable(alpha=alpha, classes=classes).fit(X[kept], y[kept]).predict_proba(X)
                with np.errstate(divide="ignore", invalid="ignore"):
                    truth[u] = np.where(p == everybody, 0.0, np.abs(np.log(p) - np.log(everybody))).max()
        settings = {"alpha": alpha, "classes": int(y.max()) + 1 if classes is None else 4, "average": "arithmetic"}
        leaf = np.unique(X, return_inverse=True)[1].reshape(-1, 1)
        arrays = {"leaf": leaf, "label": y, "sizes": np.array([leaf.max() + 1])}
        case = Case("partitions", "any", settings | {"declared": classes is not None}, arrays)
        assert not len(fuzz.outside(case, truth)[0])
        np.testing.assert_allclose(limits(case).high, truth, atol=1e-9)
        infinite += int(np.isinf(truth).sum())
    assert (infinite > 0) == (alpha == 0)


def small(**more):
    """A categorical case of two features and seven records, all of whose questions can be asked."""
    codes = np.array([[0, 0], [0, 1], [1, 1], [1, 1], [2, 0], [0, 0], [1, 0]])
    settings = {"alpha": 0.5, "classes": 2, "fit_prior": True, "bernoulli": False} | more.pop("settings", {})
    sizes = np.array([3, 2])
    arrays = {"codes": codes, "label": np.array([0, 0, 0, 1, 1, 1, 0]), "sizes": sizes, "accepted": sizes}
    return Case("categorical", more.pop("asked", "any"), settings, {**arrays, "floor": sizes, **more})


def test_a_fixed_prior_loses_nothing_with_a_record():
    fitted, uniform = limits(small()), limits(small(settings={"fit_prior": False}))
    stated = limits(small(settings={"fit_prior": False}, log_prior=np.log([0.5, 0.5])))
    assert np.allclose(uniform.high, stated.high)
    assert not np.allclose(uniform.high, fitted.high)


def test_the_only_record_of_a_class_or_of_the_highest_category_is_not_limited():
    alone = limits(small(label=np.array([0, 0, 0, 1, 0, 0, 0])))
    assert np.flatnonzero(np.isinf(alone.high)).tolist() == [3]
    followed = limits(small(floor=np.array([0, 2])))
    assert np.flatnonzero(np.isinf(followed.high)).tolist() == np.flatnonzero(np.isinf(followed.low)).tolist() == [4]
    assert not np.isinf(limits(small(floor=np.array([0, 2]), accepted=np.array([2, 2]))).low).any()


def eight(**more):
    """Eight records of two binary features, smoothing 1: record 4 tells .4759 at itself, .5815 at (0, 0)."""
    codes, two = np.array([[0, 0]] * 4 + [[0, 1]] + [[1, 1]] * 3), np.array([2, 2])
    arrays = {"codes": codes, "label": np.repeat([0, 1], 4), "sizes": two, "floor": two, "accepted": two} | more
    return limits(small(**arrays, settings={"alpha": 1.0, "limit": arrays.pop("limit", 1.0)}))


def test_a_question_raises_what_is_shown():
    at_itself, told = eight(), eight(question=np.zeros((8, 2), dtype=np.int64))
    assert at_itself.low[4] == pytest.approx(np.log(375 / 233), abs=1e-9)
    assert told.low[4] == pytest.approx(np.log(1304 / 729), abs=1e-9)
    assert np.array_equal(eight(question=np.full((8, 2), -1)).low, at_itself.low)
    beyond = eight(question=np.ones((8, 2), dtype=np.int64), accepted=np.array([2, 1]))
    assert not beyond.low[4:].any()


def test_two_classes_are_tightened_where_the_policy_limit_lies_between(monkeypatch):
    monkeypatch.setattr(counts, "_ANSWERS", 0)
    wide, tight = eight(limit=100.0).high[4], eight(limit=0.5).high[4]
    assert wide == pytest.approx(0.7963, abs=1e-3)
    assert np.log(1304 / 729) <= tight < 0.65


@pytest.mark.parametrize(
    "broken",
    [
        *({"settings": {"alpha": alpha}} for alpha in (0.0, -1.0, float("nan"))),
        *({"settings": {"classes": classes}} for classes in (1, 3)),
        {"settings": {"fit_prior": None}},
        {"settings": {"bernoulli": True}},
        {"log_prior": np.log([0.5, 0.5])},
        *({"sizes": np.array(sizes)} for sizes in ([3, 3], [2, 2])),
        *({"accepted": np.array(sizes)} for sizes in ([4, 2], [0, 2])),
        {"codes": np.full((7, 2), -1)},
        {"codes": np.zeros((0, 2), dtype=np.int64)},
        {"label": np.zeros(6, dtype=np.int64)},
        {"label": np.array([0, 0, 0, 1, 1, 1, 2])},
        {"person": np.array([0, 0, 0, 1, 1, 1, 3])},
        {"question": np.zeros((6, 2), dtype=np.int64)},
    ],
)
def test_what_is_no_such_case_is_refused(broken):
    with pytest.raises(Refused):
        limits(small(**broken))


@pytest.mark.parametrize("n", range(50, 1000, 97))
def test_bernoulli_refits_with_little_smoothing_stay_inside(n):
    X, y, two, person = np.ones((n, 2), dtype=np.int64), np.arange(n) % 2, np.array([2, 2]), np.minimum(np.arange(n), 8)
    X[y == 1, 1] = np.arange((y == 1).sum()) % 3 > 0
    asked, settings = np.array([[0, 0], [0, 1], [1, 0], [1, 1]]), {"alpha": 3e-10}
    truth = fuzz.changes(lambda: BernoulliNB(binarize=None, **settings), X, y, person, asked)
    arrays = {"codes": X, "label": y, "person": person, "sizes": two, "floor": two, "accepted": two}
    settings |= {"classes": 2, "fit_prior": True, "bernoulli": True}
    assert not len(fuzz.outside(Case("categorical", "any", settings, arrays), truth)[0])


# Gaussian naive Bayes.


@pytest.mark.parametrize("offset", [1718452800.1, 1e6 + 0.1, 0.1])
@pytest.mark.parametrize("n", range(60, 1000, 157))
def test_a_constant_far_from_0_is_rounding_that_refits_show(n, offset):
    """Means of a class err by how many records it has; only another constant than the column's is asked about."""
    rng = np.random.default_rng(n)
    y, person = (rng.random(n) < 0.3).astype(np.int64), np.minimum(np.arange(n), 6)
    X = np.column_stack([np.full(n, offset), rng.normal(size=n) + y])
    wide = np.array([1e-3, 0.0])
    box = np.array([X.min(axis=0) - wide, X.max(axis=0) + wide])
    truth = fuzz.changes(GaussianNB, X, y, person, np.concatenate([box, X]))
    arrays = {"X": X, "label": y, "box": box, "person": person}
    case = Case("gaussian", "any", {"var_smoothing": 1e-9, "classes": 2}, arrays)
    assert not len(fuzz.outside(case, truth)[0])


def twelve(**more):
    """A case of twelve records of two features."""
    y = np.repeat([0, 1], 6)
    X = np.round(np.random.default_rng(5).normal(size=(12, 2)) + y[:, None], 2)
    settings = {"var_smoothing": 1e-2, "classes": 2} | more.pop("settings", {})
    arrays = {"X": X, "label": y, "box": np.array([[-2.0, -2.0], [3.0, 3.0]])}
    return Case("gaussian", more.pop("asked", "any"), settings, {**arrays, **more})


def test_whoever_leaves_a_class_empty_is_not_limited():
    for asked in ("own", "any"):
        found = limits(twelve(label=np.repeat([0, 1], [11, 1]), asked=asked, settings={"var_smoothing": 1.0}))
        assert np.isinf(found.high).tolist() == np.isinf(found.low).tolist() == [False] * 11 + [True]


def test_a_question_of_numbers_raises_what_is_shown():
    corners, found = np.array([[-2.0, -2.0], [-2.0, 3.0], [3.0, -2.0], [3.0, 3.0]]), limits(twelve())
    shown = np.max([limits(twelve(question=np.tile(q, (12, 1)))).low for q in corners], axis=0)
    assert (shown > found.low + 1e-3).any()
    assert (shown <= found.high).all()
    assert np.array_equal(limits(twelve(question=np.full((12, 2), 9.0))).low, found.low)


@pytest.mark.parametrize(
    "broken",
    [
        *({"X": np.full((12, 2), value)} for value in (np.inf, np.nan)),
        {"X": np.zeros((12, 0))},
        {"label": np.zeros(12, dtype=np.int64)},
        {"settings": {"var_smoothing": -1.0}},
        {"settings": {"classes": 3}},
        {"settings": {"fit_prior": False}, "log_prior": np.array([0.0, -np.inf])},
        {"settings": {"fit_prior": True}, "log_prior": np.zeros(2)},
        *({"box": np.array([[low, 0.0], [high, 1.0]])} for low, high in ((0.0, -1.0), (-np.inf, 1.0))),
        {"question": np.zeros((11, 2))},
    ],
)
def test_what_is_no_case_of_numbers_is_refused(broken):
    with pytest.raises(Refused):
        limits(twelve(**broken))
