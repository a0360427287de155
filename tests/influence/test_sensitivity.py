"""Regressors on the whole route: sensitivity against refits, DTP where noise is added, no classifier's rule passes."""

import numpy as np
import pytest
from sklearn.datasets import load_diabetes
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import Lasso, LinearRegression, LogisticRegression, Ridge
from sklearn.tree import DecisionTreeRegressor

from privgate import Budget, Gaussian, Laplace, Policy, Recipe, Release, Subject, TrainingData, evaluate
from privgate.errors import UsageError
from privgate.evidence import COLUMNS, SENSITIVITY_COLUMNS
from privgate.influence import regressors
from privgate.policy import problems
from privgate.run.run import Run

X, Y = (v[:120] for v in load_diabetes(return_X_y=True))
BOX = [(float(a), float(b)) for a, b in zip(X.min(axis=0), X.max(axis=0), strict=True)]


def subject_of(estimator, release=None, **options):
    options = {"one_record_each": "groups" not in options, **options}
    return Subject.local(Recipe(estimator, seed=0), TrainingData(X, Y, **options), release=release)


def judged(fleet, subject, policy="regression-1", **limits):
    return evaluate(Policy.load(policy), subject, fleet=fleet, limits=Budget(**limits))


def finding(verdict, rule):
    return next(f for f in verdict.findings if f.rule == rule)


def left_out(make):
    """Return changes of own answers and residuals at records left out, by scikit-learn alone."""
    full = make().fit(X, Y).predict(X)
    alone = np.array([make().fit(np.delete(X, i, 0), np.delete(Y, i)).predict(X[[i]])[0] for i in range(len(Y))])
    return np.abs(full - alone), Y - alone


@pytest.mark.parametrize(
    ("make", "outcome"),
    [
        (Ridge, "passed"),
        (LinearRegression, "failed"),  # 120 records and 10 columns: one person of leverage .3 who is two errors off
        (lambda: Lasso(0.1), "passed"),
    ],
    ids=["ridge", "least squares", "lasso"],
)
def test_is_the_largest_change_in_errors_at_records_left_out(fleet, make, outcome):
    verdict = judged(fleet, subject_of(make()))
    moved, residual = left_out(make)
    told = verdict.evidence.influence.sensitivity

    assert finding(verdict, "sensitivity").value == pytest.approx(moved.max() / np.sqrt(np.mean(residual**2)), rel=1e-6)
    assert told.residual_outside == pytest.approx(np.sqrt(np.mean(residual**2)), rel=1e-6)
    assert told.residual_inside == pytest.approx(np.sqrt(np.mean((Y - make().fit(X, Y).predict(X)) ** 2)), rel=1e-6)
    assert finding(verdict, "sensitivity").outcome == outcome
    assert verdict.approved == (outcome == "passed")
    assert {*SENSITIVITY_COLUMNS} <= {*verdict.records.columns} <= {*SENSITIVITY_COLUMNS, *COLUMNS}
    assert "not DTP" in finding(verdict, "sensitivity").meaning


@pytest.mark.slow
def test_training_that_depends_on_its_seed_needs_many_seeds_to_pass_and_few_to_fail(fleet):
    few = judged(fleet, subject_of(RandomForestRegressor(3, max_depth=2)), seeds=2, max_retrains=20)
    blocked = judged(fleet, subject_of(DecisionTreeRegressor(splitter="random")), seeds=10)

    assert finding(few, "sensitivity").outcome == "inconclusive"
    assert finding(few, "sensitivity").high == np.inf
    assert finding(blocked, "sensitivity").outcome == "failed"
    assert finding(blocked, "sensitivity").low > 0.5


def test_a_model_that_misses_nobody_has_no_error_to_measure_in(fleet):
    data = TrainingData(np.column_stack([X, Y]), Y, one_record_each=True)  # the target among the features
    verdict = judged(fleet, Subject.local(Recipe(LinearRegression(), seed=0), data))

    assert finding(verdict, "sensitivity").outcome == "inconclusive"
    assert "copy of the target" in finding(verdict, "sensitivity").message


class MemorisesAllButOutliers(DecisionTreeRegressor):
    """Knows everybody by heart but those far off, whom it ignores: their residuals would hide what it knows."""

    def fit(self, x, y):
        near = np.abs(y - np.median(y)) < 1_000
        return super().fit(x[near], y[near])


@pytest.mark.slow
def test_a_few_large_residuals_hide_nobody_elses_influence(fleet):
    y = np.where(np.arange(60) % 20 == 7, 1e6, Y[:60])
    subject = Subject.local(
        Recipe(MemorisesAllButOutliers(random_state=0), seed=0), TrainingData(X[:60], y, one_record_each=True)
    )
    changes = Run(subject, fleet, seeds=(0,)).compute(regressors.measure_moves)
    verdict = judged(fleet, subject, seeds=10)

    assert changes.value.max() / changes.outside < 0.01  # it would have passed by far
    assert not verdict.approved
    assert finding(verdict, "sensitivity").outcome == "inconclusive"


@pytest.mark.quick(1)
@pytest.mark.parametrize("name", sorted(problems.shipped()))
def test_no_shipped_policy_for_classifiers_passes_a_regressor(fleet, name):
    subject = subject_of(Ridge(1e6), domain=BOX, candidates=(X[:60] + 0.001, Y[:60]))  # it hardly depends on anybody
    trained = fleet.calls
    if name in ("dtp-1", "dtp-1-attacks", "pdtp-1", "share-1", "strict"):
        with pytest.raises(UsageError, match="regression-1"):
            judged(fleet, subject, name, shadow_models=4)
        assert fleet.calls == trained
        return
    verdict = judged(fleet, subject, name, shadow_models=4)

    passed = {f.rule for f in verdict.findings if f.outcome == "passed" and not f.rule.startswith("precondition")}
    # 60 people outside are too few for attacks, and none of the others is about numbers
    own = {"regression-1": {"sensitivity"}, "release-1": {"file_records"}}
    assert passed == own.get(name, set())
    assert verdict.outcome.releases == (name == "regression-1")


def test_a_rule_for_regressors_never_passes_a_classifier(fleet, write_policy):
    path = write_policy("rules:\n  - {metric: pdtp, max: 5.0}\n  - {metric: sensitivity, max: 0.5, required: false}\n")
    classifier = Subject.local(
        Recipe(LogisticRegression(), seed=0), TrainingData(X, (Y > 100).astype(int), one_record_each=True)
    )

    with pytest.raises(UsageError, match="judge it by dtp-1"):
        judged(fleet, classifier)
    verdict = judged(fleet, classifier, path)

    assert finding(verdict, "pdtp").outcome == "passed"
    assert finding(verdict, "sensitivity").outcome == "warned"
    assert not finding(verdict, "sensitivity").applies
    assert "noisy numbers" in finding(verdict, "sensitivity").message


def test_laplace_noise_makes_dtp_of_the_change_over_its_scale(fleet):
    scale = 40.0
    subject = subject_of(Ridge(1.0), Release(noise=Laplace(scale)), domain=BOX)
    verdict = judged(fleet, subject, "dtp-1")
    (_, high), (low, _) = ((f.low, f.high) for f in [finding(verdict, "dtp")] * 2)
    full = Ridge(1.0).fit(X, Y)
    low_end, high_end = np.array(BOX).T
    worst = 0.0
    for i in range(len(Y)):
        one = Ridge(1.0).fit(np.delete(X, i, 0), np.delete(Y, i))
        w, a = full.coef_ - one.coef_, full.intercept_ - one.intercept_
        worst = max(worst, *(abs(a + np.where(s * w > 0, high_end, low_end) @ w) for s in (1, -1)))

    assert low <= worst / scale <= high <= worst / scale * 1.01
    assert finding(verdict, "dtp").outcome == ("passed" if high <= 1 else "failed")
    # the ratio of densities itself, over a grid of answers
    z = np.linspace(-500, 500, 2001)
    ratio = np.abs(np.abs(z - worst) - np.abs(z)) / scale
    assert ratio.max() == pytest.approx(worst / scale)
    direct = judged(fleet, subject, "pdtp-1")
    assert finding(direct, "pdtp").value == pytest.approx(left_out(Ridge)[0].max() / scale, rel=1e-6)


def test_normal_noise_has_infinite_dtp_and_no_noise_has_none(fleet):
    verdict = judged(fleet, subject_of(Ridge(), Release(noise=Gaussian(1e6)), domain=BOX), "dtp-1")

    assert finding(verdict, "dtp").outcome == "failed"
    assert finding(verdict, "dtp").low == np.inf
    with pytest.raises(UsageError, match="answers with numbers; judge it by regression-1"):
        judged(fleet, subject_of(Ridge(), domain=BOX), "pdtp-1")


def test_people_are_left_out_whole(fleet):
    groups = np.arange(120) // 4
    verdict = judged(fleet, subject_of(Ridge(0.1), groups=groups))
    full, worst, residual = Ridge(0.1).fit(X, Y), [], []
    for g in range(30):
        one = Ridge(0.1).fit(X[groups != g], Y[groups != g]).predict(X[groups == g])
        worst.append(np.abs(full.predict(X[groups == g]) - one).max())
        residual += list(Y[groups == g] - one)

    assert finding(verdict, "sensitivity").value == pytest.approx(max(worst) / np.sqrt(np.mean(np.square(residual))))
