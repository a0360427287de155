"""The gate as a whole: seconds of one check next to the refits it saves, and what importing costs."""

import csv
import gzip
import resource
import statistics
import subprocess
import sys
import time

import numpy as np
import pytest

from tests.bench.results_table import note

pytestmark = pytest.mark.bench


def test_check_of_all_adult_records_next_to_n_refits(shared_data, tmp_path):
    """CategoricalNB on all 48,842 records: controls, leave-one-out, re-check, certificate, judging, report."""
    from sklearn.naive_bayes import CategoricalNB

    from privgate import Policy, Recipe, Subject, TrainingData, evaluate, report
    from privgate.demo import adult
    from privgate.subject.domain import Domain
    from privgate.training.fleet import Fleet

    with gzip.open(shared_data("adult.csv.gz"), "rt") as f:
        rows = list(csv.DictReader(f))
    X, y = adult.codes(rows), np.array([r["income"] for r in rows])
    recipe = Recipe(CategoricalNB(alpha=5.0, min_categories=list(adult.SIZES)), seed=7)
    subject = Subject.local(recipe, TrainingData(X, y, domain=Domain(categories=adult.SIZES), one_record_each=True))

    start = time.perf_counter()
    fleet = Fleet(ledger=tmp_path / "ledger")
    verdict = evaluate(Policy.load("dtp-1"), subject, fleet=fleet)
    judged = time.perf_counter() - start
    report.write(verdict, tmp_path / "out", hash_key=b"k" * 32)
    whole = time.perf_counter() - start
    start = time.perf_counter()
    evaluate(Policy.load("pdtp-1"), Subject.local(recipe, subject.data), fleet=Fleet(ledger=tmp_path / "ledger"))
    second = time.perf_counter() - start

    sample = np.random.default_rng(0).choice(len(X), 30, replace=False)
    seconds = []
    for t in sample:
        start = time.perf_counter()
        model = CategoricalNB(alpha=5.0, min_categories=list(adult.SIZES)).fit(np.delete(X, t, 0), np.delete(y, t))
        model.predict_proba(X[t : t + 1])
        seconds.append(time.perf_counter() - start)
    refits = statistics.median(seconds) * len(X)
    records = verdict.records
    note(
        case="check CategoricalNB, all Adult",
        n=len(X),
        check_s=whole,
        judged_s=judged,
        second_policy_s=second,
        training_calls=fleet.calls,
        refits_s_extrapolated_from_30=refits,
        ratio=refits / whole,
        max_dtp_lower=float(records.dtp_lower.max()),
        max_dtp_upper=float(records.dtp_upper.max()),
        outcome=str(verdict.outcome),
    )
    assert len(records) == len(X)
    assert np.isfinite(records.dtp_upper).all()


def numbers(n, d, K, seed=0):
    """Return n records of d numbers whose K classes overlap."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, K, n)
    return rng.normal(size=(n, d)) + 0.1 * rng.normal(size=(K, d))[y], y


def family(name):
    """Return (words for the data, recipe, training data) of a model family."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.naive_bayes import GaussianNB
    from sklearn.tree import DecisionTreeClassifier

    from privgate import Recipe, TrainingData

    made, n, d, K = {
        "naive Bayes": (GaussianNB(), 10_000, 50, 10),
        "logistic regression": (LogisticRegression(tol=1e-8, solver="newton-cholesky"), 5000, 100, 2),
        "CART": (DecisionTreeClassifier(max_depth=8, min_samples_leaf=5, random_state=0), 5000, 50, 2),
    }[name]
    return f"{d} numbers, {K} classes", Recipe(made, seed=0), TrainingData(*numbers(n, d, K))


def processor():
    """Return seconds of processor time of this process and of its workers that have ended."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


@pytest.mark.parametrize("name", ["naive Bayes", "logistic regression", "CART"])
def test_check_in_units_of_one_training(name, tmp_path):
    """All of a first check with an empty ledger: controls, leave-one-out of everybody, re-check, judging, report."""
    from privgate import Policy, Subject, evaluate, report
    from privgate.training.fleet import Fleet

    words, recipe, data = family(name)
    subject = Subject.local(recipe, data)
    trained = []
    for _ in range(5):
        start = time.process_time()
        recipe.train(data.X, data.y, seed=0)
        trained.append(time.process_time() - start)
    one = statistics.median(trained)

    # by the clock: what a boxed worker takes is added to nobody's processor time
    start = time.perf_counter()
    with Fleet(jobs=1, ledger=tmp_path / "ledger") as fleet:
        verdict = evaluate(Policy.load("pdtp-1"), subject, fleet=fleet)
        report.write(verdict, tmp_path / "out", hash_key=b"k" * 32)
        calls = fleet.calls
    spent = time.perf_counter() - start
    influence = verdict.evidence.influence
    share, seeds = influence.engines[0], max(1, verdict.evidence.run.seeds.paired)

    note(
        bench="check",
        engine=share.engine,
        data=f"{name}, {words}",
        n=data.n,
        seconds=spent,
        training_seconds=one,
        ratio=spent / one,
        # where training depends on its seed, everybody is left out once a seed
        seeds=seeds,
        saved=one * data.n * seeds / spent,
        training_calls=calls,
        handed_on=share.handed_on / data.n,
        answered=len(verdict.records),
        outcome=str(verdict.outcome),
    )
    # whoever is handed on is left out no more once a rule is broken
    assert len(verdict.records) == data.n or (verdict.records["pdtp"] > 1).any()


def test_importing_privgate():
    def seconds(code):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        return time.perf_counter() - start

    def median(code):
        return statistics.median(seconds(code) for _ in range(7))

    bare, own, names = median("pass"), median("import privgate"), median("from privgate import Policy, Subject, Recipe")
    note(case="import", bare_s=bare, privgate_s=own - bare, with_names_s=names - bare)
    assert own - bare < 0.5
