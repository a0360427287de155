"""Small random instances of every certified family, with queries that can be enumerated."""

import contextlib
import itertools
import warnings
from dataclasses import dataclass

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import BernoulliNB, CategoricalNB, GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, RobustScaler, StandardScaler
from sklearn.tree import DecisionTreeClassifier

from privgate import Domain, Recipe, Subject, TrainingData
from privgate.models import ContingencyTable, Sharded, SmoothedNeighbors
from privgate.subject.containers import take

#: below this a released probability is 0 or a number without digits
UNDERFLOW = -700.0


@dataclass(frozen=True, eq=False)
class Instance:
    """A subject, and queries of its domain (all of them where ``complete``)."""

    subject: Subject
    queries: np.ndarray
    complete: bool = False

    def fit(self, rows):
        """Return the library's own model of these records; None where it refuses them."""
        X, y = self.subject.data.X, self.subject.data.y
        with contextlib.suppress(ValueError, IndexError), warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return clone(self.subject.recipe.library_estimator).fit(take(X, rows), y[rows])
        return None

    def ask(self, model, queries):
        """Return log-probabilities, one column a class of the subject; None where it answers NaN or not at all."""
        like = self.subject.data.X
        if hasattr(like, "iloc"):
            queries = pd.DataFrame(queries, columns=like.columns)
        elif not hasattr(like, "tocsr") and like.dtype.kind == "f":
            queries = queries.astype(like.dtype)
        full = np.full((len(queries), len(self.subject.classes)), -np.inf)
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            try:
                if hasattr(model, "predict_log_proba"):
                    got = model.predict_log_proba(queries)
                else:
                    got = np.maximum(np.log(model.predict_proba(queries)), UNDERFLOW)
                full[:, np.searchsorted(self.subject.classes, model.classes_)] = got
            except (AttributeError, ValueError, IndexError):
                return None
        return None if np.isnan(full).any() else full

    def change(self, with_, without, queries):
        """Return the largest change of a label at each query, shape (Q,); infinite where a model has no answer."""
        one, other = (self.ask(model, queries) for model in (with_, without))
        if one is None or other is None:
            return np.full(len(queries), np.inf)
        with np.errstate(invalid="ignore"):
            return np.abs(np.where(one == other, 0.0, one - other)).max(axis=1)

    def pair(self, unit):
        """Return the models with and without a person."""
        everybody = np.arange(self.subject.data.n)
        return self.fit(everybody), self.fit(np.setdiff1d(everybody, self.subject.data.units[int(unit)]))

    def changes(self, units=None):
        """Return the largest change over the queries of people, by training again: infinite where it is undefined."""
        units = range(len(self.subject.data.units)) if units is None else units
        return np.array([self.change(*self.pair(u), self.queries).max() for u in units])

    def climb(self, unit, rng, *, rounds=4):
        """Return the largest change found uphill from the queries by random steps inside a box."""
        (low, high), pair = np.array(self.subject.data.domain.box).T, self.pair(unit)
        best = self.queries[self.change(*pair, self.queries).argmax()]
        for k in range(rounds):
            near = np.clip(best + rng.normal(size=(40, len(best))) * (high - low) * 0.3 / 2**k, low, high)
            near = np.concatenate([best[None], near])
            best = near[self.change(*pair, near).argmax()]
        return self.change(*pair, best[None])[0]


def _labels(rng, n, K):
    return np.unique(np.concatenate([[0, 1], rng.integers(0, K, n - 2)]), return_inverse=True)[1]


def subject_of(rng, estimator, X, y, domain):
    """A subject whose records belong to people in three cases of ten."""
    groups = rng.integers(0, max(2, len(y) // 2), len(y)) if rng.random() < 0.3 else None
    data = TrainingData(X, y, domain=domain, groups=groups, one_record_each=groups is None)
    return Subject.local(Recipe(estimator), data)


def categorical(rng):
    m, n = int(rng.integers(1, 5)), int(rng.integers(6, 25))
    V = rng.integers(1, 4, m)
    X = np.column_stack([rng.integers(0, v, n) for v in V])
    y = _labels(rng, n, int(rng.integers(2, 5)))
    declared = rng.random() < 0.5
    V = V if declared else X.max(axis=0) + 1
    estimator = CategoricalNB(
        alpha=float(rng.choice([0.1, 1.0, 5.0])),
        fit_prior=bool(rng.random() < 0.7),
        min_categories=V.tolist() if declared else None,
    )
    domain = Domain(categories=tuple(int(v) for v in V)) if declared else None
    queries = np.array(list(itertools.product(*(range(v) for v in V))))
    return Instance(subject_of(rng, estimator, X, y, domain), queries, complete=True)


def bernoulli(rng):
    m, n = int(rng.integers(1, 6)), int(rng.integers(6, 25))
    X = (rng.random((n, m)) < rng.random(m)).astype(float)
    estimator = BernoulliNB(alpha=float(rng.choice([0.1, 1.0, 5.0])), fit_prior=bool(rng.random() < 0.7))
    queries = np.array(list(itertools.product((0.0, 1.0), repeat=m)))
    y = _labels(rng, n, int(rng.integers(2, 5)))
    return Instance(subject_of(rng, estimator, X, y, None), queries, complete=True)


def _numbers(rng):
    d, n = int(rng.integers(1, 4)), int(rng.integers(10, 30))
    y = _labels(rng, n, int(rng.integers(2, 4)))
    X = rng.normal(size=(n, d)) + 0.7 * y[:, None] + (100 if rng.random() < 0.2 else 0)
    low, high = X.min(axis=0) - 1, X.max(axis=0) + 1
    domain = Domain(box=tuple((float(a), float(b)) for a, b in zip(low, high, strict=True)))
    corners = np.array(list(itertools.product(*domain.box)))
    return X, y, domain, np.concatenate([low + (high - low) * rng.random((300, d)), corners, X])


def gaussian(rng):
    X, y, domain, queries = _numbers(rng)
    estimator = GaussianNB(var_smoothing=float(rng.choice([1e-9, 1e-2, 1.0])))
    return Instance(subject_of(rng, estimator, X, y, domain), queries)


def logistic(rng):
    d, n = int(rng.integers(1, 4)), int(rng.integers(10, 30))
    y = _labels(rng, n, int(rng.integers(2, 4)))
    X = rng.random((n, d))
    estimator = LogisticRegression(C=float(rng.choice([0.1, 1.0])), tol=1e-9, solver="newton-cholesky")
    corners = np.array(list(itertools.product((0.0, 1.0), repeat=d)))
    queries = np.concatenate([corners, rng.random((200, d))])
    return Instance(subject_of(rng, estimator, X, y, Domain.read([(0, 1)] * d)), queries)


def table(rng):
    instance = categorical(rng)
    estimator = ContingencyTable(alpha=float(rng.choice([0.1, 0.5, 1.0])))
    return Instance(Subject.local(Recipe(estimator), instance.subject.data), instance.queries, complete=True)


def neighbors(rng):
    X, y, _, queries = _numbers(rng)
    if rng.random() < 0.5:  # many equal distances
        X, queries = np.round(X), np.round(queries)
    k = int(rng.integers(1, min(6, len(y) - 2)))
    estimator = SmoothedNeighbors(n_neighbors=k, alpha=float(rng.choice([0.3, 1.0])))
    return Instance(subject_of(rng, estimator, X, y, None), queries)


def sharded(rng):
    X, y, _, queries = _numbers(rng)
    base = [DecisionTreeClassifier(), DecisionTreeClassifier(max_depth=2, splitter="random"), GaussianNB()]
    estimator = Sharded(
        base[int(rng.integers(3))],
        shards=int(rng.integers(4, 8)),
        dtp=float(rng.choice([0.1, 1.0, 3.0])),
        classes=list(range(int(y.max()) + 1)),
        combine=str(rng.choice(["log_pool", "mean", "mean"])),
        random_state=int(rng.integers(100)),
    )
    return Instance(subject_of(rng, estimator, X, y, None), queries)


def linear(rng):
    X, y, domain, queries = _numbers(rng)
    several = y.max() > 1
    last = (
        LinearDiscriminantAnalysis(solver="lsqr", shrinkage=0.5),
        LogisticRegression(solver="saga", max_iter=30, random_state=0),
        LogisticRegression(C=0.3, solver="liblinear", random_state=0),
    )[rng.integers(2 if several else 3)]
    first = (StandardScaler(), MinMaxScaler(), RobustScaler())[rng.integers(3)]
    return Instance(subject_of(rng, make_pipeline(first, last), X, y, domain), queries)


#: certificate -> instances on which it must speak; a certificate without a family fails the laws
FAMILIES = {
    "categorical_nb": categorical,
    "bernoulli_nb": bernoulli,
    "gaussian_nb": gaussian,
    "contingency_table": table,
    "smoothed_neighbors": neighbors,
    "sharded": sharded,
    "newton": logistic,
    "linear": linear,
}
