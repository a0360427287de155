"""Regressors from the registry: logged, served as declared, approved or blocked; and what is refused when logged."""

from dataclasses import replace

import mlflow
import numpy as np
import pytest
from sklearn.ensemble import IsolationForest
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.svm import SVC

from privgate import Gaussian, Laplace, Policy, Recipe, Release, Subject, TrainingData, evaluate, log_model
from privgate.controls.served import check_served, describe_release
from privgate.errors import SubjectError


@pytest.fixture(scope="module")
def heights():
    rng = np.random.default_rng(5)
    X = rng.normal(size=(80, 3))
    return TrainingData(X, 170 + X @ [3.0, 1.0, 0.0] + rng.normal(size=80), one_record_each=True)


def test_whole_prices_of_candidates_need_be_nobody_elses(registry):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(80, 3))
    prices = np.round(1000 + 200 * X[:, 0] + 50 * rng.normal(size=80)).astype(np.int64)
    assert not np.isin(prices[40:], prices[:40]).all()

    data = TrainingData(X[:40], prices[:40], candidates=(X[40:], prices[40:]), one_record_each=True)
    log_model(Recipe(Ridge(), seed=1), data, registered_model_name="m", store="artifacts")

    assert Subject.load("models:/m/1").task == "regression"


def test_another_model_than_the_recipes_is_not_reproduced(registry, heights, fleet):
    log_model(Recipe(Ridge(1.0), seed=1), heights, registered_model_name="m", store="artifacts")
    subject = replace(Subject.load("models:/m/1"), recipe=Recipe(Ridge(10.0), seed=1))

    verdict = evaluate(Policy.load("regression-1"), subject, fleet=fleet)

    told = next(f for f in verdict.findings if f.rule == "precondition:reproduces")
    assert (verdict.outcome, told.outcome) == ("inconclusive", "inconclusive")
    assert "in deviations of the targets" in told.message


def served(subject, fleet):
    (found,) = check_served(subject, fleet)
    return found


@pytest.mark.slow
def test_declared_noise_is_served_afresh_each_time(registry, heights, fleet):
    declared = Release(noise=Laplace(2.0))
    log_model(
        Recipe(LinearRegression(), seed=1), heights, registered_model_name="m", store="artifacts", release=declared
    )
    subject = Subject.load("models:/m/1")
    model = mlflow.pyfunc.load_model("models:/m/1")
    exact = LinearRegression().fit(heights.X, heights.y).predict(heights.X)
    seen = np.stack([model.predict(heights.X) - exact for _ in range(50)])

    assert served(subject, fleet).outcome == "passed"
    assert np.abs(seen).mean() == pytest.approx(2.0, rel=0.1)  # the mean size of Laplace noise is its scale
    assert abs(np.corrcoef(seen[0], seen[1])[0, 1]) < 0.4
    for other in (Release(noise=Laplace(1.0)), Release(noise=Gaussian(4.0)), Release()):
        told = served(replace(subject, release=other), fleet)
        assert told.outcome == "inconclusive", describe_release(other)


REFUSED = [(IsolationForest(), "outlier detector"), (SVC(), r"CalibratedClassifierCV\(SVC")]


@pytest.mark.parametrize(("estimator", "said"), REFUSED, ids=str)
def test_what_cannot_be_judged_is_refused_before_it_is_trained(heights, estimator, said):
    labels = TrainingData(heights.X, (heights.y > 170).astype(int), one_record_each=True)

    with pytest.raises(SubjectError, match=said):
        log_model(Recipe(estimator), labels, store="artifacts")


def prices(X, y, *, seed):
    raise AssertionError("trained before it was asked")


def test_whole_prices_are_asked_about_in_one_sentence(heights, fleet):
    rng = np.random.default_rng(1)
    data = TrainingData(rng.normal(size=(500, 3)), rng.integers(10_000, 900_000, 500), one_record_each=True)

    with pytest.raises(SubjectError, match=r"different whole values: are they numbers \(declare Recipe"):
        log_model(Recipe(prices, seed=1), data, store="artifacts")
    verdict = evaluate(Policy.load("pdtp-1"), Subject.local(Recipe(prices, seed=1), data), fleet=fleet)

    assert verdict.outcome == "inconclusive"
    assert verdict.findings[-1].message.startswith("not measured, because the 500 targets have")
