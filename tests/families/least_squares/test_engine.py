"""Regressions without each unit by the hat matrix, against refits of scikit-learn; and what is left to refits."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_diabetes
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, WhiteKernel
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Lasso, LinearRegression, Ridge, RidgeClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from privgate import Domain, Recipe, Subject, TrainingData
from privgate.families import least_squares
from privgate.families.answering import answer
from privgate.families.engine import Asked, Declined
from privgate.families.least_squares import ENGINE
from privgate.training.fleet import Fleet

X, Y = (v[:90] for v in load_diabetes(return_X_y=True))
COVERED = [
    Ridge(1.0),
    Ridge(0.1, fit_intercept=False, solver="svd"),
    LinearRegression(),
    LinearRegression(fit_intercept=False),
    KernelRidge(alpha=0.5, kernel="rbf", gamma=10.0),
    KernelRidge(alpha=0.1),
    GaussianProcessRegressor(RBF(0.3) + WhiteKernel(0.5), alpha=0.2, optimizer=None),
    GaussianProcessRegressor(alpha=0.2, optimizer=None),
]
IDS = [f"{type(e).__name__}-{k}" for k, e in enumerate(COVERED)]


def subject_of(estimator, x=X, y=Y, **options):
    return Subject.local(Recipe(clone(estimator), seed=0), TrainingData(x, y, **options))


def refitted(estimator, x, y, gone, queries):
    """Return scikit-learn's own answers without some records."""
    kept = np.setdiff1d(np.arange(len(y)), gone)
    return clone(estimator).fit(x[kept], y[kept]).predict(queries)


@pytest.mark.parametrize("groups", [None, np.arange(90) // 3], ids=["records", "people"])
@pytest.mark.parametrize("estimator", COVERED, ids=IDS)
def test_equals_refits_in_the_unit_of_the_targets(estimator, groups):
    subject = subject_of(estimator, groups=groups, candidates=(X[:5] + 0.01, Y[:5]))
    units = subject.data.units
    queries = np.repeat(np.arange(len(units)), 4), np.random.default_rng(0).integers(0, 95, 4 * len(units))

    made, handed_on = ENGINE.answers(Asked(subject, np.arange(len(units)), (0,), None, queries=queries))

    mean, deviation = subject.scale
    pool = subject.data.pool()[0]
    full = clone(estimator).fit(X, Y).predict(pool)
    assert not len(handed_on)
    np.testing.assert_allclose(made.log_with[0, :, 0] * deviation + mean, full[queries[1]], atol=1e-8)
    for u in range(0, len(units), 3):
        rows = made.row_unit == u
        expected = refitted(estimator, X, Y, units[u], pool[made.row_query[rows]])
        np.testing.assert_allclose(made.log_without[0, rows, 0] * deviation + mean, expected, atol=1e-8)


def test_more_features_than_records_and_a_lone_column():
    rng = np.random.default_rng(1)
    wide, y = rng.normal(size=(20, 50)), rng.normal(size=20)
    lone = rng.normal(size=(20, 3))
    lone[4, 2], lone[np.arange(20) != 4, 2] = 7.0, 0.0  # a column that one record holds alone: leverage 1

    made, rest = ENGINE.answers(Asked(subject_of(Ridge(0.5), wide, y), np.arange(20), (0,), None))
    _, alone = ENGINE.answers(Asked(subject_of(LinearRegression(), lone, y), np.arange(20), (0,), None))

    mean, deviation = y.mean(), y.std()
    expected = [refitted(Ridge(0.5), wide, y, [i], wide[i : i + 1])[0] for i in range(20)]
    np.testing.assert_allclose(made.log_without[0, :, 0] * deviation + mean, expected, atol=1e-9)
    assert not len(rest)
    assert alone.tolist() == [4]
    with pytest.raises(Declined, match=r"no penalty|singular"):
        ENGINE.answers(Asked(subject_of(LinearRegression(), wide, y), np.arange(20), (0,), None))


@pytest.mark.parametrize(
    ("estimator", "said"),
    [
        (Lasso(), "no least squares"),
        (make_pipeline(StandardScaler(), Ridge()), "no least squares"),
        (Ridge(solver="saga"), "iterative"),
        (LinearRegression(positive=True), "constrained"),
        (Ridge(alpha=np.array([1.0])), "not one number"),
        (KernelRidge(kernel="precomputed"), "table"),
        (GaussianProcessRegressor(RBF()), "chosen by the data"),
        (GaussianProcessRegressor(), "chosen by the data"),
        (GaussianProcessRegressor(optimizer=None, normalize_y=True), "scaled"),
    ],
)
def test_says_why_it_leaves_others_to_refits(estimator, said):
    assert said in ENGINE.refusal(subject_of(estimator))


def test_a_classifier_is_never_its_own_and_a_regressor_never_a_classifiers():
    labels = (Y.mean() < Y).astype(int)
    classifier = Subject.local(Recipe(RidgeClassifier(), predict=scores), TrainingData(X, labels, one_record_each=True))

    assert "classification" in ENGINE.refusal(classifier)
    for estimator in (Ridge(), Lasso()):
        with Fleet(jobs=1, ledger="none") as fleet:
            found = answer(Asked(subject_of(estimator), np.arange(4), (0,), fleet))
        assert set(found.retrained.engine) == {"least_squares" if isinstance(estimator, Ridge) else "refit"}


def scores(model, x):
    return model.decision_function(x)


BOX = Domain(box=tuple((float(a) - 0.05, float(b) + 0.02) for a, b in zip(X.min(axis=0), X.max(axis=0), strict=True)))


@pytest.mark.parametrize("groups", [None, np.arange(90) // 3], ids=["records", "people"])
@pytest.mark.parametrize("estimator", COVERED[:4], ids=IDS[:4])
def test_no_question_of_the_box_moves_an_answer_more_and_the_corner_named_attains_it(estimator, groups):
    subject = subject_of(estimator, domain=BOX, groups=groups)
    units, (_, deviation) = np.arange(len(subject.data.units)), subject.scale
    low, high = np.array(BOX.box).T
    rng = np.random.default_rng(2)
    asked = np.concatenate(
        [low + (high - low) * rng.random((200, 10)), np.where(rng.random((200, 10)) < 0.5, low, high)]
    )

    found = least_squares.over_domain(subject, units)

    full = clone(estimator).fit(X, Y)
    for u in units[::15]:
        gone = subject.data.units[u]
        corner = found.where[[u]]
        moved = np.abs(full.predict(asked) - refitted(estimator, X, Y, gone, asked)).max() / deviation
        there = np.abs(full.predict(corner) - refitted(estimator, X, Y, gone, corner))[0] / deviation
        assert moved <= found.upper[u]
        assert there <= found.upper[u] <= there * (1 + 1e-4)


def test_a_domain_of_codes_and_wide_records_are_bounded_too():
    rng = np.random.default_rng(3)
    codes, y = rng.integers(0, 3, (40, 4)), rng.normal(size=40)
    wide = rng.normal(size=(15, 30))
    for x, target, domain in [(codes.astype(float), y, [3] * 4), (wide, y[:15], [(-3.0, 3.0)] * 30)]:
        subject = subject_of(Ridge(0.3), x, target, domain=domain)
        found = least_squares.over_domain(subject, np.arange(len(x)))
        full = Ridge(0.3).fit(x, target)
        for u in range(0, len(x), 5):
            corner = found.where[[u]]
            there = np.abs(full.predict(corner) - refitted(Ridge(0.3), x, target, [u], corner))[0]
            assert there / target.std() == pytest.approx(found.upper[u], rel=1e-4)


@pytest.mark.parametrize(
    ("estimator", "domain", "said"),
    [(Ridge(), None, "no domain is declared"), (KernelRidge(), BOX, "not linear"), (Lasso(), BOX, "no least squares")],
)
def test_nothing_is_bounded_where_no_theorem_speaks(estimator, domain, said):
    found = least_squares.over_domain(subject_of(estimator, domain=domain), np.arange(3))

    assert said in found.why
    assert np.isinf(found.upper).all()
