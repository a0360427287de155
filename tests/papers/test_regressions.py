"""Regressions without single records, many at once, against scikit-learn's own."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from papers import candidate_set, datasets, regressions
from papers.regressions import Regressions
from privgate.errors import MeasurementError
from privgate.training.fleet import Fleet


@pytest.fixture(scope="module")
def purchases():
    return datasets.purchase_like(np.random.default_rng(0), n=120, features=60, classes=4)


@pytest.mark.parametrize("C", [1.0, 100.0])
def test_equals_scikit_learn_with_and_without_each_record(purchases, C):
    X, y = purchases.X, purchases.y
    fits, records = Regressions(X, y, 4, C), np.array([3, 50, 119])
    start = fits.full()
    with_, without = (
        fits.log_probabilities(start, records),
        fits.log_probabilities(fits.without(start, records), records),
    )

    for i, a, b in zip(records, with_, without, strict=True):
        for kept, got in ((np.arange(120), a), (np.delete(np.arange(120), i), b)):
            model = LogisticRegression(C=C, tol=1e-10, max_iter=10_000).fit(X[kept], y[kept])
            # a gap of 1e-7 nats to the minimum, and a bin of the paper is 0.01 wide
            assert got == pytest.approx(model.predict_log_proba(X[i : i + 1])[0], abs=2e-3)


def test_regressions_that_do_not_come_to_an_end_are_no_answer(purchases, monkeypatch):
    monkeypatch.setattr(regressions, "STEPS", 1)
    with pytest.raises(MeasurementError, match="have not come within"):
        Regressions(purchases.X, purchases.y, 4, 100.0).full()


def test_pdtp_is_that_of_refits_and_is_remembered(purchases, tmp_path, monkeypatch):
    units = np.array([3, 50, 119])
    with Fleet(jobs=1, ledger=tmp_path) as fleet:
        got = candidate_set.batched_pdtp(purchases.X, purchases.y, 1.0, units, fleet)
    monkeypatch.setattr(regressions, "Regressions", None)
    with Fleet(jobs=1, ledger=tmp_path) as fleet:
        again = candidate_set.batched_pdtp(purchases.X, purchases.y, 1.0, units, fleet)

    answers = []
    for i in units:
        kept = np.delete(np.arange(120), i)
        models = [LogisticRegression(tol=1e-10, max_iter=10_000).fit(purchases.X[k], purchases.y[k])
                  for k in (np.arange(120), kept)]  # fmt: skip
        a, b = (candidate_set.binned(m.predict_log_proba(purchases.X[i : i + 1]))[0] for m in models)
        answers.append(np.abs(a - b).max())
    assert got == pytest.approx(answers, abs=1e-9)  # in bins
    assert (again == got).all()
