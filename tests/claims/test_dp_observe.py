"""What a training did is recorded and remembered; diffprivlib's spends and releases are read."""

import math
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
import pytest

from privgate import Claim, Recipe, Subject, TrainingData
from privgate.claims.guarantee_basis import list_contradictions
from privgate.claims.observe import is_known, read_or_observe, watch_trainings
from privgate.evidence import Observation
from privgate.training import payload, worker
from privgate.training.fleet import Fleet
from privgate.training.task_limits import TaskLimits

try:
    import diffprivlib.models  # noqa: F401  only whether it can be imported

    OLD_ENOUGH = True
except ImportError:
    OLD_ENOUGH = False
needs_diffprivlib = pytest.mark.skipif(not OLD_ENOUGH, reason="diffprivlib 0.6.6 needs scikit-learn below 1.9")
PURE = Claim("laplace", "replace_one", epsilon=0.7, delta=0)


def small(n=60):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 6)).astype(np.float32)
    return TrainingData(X, np.where(X[:, 0] + 0.1 * rng.normal(size=n) > 0, "b", "a"), one_record_each=True)


def one(X, y, *, seed):
    raise AssertionError("nothing is trained here")


def other(X, y, *, seed):
    raise AssertionError("nothing is trained here")


def test_what_was_seen_is_remembered_and_what_could_not_be_seen_is_tried_again(tmp_path, monkeypatch):
    asked, answers = [], [Observation(problem="the worker died"), Observation(library="opacus", runs=1, steps=9)]

    def look(subject, fleet):
        asked.append(subject.name)
        return answers[min(len(asked), 2) - 1]

    monkeypatch.setattr("privgate.claims.observe.observe", look)
    first, second = (Subject.local(Recipe(f, dp=PURE), small(), name=f.__name__) for f in (one, other))
    found = []
    for subject in (first, first, first, second):
        with Fleet(jobs=1, ledger=tmp_path) as fleet:
            assert is_known(subject, fleet) is (len(found) == 2)
            found.append(read_or_observe(subject, fleet))
            assert fleet.calls == (1 if subject.name == "other" or len(found) == 2 else 0)

    assert [f.problem for f in found] == ["the worker died", "", "", ""]
    assert (found[2].library, found[2].steps) == ("opacus", 9)
    assert asked == ["one", "one", "other"]


def test_an_observation_survives_the_report_and_what_earlier_versions_saw_is_passed_over():
    found = Observation(library="opacus", runs=1, spends=((0.5, 0.0),), hazards=("x",), noise_multiplier=math.inf)
    assert Observation.model_validate({**found.payload(), "replays": 5, "leaks": ["a"]}).payload() == found.payload()


# -- diffprivlib, where it can be imported -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def process():
    made = ProcessPoolExecutor(1, get_context("spawn"), worker.start, (worker.WorkerSettings(),))
    yield made
    made.shutdown(cancel_futures=True)


def bayes(X, y, *, seed, **options):
    from diffprivlib.models import GaussianNB

    return GaussianNB(**{"epsilon": 0.7, "bounds": (-5, 5), **options}).fit(X, y)


def bayes_without_bounds(X, y, *, seed):
    return bayes(X, y, seed=seed, bounds=None)


def bayes_of_one_bound(X, y, *, seed):
    """The lower bound is given twice: no noise is added."""
    return bayes(X, y, seed=seed, bounds=(-5, -5))


def bayes_seeded(X, y, *, seed):
    return bayes(X, y, seed=seed, random_state=3)


@needs_diffprivlib
@pytest.mark.parametrize(
    ("fit", "said"),
    [
        (bayes, ""),
        (bayes_without_bounds, "privacy leak"),
        (bayes_of_one_bound, "releases got no noise"),
        (bayes_seeded, "releases got no noise, or noise from a seed"),
    ],
)
def test_a_budget_accountant_is_read(process, tmp_path, fit, said):
    shipped = payload.write(Subject.local(Recipe(fit, dp=PURE), small()), tmp_path / "subject")
    found = Observation.model_validate(process.submit(watch_trainings, shipped, TaskLimits(120.0, 0)).result())
    assert (found.problem, found.library, found.spends) == ("", "diffprivlib", ((0.7, 0.0),))
    failed = [p.message for p in list_contradictions(PURE, found, 60) if p.outcome == "failed"]
    assert said in failed[0] if said else failed == []
