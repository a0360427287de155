"""Other learners in place of a recipe's own, private training and regressors: each is tried and measured."""

import math
from collections import Counter
from importlib.util import find_spec

import numpy as np
import pytest

from privgate import Policy, Recipe, Subject, TrainingData
from privgate.advice import candidates
from privgate.advice.advice_search import Search, Way
from privgate.advice.change import Change, changed
from privgate.advice.point import cross_validated, folds
from privgate.errors import UsageError
from privgate.subject.release import Laplace, Release

RNG = np.random.default_rng(8)
X = RNG.normal(size=(60, 3))
Y = (X[:, 0] + RNG.normal(size=60) > 0).astype(int)
DATA = TrainingData(X, Y)
needs_dp = pytest.mark.skipif(
    any(find_spec(m) is None for m in ("torch", "opacus")), reason="the extra dp is not installed"
)


def forest_subject():
    from sklearn.ensemble import RandomForestClassifier

    return Subject.local(Recipe(RandomForestClassifier(5, max_depth=3), seed=0), DATA)


@pytest.mark.slow
def test_a_forest_is_tried_as_a_keyed_one_that_theorems_prove(fleet, monkeypatch):
    subject, policy = forest_subject(), Policy.load("dtp-1")
    trained, fits = Counter(), fleet.fits

    def counted(*asked, label="retraining"):
        before = fleet.calls
        found = fits(*asked, label=label)
        trained[label] += fleet.calls - before
        return found

    monkeypatch.setattr(fleet, "fits", counted)
    [(name, change)] = candidates.families(subject, policy)
    assert name == "KeyedForest"
    search = Search(policy, subject, fleet, measure="accuracy")
    weak = search.tried(change(0.0))
    trained.clear()
    strong = search.tried(change(1.0))
    assert strong.passes
    assert strong.value < weak.value
    assert not math.isnan(strong.useful)
    made = changed(subject, change(1.0)).recipe.training
    assert (type(made).__name__, made.n_estimators, made.floor, made.classes.tolist()) == (
        "KeyedForest",
        5,
        1.0,
        [0, 1],
    )
    # the engine leaves everybody out by itself: no training is one person's
    assert +trained == {"comparing seeds": 2, "ranking people": 5, "cross-validation": 5}
    assert strong.trainings == trained.total()


def test_boosting_gets_shallower_slower_and_more_penalised_at_once_and_may_stop_early():
    from sklearn.ensemble import HistGradientBoostingClassifier

    subject = Subject.local(Recipe(HistGradientBoostingClassifier(max_iter=20), seed=0), DATA)
    assert not list(candidates.families(subject, Policy.load("pdtp-1")))
    [[scale]] = candidates.together(subject)
    made = changed(subject, scale(0.5)).recipe.training
    assert (made.max_depth, made.max_iter, made.l2_regularization, made.min_samples_leaf) == (3, 10, 100, 200)
    [early] = candidates.early(subject)
    assert changed(subject, early).recipe.training.early_stopping is True


def test_a_private_form_is_tried_where_the_policy_can_judge_it_and_said_where_not():
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    plain = Subject.local(Recipe(LogisticRegression(), seed=0), DATA)
    assert "75 trainings a person" in candidates.why_not_private(plain, Policy.load("pdtp-1"))
    piped = Subject.local(Recipe(make_pipeline(StandardScaler(), LogisticRegression()), seed=0), DATA)
    assert "learned first steps" in candidates.why_not_private(piped, Policy.load("attacks-1"))
    assert any("differential privacy" in s for s in candidates.skipped(piped, Policy.load("attacks-1")))


@pytest.mark.slow
@needs_dp
def test_private_training_has_the_epsilon_that_the_policy_names_and_it_is_seen():
    from sklearn.linear_model import LogisticRegression

    from privgate.privacy_claims.accountant import Mechanism, epsilon_of

    subject, policy = Subject.local(Recipe(LogisticRegression(), seed=0), DATA), Policy.load("dp-trained")
    scale = candidates.named_private(subject, policy)
    assert "epsilon 0.25 " in scale(1.0).says
    made = changed(subject, scale(0.0)).recipe
    claim, training = made.dp, made.training
    assert (claim.epsilon, claim.delta, made.seed) == (8.0, 1e-5, None)
    assert (training.hidden, training.noise_multiplier) == ((), claim.noise_multiplier)
    per_epoch = math.ceil(len(X) / training.batch_size)
    assert (claim.sample_rate, claim.steps) == (1 / per_epoch, training.epochs * per_epoch)
    least = Mechanism(claim.noise_multiplier, claim.sample_rate, claim.steps, "poisson", "replace_one")
    assert 7.9 < epsilon_of(least, 1e-5) <= 8.0


@needs_dp
@pytest.mark.slow
def test_a_network_becomes_private_and_its_claim_is_observed():
    from privgate.privacy_claims.observe import observe
    from privgate.torch_recipe import TorchTraining
    from privgate.training.task_limits import TaskLimits

    subject = Subject.local(Recipe(TorchTraining(hidden=(4,), epochs=2, dropout=0.5), seed=0), DATA)
    change = candidates.private(subject, 4.0, 1e-3)
    assert "the network trained by DP-SGD, epsilon 4" in change.says
    made = changed(subject, change)
    assert made.recipe.training.hidden == (4,)
    seen = observe(made, TaskLimits(300.0, 4 << 30), isolate="none")
    claim = made.recipe.dp
    assert (seen.problem, seen.steps, seen.sampling) == ("", claim.steps, "poisson")
    assert seen.noise_multiplier == pytest.approx(claim.noise_multiplier)
    assert (seen.noiseless_steps, seen.unclipped_steps, seen.same_model_twice) == (0, 0, False)


@needs_dp
def test_a_private_network_learns_and_draws_its_noise_anew():
    from privgate.torch_recipe import PrivateTorchTraining

    far = np.column_stack([np.where(Y == 1, 3.0, -3.0), X[:, 1]])
    made = PrivateTorchTraining(hidden=(), lr=1.0, epochs=5, batch_size=20, random_state=0, classes=[0, 1, 2])
    first, second = (made.fit(far, Y).predict_proba(far) for _ in range(2))
    assert first.shape == (60, 3)
    assert (first.argmax(axis=1) == Y).mean() > 0.9
    assert not np.array_equal(first, second), "the recorded seed must not draw the noise"


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
