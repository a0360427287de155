"""The exact maximum alone, and the shadow ranking that never approves."""

import numpy as np
import pytest
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.linear_model import LogisticRegression

from privgate.families.answering import answer
from privgate.families.engine import Asked
from privgate.statistics.leakage import largest_change

TIGHT = {"tol": 1e-10, "max_iter": 1000, "solver": "newton-cholesky"}


def sample(n, d, seed=0, strength=4.0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    y = (X @ rng.normal(size=d) * strength / np.sqrt(d) + rng.logistic(size=n) > 0).astype(int)
    return X, y


@pytest.mark.quick(1)
@pytest.mark.parametrize(("n", "d", "C"), [(400, 5, 1.0), (150, 10, 10.0), (60, 40, 1.0)])
def test_the_maximum_alone_is_the_maximum_of_all_and_every_interval_holds(direct, fleet, n, d, C):
    X, y = sample(n, d)
    subject = direct.subject(LogisticRegression(C=C, **TIGHT), X, y)

    every = answer(Asked(subject, np.arange(n), (None,), fleet)).retrained
    quick = answer(Asked(subject, np.arange(n), (None,), fleet, mode="max")).retrained
    pdtp = [largest_change(r.log_with[0], r.log_without[0]) for r in (every, quick)]
    top = pdtp[1].argmax()

    assert pdtp[1].max() == pytest.approx(pdtp[0].max(), abs=1e-6)
    assert top == pdtp[0].argmax()
    assert quick.error[top] == pytest.approx(every.error[top], abs=1e-5)
    apart = np.abs(every.log_without[0] - quick.log_without[0]).max(axis=1)
    assert (apart <= quick.error + every.error).all()
    assert (pdtp[1] + quick.error <= pdtp[1][top] + 2 * quick.error[top] + 1e-6).all()
    # what the per-person table makes of it: nobody who was only bounded reaches above who holds the maximum
    assert (pdtp[1] + 2 * quick.error <= pdtp[1][top] + 2 * quick.error[top]).all()
    if (n, d) == (400, 5):
        assert np.median(quick.error) > 10 * np.median(every.error)  # the saving is real


@pytest.mark.slow
def test_screening_retrains_the_top_tenth_and_labels_the_rest(direct, fleet):
    X, y = sample(200, 4, strength=40.0)
    y[:6] = 1 - y[:6]  # six people who contradict the others
    subject = direct.subject(GradientBoostingClassifier(n_estimators=20, max_depth=4, random_state=0), X, y)

    got = answer(Asked(subject, np.arange(200), (0,), fleet, mode="screen")).retrained
    status = got.status.astype(str)

    assert got.units.tolist() == list(range(200))
    assert (status == "screened").sum() == 180
    assert np.isnan(got.error[status == "screened"]).all()
    assert (got.error[status == "exact"] == 0).all()
    assert fleet.calls < 64 + 20 + 5
    assert len(set(np.flatnonzero(status == "exact")) & set(range(6))) >= 4


def test_screening_changes_nothing_where_a_fast_engine_answers(direct, fleet):
    X, y = sample(80, 4)
    subject = direct.subject(LogisticRegression(**TIGHT), X, y)

    got = answer(Asked(subject, np.arange(80), (None,), fleet, mode="screen")).retrained

    assert set(got.status) == {"converged"}


def test_people_are_screened_whole(direct, fleet):
    X, y = sample(120, 4)
    groups = np.arange(120) // 2
    subject = direct.subject(
        GradientBoostingClassifier(n_estimators=3, random_state=0), X, y, groups=groups, candidates=(X[:9], y[:9])
    )

    got = answer(Asked(subject, np.arange(60), (0,), fleet, mode="screen")).retrained

    assert got.units.tolist() == list(range(60))
    assert np.bincount(got.row_unit).tolist() == [2] * 60
    assert (got.status == "screened").sum() == 40
