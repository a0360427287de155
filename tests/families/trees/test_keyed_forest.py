"""Keyed forests: the engine against forests that never saw the record, and the forest as a plain estimator."""

import pickle
import time

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from privgate import Domain, Recipe, Subject, TrainingData
from privgate.families.certificate import Units
from privgate.families.engine import Asked
from privgate.families.trees import refits, tree_cells
from privgate.families.trees.keyed_forest import ENGINE
from privgate.models import KeyedForest, growing, splitting


def table(seed, n=None):
    rng = np.random.default_rng(seed)
    n, d, K = int(rng.integers(30, 100)) if n is None else n, int(rng.integers(1, 6)), int(rng.integers(2, 4))
    X = np.round(rng.normal(size=(n, d)), int(rng.integers(0, 3)))  # many ties
    y = np.concatenate([np.arange(K), np.arange(K), rng.integers(0, K, n - 2 * K)])
    X[8], y[8] = X[9], y[9]  # a duplicate
    return X, y, rng


def answered(model, X, y, units, *, queries=None, seed=0, domain=None, **more):
    subject = Subject.local(Recipe(model, seed=seed), TrainingData(X, y, domain=domain, **more))
    assert ENGINE.supports(subject) == ""
    made, left = ENGINE.answers(Asked(subject, units, (seed,), None, queries, changes=True))
    return subject, made, left


@pytest.mark.quick(1)
@pytest.mark.parametrize("seed", range(5))
def test_equals_forests_that_never_saw_the_record_at_any_question(seed):
    X, y, rng = table(seed)
    n = len(y)
    model = KeyedForest(
        10,
        max_depth=[None, 3][seed % 2],
        min_samples_leaf=1 + seed % 3,
        max_features=[None, 1, "sqrt"][seed % 3],
        random_state=seed,
    )
    units = np.arange(n)
    queries = np.repeat(units, 3), np.stack([units, *rng.integers(0, n + 10, (2, n))], axis=1).ravel()
    others = rng.normal(size=(10, X.shape[1])), y[:10]
    subject, made, left = answered(model, X, y, units, queries=queries, seed=seed, candidates=others)
    assert not len(left)
    pool = subject.data.pool()[0]
    everybody = np.log(clone(model).fit(X, y).predict_proba(pool))
    np.testing.assert_allclose(made.log_with[0], everybody[made.row_query], rtol=0, atol=1e-12)
    for u in units:
        without = np.log(clone(model).fit(X[units != u], y[units != u]).predict_proba(pool))
        rows = made.row_unit == u
        np.testing.assert_allclose(made.log_without[0, rows], without[made.row_query[rows]], rtol=0, atol=1e-12)
        trees = made.changes[refits.WITHOUT][0, u].expanded()
        np.testing.assert_allclose(trees.log_probabilities(pool), without, rtol=0, atol=1e-12)


def test_nobody_else_moves_and_a_record_is_its_own_features_and_label():
    X, y, _ = table(3, n=60)
    rules = KeyedForest().rules(X, y, int(y.max()) + 1)
    fewer = KeyedForest().rules(X[1:], y[1:], int(y.max()) + 1)
    np.testing.assert_array_equal(rules.own[1:], fewer.own)
    assert rules.own[8] == rules.own[9]
    other = growing.names(X, (y + 1) % 2)
    assert (other != rules.own).all()
    np.testing.assert_array_equal(growing.names(np.array([[0.0]]), y[:1]), growing.names(np.array([[-0.0]]), y[:1]))
    drawn = np.concatenate([growing.weights(rules.key, b, np.arange(5000, dtype=np.uint64)) for b in range(20)])
    assert abs(drawn.mean() - 1) < 0.02
    assert abs((drawn == 0).mean() - np.exp(-1)) < 0.01
    assert abs(drawn.var() - 1) < 0.05


def first_others(a, i, b, j):
    """Yield the highest nodes of the tree below a's node i that are others than in the tree below b's node j."""
    if a.feature[i] != b.feature[j] or a.cut[i] != b.cut[j]:
        yield int(i)
    elif a.feature[i] >= 0:
        yield from first_others(a, a.left[i], b, b.left[j])
        yield from first_others(a, a.right[i], b, b.right[j])


def below(grown, node, top):
    down = int(grown.depth[node] - grown.depth[top])
    same_tree = grown.tree[node] == grown.tree[top]
    return same_tree and down >= 0 and int(grown.path[node]) >> down == int(grown.path[top])


@pytest.mark.quick(3)
@pytest.mark.parametrize("seed", range(12))
def test_who_moves_a_split_is_found_and_nobody_else(seed, monkeypatch):
    monkeypatch.setattr(splitting, "TABLE", [10, 300_000][seed % 2])
    monkeypatch.setattr(splitting, "TABLE", [10, 300_000][seed % 2])
    rng = np.random.default_rng(seed)
    n, K, B = 40, 2 + seed % 3, 3
    X = [
        rng.normal(size=(n, 3)),
        rng.integers(0, 4, (n, 3)) / 2,
        1 + rng.integers(0, 4, (n, 3)) * 2.0**-52,
        rng.integers(-2, 3, (n, 3)) * 5e-324,
        rng.choice([-1.7e308, 1.7e308, 0.0, -0.0, 1.0], (n, 3)),
        np.where(rng.random((n, 3)) < 0.8, 0.0, rng.normal(size=(n, 3))),
    ][seed % 6]
    y = rng.integers(0, K, n)
    X[:5], y[:5] = X[5:10], y[5:10]
    made = KeyedForest(B, min_samples_leaf=1 + seed % 2, max_features=[None, 1][seed // 6], random_state=seed)
    rules = made.rules(X, y, K)
    grown = growing.grow(rules, made.starts(rules, range(B)), without=np.ones(n, dtype=bool))
    found = {(s, r): [v] for s, r, v in zip(*(c.tolist() for c in grown.other), strict=True)}
    assert len(found) > 10
    for u in range(0, n, 2):
        fewer = made.rules(np.delete(X, u, axis=0), np.delete(y, u), K)
        never = growing.grow(fewer, made.starts(fewer, range(B)))
        for b in range(B):
            others = list(first_others(grown, grown.roots[b], never, never.roots[b]))
            moved = found.get((b, u), [])
            if seed % 6 in (2, 3, 4):  # where numbers halfway round to one number, a node may stay what it is
                assert all(moved and below(grown, o, moved[0]) for o in others)
            else:
                assert others == moved


def test_values_that_cannot_be_told_apart_in_one_number_are_refused():
    one = np.zeros(2, dtype=np.int64)
    with pytest.raises(ValueError, match="so many numbers"):
        splitting.Cells.of(splitting.Entries(one, one, one + 1, one[:, None] + 2**57), np.array([[1, 1]]), 1)


def test_splits_are_those_of_scikit_learn():
    """One tree of everybody, every feature looked at: the impurity of each node's split is the least there is."""
    X, y = load_breast_cancer(return_X_y=True)
    X, rows = X[:200], np.arange(200)
    made = KeyedForest(1, max_features=None, min_samples_leaf=5)
    rules = made.rules(X, y[:200], 2)
    grown = growing.grow(rules, [growing.Start(0, 1, 0, rows, np.ones(200, dtype=np.int64))])
    tree = DecisionTreeClassifier(min_samples_leaf=5, random_state=0).fit(X.astype(np.float32), y[:200]).tree_
    assert grown.feature[0] == tree.feature[0]
    assert grown.cut[0] == pytest.approx(tree.threshold[0], rel=1e-6)
    assert (grown.feature < 0).sum() == tree.n_leaves


def test_most_trees_keep_their_structure():
    rng = np.random.default_rng(5)
    X = rng.normal(size=(400, 4))
    y = (X[:, 0] + 0.3 * rng.normal(size=400) > 0).astype(int)
    rules = KeyedForest(20, max_depth=2).rules(X, y, 2)
    grown = growing.grow(rules, KeyedForest(20).starts(rules, range(20)), without=np.ones(400, dtype=bool))
    touched = len(grown.same[0]) + len(grown.other[0])
    assert abs(touched / (20 * 400) - 0.632) < 0.03
    assert len(grown.same[0]) / touched > 0.8


def test_shallow_forests_are_bounded_and_never_below_a_real_question():
    X, y, rng = table(2, n=150)
    y = (X[:, 0] > 0).astype(int)
    domain = Domain(box=tuple((float(a) - 1, float(b) + 1) for a, b in zip(X.min(axis=0), X.max(axis=0), strict=True)))
    model, units = KeyedForest(20, max_depth=3, floor=0.1), np.arange(0, 150, 15)
    subject, made, _ = answered(model, X, y, units, domain=domain)
    found = tree_cells.TreeCells().certify(Units(subject, units, made, 1.0))
    assert np.isfinite(found.upper).all()
    many = np.concatenate([X, rng.uniform(X.min() - 1, X.max() + 1, (400, X.shape[1]))])
    everybody = np.log(clone(model).fit(X, y).predict_proba(many))
    for k, u in enumerate(units):
        keep = np.arange(150) != u
        change = np.abs(everybody - np.log(clone(model).fit(X[keep], y[keep]).predict_proba(many))).max()
        assert found.lower[k] <= found.upper[k] + 1e-9
        assert change <= found.upper[k]


def test_it_is_a_plain_estimator():
    X, y, _ = table(1, n=90)
    model = KeyedForest(15, max_depth=4, random_state=3)
    assert clone(model).get_params() == model.get_params()
    fitted = model.fit(X, y)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(fitted)).predict_proba(X), fitted.predict_proba(X))
    np.testing.assert_array_equal(clone(model).fit(X[::-1], y[::-1]).predict_proba(X), fitted.predict_proba(X))
    np.testing.assert_allclose(fitted.predict_proba(X).sum(axis=1), 1)
    piped = make_pipeline(StandardScaler(), KeyedForest(10)).fit(X, y)
    assert set(piped.predict(X)) <= set(y)
    search = GridSearchCV(KeyedForest(5), {"max_depth": [1, 3]}, cv=3).fit(X, y)
    assert search.best_params_["max_depth"] in (1, 3)
    labels = np.array(["no", "yes", "so"])[y]
    assert set(KeyedForest(5).fit(X, labels).predict(X)) <= set(labels)


@pytest.mark.parametrize(
    ("wrong", "word"),
    [
        ({"n_estimators": 0}, "n_estimators"),
        ({"min_samples_leaf": 0.1}, "min_samples_leaf"),
        ({"floor": -1.0}, "floor"),
        ({"floor": float("nan")}, "floor"),
    ],
)
def test_parameters_out_of_range_are_named(wrong, word):
    with pytest.raises(ValueError, match=word):
        KeyedForest(**wrong).fit([[0.0], [1.0]], [0, 1])


def test_missing_numbers_are_refused():
    with pytest.raises(ValueError, match="finite"):
        KeyedForest().fit([[0.0], [np.nan]], [0, 1])


def test_people_with_several_records_are_handed_on():
    X, y, _ = table(4, n=60)
    groups = np.arange(60)
    groups[[10, 20]] = 0
    subject, made, left = answered(KeyedForest(5), X, y, np.arange(58), groups=groups)
    assert left.tolist() == [u for u, rows in enumerate(subject.data.units) if len(rows) > 1]
    assert len(made.units) == 57


@pytest.mark.slow
@pytest.mark.parametrize("name", ["breast cancer", "digits", "adult"])
def test_as_accurate_as_a_random_forest(name, shared_data):
    if name == "adult":
        import pandas as pd

        frame = pd.read_csv(shared_data("adult.csv.gz"))
        X = np.column_stack(
            [
                frame[c] if pd.api.types.is_numeric_dtype(frame[c]) else pd.factorize(frame[c])[0]
                for c in frame.columns.drop(["income", "split"])
            ]
        )
        X, y = X.astype(float)[:6000], (frame.income == ">50K").to_numpy()[:6000].astype(int)
    else:
        X, y = (load_breast_cancer if name == "breast cancer" else load_digits)(return_X_y=True)
    gaps = []
    for seed in range(20):
        order = np.random.default_rng(seed).permutation(len(y))
        train, test = np.split(order, [int(0.7 * len(y)) if name != "adult" else 2000])
        ours, theirs = (
            m.fit(X[train], y[train]).score(X[test], y[test])
            for m in (KeyedForest(random_state=seed), RandomForestClassifier(random_state=seed))
        )
        gaps.append(ours - theirs)
    error = np.std(gaps, ddof=1) / np.sqrt(len(gaps))
    assert np.mean(gaps) >= -2 * error


@pytest.mark.slow
def test_leaving_out_is_twenty_times_cheaper_than_growing_again():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(5000, 10))
    y = (X[:, 0] + X[:, 1] * X[:, 2] + rng.normal(size=5000) > 0).astype(int)
    model, units = KeyedForest(20), np.arange(5000)
    started = time.process_time()
    model.fit(X, y)
    once = time.process_time() - started
    started = time.process_time()
    answered(clone(model), X, y, units)
    assert time.process_time() - started < once * len(units) / 20
