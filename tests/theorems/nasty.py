"""Nasty subjects: where a library's floating-point formula, memory order or encoding has surprises."""

import itertools

import numpy as np
import pandas as pd
import scipy.sparse as sp
from families import Instance, random_trees, subject_of
from sklearn.naive_bayes import BernoulliNB, CategoricalNB, GaussianNB

from privgate import Domain, Recipe, Subject
from privgate.models import ContingencyTable, SmoothedNeighbors


def _size(rng):
    return int(rng.choice([2, 3, 4, 5, rng.integers(6, 40), rng.integers(40, 400), rng.integers(400, 1500)]))


def _labels(rng, n):
    K = int(rng.integers(2, min(5, n) + 1))
    y = np.concatenate([np.arange(K), rng.integers(0, K, n - K)])
    if rng.random() < 0.2:  # nearly everybody has one label
        y = np.concatenate([np.arange(K), np.zeros(n - K, dtype=int)])
    y = rng.permutation(y)
    return np.array(["no", "a b", "Z", "é", "x"])[y] if rng.random() < 0.2 else y


def _alpha(rng):
    return float(rng.choice([1.0, 0.1, 1e-2, 1e-5, 1e-8, 1e-10, 1e-12, 1e-50, 1e-300, 1e6, 0.5]))


def _container(rng, X, *, sparse=True, single=True):
    """The same records in another memory order, type or container."""
    kind = rng.integers(0, 7)
    if kind == 0:
        return np.asfortranarray(X)
    if kind == 1 and sparse:
        return sp.csr_matrix(X)
    if kind == 2:
        return pd.DataFrame(X, columns=[f"c{j}" for j in range(X.shape[1])])
    if kind == 3 and single:
        return X.astype(np.float32)
    if kind == 4:
        return np.concatenate([X, X], axis=1)[:, : X.shape[1]]  # not contiguous
    if kind == 5 and (np.floor(X) == X).all() and np.abs(X).max() < 100:
        return X.astype(np.int8)
    return X


def _priors(rng, y, name):
    K = len(np.unique(y))
    if rng.random() < 0.7:
        return {}
    p = rng.dirichlet(np.ones(K))
    p = p / p.sum()
    return {name: p.tolist()}


def _flags(rng, n, m):
    """Columns of 0 and 1, some constant, some of a single exception, some equal to others."""
    X = (rng.random((n, m)) < rng.random(m)).astype(float)
    for j in range(m):
        kind = rng.integers(0, 6)
        if kind < 2:
            X[:, j] = float(kind)
        elif kind == 2:
            X[:, j] = 1.0
            X[rng.integers(n), j] = 0.0
        elif kind == 3:
            X[:, j] = X[:, 0]
    return X


def bernoulli(rng):
    n, m = _size(rng), int(rng.integers(1, 6))
    X, y = _flags(rng, n, m), _labels(rng, n)
    threshold = rng.choice([0.0, 0.5, 3.0, 1e9])
    domain, queries = None, np.array(list(itertools.product((0.0, 1.0), repeat=m)))
    binarize = 0.0
    if rng.random() < 0.3:
        X, queries, binarize = X * 2 - 1 + threshold, queries * 2 - 1 + threshold, float(threshold)
    elif rng.random() < 0.3:
        domain, binarize = Domain(categories=(2,) * m), None
    elif rng.random() < 0.3:  # some features reach one side of the threshold only
        reach = [sorted({0.0, 1.0} & {*X[:, j].tolist(), float(rng.integers(2))}) for j in range(m)]
        domain = Domain(box=tuple((r[0], r[-1]) for r in reach))
        queries = np.array(list(itertools.product(*reach)))
    estimator = BernoulliNB(
        alpha=_alpha(rng),
        binarize=binarize,
        fit_prior=bool(rng.random() < 0.7),
        **_priors(rng, y, "class_prior"),
    )
    single = abs(threshold) < 100
    return Instance(subject_of(rng, estimator, _container(rng, X, single=single), y, domain), queries, complete=True)


def categorical(rng):
    n, m = _size(rng), int(rng.integers(1, 5))
    seen = rng.integers(1, 4, m)
    X, y = np.column_stack([rng.integers(0, v, n) for v in seen]), _labels(rng, n)
    declared = rng.random() < 0.6
    V = seen + rng.integers(0, 3, m) if declared else X.max(axis=0) + 1
    estimator = CategoricalNB(
        alpha=_alpha(rng),
        fit_prior=bool(rng.random() < 0.7),
        min_categories=V.tolist() if declared else None,
        **_priors(rng, y, "class_prior"),
    )
    asked = np.maximum(V - rng.integers(0, 2, m), X.max(axis=0) + 1)  # less than the classifier knows
    domain = Domain(categories=tuple(int(v) for v in asked)) if declared else None
    queries = np.array(list(itertools.product(*(range(v) for v in (asked if declared else V)))))
    if rng.random() < 0.1:
        estimator.set_params(alpha=0.0)
    X = _container(rng, X.astype(float), sparse=False) if rng.random() < 0.5 else X
    return Instance(subject_of(rng, estimator, X, y, domain), queries, complete=True)


def _numbers(rng):
    n, d = _size(rng), int(rng.integers(1, 5))
    y = _labels(rng, n)
    X = rng.random((n, d)) if rng.random() < 0.5 else rng.normal(size=(n, d)) * 10.0 ** rng.integers(-6, 7)
    for j in range(d):
        kind = rng.integers(0, 6)
        offset = float(rng.choice([0.0, 1e3, 1e6, 1718452800.1, -1e9, 0.1, 1e9 / 3]))
        if kind == 0:
            X[:, j] = offset
        elif kind == 1:
            X[:, j] += offset
        elif kind == 2:
            X[:, j] = np.round(X[:, j])
    if n > 5 and rng.random() < 0.3:
        X[rng.integers(n, size=n // 2)] = X[0]  # duplicates
    wide = float(rng.choice([0.0, 0.5, 2.0]))
    low, high = X.min(axis=0) - wide, X.max(axis=0) + wide
    domain = Domain(box=tuple((float(a), float(b)) for a, b in zip(low, high, strict=True)))
    corners = np.array(list(itertools.product(*domain.box)))
    low, high = (np.array(v) for v in zip(*domain.box, strict=True))
    queries = np.concatenate([corners, X[:20], low + (high - low) * rng.random((100, d))])
    return X, y, domain, np.clip(queries, low, high)


def gaussian(rng):
    X, y, domain, queries = _numbers(rng)
    smoothing = float(rng.choice([1e-9, 1e-9, 1e-9, 0.0, 1e-12, 1e-2, 1.0, 1e6]))
    estimator = GaussianNB(var_smoothing=smoothing, **_priors(rng, y, "priors"))
    return Instance(subject_of(rng, estimator, _container(rng, X, single=False, sparse=False), y, domain), queries)


def _declared(rng, y):
    return [*np.unique(y).tolist(), "zz" if np.asarray(y).dtype.kind == "U" else 99] if rng.random() < 0.5 else None


def table(rng):
    instance = categorical(rng)
    data = instance.subject.data
    estimator = ContingencyTable(alpha=_alpha(rng), classes=_declared(rng, data.y))
    return Instance(Subject.local(Recipe(estimator), data), instance.queries, complete=True)


def neighbors(rng):
    X, y, _, queries = _numbers(rng)
    if rng.random() < 0.6:  # many equal distances
        X, queries = np.round(X * 10) / 10, np.round(queries * 10) / 10
    k = int(rng.choice([1, 2, 3, len(y) - 1, len(y), len(y) + 1]))
    estimator = SmoothedNeighbors(n_neighbors=max(k, 1), alpha=_alpha(rng), classes=_declared(rng, y))
    return Instance(subject_of(rng, estimator, _container(rng, X, sparse=False), y, None), queries)


def trees(rng):
    X, y, domain, queries = _numbers(rng)
    estimator = random_trees(rng, X, domain, _alpha).set_params(classes=_declared(rng, y))
    return Instance(subject_of(rng, estimator, _container(rng, X, sparse=False), y, None), queries)


NASTY = {
    "bernoulli_nb": bernoulli,
    "categorical_nb": categorical,
    "gaussian_nb": gaussian,
    "contingency_table": table,
    "smoothed_neighbors": neighbors,
    "random_trees": trees,
}
