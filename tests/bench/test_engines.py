"""Leave-one-out of every engine next to refits: CPU against CPU time in one process on one core, full fit included.

Refits are timed on a stated subset of units and extrapolated to all n; PDTP is compared on the units named. Each case
appends a line to ``bench-results.jsonl``.
"""

import time
import warnings
from functools import partial

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

from privgate.statistics.leakage import largest_change
from privgate.subject.data import TrainingData
from privgate.subject.recipe import Recipe
from privgate.subject.subject import Subject
from privgate.theorems.catalogue import CLOSED_FORMS as ALL
from privgate.theorems.closed_form import RefitRequest
from tests.bench.results_table import note

pytestmark = pytest.mark.bench
ENGINES = {engine.name: engine for engine in ALL}


def labels(rng, n, K):
    y = rng.integers(0, K, n)
    y[:K] = np.arange(K)
    return y


def numbers(n, seed=0, d=50, K=10):
    rng = np.random.default_rng(seed)
    y = labels(rng, n, K)
    return rng.normal(size=(n, d)) + rng.normal(size=(K, d))[y] * 0.5, y


def clicks(n, seed=0, d=100, K=2):
    rng = np.random.default_rng(seed)
    X = (rng.random((n, d)) < rng.beta(1, 2, d)).astype(float)
    Z = (X - X.mean(0)) @ rng.normal(size=(d, K)) / np.sqrt(d) * (6 if K == 2 else 4)
    y = (Z + rng.gumbel(size=Z.shape)).argmax(axis=1)
    y[:K] = np.arange(K)
    return X, y


def ten_kinds(n, seed=0):
    return clicks(n, seed, K=10)


def nearly_separable(n, seed=0):
    return clicks(n, seed, d=836)


TIGHT = LogisticRegression(C=1.0, tol=1e-8, solver="newton-cholesky")
#: without a Hessian, where there are many parameters
WIDE = LogisticRegression(C=1.0, tol=1e-8, solver="newton-cg")
# engine, estimator, data, n -> wanted ratio, refits timed, units whose PDTP is compared at the smallest n (None: all)
CASES = [
    ("logistic", TIGHT, clicks, {1000: 200, 5000: 200}, 8, None),
    ("logistic", WIDE, ten_kinds, {1000: 25, 5000: 100}, 3, 40),
    ("logistic", WIDE, nearly_separable, {1000: 6}, 3, 40),
]


def subject_of(estimator, X, y):
    return Subject.local(Recipe(estimator, seed=0), TrainingData(X, y, one_record_each=True))


def cpu(function, repeat=1):
    best = np.inf
    for _ in range(repeat):
        begin = time.process_time()
        result = function()
        best = min(best, time.process_time() - begin)
    return best, result


def refit(estimator, X, y, i, classes):
    keep = np.ones(len(y), dtype=bool)
    keep[i] = False
    model = clone(estimator).fit(X[keep], y[keep])
    p = np.zeros(len(classes))
    p[np.searchsorted(classes, model.classes_)] = model.predict_proba(X[i : i + 1])[0]
    return p


def refits(estimator, subject, some):
    return [refit(estimator, subject.data.X, subject.data.y, i, subject.classes) for i in some]


def reference(estimator):
    """What a refit is compared with: the exact minimiser, which solvers only approach."""
    return LogisticRegression(C=estimator.C, tol=1e-13, max_iter=1000, solver="newton-cholesky")


@pytest.mark.parametrize(
    ("name", "estimator", "make", "wanted", "timed", "compared"), CASES, ids=[f"{c[0]}-{c[2].__name__}" for c in CASES]
)
def test_every_unit_next_to_as_many_refits(name, estimator, make, wanted, timed, compared):
    engine, spent, naive = ENGINES[name], {}, {}
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for n, ratio_wanted in wanted.items():
            X, y = make(n)
            subject = subject_of(estimator, X, y)
            assert engine.supports(subject) == ""
            repeat = 3 if n <= 1000 else 1
            spent[n], (made, handed_on) = cpu(
                partial(engine.answers, RefitRequest(subject, np.arange(n), (0,), None)), repeat
            )
            some = np.random.default_rng(1).choice(n, timed, replace=False)
            naive[n] = cpu(partial(refits, estimator, subject, some), 2)[0] / timed * n
            error, checked = np.nan, 0
            if n == min(wanted):
                error, checked = pdtp_error(estimator, X, y, made, subject.classes, compared)
            note(
                bench="leave-one-out",
                engine=name,
                data=make.__name__,
                n=n,
                seconds=spent[n],
                refit_seconds=naive[n],
                refits_timed=timed,
                ratio=naive[n] / spent[n],
                wanted=ratio_wanted,
                reached=bool(naive[n] / spent[n] >= ratio_wanted),
                handed_on=len(handed_on) / n,
                # what is handed on is refitted: the ratio that a whole check sees
                ratio_with_refits=naive[n] / (spent[n] + naive[n] * len(handed_on) / n),
                largest_error_bound=float(made.error.max()),
                pdtp_error=float(error),
                pdtp_compared=checked,
            )
            if checked:
                assert error <= 1e-6
    if len(spent) > 1:
        sizes = np.log(list(spent))
        growth = [float(np.polyfit(sizes, np.log(list(d.values())), 1)[0]) for d in (spent, naive)]
        note(bench="growth", engine=name, data=make.__name__, engine_exponent=growth[0], refits_exponent=growth[1])


def pdtp_error(estimator, X, y, made, classes, compared):
    """Largest difference of PDTP over the units answered, or over the worst half and a random half of ``compared``."""
    pdtp = largest_change(made.log_with[0], made.log_without[0])
    live = np.flatnonzero(made.status != "undefined")
    if compared is not None:
        worst = live[np.argsort(-pdtp[live])[: compared // 2]]
        live = np.union1d(worst, np.random.default_rng(2).choice(live, compared // 2, replace=False))
    model = clone(reference(estimator)).fit(X, y)
    with np.errstate(divide="ignore"):
        full = np.log(model.predict_proba(X))
        error = 0.0
        for k in live:
            u = int(made.units[k])
            true = largest_change(full[u], np.log(refit(reference(estimator), X, y, u, classes)))
            error = max(error, 0.0 if true == pdtp[k] else abs(true - pdtp[k]))
    return error, len(live)


SQUARES = [("Ridge", 1000, 100), ("Ridge", 10_000, 1000)]
SQUARES += [
    (kind, n, ratio) for kind in ("RidgeClassifier", "LinearRegression") for n, ratio in ((1000, 500), (10_000, 3000))
]


@pytest.mark.parametrize(("kind", "n", "wanted"), SQUARES)
def test_squares_next_to_refits(kind, n, wanted):
    """A regressor, and linear models whose scores a softmax turns into probabilities."""
    from sklearn import linear_model

    from privgate.linear_scores import softmax_scores

    estimator, name = getattr(linear_model, kind)(), "least_squares" if kind == "Ridge" else "ridge"
    X, y = numbers(n, d=20 if kind == "Ridge" else 100, K=5 if kind == "RidgeClassifier" else 2)
    y = np.random.default_rng(1).normal(size=n) * 3 if kind == "Ridge" else y
    recipe = Recipe(estimator) if kind == "Ridge" else Recipe(estimator, predict=softmax_scores)
    subject = Subject.local(recipe, TrainingData(X, y, one_record_each=True))

    def answer(i, rows):
        model = clone(estimator).fit(X[rows], y[rows])
        if kind != "Ridge":
            return np.log(softmax_scores(model, X[i : i + 1])[0])
        return (model.predict(X[i : i + 1]) - subject.scale[0]) / subject.scale[1]

    with threadpool_limits(1):
        spent, (made, _) = cpu(
            partial(ENGINES[name].answers, RefitRequest(subject, np.arange(n), (0,), None)), repeat=3
        )
        some = np.random.default_rng(1).choice(n, 20, replace=False)
        loop = cpu(lambda: [answer(i, np.arange(n) != i) for i in some], 2)[0] / len(some) * n
        error = max(float(np.abs(made.log_without[0, i] - answer(i, np.arange(n) != i)).max()) for i in some)
    note(
        bench="leave-one-out",
        engine=name,
        data=f"numbers, {kind}",
        n=n,
        seconds=spent,
        refit_seconds=loop,
        refits_timed=len(some),
        ratio=loop / spent,
        wanted=wanted,
        reached=bool(loop / spent >= wanted),
        pdtp_error=error,
        pdtp_compared=len(some),
    )
    assert error <= 1e-8
