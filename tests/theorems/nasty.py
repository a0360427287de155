"""Nasty subjects: where a library's floating-point formula, memory order or encoding has surprises."""

from dataclasses import replace

import numpy as np
import pandas as pd
import scipy.sparse as sp
from families import FAMILIES
from sklearn.base import clone

from privgate import Domain, Recipe, Subject

COUNTS = ("bernoulli_nb", "categorical_nb", "contingency_table")
NAMES = (*COUNTS, "gaussian_nb", "smoothed_neighbors")
ALPHA = [1.0, 0.1, 1e-2, 1e-5, 1e-8, 1e-10, 1e-12, 1e-50, 1e-300, 1e6, 0.5]
OFFSETS = [0.0, 0.0, 1e3, 1e6, 1718452800.1, -1e9, 0.1, 1e9 / 3]


def make_nasty(name, rng):
    """Return an instance of the family with odd parameters, records, labels and containers."""
    instance = FAMILIES[name](rng)
    data, estimator = instance.subject.data, clone(instance.subject.recipe.training)
    X, y = np.asarray(data.X, dtype=np.float64), _disturb_labels(rng, data.y)
    groups, domain, queries = data.groups, data.domain, instance.queries.astype(np.float64)
    if name not in COUNTS:
        X, domain, queries = _disturb_numbers(rng, estimator, X, domain, queries)
    elif name == "bernoulli_nb":
        X, domain, queries = _disturb_flags(rng, estimator, X, queries)
    elif domain is not None and rng.random() < 0.5:  # less is asked than the classifier knows
        sizes = np.maximum(np.array(domain.categories) - 1, X.max(axis=0) + 1).astype(int)
        domain, queries = Domain(categories=tuple(sizes.tolist())), queries[(queries < sizes).all(axis=1)]
    if (times := int(rng.choice([1, 1, 2, 50]))) > 1:  # many records alike
        X, y, groups = np.repeat(X, times, axis=0), np.repeat(y, times), None
    _disturb_parameters(rng, estimator, y)
    X = _put_in(rng, X, sparse=name == "bernoulli_nb", single=name != "gaussian_nb" and np.abs(X).max() < 100)
    data = replace(data, X=X, y=y, groups=groups, one_record_each=groups is None, domain=domain)
    return replace(instance, subject=Subject.local(Recipe(estimator), data), queries=queries)


def _disturb_labels(rng, y):
    first = np.unique(y, return_index=True)[1]
    if rng.random() < 0.2:  # nearly everybody has one label
        y = np.where(np.isin(np.arange(len(y)), first), y, y[first[0]])
    return np.array(["no", "a b", "Z", "é", "x"])[y] if rng.random() < 0.2 else y


def _disturb_parameters(rng, estimator, y):
    labels, known = np.unique(y), estimator.get_params()
    prior = {"GaussianNB": "priors"}.get(type(estimator).__name__, "class_prior")
    if "alpha" in known:
        estimator.set_params(alpha=float(rng.choice([*ALPHA, 0.0])))
    if prior in known and rng.random() < 0.3:
        p = rng.dirichlet(np.ones(len(labels)))
        estimator.set_params(**{prior: (p / p.sum()).tolist()})
    if "var_smoothing" in known:
        estimator.set_params(var_smoothing=float(rng.choice([1e-9, 1e-9, 1e-9, 0.0, 1e-12, 1e-2, 1.0, 1e6])))
    if "n_neighbors" in known:
        estimator.set_params(n_neighbors=max(1, int(rng.choice([1, 2, 3, len(y) - 1, len(y), len(y) + 1]))))
    if "classes" in known and rng.random() < 0.5:
        estimator.set_params(classes=[*labels.tolist(), "zz" if labels.dtype.kind == "U" else 99])


def _disturb_numbers(rng, estimator, X, domain, queries):
    """Shift, scale, round and repeat columns; ranges that are drawn from move along."""
    for j in range(X.shape[1]):
        scale, offset = 10.0 ** rng.integers(-6, 7) if rng.random() < 0.5 else 1.0, float(rng.choice(OFFSETS))
        constant = rng.random() < 0.15
        for table in (X, queries):
            table[:, j] = offset if constant else table[:, j] * scale + offset
            if rng.random() < 0.2:
                table[:, j] = np.round(table[:, j])
    if rng.random() < 0.3:  # duplicates
        X[rng.integers(len(X), size=len(X) // 2)] = X[0]
    wide = float(rng.choice([0.0, 0.5, 2.0]))
    low, high = X.min(axis=0) - wide, X.max(axis=0) + wide
    if "low" in estimator.get_params():
        estimator.set_params(low=low.tolist(), high=high.tolist())
    if domain is not None:
        domain, queries = Domain(box=tuple(zip(low.tolist(), high.tolist(), strict=True))), np.clip(queries, low, high)
    return X, domain, queries


def _disturb_flags(rng, estimator, X, queries):
    """Constant and single flags on either side of a threshold; some features reach one side of it only."""
    for j in np.flatnonzero(rng.random(X.shape[1]) < 0.6):
        X[:, j] = rng.integers(0, 2)
        X[rng.integers(len(X)), j] = rng.integers(0, 2)
    kind = rng.integers(0, 4)
    if kind == 0:
        threshold = float(rng.choice([0.0, 0.5, 3.0, 1e9]))
        estimator.set_params(binarize=threshold)
        return X * 2 - 1 + threshold, None, queries * 2 - 1 + threshold
    if kind == 1:
        estimator.set_params(binarize=None)
        return X, Domain(categories=(2,) * X.shape[1]), queries
    if kind == 2:
        low, high = X.min(axis=0), X.max(axis=0)
        inside = ((queries >= low) & (queries <= high)).all(axis=1)
        return X, Domain(box=tuple(zip(low.tolist(), high.tolist(), strict=True))), queries[inside]
    return X, None, queries


def _put_in(rng, X, *, sparse, single):
    """Return the same records in another memory order, type or container."""
    kinds = {
        0: np.asfortranarray,
        1: sp.csr_matrix if sparse else np.asarray,
        2: lambda X: pd.DataFrame(X, columns=[f"c{j}" for j in range(X.shape[1])]),
        3: lambda X: X.astype(np.float32) if single else X,
        4: lambda X: np.concatenate([X, X], axis=1)[:, : X.shape[1]],  # not contiguous
        5: lambda X: X.astype(np.int8) if (np.floor(X) == X).all() and np.abs(X).max() < 100 else X,
    }
    return kinds.get(int(rng.integers(0, 7)), np.asarray)(X)
