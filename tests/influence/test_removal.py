"""Removing the riskiest units: what training again gives, never worse than the best seen, honest about why it ends."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import BernoulliNB, CategoricalNB
from sklearn.tree import DecisionTreeClassifier

from privgate import Domain, Recipe, Subject, TrainingData
from privgate.errors import MeasurementError
from privgate.influence import risky_removal
from privgate.training.fleet import Fleet


def census(seed=0, n=200, groups=None):
    rng = np.random.default_rng(seed)
    sizes = (6, 3, 2)
    X = np.column_stack([rng.choice(v, n, p=np.arange(v, 0, -1) / np.arange(v, 0, -1).sum()) for v in sizes])
    y = (rng.random(n) < 0.2 + 0.1 * X[:, 0]).astype(int)
    data = TrainingData(X, y, domain=Domain(categories=sizes), groups=groups)
    return Subject.local(Recipe(CategoricalNB(min_categories=list(sizes))), data)


def test_the_table_of_counts_gives_what_certifying_all_data_again_gives():
    subject = census()
    fast = risky_removal.remove_risky(subject, limit=0.0, budget=25)
    slow = risky_removal.remove_risky(subject, limit=0.0, budget=25, values=certified)
    np.testing.assert_allclose(fast.upper, slow.upper, atol=1e-9)
    np.testing.assert_allclose(fast.lower, slow.lower, atol=1e-9)
    X, y = subject.data.X, subject.data.y
    # records that are equal are interchangeable
    for a, b in zip(fast.order, slow.order, strict=True):
        assert (*X[a], y[a]) == (*X[b], y[b])


def certified(subject):
    return risky_removal._certified(subject)


def test_the_claimed_maximum_is_that_of_the_data_that_are_left():
    subject = census(1)
    found = risky_removal.remove_risky(subject, limit=0.3)
    left = found.data(subject.data)
    assert left.n == subject.data.n - len(found.removed)
    _, upper = certified(subject.with_data(left))
    assert upper.max() == pytest.approx(found.upper[found.best], abs=1e-9)


def test_never_a_set_worse_than_the_best_seen():
    for seed in range(3):
        found = risky_removal.remove_risky(census(seed), limit=0.0, budget=20)
        assert found.upper[found.best] == found.upper.min()
        assert found.upper[found.best] <= found.upper[0]
        assert len(found.removed) == found.best


@pytest.mark.slow
def test_the_maximum_can_rise_again_and_patience_ends_the_saw():
    """Long et al. (2017), Figure 6: removing one record makes others stand out."""
    teeth = [risky_removal.remove_risky(census(seed), limit=0.0, budget=30) for seed in range(4)]
    assert any((np.diff(t.upper) > 0).any() for t in teeth)
    sharp = next(t for t in teeth if (np.diff(t.upper) > 0).any())
    seed = teeth.index(sharp)
    patient = risky_removal.remove_risky(census(seed), limit=0.0, budget=30, patience=1)
    first_rise = int(np.flatnonzero(np.diff(sharp.upper) >= 0)[0])
    assert patient.best == first_rise
    assert "nothing better" in patient.stopped


def test_it_stops_at_the_limit_the_budget_or_when_nothing_is_needed():
    subject = census(2)
    start = risky_removal.remove_risky(subject, limit=0.0, budget=0)
    assert "budget" in start.stopped
    assert start.best == 0
    generous = risky_removal.remove_risky(subject, limit=float(start.upper[0]))
    assert "limit" in generous.stopped
    assert not len(generous.removed)
    reached = risky_removal.remove_risky(subject, limit=float(start.upper[0]) * 0.8, budget=60)
    assert "limit" in reached.stopped
    assert reached.upper[reached.best] <= start.upper[0] * 0.8


def test_people_with_several_records_leave_with_all_of_them():
    rng = np.random.default_rng(3)
    groups = rng.integers(0, 60, 200)
    subject = census(3, groups=groups)
    found = risky_removal.remove_risky(subject, limit=0.0, budget=5)
    left = found.data(subject.data)
    gone = {subject.data.unit_names[u] for u in found.removed}
    assert not gone & set(left.groups.astype(str))
    assert left.n == subject.data.n - sum(len(subject.data.units[u]) for u in found.removed)


def test_bernoulli_counts_work_too():
    rng = np.random.default_rng(4)
    X, y = (rng.random((150, 5)) < 0.3).astype(int), rng.integers(0, 2, 150)
    subject = Subject.local(Recipe(BernoulliNB()), TrainingData(X, y))
    fast = risky_removal.remove_risky(subject, limit=0.0, budget=10)
    slow = risky_removal.remove_risky(subject, limit=0.0, budget=10, values=certified)
    np.testing.assert_allclose(fast.upper, slow.upper, atol=1e-9)


def test_logistic_regression_is_certified_again_after_every_removal():
    rng = np.random.default_rng(5)
    X = rng.random((60, 2))
    y = (X[:, 0] > 0.5).astype(int)
    subject = Subject.local(
        Recipe(LogisticRegression(C=0.5, tol=1e-10, solver="newton-cholesky")),
        TrainingData(X, y, domain=Domain.of([(0, 1)] * 2)),
    )
    found = risky_removal.remove_risky(subject, limit=0.0, budget=3)
    assert found.meaning.startswith("certified")
    assert np.isfinite(found.upper).all()


def test_without_certificate_direct_queries_are_measured_and_said_so():
    rng = np.random.default_rng(6)
    X, y = rng.random((25, 2)), np.array([0, 1] * 12 + [1])
    subject = Subject.local(Recipe(DecisionTreeClassifier(max_depth=2, min_samples_leaf=5), seed=0), TrainingData(X, y))
    with Fleet(jobs=1, ledger="none") as fleet:
        found = risky_removal.remove_risky(subject, limit=0.0, budget=2, fleet=fleet)
    assert "direct queries" in found.meaning
    assert len(found.upper) == 3


def test_without_certificate_and_without_fleet_nothing_is_claimed():
    subject = Subject.local(Recipe(DecisionTreeClassifier()), TrainingData(np.eye(4), [0, 1, 0, 1]))
    with pytest.raises(MeasurementError, match="fleet"):
        risky_removal.remove_risky(subject, limit=1.0)


def test_the_picture_shows_every_step_and_the_limit():
    found = risky_removal.remove_risky(census(0), limit=0.1, budget=12)
    picture = risky_removal.picture(found, limit=0.1)
    assert picture.startswith("<svg")
    assert picture.count(",") >= len(found.upper)
    assert "limit" in picture
    assert "<script" not in picture
