"""The law: what contradicts a claim is refused, own code is undecided, every honest training passes."""

import math
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context

import numpy as np
import pytest

from privgate import Claim, Recipe, Subject, TrainingData
from privgate.claims import watch
from privgate.claims.capacity import _check_drawing
from privgate.claims.guarantee_basis import GuaranteeBasis, list_contradictions
from privgate.claims.observe import has_leftovers, observe, watch_trainings
from privgate.errors import MeasurementError
from privgate.evidence import Observation
from privgate.training import payload, worker
from privgate.training.fleet import Fleet
from privgate.training.task_limits import TaskLimits
from tests.claims import dp_recipes as recipes

#: what 20 Poisson steps at rate 0.2 and noise 1 cost where one record is replaced
TRUE = 9.192
CLAIM = Claim(
    "dp-sgd",
    "replace_one",
    epsilon=TRUE,
    delta=1e-5,
    noise_multiplier=1.0,
    sample_rate=0.2,
    steps=20,
    sampling="poisson",
)
#: a few of each kind; the others are slow
QUICK = {
    "noise_once",
    "known_seed",
    "fixed_noise_seed",
    "batches_used_twice",
    "plain",
    "in_pieces",
}


@pytest.fixture(scope="module")
def process():
    """One worker process for the whole file: starting torch takes seconds."""
    made = ProcessPoolExecutor(1, get_context("spawn"), worker.start, (worker.WorkerSettings(),))
    yield made
    made.shutdown(cancel_futures=True)


def people(n=100):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 6)).astype(np.float32)
    return TrainingData(X, np.where(X[:, 0] + 0.1 * rng.normal(size=n) > 0, "b", "a"), one_record_each=True)


def seen(process, fit, folder, data=None):
    shipped = payload.write(Subject.local(Recipe(fit, dp=CLAIM), data or people()), folder / "subject")
    return Observation.model_validate(process.submit(watch_trainings, shipped, TaskLimits(300.0, 0)).result())


def failed(found, claim=CLAIM):
    return [p.message for p in list_contradictions(claim, found, 100) if p.outcome == "failed"]


def marked(fits):
    return [pytest.param(f, id=f.__name__, marks=() if f.__name__ in QUICK else pytest.mark.slow) for f in fits]


@pytest.mark.parametrize("fit", marked(recipes.BROKEN))
def test_what_contradicts_the_claim_is_named_first(process, tmp_path, fit):
    assert recipes.BROKEN[fit] in failed(seen(process, fit, tmp_path))[0]


def test_clipping_of_own_code_is_not_known(process, tmp_path):
    assert "clip_and_accumulate is the training's own code" in seen(process, recipes.clipping_off, tmp_path).problem


@pytest.mark.quick(1)
@pytest.mark.parametrize("fit", marked(recipes.HONEST))
def test_an_honest_training_passes(process, tmp_path, fit):
    found = seen(process, fit, tmp_path)
    assert (found.problem, found.sampling, found.steps, found.noise_multiplier) == ("", "poisson", 20, 1.0)
    assert failed(found) == []
    assert GuaranteeBasis(CLAIM, found).guarantee(1e-5).epsilon <= TRUE


def test_all_contradictions_are_named_the_worst_first(process, tmp_path):
    """An add/remove claim whose rate follows the number of records, with a seed that stands in the code."""
    told = failed(seen(process, recipes.known_seed, tmp_path), replace(CLAIM, adjacency="add_remove", epsilon=5.0))
    assert [word in text for text, word in zip(told, ("seed", "batches", "claims epsilon"), strict=True)] == [True] * 3


def test_gradients_of_single_records_on_the_network_are_told(process, tmp_path):
    found = seen(process, recipes.gradients_left, tmp_path)
    assert (found.leftovers, seen(process, recipes.plain, tmp_path / "b").leftovers) == ("rerun", "")
    for where, outcome in (("rerun", "warned"), ("stored", "failed")):
        [told] = [
            p
            for p in list_contradictions(CLAIM, found.model_copy(update={"leftovers": where}), 100)
            if p.name == "dp_leftovers"
        ]
        assert (told.outcome, "zero_grad" in told.message) == (outcome, True)


def test_a_training_set_counts_as_drawn_only_where_it_is_seen_to_be_drawn(process, tmp_path):
    drawn = seen(process, recipes.drawn_from_a_pool, tmp_path / "a")
    fixed = seen(process, recipes.the_first_of_a_pool, tmp_path / "b")
    assert drawn.runs == fixed.runs == 2
    rests = GuaranteeBasis(CLAIM, drawn.model_copy(update={"populations": (18, 23)}))  # two draws may have one size
    _check_drawing(rests, 100, 0.4)
    with pytest.raises(MeasurementError, match=r"the policy states at most 0\.2"):
        _check_drawing(rests, 100, 0.2)
    for everybody in (fixed, seen(process, recipes.plain, tmp_path / "c")):
        with pytest.raises(MeasurementError, match="not seen to draw"):
            _check_drawing(GuaranteeBasis(CLAIM, everybody), 100, 0.9)


# -- whose error it is -------------------------------------------------------------------------------------------------


def raises(X, y, *, seed):
    raise RuntimeError("no data for you")


def without_library(X, y, *, seed):
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression().fit(X, y)


def test_an_error_of_the_training_is_a_problem_and_one_of_ours_is_not(process, tmp_path, monkeypatch):
    assert "the observed rerun raised RuntimeError" in seen(process, raises, tmp_path / "a").problem
    assert "no library" in seen(process, without_library, tmp_path / "b").problem

    with watch.Watch() as broken:
        broken._record(lambda: 1 / 0)
    assert broken.faults == ["ZeroDivisionError: division by zero"]
    monkeypatch.setattr(Fleet, "train_apart", lambda *_, **__: {"fault": broken.faults[0]})
    with pytest.raises(RuntimeError, match="watching the training failed: ZeroDivisionError"):
        observe(Subject.local(Recipe(raises, dp=CLAIM), people()), Fleet(1, "none"))


class Absent:
    """Stands for an optional library: whatever is asked of it says what to install."""

    def __getattr__(self, name):
        raise ModuleNotFoundError(f"{name} needs charts")


def test_a_stand_in_for_an_optional_library_is_not_asked():
    assert not has_leftovers({"charts": Absent()})


@pytest.mark.parametrize(
    ("share", "numbers", "smaller"), [(1.0, 10**4, False), (0.97, 10**4, True), (0.97, 100, False)]
)
def test_noise_is_smaller_than_stated_by_more_than_three_standard_errors(share, numbers, smaller):
    noise = {"noise_multiplier": 1.0, "noise_stated": 1.0, "noise_share": share}
    drawn = {"sampling": "poisson", "sample_rate": 0.2}
    error = 1 / math.sqrt(2 * numbers)
    found = Observation(library="opacus", runs=1, records=100, steps=20, noise_error=error, **noise, **drawn)
    assert any("the noise is smaller than stated" in text for text in failed(found)) is smaller
