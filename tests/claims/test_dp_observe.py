"""What a rerun did is recorded, not what it says: the example's honest training and its three planted bugs."""

import importlib.util
import math
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from opacus.optimizers import DPOptimizer

from privgate import Claim, Recipe, Subject, TrainingData
from privgate.demo import adult
from privgate.evidence import Observation
from privgate.claims.observe import is_remembered, observe, remembered, watched
from privgate.training import payload, warm, worker
from privgate.training.fleet import Fleet
from privgate.training.task_limits import TaskLimits

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "dp-trained" / "training.py"


@pytest.fixture(scope="module")
def training():
    spec = importlib.util.spec_from_file_location("dp_trained_training", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.fixture(autouse=True, scope="module")
def process():
    """One worker process for the whole file: user code never runs in this one, and starting torch takes seconds."""
    made = warm.executor(worker.WorkerSettings())
    Shared.process = made
    yield made
    warm.end(made, kill=True)


class Shared:
    process = None


def seen(fit, tmp_path, data=None, **params):
    """Return the observation of two reruns in the shared worker."""
    data = data or adult.load()
    subject = Subject.local(Recipe(fit, params=params, dp=Claim("dp-sgd", "add_remove", epsilon=1.0, delta=1e-5)), data)
    shipped = payload.write(subject, tmp_path)
    return Observation.from_payload(
        Shared.process.submit(watched, shipped, 2, TaskLimits(120.0, 0), subject.data.units.owner).result()
    )


def test_the_honest_training_is_seen_as_it_is(training, tmp_path):
    found = seen(training.honest, tmp_path, sizes=list(adult.SIZES))
    assert (found.problem, found.broken) == ("", "")
    assert (found.library, found.runs, found.records) == ("opacus", 2, 1000)
    assert (found.noise_multiplier, found.max_grad_norm) == (training.NOISE, training.CLIP)
    assert (found.sampling, found.steps) == ("poisson", training.CLAIM.steps)
    assert found.sample_rate == pytest.approx(training.RATE)


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("clipping_off", "not clipped"),
        ("noise_once", "199 of 200 steps got no noise"),
        ("noise_seed_reused", "the noise repeats"),
    ],
)
def test_each_planted_bug_is_named(training, tmp_path, name, words):
    found = seen(getattr(training, name), tmp_path, sizes=list(adult.SIZES))
    assert words in found.broken


# -- small trainings with one peculiarity each ------------------------------------------------------------------------


def small(n=60):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 6)).astype(np.float32)
    return TrainingData(X, np.where(X[:, 0] + 0.1 * rng.normal(size=n) > 0, "b", "a"))


class Net:
    def __init__(self, network, classes):
        self.network, self.classes_ = network, classes

    def predict_proba(self, X):
        with torch.no_grad():
            return torch.softmax(self.network(torch.from_numpy(np.asarray(X))), dim=1).double().numpy()


def train(X, y, *, poisson=True, before=None, after=None, change=None, epochs=4, batch=15):
    from opacus import PrivacyEngine
    from torch.utils.data import DataLoader, TensorDataset

    classes, codes = np.unique(y, return_inverse=True)
    data = TensorDataset(torch.from_numpy(np.asarray(X)), torch.from_numpy(codes))
    network = torch.nn.Linear(X.shape[1], len(classes))
    loss = torch.nn.CrossEntropyLoss()
    if before:
        before(network, data, loss)
    private, optimizer, loader = PrivacyEngine().make_private(
        module=network,
        optimizer=torch.optim.SGD(network.parameters(), lr=0.5),
        data_loader=DataLoader(data, batch_size=batch, shuffle=True),
        noise_multiplier=1.0,
        max_grad_norm=0.5,
        poisson_sampling=poisson,
    )
    if change:
        optimizer = change(optimizer) or optimizer
    for _ in range(epochs):
        for features, labels in loader:
            optimizer.zero_grad()
            loss(private(features), labels).backward()
            optimizer.step()
    if after:
        after(network, data, loss)
    return Net(network, classes)


def shuffled(X, y, *, seed):
    return train(X, y, poisson=False)


def full_batch(X, y, *, seed):
    return train(X, y, poisson=False, batch=len(y))


def plain_step(network, data, loss):
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    loss(network(data.tensors[0]), data.tensors[1]).backward()
    optimizer.step()
    optimizer.zero_grad()


def pretrained(X, y, *, seed):
    return train(X, y, before=plain_step)


class Quiet(DPOptimizer):
    """States one noise and adds a quarter of it."""

    def add_noise(self):
        for p in self.params:
            p.grad = (p.summed_grad + 0.25 * self.max_grad_norm * torch.randn_like(p)).view_as(p)


def less_noise(X, y, *, seed):
    def change(optimizer):
        return Quiet(optimizer.original_optimizer, noise_multiplier=1.0, max_grad_norm=0.5, expected_batch_size=15)

    return train(X, y, change=change)


def silent(X, y, *, seed):
    def change(optimizer):
        def no_noise():
            for p in optimizer.params:
                p.grad = p.summed_grad.view_as(p)

        optimizer.add_noise = no_noise

    return train(X, y, change=change)


def seeded(X, y, *, seed):
    torch.manual_seed(7)
    return train(X, y)


def raises(X, y, *, seed):
    raise RuntimeError("no data for you")


def without_library(X, y, *, seed):
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression().fit(X, y)


def by_layer(X, y, *, seed):
    return variant(X, y, clipping="per_layer", max_grad_norm=[0.3, 0.4, 0.3, 0.4])


def in_pieces(X, y, *, seed):
    return variant(X, y, piece=4)


def sparse_batches(X, y, *, seed):
    return variant(X, y, batch=2, epochs=2)


def variant(X, y, *, clipping="flat", max_grad_norm=0.5, piece=0, batch=15, epochs=4):
    """Train two layers with Adam in one of the ways that Opacus offers."""
    from opacus import PrivacyEngine
    from opacus.utils.batch_memory_manager import wrap_data_loader
    from torch.utils.data import DataLoader, TensorDataset

    classes, codes = np.unique(y, return_inverse=True)
    data = TensorDataset(torch.from_numpy(np.asarray(X)), torch.from_numpy(codes))
    network = torch.nn.Sequential(torch.nn.Linear(X.shape[1], 5), torch.nn.Tanh(), torch.nn.Linear(5, len(classes)))
    private, optimizer, loader = PrivacyEngine().make_private(
        module=network,
        optimizer=torch.optim.Adam(network.parameters(), lr=0.01),
        data_loader=DataLoader(data, batch_size=batch, shuffle=True),
        noise_multiplier=1.0,
        max_grad_norm=max_grad_norm,
        clipping=clipping,
    )
    if piece:
        loader = wrap_data_loader(data_loader=loader, max_batch_size=piece, optimizer=optimizer)
    loss = torch.nn.CrossEntropyLoss()
    for _ in range(epochs):
        for features, labels in loader:
            optimizer.zero_grad()
            loss(private(features), labels).backward()
            optimizer.step()
    return Net(network, classes)


@pytest.mark.quick(1)
@pytest.mark.parametrize(("fit", "rate"), [(by_layer, 0.25), (in_pieces, 0.25), (sparse_batches, 1 / 30)])
def test_honest_ways_of_opacus_are_not_called_broken(tmp_path, fit, rate):
    found = seen(fit, tmp_path, small())
    assert (found.problem, found.broken, found.sampling) == ("", "", "poisson")
    assert found.noise_multiplier == 1.0
    assert found.sample_rate == pytest.approx(rate)
    assert found.steps == (60 if fit is sparse_batches else 16)


def honest(X, y, *, seed):
    return train(X, y)


@pytest.mark.slow
def test_an_honest_training_is_never_called_broken(tmp_path):
    for k in range(15):
        found = seen(honest, tmp_path / str(k), small())
        assert (found.problem, found.broken, found.sampling, found.noise_multiplier) == ("", "", "poisson", 1.0)


def test_shuffled_batches_are_not_taken_for_poisson(tmp_path):
    found = seen(shuffled, tmp_path, small())
    assert (found.sampling, found.steps, found.broken) == ("shuffled", 16, "")
    assert found.sample_rate == pytest.approx(0.25)


def test_full_batches_need_no_sampling(tmp_path):
    found = seen(full_batch, tmp_path, small())
    assert (found.sample_rate, found.steps, found.broken) == (1.0, 4, "")


def test_updates_that_bypass_the_mechanism_are_counted(tmp_path):
    assert "1 updates of the model bypassed" in seen(pretrained, tmp_path, small()).broken


def test_noise_that_is_smaller_than_stated_is_measured(tmp_path):
    found = seen(less_noise, tmp_path, small())
    assert 0.05 < found.noise_multiplier < 0.27  # the lower limit of the worst stretch


def test_a_method_replaced_from_outside_is_no_way_around(tmp_path):
    found = seen(silent, tmp_path, small())
    assert "bypassed" in found.broken + found.problem


def test_a_global_seed_is_found_by_running_twice(tmp_path):
    found = seen(seeded, tmp_path, small())
    assert found.noise_repeats
    assert found.same_model_twice


def test_a_rerun_that_fails_or_shows_no_library_is_a_problem_never_a_pass(tmp_path):
    assert "raised RuntimeError" in seen(raises, tmp_path / "a", small()).problem
    assert "no library" in seen(without_library, tmp_path / "b", small()).problem


@pytest.mark.slow
def test_the_worker_process_sees_the_same():
    data = small()
    subject = Subject.local(Recipe(shuffled, dp=Claim("dp-sgd", "add_remove", epsilon=1.0, delta=1e-5)), data)
    found = observe(subject, TaskLimits(120.0, 0))
    assert (found.sampling, found.noise_multiplier, found.runs) == ("shuffled", 1.0, 2)


def test_what_was_seen_is_remembered_and_what_could_not_be_seen_is_tried_again(tmp_path, monkeypatch):
    asked, answers = [], [Observation(problem="the worker died"), Observation(library="opacus", runs=2, steps=9)]

    def look(subject, limits, *, isolate):
        asked.append(subject.name)
        return answers[min(len(asked), 2) - 1]

    monkeypatch.setattr("privgate.privacy_claims.observe.observe", look)
    one, other = (
        Subject.local(Recipe(f, dp=Claim("dp-sgd", "add_remove", epsilon=1.0, delta=1e-5)), small(), name=f.__name__)
        for f in (shuffled, full_batch)
    )
    found = []
    for subject in (one, one, one, other):
        with Fleet(jobs=1, ledger=tmp_path) as fleet:
            assert is_remembered(subject, fleet) is (len(found) == 2)
            found.append(remembered(subject, fleet))
            assert fleet.calls == (2 if subject.name == "full_batch" or len(found) == 2 else 0)

    assert [f.problem for f in found] == ["the worker died", "", "", ""]
    assert (found[2].library, found[2].steps) == ("opacus", 9)
    assert asked == ["shuffled", "shuffled", "full_batch"]


#: diffprivlib 0.6.6 asks newer versions of scikit-learn for names that are gone; run in the worker
OLD_NAMES = """
import numpy
import sklearn.tree._tree as tree
for name, value in (("DOUBLE", numpy.float64), ("DTYPE", numpy.float32), ("NODE_DTYPE", None)):
    if not hasattr(tree, name):
        setattr(tree, name, value)
"""


@pytest.fixture
def diffprivlib(process):
    process.submit(exec, OLD_NAMES).result()


def budget(X, y, *, seed, bounds=True):
    from diffprivlib.models import GaussianNB

    return GaussianNB(epsilon=0.7, bounds=(-5, 5) if bounds else None).fit(X, y)


def budget_seeded(X, y, *, seed):
    from diffprivlib.models import GaussianNB

    return GaussianNB(epsilon=0.7, bounds=(-5, 5), random_state=3).fit(X, y)


def test_a_budget_accountant_is_read(tmp_path, diffprivlib):
    found = seen(budget, tmp_path / "a", small())
    assert (found.library, found.spends, found.hazards, found.broken) == ("diffprivlib", ((0.7, 0.0),), (), "")
    leaky = seen(budget, tmp_path / "b", small(), bounds=False)
    assert "privacy leak" in leaky.hazards[0]
    assert "gave the same model" in seen(budget_seeded, tmp_path / "c", small()).broken


def test_an_observation_survives_the_report():
    found = Observation(library="opacus", runs=2, spends=((0.5, 0.0),), hazards=("x",), noise_multiplier=math.inf)
    assert Observation.from_payload(found.payload()) == found
