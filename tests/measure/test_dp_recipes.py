"""The law: every broken training "with differential privacy" is refused or charged, every honest one passes."""

import os

import numpy as np
import pytest
from joblib.externals.loky.process_executor import ProcessPoolExecutor

from privgate import Claim, Recipe, Subject, TrainingData
from privgate.measure.contradictions import contradictions
from privgate.measure.standing import Standing
from privgate.retrain import environment, payload, worker
from privgate.retrain.limits import Limits
from privgate.retrain.observation import Observation
from privgate.retrain.observe import units_of, watched
from tests.measure import dp_recipes as recipes

#: what 20 Poisson steps at rate 0.2 and noise 1 give, by the accountant and by the author of the recipe
TRUE = 6.617
CLAIM = Claim(
    "dp-sgd",
    "add_remove",
    epsilon=TRUE,
    delta=1e-5,
    noise_multiplier=1.0,
    sample_rate=0.2,
    steps=20,
    sampling="poisson",
)
#: a few of each kind; the others are slow
QUICK = (
    "five_times", "class_means_added", "best_epoch", "mixup_pairs", "noise_halved", "batches_used_twice",
    "mixup_in_the_loop", "running_statistics", "summed_loss_said_to_be_a_mean", "perceptron", "public_pretraining",
)  # fmt: skip
#: honest, but accounted for without amplification or, with empty batches, over more steps than CLAIM says
OTHERWISE = {"shuffled_and_said_so": 9.998, "accumulated": 7.1, "private_returned": 3.881}


@pytest.fixture(scope="module")
def process():
    made = ProcessPoolExecutor(
        max_workers=1, initializer=worker.start, initargs=(worker.Settings(),), env=environment.blanked(os.environ)
    )
    yield made
    made.shutdown(wait=False, kill_workers=True)


def people(groups=None, n=100):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 6)).astype(np.float32)
    return TrainingData(X, np.where(X[:, 0] + 0.1 * rng.normal(size=n) > 0, "b", "a"), groups=groups)


def seen(process, fit, folder, data=None, claim=CLAIM):
    subject = Subject.local(Recipe(fit, dp=claim), data or people())
    shipped = payload.write(subject, folder / "subject")
    return Observation.from_payload(process.submit(watched, shipped, 2, Limits(300.0, 0), units_of(subject)).result())


def marked(fits):
    return [pytest.param(f, id=f.__name__, marks=() if f.__name__ in QUICK else pytest.mark.slow) for f in fits]


def refused(found, claim=CLAIM):
    """Whether nothing passes for what was seen: no finite ε, nothing known, or a claim that is contradicted."""
    return bool(found.broken or found.problem) or any(p.outcome == "failed" for p in contradictions(claim, found, 100))


@pytest.mark.parametrize("fit", marked(recipes.BROKEN))
def test_a_broken_training_is_refused_or_charged(process, tmp_path, fit):
    found = seen(process, fit, tmp_path)
    assert refused(found), found


@pytest.mark.parametrize("fit", marked(recipes.HONEST))
def test_an_honest_training_passes(process, tmp_path, fit):
    found = seen(process, fit, tmp_path)
    assert (found.broken, found.problem, found.rows, found.replays) == ("", "", 1, 4)
    epsilon = Standing(CLAIM, found, found.rows, 100).guarantee(1e-5).epsilon
    assert epsilon <= OTHERWISE.get(fit.__name__, TRUE)


def test_there_are_enough_of_both():
    assert len(recipes.BROKEN) >= 20
    assert len(recipes.HONEST) >= 10
    assert {f.__name__ for f in (*recipes.BROKEN, *recipes.HONEST)} >= set(QUICK)
