"""The law of declared releases: what is stated is never below what real models, trained again, would release.

Truth is enumerated without privgate's own rounding: raw probabilities of refits, put through what consumers write
(``np.round``, Python's ``round``, decimal formats, ``np.floor``, ``np.digitize``, ``argsort``, ``predict``).
"""

import warnings

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import CategoricalNB, GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.tree import DecisionTreeClassifier

from privgate import Recipe, Release, Subject, TrainingData
from privgate.influence import left_out as leave_one_out
from privgate.influence import per_person
from privgate.policy.rules import METRICS
from privgate.run.run import Run
from privgate.subject.tasks import aligned
from privgate.training.fit import Answer
from privgate.training.fleet import Fleet
from privgate.training.ledger import Ledger


class Single(LogisticRegression):
    """A model whose probabilities are single precision, as XGBoost's are."""

    def predict_proba(self, X):
        return super().predict_proba(X).astype(np.float32)


def categories(rng, n):
    return rng.integers(0, 3, (n, 3))


def numbers(rng, n):
    return rng.normal(size=(n, 2)).round(1)


KINDS = {
    "default logistic": (LogisticRegression(), numbers),
    "loose logistic": (LogisticRegression(C=100, tol=1e-2), numbers),
    "tight logistic": (LogisticRegression(C=10, tol=1e-8, max_iter=10_000), numbers),
    "neighbors": (KNeighborsClassifier(n_neighbors=8), numbers),
    "tree": (DecisionTreeClassifier(min_samples_leaf=4, random_state=0), numbers),
    "categorical": (CategoricalNB(min_categories=3), categories),
    "gaussian": (GaussianNB(), numbers),
    "forest": (RandomForestClassifier(n_estimators=4, max_depth=3, random_state=0), numbers),
    "single precision": (Single(C=10), numbers),
}


def digits(d):
    return [
        lambda p: np.round(np.round(p, d).astype(np.float64), d),  # decided in the model's precision
        np.vectorize(lambda v: round(float(v), d)),
        np.vectorize(lambda v: float(f"{v:.{d}f}")),
        lambda p: np.floor(np.asarray(p, dtype=float) * 10**d + 0.5) / 10**d,
    ]


def centres(h):
    edges = np.arange(1, int(np.ceil(1 / h - 1e-9))) * h
    return [
        lambda p: (np.minimum(np.floor(p / h), len(edges)).astype(np.float64) + 0.5) * h,
        lambda p: (np.digitize(p, edges) + 0.5) * h,
        lambda p: (np.digitize(p, edges, right=True) + 0.5) * h,
    ]


def lists(k, value=lambda p: p):
    def first(p):
        return _kept(p, np.argsort(-p, axis=1, kind="stable")[:, :k])

    def last(p):
        return _kept(p, np.argsort(p, axis=1, kind="stable")[:, ::-1][:, :k])

    def _kept(p, order):
        out = np.zeros(p.shape)
        np.put_along_axis(out, order, np.take_along_axis(value(p), order, axis=1), axis=1)
        return out

    return [first, last]


def hot(temperature, ways=None):
    def heat(p):
        p = np.asarray(p, dtype=np.float64)
        with np.errstate(divide="ignore"):
            z = np.log(p) / temperature
        e = np.exp(z - z.max(axis=1, keepdims=True))
        return e / e.sum(axis=1, keepdims=True)

    return [heat] if ways is None else [lambda p, w=w: w(heat(p)) for w in ways]


#: declared release -> ways to compute it from exact probabilities
FORMS = {
    Release("rounded", step=0.01): digits(2),
    Release("rounded", step=0.1): digits(1),
    Release("rounded", step=0.3): [
        lambda p: 0.3 * np.rint(p / 0.3).astype(np.float64),
        lambda p: 0.3 * np.floor(p / 0.3 + 0.5).astype(np.float64),
    ],
    Release("binned", step=0.01): centres(0.01),
    Release("binned", step=0.15): centres(0.15),
    Release("top_k", k=1): lists(1),
    Release("top_k", k=2): lists(2),
    Release("label"): [*lists(1, np.ones_like), "predict"],
    Release(temperature=0.05): hot(0.05),
    Release(temperature=20.0): hot(20.0),
    Release("rounded", step=0.01, temperature=0.5): hot(0.5, digits(2)),
    Release("top_k", k=2, temperature=3.0): hot(3.0, lists(2)),
}


class Remembering(Fleet):
    """Trains here and now, each model once, asks it once, and gives the raw answers of the models too."""

    def __init__(self):
        self.isolate, self.cluster, self.signable, self.network, self.recalled = "none", None, False, False, 0
        self.report = print
        self.ledger, self.jobs = Ledger("none"), 1
        self.calls, self._models, self._answers = 0, {}, {}

    def model(self, subject, left_out):
        key = tuple(np.asarray(left_out).tolist())
        if key not in self._models:
            self.calls += 1
            keep = np.setdiff1d(np.arange(subject.data.n), left_out)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                made = subject.recipe.train(subject.data.X[keep], subject.data.y[keep], seed=subject.recipe.seed)
            self._models[key] = made
        return self._models[key]

    def fits(self, subject, fits, *, label="retraining"):
        del label
        return [self._fit(subject, f) for f in fits]

    def raw(self, subject, left_out, rows):
        """Return (probabilities, labels) as the model gives them."""
        key = (np.asarray(left_out).tobytes(), np.asarray(rows).tobytes())
        if key not in self._answers:
            model, X = self.model(subject, left_out), subject.data.X[rows]
            self._answers[key] = (model.predict_proba(X), model.predict(X), getattr(model, "classes_", None))
        return self._answers[key]

    def _fit(self, subject, fit):
        try:
            p, _, classes = self.raw(subject, fit.left_out, fit.queries)
        except ValueError as exc:
            return Answer(np.zeros((0, 0)), problem=str(exc))
        with np.errstate(divide="ignore"):
            return Answer(np.log(aligned(p.astype(np.float64), classes, subject.classes)))

    def released(self, subject, left_out, rows, way):
        """Return what a consumer makes of the real model's raw answer, shape (R, K)."""
        p, label, _ = self.raw(subject, left_out, rows)
        if way == "predict":
            return (label[:, None] == subject.classes).astype(float)
        return np.asarray(way(p), dtype=np.float64)


def truth(subject, fleet, unit, ways):
    """Return the largest change that one way of computing the release shows for a unit; inf without a model."""
    rows = subject.data.units[unit]
    if len(np.unique(np.delete(subject.data.y, rows))) < len(subject.classes):
        return np.inf
    worst = 0.0
    for way in ways:
        one, other = (fleet.released(subject, left, rows, way) for left in ([], rows))
        with np.errstate(divide="ignore", invalid="ignore"):
            change = np.where(one == other, 0.0, np.abs(np.log(one) - np.log(other)))
        worst = max(worst, float(change.max()))
    return worst


def subject_of(kind, seed, n, K, *, groups):
    estimator, features = KINDS[kind]
    rng = np.random.default_rng([seed, n, K])
    X = features(rng, n)
    y = np.concatenate([np.arange(K), np.arange(K), rng.integers(0, K, n - 2 * K)])
    X = X + (y[:, None] if features is numbers else 0) * rng.choice([0.3, 2.0])
    X[n // 2] = X[0]  # a duplicate
    return Subject.local(
        Recipe(estimator, seed=0), TrainingData(X, y, groups=rng.integers(0, n // 2, n) if groups else None)
    )


def violations(kind, seeds, n):
    """Return (unit, release) pairs asked, those stated too low, and those whose lower value is too high."""
    asked, low, high = 0, [], []
    for seed in seeds:
        local = subject_of(kind, seed, n, 2 + seed % 2, groups=seed % 5 == 4)
        fleet = Remembering()
        true = {r: [truth(local, fleet, u, ways) for u in range(len(local.data.units))] for r, ways in FORMS.items()}
        exact = np.array([truth(local, fleet, u, [lambda p: p]) for u in range(len(local.data.units))])
        for release in FORMS:
            subject = Subject.local(local.recipe, local.data, release=release)
            bench = Run(subject, fleet, seeds=(0,), needs=METRICS["pdtp"].needs)
            found = bench.compute(leave_one_out.retrained)
            stated = per_person.measure_influence(found, release)
            over = np.where(found.lost, np.inf, stated["pdtp_high"])
            under = np.where(found.lost, 0.0, stated["pdtp_low"])
            asked += len(over)
            value = np.array(true[release])
            low += [(kind, seed, release, u) for u in np.flatnonzero(~(over >= value * (1 - 1e-9) - 1e-9))]
            most = np.maximum(value, exact)
            high += [(kind, seed, release, u) for u in np.flatnonzero(~(under <= most * (1 + 1e-6) + 1e-6))]
    return asked, low, high


@pytest.mark.quick(2)
@pytest.mark.parametrize("kind", KINDS)
def test_stated_limits_hold_real_releases(kind):
    asked, low, high = violations(kind, [5], 12)
    assert asked == 12 * len(FORMS)
    assert not low
    assert not high


@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("kind", KINDS)
def test_stated_limits_hold_real_releases_of_many_people(kind):
    asked, low, high = violations(kind, range(100), 24)
    print(f"{kind}: {asked} limits of {len(FORMS)} releases, {len(low)} below the truth")
    assert not low, low[:5]
    assert not high, high[:5]
