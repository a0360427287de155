"""Long et al. (2017), Propositions 6.3 to 6.8: records for which the published bounds are too small, by enumeration."""

import itertools

import numpy as np
import pytest
from sklearn.naive_bayes import CategoricalNB

from privgate import Domain, Recipe, Subject, TrainingData, certificates


def certified(X, y, sizes, alpha=1.0):
    estimator = CategoricalNB(alpha=alpha, min_categories=list(sizes), force_alpha=True)
    data = TrainingData(np.array(X), np.array(y), domain=Domain(categories=tuple(sizes)))
    subject = Subject.local(Recipe(estimator), data)
    return certificates.ALL["categorical_nb"].bound(subject, np.arange(len(y)), None)


def retrained(X, y, k, sizes, alpha=1.0):
    """Return (PDTP, DTP) of record ``k`` by training again and asking everything."""
    X, y = np.array(X), np.array(y)
    keep = np.arange(len(y)) != k
    queries = np.array(list(itertools.product(*(range(v) for v in sizes))))
    models = [CategoricalNB(alpha=alpha, min_categories=list(sizes)).fit(X[r], y[r]) for r in (keep | True, keep)]
    direct = np.abs(np.subtract(*(m.predict_log_proba(X[k : k + 1]) for m in models))).max()
    return direct, np.abs(np.subtract(*(m.predict_log_proba(queries) for m in models))).max()


def test_eight_records_whose_indirect_query_tells_more_than_proposition_6_5_allows():
    """Class 0: four times (0, 0); class 1: (0, 1) and three times (1, 1); t = (1; (0, 1))."""
    X = [(0, 0)] * 4 + [(0, 1)] + [(1, 1)] * 3
    y = [0] * 4 + [1] * 4
    found = certified(X, y, (2, 2))
    pdtp, dtp = retrained(X, y, 4, (2, 2))
    assert pdtp == pytest.approx(np.log(375 / 233))
    assert dtp == pytest.approx(np.log(1304 / 729))
    assert dtp > np.log(12 / 7)  # what the proposition claims
    assert found.exact[4]
    assert found.upper[4] == pytest.approx(dtp, abs=1e-12)
    assert [round(v, 4) for v in (pdtp, dtp)] == [0.4759, 0.5815]


def test_a_thousand_records_that_the_published_bound_would_approve_and_the_certificate_blocks():
    N = 500
    X = np.zeros((2 * N, 3), dtype=int)
    y = np.repeat([0, 1], N)
    X[N // 2 : N, 2] = 2  # class 0: third feature 0, then 2
    X[N + N // 2 :, 2] = 1  # class 1: third feature 0, then 1
    X[N] = (1, 1, 0)
    X[0] = (1, 0, 0)
    published = np.log(((N + 3) / N) ** 2 * 1000 / 999)
    pdtp, dtp = retrained(X, y, N, (2, 2, 3))
    found = certified(X, y, (2, 2, 3))
    assert round(pdtp, 3) == 0.693
    assert round(dtp, 3) == 1.376
    assert max(pdtp, published) < 1 < found.lower.max()
    assert found.upper.max() == pytest.approx(dtp, abs=1e-9)
    assert found.upper.argmax() == N


def test_nine_records_without_smoothing_whose_own_answer_never_changes():
    """Proposition 6.4: PDTP is 0 and the claim 3/2, yet another query changes by 17/11."""
    X = [(0, 0)] * 4 + [(0, 0), (0, 1), (1, 1), (1, 1), (1, 1)]
    y = [0] * 4 + [1] * 5
    found = certified(X, y, (2, 2), alpha=0.0)
    assert found.upper[5] >= np.log(17 / 11)
    assert np.log(17 / 11) == pytest.approx(0.4353, abs=1e-4)
    assert np.log(17 / 11) > np.log(3 / 2)


@pytest.mark.parametrize(
    ("X", "y", "k", "own", "other", "alpha"),
    [
        ([[0], [0], [0], [1]], [0, 0, 1, 1], 0, 4 / 3, 3 / 2, 1e-12),
        ([[0], [1], [0]], [0, 0, 1], 1, 3 / 2, 2.0, 1.0),
    ],
    ids=["Proposition 6.4", "Proposition 6.5"],
)
def test_another_label_changes_more_than_the_published_ratio_of_the_own_label(X, y, k, own, other, alpha):
    """Mathematical reference, section 2, smallest counterexamples; ``own`` is what the proposition allows."""
    X, y = np.array(X), np.array(y)
    keep = np.arange(len(y)) != k
    models = [
        CategoricalNB(alpha=alpha, force_alpha=True, min_categories=2).fit(X[rows], y[rows])
        for rows in (keep | True, keep)
    ]
    p, q = (m.predict_proba(X[[k]])[0] for m in models)
    assert p[y[k]] / q[y[k]] == pytest.approx(own, rel=1e-6)
    assert q[1 - y[k]] / p[1 - y[k]] == pytest.approx(other, rel=1e-6)
