"""What float64 does to a deployed formula is in the bound, or the regime is refused; ordinary data lose nothing."""

import itertools

import numpy as np
import pytest
from nasty import change, fitted
from sklearn.datasets import load_breast_cancer, load_iris, load_wine
from sklearn.naive_bayes import BernoulliNB, GaussianNB

from privgate import Domain, Recipe, Subject, TrainingData, kernel
from privgate.theorems import catalogue

#: nats; summing changes of log-probabilities in another order
ROUNDING_OF_TEST = 1e-9


def bound(name, subject):
    return catalogue.THEOREMS[name].bound(subject, np.arange(min(20, len(subject.data.units))), None)


def real(subject, unit, queries):
    everyone = np.arange(subject.data.n)
    with_, without = (fitted(subject, rows) for rows in (everyone, np.delete(everyone, unit)))
    return float(change(with_, without, queries, subject).max())


@pytest.mark.slow
def test_gaussian_means_that_cancel_are_not_certified():
    """Damage needs class means that err differently, which depends on n: so n is scanned."""
    worst = 0.0
    for n in range(201, 260):
        rng = np.random.default_rng(n)
        X = np.column_stack([rng.random(n), rng.random(n), np.full(n, 1718452800.1)])
        box = ((0.0, 1.0), (0.0, 1.0), (1718452799.6, 1718452800.6))
        subject = Subject.local(
            Recipe(GaussianNB()), TrainingData(X, rng.integers(0, 2, n), domain=Domain(box=box), one_record_each=True)
        )
        changed = real(subject, 0, np.array(list(itertools.product(*box))))
        assert changed <= bound("gaussian_nb", subject).upper[0]
        assert "subtract a constant" in catalogue.THEOREMS["gaussian_nb"].applies(subject)
        worst = max(worst, changed)
    assert worst > 1e5


@pytest.mark.parametrize("offset", [0.0, 1.0, 1e3, 1e5])
def test_a_smaller_offset_costs_no_certificate(offset):
    rng = np.random.default_rng(1)
    X = np.column_stack([rng.random(300), np.full(300, offset)])
    box = Domain(box=((0.0, 1.0), (offset - 0.5, offset + 0.5)))
    subject = Subject.local(Recipe(GaussianNB()), TrainingData(X, np.arange(300) % 2, domain=box, one_record_each=True))
    assert bound("gaussian_nb", subject).upper.max() < 0.1


@pytest.mark.parametrize("alpha", [1e-300, 1e-12, 1e-10, 1e-8, 1e-6, 1e-3, 1.0])
def test_bernoulli_computes_the_absence_of_a_feature_that_everybody_has_from_its_presence(alpha):
    n, rng = 2000, np.random.default_rng(0)
    X = np.column_stack([np.ones((n, 3)), rng.integers(0, 2, (n, 2))])
    subject = Subject.local(Recipe(BernoulliNB(alpha=alpha)), TrainingData(X, np.arange(n) % 2, one_record_each=True))
    said, found = catalogue.THEOREMS["bernoulli_nb"].applies(subject), bound("bernoulli_nb", subject)
    changed = real(subject, 0, np.array(list(itertools.product((0.0, 1.0), repeat=5))))
    assert changed <= found.upper[0] + ROUNDING_OF_TEST
    if alpha <= 1e-12:
        assert changed > 1
        assert "raise alpha" in said
        assert np.isinf(found.upper).all()
    if alpha >= 1e-8:
        assert not said
        assert found.upper.max() < (0.1 if alpha >= 1e-6 else 0.5)


@pytest.mark.parametrize("load", [load_iris, load_breast_cancer, load_wine])
@pytest.mark.parametrize("scaled", [False, True])
def test_ordinary_data_are_bounded_as_tightly_as_exact_arithmetic_would(monkeypatch, load, scaled):
    X, y = load(return_X_y=True)
    X = (X - X.mean(axis=0)) / X.std(axis=0) if scaled else X
    box = Domain(box=tuple(zip(X.min(axis=0).tolist(), X.max(axis=0).tolist(), strict=True)))
    subject = Subject.local(Recipe(GaussianNB()), TrainingData(X, y, domain=box, one_record_each=True))
    monkeypatch.setattr(kernel.rounding, "DEEPEST", np.inf)  # corners of such boxes underflow: another matter
    found = bound("gaussian_nb", subject)
    monkeypatch.setattr(kernel.gaussian._Model, "off", lambda _, moments, __: np.zeros(len(moments.n)))
    exact = bound("gaussian_nb", subject)
    assert np.isfinite(found.upper).all()
    assert (found.upper - exact.upper).max() < 1e-7
    assert (exact.lower - found.lower).max() < 1e-7
    assert (found.upper > exact.upper).all()
