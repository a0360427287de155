"""Knobs of boosting, rare categories and regressors: each is tried and measured."""

import math

import numpy as np
import pytest
from privgate.advice.advice_search import Search, Way
from privgate.advice.change import Change, changed
from privgate.advice.point import cross_validated, folds

from privgate import Policy, Recipe, Subject, TrainingData
from privgate.advice import candidates
from privgate.errors import UsageError
from privgate.subject.release import Laplace, Release

RNG = np.random.default_rng(8)
X = RNG.normal(size=(60, 3))
Y = (X[:, 0] + RNG.normal(size=60) > 0).astype(int)
DATA = TrainingData(X, Y)


def forest_subject():
    from sklearn.ensemble import RandomForestClassifier

    return Subject.local(Recipe(RandomForestClassifier(5, max_depth=3), seed=0), DATA)


def test_boosting_gets_shallower_slower_and_more_penalised_at_once_and_may_stop_early():
    from sklearn.ensemble import HistGradientBoostingClassifier

    subject = Subject.local(Recipe(HistGradientBoostingClassifier(max_iter=20), seed=0), DATA)
    [[scale]] = candidates.together(subject)
    made = changed(subject, scale(0.5)).recipe.training
    assert (made.max_depth, made.max_iter, made.l2_regularization, made.min_samples_leaf) == (3, 10, 100, 200)
    [early] = candidates.early(subject)
    assert changed(subject, early).recipe.training.early_stopping is True


# -- regressors ------------------------------------------------------------------------------------------------------


def regression(alpha=1e-6):
    from sklearn.linear_model import Ridge

    z = X @ [1.0, 2.0, 0.0] + RNG.normal(size=60)
    return Subject.local(Recipe(Ridge(alpha=alpha), seed=0), TrainingData(X, 100 + 10 * z))


def test_a_regressors_usefulness_is_the_error_of_what_is_released(fleet):
    from sklearn.base import clone

    subject = regression()
    wanted = []
    for held in folds(subject):
        kept = np.setdiff1d(np.arange(60), held)
        p = clone(subject.recipe.training).fit(X[kept], subject.data.y[kept]).predict(X[held])
        wanted.append(-np.sqrt(np.mean((p - subject.data.y[held]) ** 2)))
    mean, _, floor = cross_validated(subject, fleet, "")
    assert mean == pytest.approx(np.mean(wanted), rel=1e-9)
    y = subject.data.y
    alike = [-np.sqrt(np.mean((y[held] - np.delete(y, held).mean()) ** 2)) for held in folds(subject)]
    error = np.std(np.subtract(wanted, alike), ddof=1) / math.sqrt(5)
    assert floor == pytest.approx(np.mean(alike) + 2 * error, rel=1e-9)
    noisy = changed(subject, Change(says="", release=Release(noise=Laplace(5.0)).payload()))
    with_noise = [-math.sqrt(w**2 + 2 * 5.0**2) for w in wanted]
    assert cross_validated(noisy, fleet, "rmse")[0] == pytest.approx(np.mean(with_noise), rel=1e-9)
    with pytest.raises(UsageError, match="numbers"):
        cross_validated(subject, fleet, "accuracy")


def test_noise_on_a_regressors_answers_is_found_by_halving(fleet):
    subject = regression()
    at = candidates.noisy(subject)
    assert candidates.noisy(forest_subject()) is None
    search, way = Search(Policy.load("pdtp-1"), subject, fleet), Way(at)
    while way.step(search.one) and len(way.seen) < 5:
        pass
    assert way.found is not None
    scales = [p.change.release["noise"]["scale"] for p in search.points if p.passes]
    assert scales == sorted(scales, reverse=True)
    useful = [p.useful for p in search.points if p.passes]
    assert useful == sorted(useful), "less noise, smaller error"


# -- people and words ------------------------------------------------------------------------------------------------


def test_rare_categories_are_merged_by_the_encoder_that_a_recipe_has():
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    subject = Subject.local(Recipe(make_pipeline(OneHotEncoder(), LogisticRegression()), seed=0), DATA)
    names = [knob.parameter for _, knob, _ in candidates.present_values(subject)]
    assert names == ["min_frequency", "C"]
