"""Histogram boosting without each record: what is compiled equals refits of the library, or says that it does not."""

import importlib
import re
import sys
from dataclasses import replace

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier as Boosting

from privgate.families import answering
from privgate.families.engine import Asked
from privgate.families.retrained import Shown
from privgate.families.trees import hist_boosting
from privgate.families.trees.hist_boosting import ENGINE
from privgate.subject.data import TrainingData
from privgate.subject.recipe import Recipe
from privgate.subject.subject import Subject

N = 48


def ties(rng):
    """Few values, duplicates, a column twice, one that is constant."""
    X = rng.integers(0, 4, (N, 5)).astype(float)
    X[:, 3], X[:, 4] = X[:, 0], 7.0
    X[1], X[5] = X[0], X[4]
    return X


def lonely(rng):
    """People who hold the first, the last, or a middle value alone; a column with one value more than eight bins."""
    X = rng.integers(1, 5, (N, 4)) * 2.0
    X[0], X[1], X[2] = 0.0, 99.0, [3.0, 5.0, 7.0, 2.0]
    X[:, 3] = np.append(np.arange(9.0), rng.integers(0, 8, N - 9))
    return X


def percentiles(rng):
    """More values than bins, in one column with ties."""
    X = rng.normal(size=(N, 4)) ** 3
    X[:, 1] = np.round(X[:, 1], 1)
    return X


def mixed(rng):
    return np.column_stack([percentiles(rng)[:, :2], lonely(rng)[:, :2]]).astype(np.float32)


SETTINGS = {
    "defaults": {},
    "small leaves": {"min_samples_leaf": 3, "max_leaf_nodes": 6, "max_bins": 8},
    "single records": {"min_samples_leaf": 1, "max_leaf_nodes": None, "learning_rate": 1.0, "max_bins": 8},
    "shallow": {"min_samples_leaf": 2, "max_depth": 2, "l2_regularization": 2.0, "max_bins": 4},
    "stumps": {"min_samples_leaf": 4, "max_leaf_nodes": 2, "learning_rate": 0.3, "max_bins": 16},
    "steep": {"min_samples_leaf": 1, "max_depth": 4, "learning_rate": 3.0, "max_bins": 255},
    "two bins": {"min_samples_leaf": 5, "max_bins": 2, "l2_regularization": 0.1},
}


def labelled(make, seed, K):
    rng = np.random.default_rng(seed)
    X = make(rng)
    y = (X[:, 0] + rng.normal(size=N) > np.median(X[:, 0])).astype(int) if K == 2 else rng.integers(0, K, N)
    y[: 2 * K] = np.tile(np.arange(K), 2)
    return X, y, rng


def answers(direct, model, X, y, **more):
    subject = direct.subject(model, X, y, **more)
    units = np.arange(len(subject.data.units))
    made, left = ENGINE.answers(Asked(subject, units, (None,), None))
    return subject, made, left


@pytest.mark.quick(5)
@pytest.mark.parametrize("make", [ties, lonely, percentiles, mixed], ids=lambda f: f.__name__)
@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("K", [2, 3])
def test_equals_refits_without_everybody(direct, make, setting, K):
    X, y, _ = labelled(make, 1, K)
    model = Boosting(max_iter=12, early_stopping=False, random_state=0, **SETTINGS[setting])

    subject, made, left = answers(direct, model, X, y)

    assert not len(left)
    assert (made.status == "exact").all()
    assert direct.worst_difference(made, model, subject) <= 1e-9


@pytest.mark.parametrize("make", [ties, percentiles], ids=lambda f: f.__name__)
def test_is_asked_anything_beside_the_own_record(direct, make):
    X, y, rng = labelled(make, 2, 2)
    others = make(rng)[:10] + 0.25, y[:10]
    model = Boosting(max_iter=12, min_samples_leaf=3, max_bins=8, early_stopping=False)
    subject = direct.subject(model, X, y, candidates=others)
    units = np.sort(rng.permutation(N)[:20])
    queries = np.repeat(np.arange(20), 3), rng.integers(0, N + 10, 60)

    made, left = ENGINE.answers(Asked(subject, units, (None,), None, queries))

    assert not len(left)
    assert made.row_query.tolist() == queries[1].tolist()
    assert direct.worst_difference(made, model, subject) <= 1e-9


def test_does_not_depend_on_who_else_is_asked_about_nor_on_threads(direct):
    X, y, _ = labelled(mixed, 3, 2)
    model = Boosting(max_iter=12, min_samples_leaf=3, max_bins=8, early_stopping=False)
    subject, made, _ = answers(direct, model, X, y)
    posed = hist_boosting._posed(subject)

    for workers in (1, 3):
        some = np.array([40, 2, 2, 7])
        found = hist_boosting.without(posed, some, np.ones(4, dtype=np.int64), some, workers)
        assert np.array_equal(found, made.log_without[0, some])


def test_hands_on_people_with_several_records_and_the_last_of_a_declared_class(direct):
    X, y, rng = labelled(ties, 4, 3)
    y[y == 2] = 0
    y[3] = 2
    model = Boosting(max_iter=5, min_samples_leaf=3, early_stopping=False)

    subject, made, left = answers(direct, model, X, y)
    assert not len(left)
    assert made.status[3] == "undefined"
    assert direct.worst_difference(made, model, subject) <= 1e-9

    subject, made, left = answers(direct, model, X, y, groups=rng.integers(0, 30, N))
    assert sorted([*made.units, *left]) == list(range(len(subject.data.units)))
    several = np.diff(subject.data.units.bounds) > 1
    assert several[left].all()
    assert (made.status[several[made.units]] == "undefined").all()  # who takes a class along has no model
    assert direct.worst_difference(made, model, subject) <= 1e-9


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"max_features": 0.5}, "max_features"),
        ({"class_weight": "balanced"}, "class_weight"),
        ({"monotonic_cst": [1, 0, 0]}, "monotonic_cst"),
        ({"interaction_cst": "pairwise"}, "interaction_cst"),
        ({"categorical_features": [0]}, "categorical_features"),
        ({"early_stopping": True}, "stops early"),
        ({"warm_start": True}, "warm_start"),
        ({"max_bins": 256}, "max_bins"),
        ({"l2_regularization": 1e155, "learning_rate": 0.1}, "beyond 1e\\+100"),
        ({"learning_rate": 1e155}, "beyond 1e\\+100"),
        ({"max_leaf_nodes": None, "min_samples_leaf": 1, "max_bins": 255, "n": 9_000, "d": 40}, "memory"),
        ({"early_stopping": "auto", "n": 10_001}, "stops early"),
        ({"n": 298}, "as fast as a sample"),
        ({"labels": 1}, "one class"),
        ({"large": 1e301}, "beyond 1e\\+300"),
        ({"large": np.nan}, "NaN"),
    ],
    ids=lambda v: ",".join(v) if isinstance(v, dict) else "",
)
def test_says_why_it_does_not_cover(change, why):
    rng = np.random.default_rng(0)
    data = {"n": 400, "d": 3, "labels": 2, "large": 0.0} | {k: change[k] for k in change if k in ("n", "d", "labels")}
    X, y = rng.normal(size=(data["n"], data["d"])), np.arange(data["n"]) % data["labels"]
    X[5, 1] += change.get("large", 0.0)
    parameters = {k: v for k, v in change.items() if k not in ("n", "d", "labels", "large")}
    model = Boosting(**{"early_stopping": False, "random_state": 0} | parameters)
    fine = Subject.local(Recipe(Boosting(random_state=0)), TrainingData(rng.normal(size=(400, 3)), np.arange(400) % 2))

    assert ENGINE.supports(fine) == ""
    with pytest.raises(AssertionError, match=why):
        assert not ENGINE.supports(Subject.local(Recipe(model), TrainingData(X, y))), ENGINE.supports(
            Subject.local(Recipe(model), TrainingData(X, y))
        )


@pytest.mark.parametrize(
    ("raised", "why"),
    [
        (ModuleNotFoundError("No module named 'numba'"), "pip install 'privgate\\[boosting\\]'"),
        (ImportError("Numba needs NumPy 2.0 or less"), "pip install 'privgate\\[boosting\\]'"),
        (RuntimeError("cannot cache function '_edges': no locator available"), "set NUMBA_CACHE_DIR"),
    ],
    ids=["missing", "broken", "no cache"],
)
def test_says_what_to_do_where_numba_compiles_nothing(monkeypatch, raised, why):
    X = np.random.default_rng(0).normal(size=(400, 3))
    subject = Subject.local(Recipe(Boosting(random_state=0)), TrainingData(X, np.arange(400) % 2))
    found = importlib.import_module("numba")

    def njit(**_):
        raise raised

    monkeypatch.delitem(sys.modules, "privgate.families.trees.boosting_loop", raising=False)
    monkeypatch.delattr("privgate.families.trees.boosting_loop", raising=False)
    monkeypatch.setattr(found, "njit", njit)
    hist_boosting._uncompiled.cache_clear()
    try:
        assert re.search(why, ENGINE.supports(subject))
        assert answering.first(subject)[0].name == "tree_ensembles"
    finally:
        hist_boosting._uncompiled.cache_clear()


@pytest.fixture(scope="module")
def boosted():
    rng = np.random.default_rng(5)
    X = rng.integers(0, 30, (400, 4)).astype(float)
    y = (X[:, 0] + 10 * rng.normal(size=400) > 15).astype(int)
    model = Boosting(max_iter=6, max_leaf_nodes=4, learning_rate=0.05, random_state=0)
    return Subject.local(Recipe(model, seed=0), TrainingData(X, y))


def test_ranks_people_and_refits_decide(boosted, fleet):
    asked = Asked(boosted, np.arange(400), (0,), fleet, limits=(1.0,))

    found = answering.answer(asked)

    shown = found.retrained.shown
    assert set(found.retrained.engine) == {"hist_boosting"}
    assert (shown == Shown.DRAWN).sum() == ENGINE.sample
    assert 0 < (shown == Shown.CHOSEN).sum() <= 10
    assert (shown == Shown.LIMITED).sum() == 0
    assert (found.retrained.error <= 1e-9).all()
    assert [c.outcome for c in found.rechecks] == ["passed"]
    assert fleet.calls < 170


def test_is_not_used_where_it_is_wrong(boosted, fleet, monkeypatch):
    right = hist_boosting._log_probabilities
    monkeypatch.setattr(hist_boosting, "_log_probabilities", lambda scores: right(scores + 1e-3))
    hist_boosting._posed.cache_clear()

    found = answering.answer(Asked(boosted, np.arange(400), (0,), fleet, limits=(1.0,)))

    hist_boosting._posed.cache_clear()
    assert [c.outcome for c in found.rechecks] == ["warned"]
    assert set(found.retrained.engine) == {"tree_ensembles"}


def test_theorems_that_compare_trees_get_those_of_the_recipe(boosted, fleet):
    asked = Asked(boosted, np.arange(3), (0,), fleet, changes=True)

    assert answering.first(boosted)[0].name == "hist_boosting"
    for wants in ({"compared": True}, {"sampled": True}):
        assert answering.first(boosted, **wants)[0].name == "tree_ensembles"
    found = answering.answer(asked)
    assert set(found.retrained.engine) == {"tree_ensembles"}
    assert "trees" in found.retrained.changes
    assert set(answering.answer(replace(asked, changes=False)).retrained.engine) == {"hist_boosting"}


def test_sums_are_added_as_numpy_adds_them():
    from privgate.families.trees import boosting_loop

    rng = np.random.default_rng(0)
    cells = np.zeros(256, dtype=[("g", "f8"), ("h", "f8"), ("n", "u4")])  # as the library's histograms lie
    for n in range(3, 257):
        cells["g"][:n] = rng.normal(size=n) * 10.0 ** rng.integers(-9, 9, n)
        assert boosting_loop._sum(np.ascontiguousarray(cells["g"][:n]), n) == cells["g"][:n].sum()


def test_nodes_of_equal_gain_leave_the_heap_as_they_do_in_python():
    import heapq

    from privgate.families.trees import boosting_loop

    class Node:
        def __init__(self, name, gain):
            self.name, self.gain = name, gain

        def __lt__(self, other):
            return self.gain > other.gain

    rng = np.random.default_rng(0)
    for _ in range(50):
        gain, heap, theirs, size = rng.integers(0, 4, (60, 1)).astype(float), np.zeros(60, dtype=np.int64), [], 0
        for k in range(60):
            boosting_loop._push(heap, size, k, gain)
            heapq.heappush(theirs, Node(k, gain[k, 0]))
            size += 1
            if rng.random() < 0.4:
                assert boosting_loop._pop(heap, size, gain) == heapq.heappop(theirs).name
                size -= 1
        while theirs:
            assert boosting_loop._pop(heap, size, gain) == heapq.heappop(theirs).name
            size -= 1


def test_a_refit_is_what_it_is_compared_with(direct):
    """A changed record moves both: the comparison can fail."""
    X, y, _ = labelled(ties, 1, 2)
    model = Boosting(max_iter=5, min_samples_leaf=2, early_stopping=False)
    subject, made, _ = answers(direct, model, X, y)

    other = clone(model).set_params(learning_rate=0.11)
    assert direct.worst_difference(made, other, subject) > 1e-4
