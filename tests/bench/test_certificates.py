"""How tight certificates are, and what they cost: figures, one JSON line each in ``bench-results.jsonl``.

Seconds are CPU seconds of one core in one process. "best" is the largest change at a query that was really evaluated.
"""

import time

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import BernoulliNB, CategoricalNB, GaussianNB
from threadpoolctl import threadpool_limits

from privgate import Domain, Recipe, Subject, TrainingData
from privgate.theorems import catalogue
from tests.bench.results_table import note

pytestmark = [pytest.mark.bench, pytest.mark.timeout(1800)]
EIGHT = ("workclass", "education", "marital_status", "occupation", "relationship", "race", "sex", "native_country")


def adult(shared_data, columns):
    import pandas as pd

    frame = pd.read_csv(shared_data("adult.csv.gz"), keep_default_na=False)
    X = np.column_stack([pd.factorize(frame[c], sort=True)[0] for c in columns])
    return frame, X, (frame["income"] == ">50K").astype(int).to_numpy()


def location(shared_data):
    stored = np.load(shared_data("location30.npz"))
    return np.unpackbits(stored["X_packed"], axis=1, count=int(stored["n_features"])), stored["y"].astype(int)


def one_hot(X):
    return np.concatenate([np.eye(int(c.max()) + 1, dtype=np.uint8)[c] for c in X.T], axis=1)


def unit_box(X):
    return (X - X.min(axis=0)) / np.maximum(np.ptp(X, axis=0), 1e-12)


def subject_of(estimator, X, y, domain):
    return Subject.local(Recipe(estimator), TrainingData(X, y, domain=domain, one_record_each=True))


def tightness(case, subject, name):
    """Certificate over best query, over units whose change is more than the solver's noise."""
    units = np.arange(len(subject.data.units))
    assert catalogue.THEOREMS[name].refusal(subject) == ""
    started = time.process_time()
    found = catalogue.THEOREMS[name].bound(subject, units, None)
    seconds = time.process_time() - started
    told = np.isfinite(found.upper) & (found.upper > 1e-3)
    if not told.any():  # where documents are so long that float64 releases zeros, no bound speaks of anybody
        fields = {"figure": "tightness", "case": case, "certificate": name, "units": len(units), "judged": 0}
        note(**fields, infinite=int(np.isinf(found.upper).sum()), cpu_seconds=round(seconds, 2))
        return fields
    ratio = found.upper[told] / np.maximum(found.lower[told], 1e-12)
    fields = {
        "figure": "tightness",
        "case": case,
        "certificate": name,
        "units": len(units),
        "judged": int(told.sum()),
        "median": round(float(np.median(ratio)), 4),
        "max": round(float(ratio.max()), 4),
        "largest": round(float(found.upper[np.isfinite(found.upper)].max()), 4),
        "infinite": int(np.isinf(found.upper).sum()),
        "cpu_seconds": round(seconds, 2),
    }
    note(**fields)
    return fields


def naive_bayes(shared_data):
    _, X, y = adult(shared_data, EIGHT)
    rows = np.random.default_rng(0).permutation(len(y))[:1000]
    sizes = [int(c.max()) + 1 for c in X.T]
    hot = one_hot(X)
    places, label = location(shared_data)
    yield "Adult 1000", CategoricalNB(min_categories=sizes), X[rows], y[rows], Domain(categories=tuple(sizes))
    yield "Adult 1000", BernoulliNB(), hot[rows], y[rows], None
    yield "Location 1200", BernoulliNB(), places[:1200], label[:1200], None
    for case, load in (("breast cancer", load_breast_cancer), ("wine", load_wine), ("digits", load_digits)):
        X, y = load(return_X_y=True)
        yield case, GaussianNB(var_smoothing=1e-2), unit_box(X), y, Domain.read([(0, 1)] * X.shape[1])
    yield "digits", BernoulliNB(binarize=8.0), X, y, None


def test_tightness_of_naive_bayes(shared_data):
    """Wanted: a median of at most 1.1."""
    with threadpool_limits(1):
        rows = [
            tightness(case, subject_of(model, X, y, domain), _name(model))
            for case, model, X, y, domain in naive_bayes(shared_data)
        ]
    spoke = {r["certificate"] for r in rows if r["judged"]}
    assert spoke == {r["certificate"] for r in rows}
    assert all(r["median"] >= 1.0 for r in rows if r["judged"])


def _name(model):
    return type(model).__name__.removesuffix("NB").lower() + "_nb"


def test_tightness_of_linear_models():
    """Wanted: a median of at most 1.25, without any retraining."""
    with threadpool_limits(1):
        for case, load in (("breast cancer", load_breast_cancer), ("wine", load_wine), ("digits", load_digits)):
            X, y = load(return_X_y=True)
            for C in (0.1, 1.0, 10.0):
                model = LogisticRegression(C=C, tol=1e-10, solver="newton-cholesky")
                subject = subject_of(model, unit_box(X), y, Domain.read([(0, 1)] * X.shape[1]))
                row = tightness(f"{case}, C={C:g}", subject, "newton")
                assert row["median"] >= 1.0


def test_all_records_of_adult(shared_data):
    """All 48,842 records: naive Bayes, and logistic regression without retraining."""
    frame, X, y = adult(shared_data, EIGHT)
    sizes = [int(c.max()) + 1 for c in X.T]
    numbers = frame[["age", "hours_per_week", "education_num", "capital_gain", "capital_loss"]].to_numpy(float)
    mixed = np.concatenate([one_hot(X), unit_box(numbers)], axis=1)
    cases = [
        ("categorical_nb", CategoricalNB(min_categories=sizes), X, Domain(categories=tuple(sizes))),
        ("bernoulli_nb", BernoulliNB(), one_hot(X), None),
    ]
    # a person has one value of each column: of all of them at once, float64 could not tell the smaller probability
    ends = np.cumsum(sizes)
    blocks = tuple(tuple(range(end - size, end)) for end, size in zip(ends.tolist(), sizes, strict=True))
    for C in (1.0, 0.1):
        model = LogisticRegression(C=C, tol=1e-8, solver="newton-cholesky")
        cases.append(("newton", model, mixed, Domain(box=((0.0, 1.0),) * mixed.shape[1], blocks=blocks)))
    with threadpool_limits(1):
        for name, model, Z, domain in cases:
            subject = subject_of(model, Z, y, domain)
            assert catalogue.THEOREMS[name].refusal(subject) == ""
            started = time.process_time()
            found = catalogue.THEOREMS[name].bound(subject, np.arange(len(y)), None, limit=1.0)
            seconds = time.process_time() - started
            open_ = (found.lower <= 1.0) & (found.upper > 1.0)
            note(
                figure="all of Adult",
                certificate=name,
                model=str(model),
                records=len(y),
                cpu_seconds=round(seconds, 2),
                largest_upper=round(float(found.upper.max()), 4),
                largest_lower=round(float(found.lower.max()), 4),
                undecided_at_1=int(open_.sum()),
                share_minimised_again=found.detail.get("minimised_again", 0) / len(y),
                refits=0,
            )
            assert np.isfinite(found.upper).all()


def test_a_census_of_1_6_million_records():
    """Certified maximum DTP over all records, next to one fit of the library."""
    rng = np.random.default_rng(0)
    n, sizes = 1_600_000, (100, 7, 5, 2)
    age = np.clip(rng.normal(40, 18, n), 0, 99).astype(int)
    marital = rng.choice(7, n, p=[0.4, 0.3, 0.15, 0.08, 0.04, 0.02, 0.01])
    race, sex = rng.choice(5, n, p=[0.7, 0.15, 0.1, 0.04, 0.01]), rng.integers(0, 2, n)
    X = np.column_stack([age, marital, race, sex])
    y = (rng.random(n) < 1 / (1 + np.exp(-(age - 45) / 15 - (marital == 1)))).astype(int)
    model = CategoricalNB(min_categories=list(sizes))
    with threadpool_limits(1):
        subject = subject_of(model, X, y, Domain(categories=sizes))
        started = time.process_time()
        model.fit(X, y)
        fit = time.process_time() - started
        started = time.process_time()
        found = catalogue.THEOREMS["categorical_nb"].bound(subject, np.arange(n), None)
        certify = time.process_time() - started
    note(
        figure="census",
        records=n,
        one_fit=round(fit, 3),
        certify_all=round(certify, 2),
        largest=round(float(found.upper.max()), 4),
    )
    assert np.isfinite(found.upper).all()
