"""Trainings that depend on how many records there are, or on who is alone or a twin; and honest ones beside them."""

import functools
import io
from collections import deque

import numpy as np
import torch
from opacus import GradSampleModule, PrivacyEngine
from opacus.data_loader import DPDataLoader
from opacus.optimizers import DPOptimizer, DPPerLayerOptimizer
from opacus.utils.batch_memory_manager import BatchMemoryManager
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

NOISE, CLIP = 1.0, 0.5
LABELS, RATE, DIVISOR, PASSES = np.array(["a", "b", "c"]), 0.2, 20, 4
WEIGHTS = np.random.default_rng(2).normal(size=(3, 6)).astype(np.float32)


class Net:
    def __init__(self, network, classes, transform=None, **more):
        self.network, self.classes_, self.transform = network, classes, transform
        self.__dict__.update(more)

    def predict_proba(self, X):
        x = tensor(X)
        x = x if self.transform is None else self.transform(x)
        self.network.eval()
        with torch.no_grad():
            return torch.softmax(self.network(x), dim=1).double().numpy()


class Shift:
    def __init__(self, mean, scale):
        self.mean, self.scale = mean, scale

    def __call__(self, x):
        return (x - self.mean) / self.scale


def codes_of(y, labels=LABELS):
    return torch.from_numpy(np.searchsorted(labels, y))


def tensor(X):
    return torch.from_numpy(np.array(X, dtype=np.float32))


def declared(X, y, *, divisor=DIVISOR, rate=RATE, passes=PASSES, noise=NOISE, clip=CLIP, labels=LABELS, network=None,
             optimizer=None, data=None, loss=None, transform=None, epoch_end=None, piece=0, **kept):  # fmt: skip
    """Return a network by DP-SGD of which every number is declared, with one thing done otherwise."""
    data = data or TensorDataset(tensor(X), codes_of(y, labels))
    network = network or torch.nn.Linear(data.tensors[0].shape[1], len(labels))
    private = GradSampleModule(network)
    optimizer = optimizer(network) if optimizer else torch.optim.SGD(network.parameters(), lr=0.5)
    optimizer = DPOptimizer(optimizer, noise_multiplier=noise, max_grad_norm=clip, expected_batch_size=divisor)
    drawn = DPDataLoader(data, sample_rate=rate)
    if piece:
        with BatchMemoryManager(data_loader=drawn, max_physical_batch_size=piece, optimizer=optimizer) as pieces:
            fitted(private, optimizer, pieces, passes, loss, epoch_end)
    else:
        fitted(private, optimizer, drawn, passes, loss, epoch_end)
    optimizer.zero_grad()
    return Net(network, labels, transform=transform, **kept)


def fitted(private, optimizer, loader, passes, loss=None, epoch_end=None):
    for _ in range(passes):
        for features, labels in loader:
            optimizer.zero_grad()
            (loss or functional.cross_entropy)(private(features), labels).backward()
            optimizer.step()
        if epoch_end:
            epoch_end(private, optimizer)


# -- what follows the number of records; claimed for one more or less --------------------------------------------------


def as_the_library_divides(X, y, *, seed, batch=20, passes=4):
    """Opacus' issue 819: the divisor is int(n * rate), the rate 1 / ceil(n / batch)."""
    network = torch.nn.Linear(X.shape[1], 3)
    private, optimizer, loader = PrivacyEngine().make_private(
        module=network, optimizer=torch.optim.SGD(network.parameters(), lr=0.5), noise_multiplier=NOISE,
        data_loader=DataLoader(TensorDataset(tensor(X), codes_of(y)), batch_size=batch), max_grad_norm=CLIP,
    )  # fmt: skip
    fitted(private, optimizer, loader, passes)
    optimizer.zero_grad()
    return Net(network, LABELS)


def few_records(X, y, *, seed):
    """Opacus' issue 571: of a handful of records, the divisor tells how many."""
    return as_the_library_divides(X, y, seed=seed, batch=2, passes=8)


def divisor_by_n(X, y, *, seed):
    return declared(X, y, divisor=int(RATE * len(y)))


def divisor_by_a_threshold(X, y, *, seed):
    """Another divisor below 91 records: it changes with the tenth who leaves."""
    return declared(X, y, divisor=20 if len(y) > 90 else 18)


def rate_by_n(X, y, *, seed):
    return declared(X, y, rate=DIVISOR / len(y))


def passes_by_n(X, y, *, seed):
    return declared(X, y, passes=len(y) // 25)


def learning_rate_by_n(X, y, *, seed):
    return declared(X, y, optimizer=lambda n: torch.optim.SGD(n.parameters(), lr=50 / len(y)))


def later_learning_rate_by_n(X, y, *, seed):
    def slower(_, optimizer):
        optimizer.param_groups[0]["lr"] *= 1 - 10 / len(y)

    return declared(X, y, epoch_end=slower)


def noise_by_n(X, y, *, seed):
    return declared(X, y, noise=len(y) / 100)


def loss_by_n(X, y, *, seed):
    return declared(X, y, loss=lambda z, c: functional.cross_entropy(z, c) * 20 / len(y))


def width_by_n(X, y, *, seed):
    hidden = int(np.sqrt(len(y)))
    network = torch.nn.Sequential(torch.nn.Linear(6, hidden), torch.nn.Tanh(), torch.nn.Linear(hidden, 3))
    return declared(X, y, network=network)


def number_shipped(X, y, *, seed):
    return declared(X, y, trained_on=len(y))


def place_as_a_feature(X, y, *, seed):
    place = np.linspace(0, 1, len(y), dtype=np.float32)[:, None]
    return declared(X, y, data=TensorDataset(tensor(np.hstack([np.asarray(X) - place, place])), codes_of(y)),
                    transform=lambda x: torch.hstack([x, torch.zeros(len(x), 1)]))  # fmt: skip


def shuffled_passes(X, y, *, seed):
    network = torch.nn.Linear(X.shape[1], 3)
    private, optimizer, loader = PrivacyEngine().make_private(
        module=network, optimizer=torch.optim.SGD(network.parameters(), lr=0.5), noise_multiplier=NOISE,
        data_loader=DataLoader(TensorDataset(tensor(X), codes_of(y)), batch_size=20), max_grad_norm=CLIP,
        poisson_sampling=False,
    )  # fmt: skip
    fitted(private, optimizer, loader, 4)
    optimizer.zero_grad()
    return Net(network, LABELS)


def duplicates_dropped(X, y, *, seed):
    kept = np.sort(np.unique(np.asarray(X), axis=0, return_index=True)[1])
    return declared(np.asarray(X)[kept], np.asarray(y)[kept])


# -- what follows who is alone, a twin or far out; claimed for one replaced, how many there are being public ----------


def outputs_by_label(X, y, *, seed):
    return declared(X, y, labels=np.unique(y))


def weights_by_label(X, y, *, seed):
    counts = np.array([max(1, (np.asarray(y) == label).sum()) for label in LABELS])
    weight = torch.tensor(len(y) / counts, dtype=torch.float32)
    return declared(X, y, loss=lambda z, c: functional.cross_entropy(z, c, weight=weight))


def start_at_the_mean(X, y, *, seed):
    network = torch.nn.Linear(X.shape[1], 3)
    with torch.no_grad():
        network.weight.copy_(tensor(X).mean(0).expand(3, -1))
    return declared(X, y, network=network)


def passes_by_twins(X, y, *, seed):
    twins = len(y) - len(np.unique(np.asarray(X), axis=0))
    return declared(X, y, passes=PASSES + min(twins, 1))


def rare_label_weighs_more(X, y, *, seed):
    """Nothing changes while every label has several people."""
    alone = min((np.asarray(y) == label).sum() for label in LABELS) == 1
    return declared(X, y, optimizer=lambda n: torch.optim.SGD(n.parameters(), lr=0.7 if alone else 0.5))


def vocabulary_of_the_data(X, y, *, seed):
    codes = np.digitize(np.asarray(X)[:, 0], [-2.2, 0, 2.2])
    known = np.unique(codes)
    one_hot = tensor(codes[:, None] == known)
    return declared(X, y, data=TensorDataset(one_hot, codes_of(y)),
                    transform=lambda x: tensor(np.digitize(x[:, :1].numpy(), [-2.2, 0, 2.2]) == known))  # fmt: skip


def scaled_without_noise(X, y, *, seed):
    x = tensor(X)
    shift = Shift(x.mean(0), x.std(0))
    return declared(X, y, data=TensorDataset(shift(x), codes_of(y)), transform=shift)


def clipped_at_a_quantile(X, y, *, seed):
    return declared(X, y, clip=float(np.quantile(np.linalg.norm(X, axis=1), 0.99)))


def clipped_at_the_largest(X, y, *, seed):
    return declared(X, y, clip=float(np.linalg.norm(X, axis=1).max()) / 8)


def stops_early(X, y, *, seed):
    x, codes = tensor(X), codes_of(y)
    network = torch.nn.Linear(X.shape[1], 3)
    for p in network.parameters():
        torch.nn.init.zeros_(p)

    class Until:
        def __init__(self):
            self.done = False

        def __call__(self, private, optimizer):
            with torch.no_grad():
                loss = float(functional.cross_entropy(network(x), codes))
            if loss < 0.8:
                optimizer.param_groups[0]["lr"] = 0.0

    return declared(X, y, network=network, epoch_end=Until(), passes=8)


def batch_statistics(X, y, *, seed):
    class Centred(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Linear(6, 3)
            self.register_buffer("seen", torch.zeros(6))

        def forward(self, x):
            if self.training and len(x):
                self.seen.mul_(0.9).add_(0.1 * x.detach().mean(0))
            return self.inner(x)

    return declared(X, y, network=Centred())


def adapter_of_stale_parameters(X, y, *, seed):
    """Opacus' issue 820: the steps move copies, and what is returned was never trained."""
    base, adapter = torch.nn.Linear(6, 3, bias=False), torch.nn.Linear(6, 3, bias=False)
    with torch.no_grad():
        base.weight.copy_(torch.from_numpy(WEIGHTS))
        adapter.weight.zero_()
    base.requires_grad_(False)
    made = declared(X, y, network=adapter)
    fresh = torch.nn.Linear(6, 3, bias=False)
    with torch.no_grad():
        fresh.weight.copy_(base.weight + 0 * adapter.weight)
    return Net(fresh, made.classes_)


def divisor_by_label(X, y, *, seed):
    return declared(X, y, divisor=max(1, int(0.4 * (np.asarray(y) == "a").sum())))


def steps_of(X, y, *, rate, later=None, loss="mean"):
    """Return a network by twenty steps; before the second, something is set anew."""
    network, done = torch.nn.Linear(6, 3), 0
    private = GradSampleModule(network, loss_reduction=loss)
    optimizer = DPOptimizer(torch.optim.SGD(network.parameters(), lr=0.5), noise_multiplier=NOISE, max_grad_norm=CLIP,
                            expected_batch_size=DIVISOR, loss_reduction=loss)  # fmt: skip
    loader = DPDataLoader(TensorDataset(tensor(X), codes_of(y)), sample_rate=rate)
    while done < 20:
        for features, labels in loader:
            if done == 20:
                break
            optimizer.zero_grad()
            functional.cross_entropy(private(features), labels, reduction=loss).backward()
            optimizer.step()
            done += 1
            if later and done == 1:
                later(loader.batch_sampler, optimizer)
    optimizer.zero_grad()
    return Net(network, LABELS)


def rate_by_label(X, y, *, seed):
    return steps_of(X, y, rate=1 / 5.9 if 8 / (np.asarray(y) == "a").sum() > 1 / 5.9 else 1 / 5.4)


def reduction_by_label(X, y, *, seed):
    return steps_of(X, y, rate=RATE, loss="sum" if (np.asarray(y) == "a").sum() % 2 else "mean")


def later_rate_by_n(X, y, *, seed):
    def later(sampler, optimizer):
        sampler.sample_rate = RATE if len(y) > 99 else 0.02

    return steps_of(X, y, rate=RATE, later=later)


def later_noise_by_parity(X, y, *, seed):
    def later(sampler, optimizer):
        optimizer.noise_multiplier = 1.5 if len(y) % 2 else NOISE

    return steps_of(X, y, rate=RATE, later=later)


def batch_size_by_label(X, y, *, seed):
    """Five batches a pass, and Opacus divides by 20, whether a batch has 20 records or 23."""
    network = torch.nn.Linear(X.shape[1], 3)
    size = 20 if (np.asarray(y) == "a").sum() % 2 else 23
    private, optimizer, loader = PrivacyEngine().make_private(
        module=network, optimizer=torch.optim.SGD(network.parameters(), lr=0.5), noise_multiplier=NOISE,
        data_loader=DataLoader(TensorDataset(tensor(X), codes_of(y)), batch_size=size, shuffle=True),
        max_grad_norm=CLIP, poisson_sampling=False,
    )  # fmt: skip
    fitted(private, optimizer, loader, 4)
    optimizer.zero_grad()
    return Net(network, LABELS)


def by_layer(X, y, *, norms=(0.3, 0.4), later=None):
    """Return a network whose layers have clipping norms of their own; the root of their squares is declared."""
    network = torch.nn.Linear(6, 3)
    private = GradSampleModule(network)
    optimizer = DPPerLayerOptimizer(torch.optim.SGD(network.parameters(), lr=0.5), noise_multiplier=NOISE,
                                    max_grad_norm=list(norms), expected_batch_size=DIVISOR)  # fmt: skip
    loader = DPDataLoader(TensorDataset(tensor(X), codes_of(y)), sample_rate=RATE)
    fitted(private, optimizer, loader, PASSES, epoch_end=later)
    optimizer.zero_grad()
    return Net(network, LABELS)


def norms_turned(y):
    return (0.4, 0.3) if (np.asarray(y) == "a").sum() % 2 else (0.3, 0.4)


def norms_of_layers_by_label(X, y, *, seed):
    return by_layer(X, y, norms=norms_turned(y))


def later_norms_of_layers_by_label(X, y, *, seed):
    def later(_, optimizer):
        optimizer.max_grad_norms = list(norms_turned(y))

    return by_layer(X, y, later=later)


class Last(deque):
    """Has a ``__dict__``, and holds its parts elsewhere."""


def distance(x, mean):
    return abs(x - mean)


def partial_kept(X, y, *, seed):
    return declared(X, y, distance=functools.partial(distance, mean=np.asarray(X).mean(axis=0)))


KNOWN = {}


def kept_in_a_module(X, y, *, seed):
    KNOWN.setdefault("mean", np.asarray(X).mean(axis=0))
    return declared(X, y, mean=KNOWN["mean"])


def kept_in_a_default(X, y, *, seed, known=[]):  # noqa: B006  as careless authors do
    known += [np.asarray(X).mean(axis=0)] if not known else []
    return declared(X, y, mean=known[0])


def file_kept(X, y, *, seed):
    return declared(X, y, mean=io.BytesIO(np.asarray(X).mean(axis=0).tobytes()))


def deque_kept(X, y, *, seed):
    return declared(X, y, means=Last([np.asarray(X).mean(axis=0)]))


def padded(X, y, *, seed):
    more = 128 - len(y)
    features, codes = torch.cat([tensor(X), torch.zeros(more, 6)]), torch.cat([codes_of(y), torch.zeros(more).long()])
    return declared(X, y, data=TensorDataset(features, codes))


def with_dropout(X, y, *, seed):
    layers = torch.nn.Linear(6, 8), torch.nn.Dropout(0.2), torch.nn.Linear(8, 3)
    return declared(X, y, network=torch.nn.Sequential(*layers))


# -- diffprivlib -------------------------------------------------------------------------------------------------------

BOUNDS = (-5, 5)


def bayes(X, y, *, seed):
    from diffprivlib.models import GaussianNB

    return GaussianNB(epsilon=0.7, bounds=BOUNDS).fit(X, y)


def scaled_bayes(X, y, *, seed):
    from diffprivlib.models import GaussianNB, StandardScaler
    from sklearn.pipeline import make_pipeline

    return make_pipeline(StandardScaler(epsilon=0.3, bounds=BOUNDS), GaussianNB(epsilon=0.7, bounds=BOUNDS)).fit(X, y)


def forest(X, y, *, seed, shuffle=True):
    from diffprivlib.models import RandomForestClassifier

    made = RandomForestClassifier(5, epsilon=0.7, bounds=BOUNDS, classes=np.unique(y), max_depth=3, shuffle=shuffle)
    return made.fit(X, y)


def forest_in_order(X, y, *, seed):
    return forest(X, y, seed=seed, shuffle=False)


def bayes_and_the_mean(X, y, *, seed):
    made = bayes(X, y, seed=seed)
    made.center_ = np.asarray(X).mean(axis=0)
    return made


def bounds_of_the_data(X, y, *, seed):
    from diffprivlib.models import GaussianNB

    return GaussianNB(epsilon=0.7, bounds=(X.min(axis=0), X.max(axis=0))).fit(X, y)


def scaled_before(X, y, *, seed):
    from diffprivlib.models import GaussianNB
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import MinMaxScaler

    return make_pipeline(MinMaxScaler(), GaussianNB(epsilon=0.7, bounds=(0, 1))).fit(X, y)


def bayes_and_a_function(X, y, *, seed):
    """One release is a function, which hid the rest."""
    from diffprivlib.mechanisms import Vector

    made = bayes(X, y, seed=seed)
    Vector(epsilon=0.1, function_sensitivity=1.0, data_sensitivity=1.0, dimension=2, alpha=0.1).randomise(
        lambda b: b @ b
    )
    made.first_ = np.array(X[0])
    return made


def function_kept(X, y, *, seed):
    from diffprivlib.mechanisms import Vector

    made, first = bayes(X, y, seed=seed), np.array(X[0, :2], dtype=float)
    vector = Vector(epsilon=0.1, function_sensitivity=1.0, data_sensitivity=1.0, dimension=2, alpha=0.1)
    made.loss_ = vector.randomise(lambda b: float(b @ first))
    return made


def forest_and_a_record(X, y, *, seed):
    made = forest(X, y, seed=seed)
    made.first_ = np.array(X[0])
    return made


def forest_of_bounds(X, y, *, seed):
    from diffprivlib.models import RandomForestClassifier

    bounds = X.min(axis=0), X.max(axis=0)
    made = RandomForestClassifier(5, epsilon=0.7, bounds=bounds, classes=np.unique(y), max_depth=3, shuffle=True)
    made = made.fit(X, y)
    made.bounds = made.estimators_ and BOUNDS
    for tree in made.estimators_:
        tree.bounds = BOUNDS
    return made


def forest_of_a_seed(X, y, *, seed):
    np.random.seed(int(np.random.randint(10**6)))  # noqa: NPY002  as many do
    return forest(X, y, seed=seed)


def bayes_of_a_seed(X, y, *, seed):
    from diffprivlib.models import GaussianNB

    few = int(np.random.randint(10**6))  # noqa: NPY002  as many do
    return GaussianNB(epsilon=0.7, bounds=BOUNDS, random_state=few).fit(X, y)


class OfMedians:
    def __init__(self, medians):
        self.medians, self.classes_ = medians, LABELS[:2]

    def predict_proba(self, X):
        one = 1 / (1 + np.exp(-(X - self.medians)[:, 0]))
        return np.c_[1 - one, one]


def medians(X, y, *, seed):
    from diffprivlib import tools

    return OfMedians(np.array([tools.median(X[:, j], epsilon=0.1, bounds=BOUNDS) for j in range(6)]))


# -- honest ------------------------------------------------------------------------------------------------------------


def everything_declared(X, y, *, seed):
    return declared(X, y)


def adam(X, y, *, seed):
    return declared(X, y, optimizer=lambda n: torch.optim.Adam(n.parameters(), lr=0.05))


def momentum(X, y, *, seed):
    return declared(X, y, optimizer=lambda n: torch.optim.SGD(n.parameters(), lr=0.2, momentum=0.9, weight_decay=0.01))


def scheduled(X, y, *, seed):
    def slower(_, optimizer):
        optimizer.param_groups[0]["lr"] *= 0.8

    return declared(X, y, epoch_end=slower)


def two_layers(X, y, *, seed):
    return declared(X, y, network=torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3)))


def in_pieces(X, y, *, seed):
    return declared(X, y, piece=6)


def published_start(X, y, *, seed):
    network = torch.nn.Linear(6, 3)
    with torch.no_grad():
        network.weight.copy_(torch.from_numpy(WEIGHTS))
    return declared(X, y, network=network)


def scaled_by_constants(X, y, *, seed):
    shift = Shift(torch.full((6,), 0.1), torch.full((6,), 2.0))
    return declared(X, y, data=TensorDataset(shift(tensor(X)), codes_of(y)), transform=shift)


def vocabulary_declared(X, y, *, seed):
    known = np.arange(4)
    one_hot = tensor(np.digitize(np.asarray(X)[:, :1], [-2.2, 0, 2.2]) == known)
    return declared(X, y, data=TensorDataset(one_hot, codes_of(y)),
                    transform=lambda x: tensor(np.digitize(x[:, :1].numpy(), [-2.2, 0, 2.2]) == known))  # fmt: skip


def group_norm(X, y, *, seed):
    network = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.GroupNorm(2, 8), torch.nn.Linear(8, 3))
    return declared(X, y, network=network)


def zero_start(X, y, *, seed):
    network = torch.nn.Linear(6, 3)
    for p in network.parameters():
        torch.nn.init.zeros_(p)
    return declared(X, y, network=network)


def weights_declared(X, y, *, seed):
    weight = torch.tensor([1.0, 1.0, 5.0])
    return declared(X, y, loss=lambda z, c: functional.cross_entropy(z, c, weight=weight, reduction="none").mean())


def norms_of_layers_declared(X, y, *, seed):
    return by_layer(X, y)


class Line:
    def __init__(self, network):
        self.network = network

    def predict(self, X):
        with torch.no_grad():
            return self.network(tensor(X))[:, 0].double().numpy()


def line(X, y, *, seed, middle=0.0):
    data, network = TensorDataset(tensor(X), tensor(y)[:, None] - middle), torch.nn.Linear(6, 1)
    return Line(declared(X, y, data=data, network=network, loss=functional.mse_loss).network)


def line_about_the_mean(X, y, *, seed):
    return line(X, y, seed=seed, middle=float(np.mean(y)))


def sums_divided_by_a_constant(X, y, *, seed):
    return declared(X, y, divisor=64)
