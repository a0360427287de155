"""Long et al. (2017), Propositions 6.3 to 6.8: records for which the published bounds are too small, by enumeration."""

import itertools

import numpy as np
import pytest
from sklearn.naive_bayes import CategoricalNB

from privgate import Domain, Recipe, Subject, TrainingData
from privgate.influence import published
from privgate.models import ContingencyTable, shares
from privgate.theorems import catalogue
from privgate.theorems.theorem import Units

#: ln delta of Propositions 6.3 and 6.8 as published, nats; once for each factor in 6.7
FOUR_THIRDS = np.log(4 / 3)


def certified(X, y, sizes, alpha=1.0):
    estimator = CategoricalNB(alpha=alpha, min_categories=list(sizes), force_alpha=True)
    data = TrainingData(np.array(X), np.array(y), domain=Domain(categories=tuple(sizes)), one_record_each=True)
    subject = Subject.local(Recipe(estimator), data)
    return catalogue.THEOREMS["categorical_nb"].certify(Units(subject, np.arange(len(y)), None))


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
    assert found.upper[4] == pytest.approx(dtp, abs=1e-10)
    assert [round(v, 4) for v in (pdtp, dtp)] == [0.4759, 0.5815]


def test_a_thousand_records_that_the_published_bound_would_approve_and_the_theorem_does_not():
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
    assert max(pdtp, published) < 1 < found.upper.max()
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
    """docs/mathematics.md, section 2, smallest counterexamples; ``own`` is what the proposition allows."""
    X, y = np.array(X), np.array(y)
    keep = np.arange(len(y)) != k
    models = [
        CategoricalNB(alpha=alpha, force_alpha=True, min_categories=2).fit(X[rows], y[rows])
        for rows in (keep | True, keep)
    ]
    p, q = (m.predict_proba(X[[k]])[0] for m in models)
    assert p[y[k]] / q[y[k]] == pytest.approx(own, rel=1e-6)
    assert q[1 - y[k]] / p[1 - y[k]] == pytest.approx(other, rel=1e-6)


def test_proposition_6_3_three_records_in_one_cell():
    model = ContingencyTable(alpha=0.0)
    p = model.fit([[0]] * 3, [0, 0, 1]).predict_proba([[0]])[0]
    q = model.fit([[0]] * 2, [0, 1]).predict_proba([[0]])[0]
    assert p[0] / q[0] == pytest.approx(4 / 3)
    assert q[1] / p[1] == pytest.approx(3 / 2)
    subject = Subject.local(
        Recipe(ContingencyTable(alpha=0.0)), TrainingData(np.zeros((3, 1)), [0, 0, 1], one_record_each=True)
    )
    found = catalogue.THEOREMS["contingency_table"].certify(Units(subject, np.arange(3), None))
    assert found.upper[0] == pytest.approx(np.log(3 / 2))
    assert found.upper[0] > FOUR_THIRDS


def test_proposition_6_3_exceptions_are_exactly_cells_of_three_with_two():
    """All cells of at most 12 records and two labels: own-label ratio, 4/3 fails at (2, 1) only and 3/2 never."""
    worse = []
    for c, rest in itertools.product(range(2, 12), range(12)):
        b = c + rest
        other = b / (b - 1) if rest else 1.0
        own = c * (b - 1) / (b * (c - 1))
        # stability at (x_t, y_t) concerns the own label; the others must stay within it or the constant
        if other > max(own, 4 / 3) + 1e-12:
            worse.append((c, rest))
        assert other <= max(own, 3 / 2) + 1e-12
    assert worse == [(2, 1)]


def test_proposition_6_7_six_records():
    X = np.array([[1] * 5] * 2 + [[0] * 5] * 4)
    y = np.array([1, 1, 1, 0, 0, 0])

    def score(rows, x, label):
        """n_y prod_j (n_jy(x_j) / n_y) / n, raw."""
        mine = X[rows][y[rows] == label]
        return len(mine) / len(rows) * np.prod([(mine[:, j] == x[j]).mean() for j in range(5)])

    every, rest = np.arange(6), np.arange(1, 6)
    ones, zeros = np.ones(5), np.zeros(5)
    own = score(every, ones, 1) / score(rest, ones, 1)
    other = score(rest, zeros, 1) / score(every, zeros, 1)
    assert own == pytest.approx(1280 / 243)
    assert other == pytest.approx(243 / 40)
    assert other > np.exp(6 * FOUR_THIRDS) > own


def test_proposition_6_8_two_stumps():
    """Leaves L or L', and M or M'; cells (own label, other label) LM (1,1), LM' (1,6), L'M (3,0); t is in LM."""
    counts = np.array([[[2.0, 7.0], [3.0, 0.0]], [[4.0, 1.0], [1.0, 6.0]]])  # tree, leaf, label
    left = counts.copy()
    left[:, 0, 0] -= 1

    def answer(table, i, j):
        root = np.sqrt(shares(table[0, i], 0.0) * shares(table[1, j], 0.0))
        return root / root.sum()

    def change(i, j):
        p, q = answer(counts, i, j), answer(left, i, j)
        assert ((p > 0) == (q > 0)).all()
        return np.abs(np.log(p[p > 0] / q[p > 0])).max()

    pdtp = change(0, 0)
    dtp = max(change(i, j) for i, j in ((0, 0), (0, 1), (1, 0)))
    assert pdtp == pytest.approx(0.2669, abs=1e-4)
    assert dtp == pytest.approx(0.2927, abs=1e-4)
    assert dtp > FOUR_THIRDS > pdtp


def test_the_published_constants_are_those_of_the_counterexamples():
    assert published.naive_bayes_smoothed(8, 4, 2, 2) == pytest.approx(np.log(12 / 7))
    assert max(0.4759, published.naive_bayes_smoothed(8, 4, 2, 2)) < 0.5815
    assert max(2 * 0.4759, np.log(12 / 7)) >= 0.5815  # docs/mathematics.md, section 2, Theorem 2
