"""Random small logistic regressions that are hard on bounds, and what real trainings of them say."""

import itertools
from typing import NamedTuple

import numpy as np
from families import Instance
from sklearn.linear_model import LogisticRegression

from privgate import Domain, Recipe, Subject, TrainingData
from privgate.kernel.accepted import Accepted
from privgate.kernel.softmax_release import over_questions

SOLVERS = ("newton-cholesky", "newton-cg", "lbfgs", "sag", "saga", "liblinear")


def subject_of(rng):
    """A subject; solvers with a gradient test are the more frequent ones."""
    d, K = int(rng.integers(1, 5)), int(rng.choice([2, 2, 3, 4]))
    n = int(rng.choice([3, 5, 8, 12, 20, 40, 90], p=[0.05, 0.05, 0.15, 0.25, 0.25, 0.15, 0.1]))
    X = rng.uniform(-1, 1, (n, d))
    y = _labels(rng, X, K)
    for column, kind in enumerate(
        rng.choice(["", "constant", "offset", "flag", "tiny"], d, p=[0.7, 0.1, 0.1, 0.05, 0.05])
    ):
        if kind == "constant":
            X[:, column] = rng.choice([0.0, 1.0, 1e3, 1718452800.1])
        elif kind == "offset":
            X[:, column] += 10.0 ** rng.integers(1, 10)
        elif kind == "flag":
            X[:, column] = (rng.random(n) < 0.1).astype(float)
        elif kind == "tiny":
            X[:, column] *= 10.0 ** -rng.integers(1, 9)
    if rng.random() < 0.2:  # duplicates
        copies = rng.integers(0, n, n // 3)
        X[-len(copies) :], y[-len(copies) :] = X[copies], y[copies]
    low, high = np.minimum(-1, X.min(axis=0)), np.maximum(1, X.max(axis=0))
    if rng.random() < 0.2:  # a domain of offsets is narrow
        low, high = X.min(axis=0), X.max(axis=0)
    settings = {
        "C": float(10.0 ** rng.uniform(-3, 4)),
        "tol": float(10.0 ** -rng.integers(2, 9)),
        "fit_intercept": bool(rng.random() < 0.75),
        "solver": str(rng.choice(SOLVERS, p=[0.35, 0.3, 0.2, 0.05, 0.05, 0.05])),
        "max_iter": int(rng.choice([5, 20, 100, 1000], p=[0.05, 0.1, 0.35, 0.5])),
        "intercept_scaling": float(rng.choice([1.0, 7.0], p=[0.9, 0.1])),
        "warm_start": bool(rng.random() < 0.1),
    }
    if settings["solver"] == "liblinear" and len(np.unique(y)) > 2:
        settings["solver"] = "newton-cg"
    X = np.asfortranarray(X) if rng.random() < 0.3 else X
    groups = rng.integers(0, max(2, n // 2), n) if rng.random() < 0.25 else None
    domain = Domain(box=tuple((float(a), float(b)) for a, b in zip(low, high, strict=True)))
    return Subject.local(
        Recipe(LogisticRegression(**settings), seed=0),
        TrainingData(X, y, domain=domain, groups=groups, one_record_each=groups is None),
    )


def _labels(rng, X, K):
    """Labels from noise to nearly separable; every class has a record, some only one."""
    strength = rng.choice([0.0, 2.0, 10.0, 100.0])
    Z = strength * X @ rng.normal(size=(X.shape[1], K)) + rng.gumbel(size=(len(X), K))
    y = Z.argmax(axis=1)
    y[rng.permutation(len(X))[: min(K, len(X))]] = np.arange(min(K, len(X)))
    return np.unique(y, return_inverse=True)[1]


class Truth(NamedTuple):
    """What real trainings of every unit say, shape (U,): nats, infinite where nothing can be trained.
    ``change`` is the largest change found over the domain, ``ceiling`` what it cannot exceed, ``own`` the largest
    at the unit's own records.
    """

    change: np.ndarray
    ceiling: np.ndarray
    own: np.ndarray


def truth(subject, units):
    """Train without each unit and ask corners, a random grid, and uphill from the worst of them."""
    data, rng = subject.data, np.random.default_rng(1)
    X, everyone, (low, high) = np.asarray(data.X), np.arange(data.n), np.array(data.domain.box).T
    corners = np.array(list(itertools.product(*data.domain.box)))
    queries = np.concatenate([corners, X, low + (high - low) * rng.random((200, X.shape[1]))])
    instance, most = Instance(subject, queries), np.full((3, len(units)), np.inf)
    box, none = Accepted(low, high, np.ones(len(low), dtype=bool), (), whole=False), np.zeros(1)
    for k, unit in enumerate(units):
        rows = np.setdiff1d(everyone, data.units[unit])
        if len(np.unique(data.y[rows])) < len(subject.classes):
            continue
        full, left = instance.pair(unit)
        most[0, k] = max(instance.change(full, left, queries).max(), instance.climb(unit, rng, rounds=12))
        u, v = parameters(full), parameters(left)
        most[1, k] = over_questions(box, u, (v - u)[None], errors=(0.0, none), rounded=(0.0, none), limit=0.0)[0]
        most[2, k] = instance.change(full, left, X[data.units[unit]]).max()
    return Truth(*most)


def parameters(model):
    """Return a row of parameters for each class, the intercept last."""
    u = np.column_stack([model.coef_, model.intercept_])
    return np.stack([0 * u[0], u[0]]) if len(u) == 1 else u
