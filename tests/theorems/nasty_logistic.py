"""Random small logistic regressions that are hard on bounds, and what real trainings of them say."""

import itertools
import warnings
from dataclasses import dataclass

import numpy as np
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

from privgate import Domain, Recipe, Subject, TrainingData
from privgate.kernel.accepted import Accepted
from privgate.kernel.softmax_release import over_questions

SOLVERS = ("newton-cholesky", "newton-cg", "lbfgs", "sag", "saga", "liblinear")


def subject_of(rng):
    """A subject; solvers with a gradient test are the more frequent ones."""
    d, K = int(rng.integers(1, 5)), int(rng.choice([2, 2, 3, 4]))
    n = int(rng.choice([3, 5, 8, 12, 20, 40, 90], p=[0.05, 0.05, 0.15, 0.25, 0.25, 0.15, 0.1]))
    low, high = -np.ones(d), np.ones(d)
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
    low, high = np.minimum(low, X.min(axis=0)), np.maximum(high, X.max(axis=0))
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


@dataclass(frozen=True, eq=False)
class Truth:
    """What real trainings of every unit say, shape (U,): nats, infinite where nothing can be trained.

    ``change`` is the largest change found over the domain, ``ceiling`` what it cannot exceed, ``own`` the largest
    at the unit's own records.
    """

    change: np.ndarray
    ceiling: np.ndarray
    own: np.ndarray


def truth(subject, units=None):
    """Train without each unit and ask corners, a random grid, and uphill from the worst of them."""
    data, rng = subject.data, np.random.default_rng(1)
    X, y, classes = np.asarray(data.X), data.y, subject.classes
    low, high = np.array(data.domain.box).T
    corners = np.array(list(itertools.product(*data.domain.box)))
    queries = np.concatenate([corners, X, low + (high - low) * rng.random((200, X.shape[1]))])
    estimator = subject.recipe.library_estimator
    full = _fitted(estimator, X, y)
    units = range(len(data.units)) if units is None else units
    found = np.full((3, len(units)), np.inf)
    box = Accepted(low, high, np.ones(len(low), dtype=bool), (), np.inf, np.inf, whole=False)
    for k, unit in enumerate(units):
        rows = data.units[unit]
        keep = np.setdiff1d(np.arange(len(y)), rows)
        if len(np.unique(y[keep])) < len(classes):
            continue
        left = _fitted(estimator, X[keep], y[keep])
        change = _change(full, left, queries)
        (bias, weights), (rest, others) = _softmax(full), _softmax(left)
        moves = np.concatenate([others - weights, (rest - bias)[:, :, None]], axis=2)
        made = np.column_stack([weights[0], bias[0]])
        exact = over_questions(box, made, moves, errors=(0.0, np.zeros(1)), rounded=(0.0, np.zeros(1)), limit=0.0)
        found[:, k] = max(change.max(), _uphill(full, left, queries[change.argmax()], low, high, rng)), exact[0], 0
        found[2, k] = _change(full, left, X[rows]).max()
    return Truth(*found)


def _fitted(estimator, X, y):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return clone(estimator).fit(X, y)


def _change(full, left, queries):
    with np.errstate(divide="ignore", invalid="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        a, b = full.predict_log_proba(queries), left.predict_log_proba(queries)
        return np.where(a == b, 0.0, np.abs(a - b)).max(axis=1)  # two zeros of probability tell nothing


def _uphill(full, left, start, low, high, rng):
    """Largest change on a random ascent in the box."""
    x, best = start, 0.0
    for width in np.geomspace(0.5, 1e-4, 12):
        around = np.clip(x + width * (high - low) * rng.normal(size=(20, len(x))), low, high)
        change = _change(full, left, np.concatenate([x[None], around]))
        x, best = np.concatenate([x[None], around])[change.argmax()], max(best, float(change.max()))
    return best


def _softmax(model):
    weights, bias = model.coef_, model.intercept_
    if len(weights) == 1:
        weights, bias = np.vstack([0 * weights, weights]), np.append(0.0, bias)
    return bias[None], weights[None]
