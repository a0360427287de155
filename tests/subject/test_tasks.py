"""What kind of model a recipe trains, and what is refused or asked about in one sentence."""

import numpy as np
import pandas as pd
import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.cluster import KMeans
from sklearn.decomposition import LatentDirichletAllocation
from sklearn.ensemble import HistGradientBoostingRegressor, IsolationForest, RandomForestClassifier, StackingClassifier
from sklearn.linear_model import Lasso, LogisticRegression, Ridge, RidgeClassifier, SGDClassifier
from sklearn.mixture import GaussianMixture
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC

from privgate import Gaussian, Laplace, Recipe, Release, Subject, TrainingData
from privgate.errors import SubjectError
from privgate.subject import tasks

X = np.arange(30.0).reshape(10, 3)


def trains(X, y, *, seed):
    raise AssertionError("nothing is trained to ask this")


def answers(model, x):
    return model.predict(x)


@pytest.mark.parametrize(
    ("estimator", "task"),
    [
        (Ridge(), "regression"),
        (make_pipeline(StandardScaler(), Lasso()), "regression"),
        (HistGradientBoostingRegressor(), "regression"),
        (LogisticRegression(), "classification"),
        (make_pipeline(StandardScaler(), RandomForestClassifier()), "classification"),
    ],
    ids=str,
)
def test_the_task_is_read_off_an_estimator_and_survives_being_recorded(estimator, task):
    recipe = Recipe(estimator)
    back = Recipe.read(recipe.payload, None)

    assert Subject.local(recipe, TrainingData(X, np.arange(10) % 2)).task == task
    assert (back.task or "classification") == task
    assert recipe.refusal == back.refusal == ""
    assert ("task" in recipe.payload) == (task == "regression")


@pytest.mark.parametrize(
    ("estimator", "said"),
    [
        (IsolationForest(), "outlier detector"),
        (KMeans(3), "clusterer"),
        (GaussianMixture(2), "density estimator"),
        (LatentDirichletAllocation(), "transformer"),
        (LinearSVC(), "CalibratedClassifierCV(LinearSVC())"),
        (RidgeClassifier(), "gives no probabilities"),
    ],
    ids=str,
)
def test_what_is_not_judged_says_why_in_one_sentence(estimator, said):
    assert said in Recipe(estimator).refusal
    assert "\n" not in Recipe(estimator).refusal
    assert Recipe(estimator, predict=answers).refusal == ""


def test_what_gives_probabilities_after_all_is_judged():
    stacked = StackingClassifier([("a", LinearSVC()), ("b", RidgeClassifier())])
    fine = (SVC(probability=True), CalibratedClassifierCV(LinearSVC()), SGDClassifier(loss="log_loss"), stacked)
    for estimator in fine:
        assert Recipe(estimator).refusal == ""
        assert Recipe(make_pipeline(StandardScaler(), estimator)).refusal == ""
    assert "gives no probabilities" in Recipe(StackingClassifier([("a", SVC())], final_estimator=LinearSVC())).refusal


def test_a_regressor_that_was_logged_before_there_was_a_task_is_refused_not_misread():
    old = {k: v for k, v in Recipe(Ridge()).payload.items() if k != "task"}

    assert "does not say task='regression'" in Recipe.read(old, None).refusal
    assert "declare it" in Recipe(Ridge(), task="classification").refusal


@pytest.mark.parametrize(
    ("y", "asked"),
    [
        (np.random.default_rng(0).integers(10_000, 900_000, 500), True),  # prices
        (np.random.default_rng(0).integers(18, 90, 5_000), True),  # ages
        (np.random.default_rng(0).normal(size=500), True),
        (np.round(np.random.default_rng(0).normal(size=5_000), 2), True),
        (np.arange(5_000) % 100, False),  # a hundred classes
        (1 + np.arange(5_000) % 100, False),
        (np.arange(60) % 30, True),  # thirty values of two people each
        (np.arange(500) % 2, False),
        (np.tile([0.0, 0.5, 1.0], 50), False),  # three grades
        (np.tile([-1, 1], 50), False),
        (np.tile(["a", "b"], 50), False),
    ],
    ids=["prices", "ages", "real", "rounded", "codes", "codes from 1", "few each", "two", "grades", "signs", "text"],
)
def test_numbers_that_could_be_either_are_asked_about(y, asked):
    assert bool(tasks.unclear_task(y)) == asked


def test_a_classifier_of_many_labels_is_asked_only_where_they_have_hardly_anybody():
    postal = np.random.default_rng(0).integers(10_000, 10_100, 5_000) * 7

    assert Recipe(LogisticRegression()).unclear_task(postal) == ""
    assert "different whole values" in Recipe(LogisticRegression()).unclear_task(postal[:300])
    assert "between" in Recipe(trains).unclear_task(postal)
    assert Recipe(trains, task="classification").unclear_task(postal) == ""


def test_a_release_fits_its_task():
    data, labels = TrainingData(X, np.arange(10.0)), TrainingData(X, np.arange(10) % 2)

    with pytest.raises(SubjectError, match="a regressor releases its numbers"):
        Subject.local(Recipe(Ridge()), data, release=Release("label"))
    with pytest.raises(SubjectError, match="trains a classifier"):
        Subject.local(Recipe(LogisticRegression()), labels, release=Release(noise=Laplace(1.0)))
    with pytest.raises(SubjectError, match="no numbers"):
        Subject.local(Recipe(Ridge()), TrainingData(X, np.array(list("abcdefghij"))))
    for release in (Release(), Release(noise=Laplace(0.5)), Release(noise=Gaussian(2.0))):
        assert Release.from_payload(release.payload()) == release
    assert "noise" not in Release().payload()
    for wrong in (0.0, -1.0, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="scale of noise"):
            Laplace(wrong)


def test_targets_of_one_value_or_too_large_are_no_traceback():
    assert Subject.local(Recipe(Ridge()), TrainingData(X, np.ones(10))).scale == (1.0, 1.0)
    with pytest.raises(SubjectError, match="another unit"):
        _ = Subject.local(Recipe(Ridge()), TrainingData(X, np.tile([1.7e308, -1.7e308], 5))).scale


def test_several_labels_a_record_are_refused_in_one_sentence():
    for labels in ([["a", "b"], ["a"]] * 5, [{"a", "b"}, {"a"}] * 5, pd.DataFrame({"a": X[:, 0], "b": X[:, 1]})):
        with pytest.raises(SubjectError, match="not judged together; log one model a"):
            TrainingData(X, labels)


def test_scores_of_anomalies_predict_no_target():
    for recipe in (Recipe(IsolationForest()), Recipe(IsolationForest(), predict=answers, task="regression")):
        assert "(outlier detector) gives neither" in recipe.refusal
