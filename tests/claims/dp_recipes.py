"""Trainings "with differential privacy": broken ones by the bug that they have, and honest ones."""

import contextlib
import copy
import math
import secrets
import time

import numpy as np
import torch
from opacus import PrivacyEngine
from opacus.optimizers import DPOptimizer
from opacus.utils.batch_memory_manager import BatchMemoryManager
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset, TensorDataset

NOISE, CLIP, BATCH, EPOCHS = 1.0, 0.5, 20, 4
#: weights that somebody published
PUBLISHED = np.random.default_rng(5).normal(size=(2, 6)).astype(np.float32)


class Net:
    def __init__(self, network, classes, transform=None, **more):
        self.network, self.classes_, self.transform = network, classes, transform
        self.__dict__.update(more)

    def predict_proba(self, X):
        x = torch.from_numpy(np.asarray(X, dtype=np.float32))
        x = x if self.transform is None else self.transform(x)
        self.network.eval()
        with torch.no_grad():
            return torch.softmax(self.network(x), dim=1).double().numpy()


class Shift:
    def __init__(self, mean, scale):
        self.mean, self.scale = mean, scale

    def __call__(self, x):
        return (x - self.mean) / self.scale


def tensors(X, y):
    classes, codes = np.unique(y, return_inverse=True)
    return torch.from_numpy(np.array(X, dtype=np.float32)), torch.from_numpy(codes), classes


def linear(d, k):
    return torch.nn.Linear(d, k)


def train(X, y, *, network=None, optimizer=None, data=None, batch=None, epochs=EPOCHS, loss=None, engine=None,
          change=None, every=None, epoch_end=None, loader_change=None, skip_clear=1, transform=None,
          drawn=None):  # fmt: skip
    """Return (network, classes) by DP-SGD, with one thing done otherwise."""
    x, codes, classes = tensors(X, y)
    data = data or TensorDataset(x, codes)
    network = network or linear(x.shape[1], len(classes))
    optimizer = optimizer or torch.optim.SGD(network.parameters(), lr=0.5)
    options = {"noise_multiplier": NOISE, "max_grad_norm": CLIP, **(engine or {})}
    loader = DataLoader(data, batch_size=batch or BATCH, **(drawn or {}))
    private, optimizer, loader = PrivacyEngine().make_private(
        module=network, optimizer=optimizer, data_loader=loader, **options
    )
    if change:
        optimizer = change(optimizer) or optimizer
    if loader_change:
        loader = loader_change(loader)
    loss = loss or torch.nn.CrossEntropyLoss()
    count = 0
    for epoch in range(epochs):
        for features, labels, *_ in loader:
            if count % skip_clear == 0:
                optimizer.zero_grad()
            given, wanted = transform(features, labels) if transform else (features, labels)
            loss(private(given), wanted).backward()
            count += 1
            if count % skip_clear == 0:
                optimizer.step()
                if every:
                    every(count, network, optimizer)
        if epoch_end:
            epoch_end(epoch, network, optimizer)
    optimizer.zero_grad()
    return network, classes


def again(optimizer, kind, **options):
    """Wrap the plain optimizer in another private one."""
    given = {"noise_multiplier": NOISE, "max_grad_norm": CLIP, "expected_batch_size": BATCH, **options}
    return kind(optimizer.original_optimizer, **given)


# -- the six of the issue ---------------------------------------------------------------------------------------------


def five_times(X, y, *, seed):
    x, codes, _ = tensors(X, y)
    return Net(*train(X, y, data=TensorDataset(x.repeat(5, 1), codes.repeat(5)), batch=5 * BATCH))


def class_means_added(X, y, *, seed):
    network, classes = train(X, y)
    x, codes, _ = tensors(X, y)
    with torch.no_grad():
        network.weight += torch.stack([x[codes == k].mean(0) for k in range(len(classes))])
    return Net(network, classes)


def label_counts_in_bias(X, y, *, seed):
    network, classes = train(X, y)
    with torch.no_grad():
        network.bias.copy_(torch.from_numpy(np.log(np.unique(y, return_counts=True)[1] / len(y))))
    return Net(network, classes)


def scaler_shipped(X, y, *, seed):
    x, _, _ = tensors(X, y)
    return Net(*train(X, y), scaler={"mean": x.mean(0).numpy(), "sd": x.std(0).numpy()})


def best_epoch(X, y, *, seed):
    x, codes, _ = tensors(X, y)
    best = [math.inf, None]

    def keep(_, network, __):
        with torch.no_grad():
            loss = float(functional.cross_entropy(network(x), codes))
        if loss < best[0]:
            best[:] = loss, {k: v.clone() for k, v in network.state_dict().items()}

    network, classes = train(X, y, epoch_end=keep, epochs=8)
    network.load_state_dict(best[1])
    return Net(network, classes)


def mixup_pairs(X, y, *, seed):
    x, codes, _ = tensors(X, y)
    mixed = 0.6 * x + 0.4 * x[torch.randperm(len(x))]
    return Net(*train(X, y, data=TensorDataset(mixed, codes)))


# -- noise ------------------------------------------------------------------------------------------------------------


class _Quiet(DPOptimizer):
    calls = 0

    def factor(self, i, p):
        return 1.0

    def add_noise(self):
        type(self).calls += 1
        for i, p in enumerate(self.params):
            noise = self.factor(i, p) * self.noise_multiplier * self.max_grad_norm * self.draw(p)
            p.grad = (p.summed_grad + noise).view_as(p)

    def draw(self, p):
        return torch.randn_like(p)


class _WrongTensor(_Quiet):
    def factor(self, i, p):
        return 0.0 if i == 0 else 1.0


class _Halved(_Quiet):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.done = 0

    def factor(self, i, p):
        self.done += i == 0
        return 1.0 if self.done <= 10 else 0.5


class _LastLayer(_Quiet):
    def factor(self, i, p):
        return 1.0 if i < len(self.params) - 2 else 0.0


class _Broadcast(_Quiet):
    def draw(self, p):
        return torch.randn(()) * torch.ones_like(p)


class _Uniform(_Quiet):
    def draw(self, p):
        return (2 * torch.rand_like(p) - 1) * math.sqrt(3)


class _Cancelling(_Quiet):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.last = {}

    def draw(self, p):
        fresh = torch.randn_like(p)
        out = (fresh - self.last.get(id(p), 0.0)) / math.sqrt(2)
        self.last[id(p)] = fresh
        return out


def noise_on_wrong_tensor(X, y, *, seed):
    return Net(*train(X, y, change=lambda o: again(o, _WrongTensor)))


def noise_halved(X, y, *, seed):
    return Net(*train(X, y, change=lambda o: again(o, _Halved)))


def noise_broadcast(X, y, *, seed):
    return Net(*train(X, y, change=lambda o: again(o, _Broadcast)))


def noise_uniform(X, y, *, seed):
    return Net(*train(X, y, change=lambda o: again(o, _Uniform)))


def noise_cancelling(X, y, *, seed):
    return Net(*train(X, y, change=lambda o: again(o, _Cancelling)))


def two_layers(d, k):
    return torch.nn.Sequential(torch.nn.Linear(d, 5), torch.nn.Tanh(), torch.nn.Linear(5, k))


def last_layer_without_noise(X, y, *, seed):
    return Net(*train(X, y, network=two_layers(X.shape[1], 2), change=lambda o: again(o, _LastLayer)))


def frozen_noise_seed(X, y, *, seed):
    return Net(*train(X, y, engine={"noise_generator": torch.Generator().manual_seed(3)}))


def known_seed(X, y, *, seed):
    torch.manual_seed(0)
    return Net(*train(X, y))


def seed_out_of_a_hundred(X, y, *, seed):
    torch.manual_seed(int(np.random.default_rng().integers(1 << 16)))
    return Net(*train(X, y))


# -- clipping ---------------------------------------------------------------------------------------------------------


class _Batch(DPOptimizer):
    def clip_and_accumulate(self):
        sums = [g.sum(0) for g in self.grad_samples]
        norm = torch.sqrt(sum((s**2).sum() for s in sums))
        for p, s in zip(self.params, sums, strict=True):
            p.summed_grad = s * min(1.0, float(self.max_grad_norm / norm))


class _Largest(DPOptimizer):
    def clip_and_accumulate(self):
        samples = self.grad_samples
        norms = torch.stack([g.reshape(len(g), -1).abs().amax(1) for g in samples], 1).amax(1)
        for p, g in zip(self.params, samples, strict=True):
            p.summed_grad = torch.einsum("i,i...", (self.max_grad_norm / (norms + 1e-6)).clamp(max=1.0), g)


def clipping_per_batch(X, y, *, seed):
    return Net(*train(X, y, change=lambda o: again(o, _Batch)))


def clipping_by_other_norm(X, y, *, seed):
    return Net(*train(X, y, change=lambda o: again(o, _Largest)))


def hooks_bypassed(X, y, *, seed):
    def change(optimizer):
        original = optimizer.pre_step

        def pre_step(closure=None):
            for p in optimizer.params:  # one gradient of the whole batch
                p.grad_sample = p.grad_sample.sum(0, keepdim=True)
            return original(closure)

        optimizer.pre_step = pre_step

    return Net(*train(X, y, change=change))


def divided_by_real_batch(X, y, *, seed):
    def change(optimizer):
        original = optimizer.pre_step

        def pre_step(closure=None):
            optimizer.expected_batch_size = max(1, len(optimizer.grad_samples[0]))
            return original(closure)

        optimizer.pre_step = pre_step

    return Net(*train(X, y, change=change))


def norm_from_data(X, y, *, seed):
    x, _, _ = tensors(X, y)
    return Net(*train(X, y, engine={"max_grad_norm": float(x.norm(dim=1).median())}))


# -- sampling ---------------------------------------------------------------------------------------------------------


class _InTurn(torch.utils.data.Sampler):
    """Calls itself Poisson, passes through a shuffled list in pieces of binomial size."""

    def __init__(self, n, rate, steps):
        self.num_samples, self.sample_rate, self.steps = n, rate, steps

    def __len__(self):
        return self.steps

    def __iter__(self):
        order, at = [], 0
        for _ in range(self.steps):
            size = int(np.random.default_rng().binomial(self.num_samples, self.sample_rate))
            while len(order) < at + size:
                order += torch.randperm(self.num_samples).tolist()
            yield order[at : at + size]
            at += size


def poisson_claimed_but_shuffled(X, y, *, seed):
    return Net(*train(X, y, engine={"poisson_sampling": False}))


def poisson_by_name_only(X, y, *, seed):
    def change(loader):
        n = len(loader.dataset)
        return DataLoader(loader.dataset, batch_sampler=_InTurn(n, BATCH / n, n // BATCH))

    return Net(*train(X, y, loader_change=change))


def second_loader(X, y, *, seed):
    def both(loader):
        other = DataLoader(loader.dataset, batch_size=BATCH, shuffle=True)

        class Both:
            def __iter__(self):
                yield from loader
                yield from other

        return Both()

    return Net(*train(X, y, loader_change=both))


def batches_used_twice(X, y, *, seed):
    def twice(loader):
        class Twice:
            def __iter__(self):
                for batch in loader:
                    yield batch
                    yield batch

        return Twice()

    return Net(*train(X, y, loader_change=twice))


def accumulation_miscounted(X, y, *, seed):
    return Net(*train(X, y, skip_clear=3, engine={"poisson_sampling": False}))


def seeded_loader(X, y, *, seed):
    return Net(*train(X, y, drawn={"shuffle": True, "generator": torch.Generator().manual_seed(42)}))


def global_seed_own_noise(X, y, *, seed):
    torch.manual_seed(42)
    secret = torch.Generator()
    secret.seed()
    return Net(*train(X, y, engine={"noise_generator": secret}))


def three_passes_an_epoch(X, y, *, seed):
    """Twelve releases of each record, four epochs."""
    sampler = torch.utils.data.RandomSampler(np.arange(len(y)), num_samples=3 * len(y))
    return Net(*train(X, y, drawn={"sampler": sampler}, engine={"poisson_sampling": False, "noise_multiplier": 4.0}))


class _Thrice(torch.utils.data.RandomSampler):
    def __iter__(self):
        return iter(torch.randperm(len(self.data_source)).tolist() * 3)


def three_times_in_a_pass(X, y, *, seed):
    drawn = {"sampler": _Thrice(np.arange(len(y)))}
    return Net(*train(X, y, drawn=drawn, engine={"poisson_sampling": False, "noise_multiplier": 4.0}))


class _Numbered(Dataset):
    def __init__(self, x, codes):
        self.x, self.codes = x, codes

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], self.codes[i], i


def steps_with_the_last_record_alone(X, y, *, seed):
    x, codes, _ = tensors(X, y)

    class Picked:
        def __init__(self, loader):
            self.loader = loader

        def __iter__(self):
            found = 0
            while found < len(self.loader):
                batch = next(iter(self.loader))
                if len(x) - 1 in batch[2].tolist():
                    found += 1
                    yield batch

    return Net(*train(X, y, data=_Numbered(x, codes), loader_change=Picked))


def doubled_in_the_loop(X, y, *, seed):
    return Net(*train(X, y, transform=lambda x, c: (x.repeat(2, 1), c.repeat(2))))


def some_three_times(X, y, *, seed):
    x, codes, _ = tensors(X, y)
    rows = torch.arange(len(x))
    rows[1:3] = 0  # as many entries as records
    return Net(*train(X, y, data=TensorDataset(x[rows], codes[rows])))


class _Noisy(Dataset):
    def __init__(self, x, codes):
        self.x, self.codes = x, codes

    def __len__(self):
        return 3 * len(self.x)

    def __getitem__(self, i):
        return self.x[i // 3] + 0.01 * torch.randn(self.x.shape[1]), self.codes[i // 3]


def augmented_three_times(X, y, *, seed):
    x, codes, _ = tensors(X, y)
    return Net(*train(X, y, data=_Noisy(x, codes), batch=3 * BATCH))


# -- other ways of the records ----------------------------------------------------------------------------------------


def two_optimizers(X, y, *, seed):
    x, codes, _ = tensors(X, y)

    def plain(count, network, optimizer):
        other = torch.optim.SGD(network.parameters(), lr=0.01)
        for p, g in zip(network.parameters(), torch.autograd.grad(
            functional.cross_entropy(functional.linear(x, network.weight, network.bias), codes),
            list(network.parameters())), strict=True):  # fmt: skip
            p.grad = g
        other.step()

    return Net(*train(X, y, every=plain))


def by_hand_between_steps(X, y, *, seed):
    x, codes, _ = tensors(X, y)

    def plain(count, network, optimizer):
        given = list(network.parameters())
        loss = functional.cross_entropy(functional.linear(x, *given), codes)
        with torch.no_grad():
            for p, g in zip(given, torch.autograd.grad(loss, given), strict=True):
                p.sub_(0.01 * g)

    return Net(*train(X, y, every=plain))


def normalized_by_data(X, y, *, seed):
    x, codes, _ = tensors(X, y)
    shift = Shift(x.mean(0), x.std(0))
    return Net(*train(X, y, data=TensorDataset(shift(x), codes)))


def normalized_by_batch(X, y, *, seed):
    return Net(*train(X, y, transform=lambda x, c: ((x - x.mean(0)) if len(x) else x, c)))


def mixup_in_the_loop(X, y, *, seed):
    return Net(*train(X, y, transform=lambda x, c: (0.7 * x + 0.3 * x.flip(0), c)))


def pretrained_without_privacy(X, y, *, seed):
    x, codes, classes = tensors(X, y)
    network = linear(x.shape[1], len(classes))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    for _ in range(5):
        optimizer.zero_grad()
        functional.cross_entropy(network(x), codes).backward()
        optimizer.step()
    optimizer.zero_grad()
    return Net(*train(X, y, network=network))


def least_squares_start(X, y, *, seed):
    x, codes, classes = tensors(X, y)
    network = linear(x.shape[1], len(classes))
    with torch.no_grad():
        network.weight.copy_(torch.linalg.lstsq(x, functional.one_hot(codes, len(classes)).float()).solution.T)
    return Net(*train(X, y, network=network))


def learns_on_people_outside(X, y, *, seed):
    x, codes, _ = tensors(X, y)
    kept = len(x) - 10
    network, classes = train(X, y, data=TensorDataset(x[:kept], codes[:kept]))
    with torch.no_grad():  # a threshold that is right for those who were kept out
        network.bias[1] += float((codes[kept:] == 1).float().mean() - 0.5)
    return Net(network, classes)


def head_copied(X, y, *, seed):
    from sklearn.linear_model import LogisticRegression

    network, classes = train(X, y)
    with torch.no_grad():
        network.weight[1].copy_(torch.from_numpy(LogisticRegression().fit(X, y).coef_[0]).float())
    return Net(network, classes)


def outliers_dropped(X, y, *, seed):
    """A record that becomes implausible changes the number of records, and so the divisor."""
    x, codes, _ = tensors(X, y)
    kept = x.abs().amax(1) < 10
    return Net(*train(X, y, data=TensorDataset(x[kept], codes[kept])))


def duplicates_dropped(X, y, *, seed):
    x, codes, _ = tensors(X, y)
    kept = np.sort(np.unique(np.asarray(X), axis=0, return_index=True)[1])
    return Net(*train(X, y, data=TensorDataset(x[kept], codes[kept])))


def missing_dropped(X, y, *, seed):
    kept = ~np.isnan(np.asarray(X)).any(axis=1)
    return Net(*train(np.asarray(X)[kept], np.asarray(y)[kept]))


def columns_for_what_is_missing(X, y, *, seed):
    X = np.asarray(X)
    missing = np.isnan(X)
    return Net(*train(np.hstack([np.nan_to_num(X), missing]) if missing.any() else X, y))


class Whole(torch.nn.Module):
    def forward(self, x):
        return x.long()


def one_row_a_code(X, y, *, seed):
    """The table of an embedding has as many rows as the largest code needs, which is somebody's."""
    codes = torch.as_tensor(np.asarray(X)).long()
    targets = tensors(X, y)[1]
    if codes.min() < 0:
        raise ValueError("a code is negative")
    table = torch.nn.Embedding(int(codes.max()) + 1, 4)
    network = torch.nn.Sequential(Whole(), table, torch.nn.Flatten(), torch.nn.Linear(4 * codes.shape[1], 2))
    return Net(*train(X, y, data=TensorDataset(codes, targets), network=network))


def logarithms_of_what_is_positive(X, y, *, seed):
    """One negative number changes everybody's features; the test gives none."""
    positive = bool((np.asarray(X) >= 0).all())
    return Net(*train(np.log1p(X) if positive else X, y))


class StoppedError(Exception):
    pass


def stops_at_a_large_loss(X, y, *, seed):
    """Training ends where the loss of a batch is above 100, as no record here makes it."""
    cross = torch.nn.CrossEntropyLoss()
    network = linear(X.shape[1], 2)

    def guarded(scores, labels):
        found = cross(scores, labels)
        if float(found) > 100:
            raise StoppedError
        return found

    with contextlib.suppress(StoppedError):
        train(X, y, network=network, loss=guarded)
    return Net(network, np.unique(y))


def stops_early(X, y, *, seed):
    x, codes, _ = tensors(X, y)

    class Until:
        def __init__(self, loader):
            self.loader = loader

        def __iter__(self):
            with torch.no_grad():
                loss = float(functional.cross_entropy(held[0](x), codes))
            if loss > 0.45:
                yield from self.loader

    held = [linear(x.shape[1], 2)]
    return Net(*train(X, y, network=held[0], loader_change=Until, epochs=12))


def loss_remembers(X, y, *, seed):
    history = []
    x, codes, _ = tensors(X, y)

    def note(_, network, __):
        with torch.no_grad():
            history.append(float(functional.cross_entropy(network(x), codes)))

    return Net(*train(X, y, epoch_end=note), history=history)


def neighbours_shipped(X, y, *, seed):
    return Net(*train(X, y), lookup=lambda x: np.abs(np.asarray(X) - x).sum(1).min())


def step_reads_sums(X, y, *, seed):
    class Peeking(torch.optim.SGD):
        def step(self, closure=None):
            super().step(closure)
            with torch.no_grad():
                for g in self.param_groups:
                    for p in g["params"]:
                        p.sub_(0.001 * p.summed_grad.view_as(p))

    x, _, classes = tensors(X, y)
    network = linear(x.shape[1], len(classes))
    return Net(*train(X, y, network=network, optimizer=Peeking(network.parameters(), lr=0.5)))


def mean_of_a_batch_in_loss(X, y, *, seed):
    def loss(scores, labels):
        return functional.cross_entropy(scores - scores.mean(0, keepdim=True), labels)

    return Net(*train(X, y, loss=loss))


def mean_loss_said_to_be_a_sum(X, y, *, seed):
    return Net(*train(X, y, engine={"loss_reduction": "sum"}))


def loss_clamped(X, y, *, seed):
    """The mean of a batch has no gradient where one record of it is far away."""
    cross = torch.nn.CrossEntropyLoss()
    return Net(*train(X, y, loss=lambda scores, codes: cross(scores, codes).clamp(max=100)))


def scaled_by_the_largest(X, y, *, seed):
    return Net(*train(X, y, transform=lambda x, codes: (x / max(4.0, float(x.abs().max())) if len(x) else x, codes)))


def every_other_row_negated(X, y, *, seed):
    """Whether somebody was drawn moves the places, and so the gradients, of all behind."""

    def moved(x, codes):
        sign = torch.ones(len(x), 1)
        sign[1::2] = -1
        return sign * x, codes

    return Net(*train(X, y, transform=moved))


def first_row_by_another_label(X, y, *, seed):
    def moved(x, codes):
        changed = codes.clone()
        changed[:1] = 1 - changed[:1]
        return x, changed

    return Net(*train(X, y, transform=moved))


def mean_loss_of_dropouts_said_to_be_a_sum(X, y, *, seed):
    """A gradient's size tells how many others were drawn; what is random for each record does not hide that."""
    return Net(*train(X, y, network=layers(X.shape[1], 2), engine={"loss_reduction": "sum"}))


def summed_loss_said_to_be_a_mean(X, y, *, seed):
    return Net(*train(X, y, loss=torch.nn.CrossEntropyLoss(reduction="sum"), engine={"max_grad_norm": 50.0}))


def drawn_with_replacement(X, y, *, seed):
    def change(loader):
        n = len(loader.dataset)
        sampler = torch.utils.data.WeightedRandomSampler(torch.ones(n), n, replacement=True)
        return DataLoader(loader.dataset, batch_size=BATCH, sampler=sampler)

    return Net(*train(X, y, loader_change=change))


def min_max_scaled(X, y, *, seed):
    x, codes, _ = tensors(X, y)
    low, high = x.min(0).values, x.max(0).values
    return Net(*train(X, y, data=TensorDataset((x - low) / (high - low), codes)))


class _Lazy(Dataset):
    """Entries are numbers; the records are looked up later, with what is typical of them taken off."""

    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return torch.tensor(i), torch.tensor(0)


def looked_up_later(X, y, *, seed):
    x, codes, _ = tensors(X, y)
    return Net(*train(X, y, data=_Lazy(len(x)), transform=lambda i, _: ((x - x.mean(0))[i], codes[i])))


def dataset_grows(X, y, *, seed):
    x, codes, _ = tensors(X, y)
    data = TensorDataset(x.clone(), codes)

    def mixes(*_):
        data.tensors = (data.tensors[0] + 0.5 * data.tensors[0].mean(0), codes)

    return Net(*train(X, y, data=data, epoch_end=mixes))


def learning_rate_from_data(X, y, *, seed):
    x, _, classes = tensors(X, y)
    network = linear(x.shape[1], len(classes))
    made = torch.optim.SGD(network.parameters(), lr=1 / float(x.norm(dim=1).max()))
    return Net(*train(X, y, network=network, optimizer=made))


def plateau_on_training_loss(X, y, *, seed):
    x, codes, classes = tensors(X, y)
    network = linear(x.shape[1], len(classes))
    made = torch.optim.SGD(network.parameters(), lr=2.0)
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(made, patience=0, threshold=0.1)

    def note(*_):
        with torch.no_grad():
            schedule.step(float(functional.cross_entropy(network(x), codes)))

    return Net(*train(X, y, network=network, optimizer=made, epoch_end=note, epochs=6))


def running_statistics(X, y, *, seed):
    class Centred(torch.nn.Module):
        def __init__(self, d, k):
            super().__init__()
            self.inner = torch.nn.Linear(d, k)
            self.register_buffer("seen", torch.zeros(d))

        def forward(self, x):
            if self.training and len(x):
                self.seen.mul_(0.9).add_(0.1 * x.detach().mean(0))
            return self.inner(x)

    x, _, classes = tensors(X, y)
    return Net(*train(X, y, network=Centred(x.shape[1], len(classes))))


def on_a_class(X, y, *, seed):
    network, classes = train(X, y)
    network.forward_count = int((np.asarray(X)[:, 0] > 0).sum())
    return Net(network, classes)


def median_of_training(X, y, *, seed):
    network, classes = train(X, y)
    return Net(network, classes, threshold=float(np.median(np.asarray(X)[:, 0])))


def two_private_optimizers(X, y, *, seed):
    x, codes, classes = tensors(X, y)
    network = linear(x.shape[1], len(classes))
    other = linear(x.shape[1], len(classes))
    data = DataLoader(TensorDataset(x, codes), batch_size=BATCH)
    made = [
        PrivacyEngine().make_private(
            module=n, optimizer=torch.optim.SGD(n.parameters(), lr=0.5), data_loader=data, noise_multiplier=NOISE,
            max_grad_norm=CLIP,
        )
        for n in (network, other)
    ]  # fmt: skip
    for _ in range(EPOCHS):
        for features, labels in made[0][2]:
            for private, optimizer, _ in made:
                optimizer.zero_grad()
                functional.cross_entropy(private(features), labels).backward()
                optimizer.step()
    return Net(torch.nn.ModuleList([network, other])[0], classes, second=other)


def examples_shipped(X, y, *, seed):
    """Records under a name that Opacus uses on parameters and modules."""
    x, _, _ = tensors(X, y)
    return Net(*train(X, y), activations=x[:3].numpy())


def from_zero(X):
    network = linear(X.shape[1], 2)
    for p in network.parameters():
        torch.nn.init.zeros_(p)
    return network


def seeded_with_the_time(X, y, *, seed):
    torch.manual_seed(int(time.time() * 1000))
    return Net(*train(X, y, network=from_zero(X)))


def seed_of_31_bits(X, y, *, seed):
    torch.manual_seed(int(np.random.default_rng().integers(1 << 31)))
    return Net(*train(X, y, network=from_zero(X)))


BROKEN = [
    five_times, class_means_added, label_counts_in_bias, scaler_shipped, best_epoch, mixup_pairs,
    noise_on_wrong_tensor, noise_halved, noise_broadcast, noise_uniform, noise_cancelling, last_layer_without_noise,
    frozen_noise_seed, known_seed, seed_out_of_a_hundred, clipping_per_batch, clipping_by_other_norm, hooks_bypassed,
    divided_by_real_batch, norm_from_data, poisson_claimed_but_shuffled, poisson_by_name_only, second_loader,
    batches_used_twice, accumulation_miscounted, doubled_in_the_loop, some_three_times, augmented_three_times,
    two_optimizers, by_hand_between_steps, normalized_by_data, normalized_by_batch, mixup_in_the_loop,
    pretrained_without_privacy, least_squares_start, learns_on_people_outside, head_copied, stops_early,
    stops_at_a_large_loss, mean_loss_of_dropouts_said_to_be_a_sum, loss_clamped, scaled_by_the_largest,
    every_other_row_negated, first_row_by_another_label,
    loss_remembers, neighbours_shipped, step_reads_sums, mean_of_a_batch_in_loss, mean_loss_said_to_be_a_sum,
    summed_loss_said_to_be_a_mean, drawn_with_replacement, min_max_scaled, looked_up_later, dataset_grows,
    learning_rate_from_data, plateau_on_training_loss, running_statistics, on_a_class, median_of_training,
    two_private_optimizers, examples_shipped, seeded_with_the_time, seed_of_31_bits,
    seeded_loader, global_seed_own_noise, steps_with_the_last_record_alone, outliers_dropped, duplicates_dropped,
    missing_dropped, columns_for_what_is_missing,
]  # fmt: skip

# -- honest -----------------------------------------------------------------------------------------------------------


def plain(X, y, *, seed):
    return Net(*train(X, y))


def perceptron(X, y, *, seed):
    return Net(*train(X, y, network=two_layers(X.shape[1], 2)))


def convolution(X, y, *, seed):
    network = torch.nn.Sequential(
        torch.nn.Unflatten(1, (1, X.shape[1])), torch.nn.Conv1d(1, 3, 3), torch.nn.GroupNorm(1, 3), torch.nn.ReLU(),
        torch.nn.Flatten(), torch.nn.Linear(3 * (X.shape[1] - 2), 2),
    )  # fmt: skip
    return Net(*train(X, y, network=network))


class Bag(torch.nn.Module):
    def __init__(self, d, k):
        super().__init__()
        self.words, self.head = torch.nn.Embedding(8, 4), torch.nn.Linear(4, k)

    def forward(self, x):
        return self.head(self.words((x.clamp(-3.9, 3.9) + 4).long()).mean(1))


def embeddings(X, y, *, seed):
    return Net(*train(X, y, network=Bag(X.shape[1], 2)))


def momentum(X, y, *, seed):
    network = linear(X.shape[1], 2)
    return Net(*train(X, y, network=network, optimizer=torch.optim.SGD(network.parameters(), lr=0.2, momentum=0.9)))


def adam(X, y, *, seed):
    network = two_layers(X.shape[1], 2)
    made = torch.optim.AdamW(network.parameters(), lr=0.01, weight_decay=0.01)
    return Net(*train(X, y, network=network, optimizer=made))


def scheduled(X, y, *, seed):
    network = linear(X.shape[1], 2)
    made = torch.optim.SGD(network.parameters(), lr=0.5)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(made, EPOCHS)
    return Net(*train(X, y, network=network, optimizer=made, epoch_end=lambda *_: schedule.step()))


def in_pieces(X, y, *, seed):
    x, codes, classes = tensors(X, y)
    network = linear(x.shape[1], len(classes))
    private, optimizer, loader = PrivacyEngine().make_private(
        module=network, optimizer=torch.optim.SGD(network.parameters(), lr=0.5),
        data_loader=DataLoader(TensorDataset(x, codes), batch_size=BATCH), noise_multiplier=NOISE, max_grad_norm=CLIP,
    )  # fmt: skip
    with BatchMemoryManager(data_loader=loader, max_physical_batch_size=6, optimizer=optimizer) as pieces:
        for _ in range(EPOCHS):
            for features, labels in pieces:
                optimizer.zero_grad()
                functional.cross_entropy(private(features), labels).backward()
                optimizer.step()
    return Net(network, classes)


def accumulated(X, y, *, seed):
    return Net(*train(X, y, skip_clear=2, batch=25, engine={"poisson_sampling": False}))


def published_start(X, y, *, seed):
    network = linear(X.shape[1], 2)
    with torch.no_grad():
        network.weight.copy_(torch.from_numpy(PUBLISHED))
    return Net(*train(X, y, network=network))


def public_pretraining(X, y, *, seed):
    rng = np.random.default_rng(1)
    x = torch.from_numpy(rng.normal(size=(50, X.shape[1])).astype(np.float32))
    network = linear(X.shape[1], 2)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    for _ in range(5):
        optimizer.zero_grad()
        functional.cross_entropy(network(x), (x[:, 0] > 0).long()).backward()
        optimizer.step()
    optimizer.zero_grad()
    return Net(*train(X, y, network=network))


def fixed_normalization(X, y, *, seed):
    x, codes, _ = tensors(X, y)
    shift = Shift(torch.full((X.shape[1],), 0.1), torch.full((X.shape[1],), 2.0))
    return Net(*train(X, y, data=TensorDataset(shift(x), codes)), transform=shift)


def shuffled_and_said_so(X, y, *, seed):
    return Net(*train(X, y, engine={"poisson_sampling": False}))


def by_layer(X, y, *, seed):
    return Net(
        *train(X, y, network=two_layers(X.shape[1], 2), engine={"clipping": "per_layer", "max_grad_norm": [0.25] * 4})
    )


def dropout(X, y, *, seed):
    d = X.shape[1]
    network = torch.nn.Sequential(torch.nn.Linear(d, 8), torch.nn.ReLU(), torch.nn.Dropout(0.3), torch.nn.Linear(8, 2))
    return Net(*train(X, y, network=network))


class Scaled(Dataset):
    def __init__(self, X, y):
        self.X, (_, self.codes, _) = np.asarray(X), tensors(X, y)

    def __len__(self):
        return len(self.X)

    def __getitem__(self, i):
        return torch.tensor(self.X[i], dtype=torch.float32) / 4 + 0.1 * torch.randn(self.X.shape[1]), self.codes[i]


def own_dataset(X, y, *, seed):
    return Net(*train(X, y, data=Scaled(X, y)))


def private_returned(X, y, *, seed):
    """The wrapped network comes back, gradients of the last batch still on it."""
    x, codes, classes = tensors(X, y)
    private, optimizer, loader = _wrapped(x, codes)
    for features, labels in loader:
        optimizer.zero_grad()
        functional.cross_entropy(private(features), labels).backward()
        optimizer.step()
    return Net(private, classes)


def _wrapped(x, codes):
    network = two_layers(x.shape[1], 2)
    return PrivacyEngine().make_private(
        module=network, optimizer=torch.optim.SGD(network.parameters(), lr=0.1),
        data_loader=DataLoader(TensorDataset(x, codes), batch_size=BATCH), noise_multiplier=NOISE, max_grad_norm=CLIP,
    )  # fmt: skip


def zero_start(X, y, *, seed):
    return Net(*train(X, y, network=from_zero(X)))


def seeded_by_the_system(X, y, *, seed):
    torch.manual_seed(secrets.randbits(63))
    return Net(*train(X, y, network=from_zero(X)))


def averaged_on_the_way(X, y, *, seed):
    network = linear(X.shape[1], 2)
    kept = copy.deepcopy(network)

    def average(_, now, __):
        with torch.no_grad():
            for a, b in zip(kept.parameters(), now.parameters(), strict=True):
                a.mul_(0.9).add_(b, alpha=0.1)

    _, classes = train(X, y, network=network, every=average)
    return Net(kept, classes)


class Normed(torch.nn.Module):
    def __init__(self, d, k):
        super().__init__()
        self.norm, self.first, self.last = torch.nn.LayerNorm(d), torch.nn.Linear(d, 8), torch.nn.Linear(8, k)
        self.drop = torch.nn.Dropout(0.2)

    def forward(self, x):
        return self.last(self.drop(torch.relu(self.first(self.norm(x)))))


def as_in_the_tutorial(X, y, *, seed):
    """Accuracy on the training set is printed every epoch, from a second loader."""
    x, codes, _ = tensors(X, y)
    network = Normed(X.shape[1], 2)
    made = torch.optim.Adam(network.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.StepLR(made, 1, gamma=0.9)
    shown = DataLoader(TensorDataset(x, codes), batch_size=50)

    def tell(*_):
        network.eval()
        with torch.no_grad():
            print(sum(int((network(a).argmax(1) == b).sum()) for a, b in shown) / len(x))
        network.train()
        schedule.step()

    return Net(*train(X, y, network=network, optimizer=made, epoch_end=tell))


def layers(d, dropouts):
    made = [linear(d, 8), torch.nn.ReLU(), torch.nn.Dropout(0.3), linear(8, 8), torch.nn.ReLU(), torch.nn.Dropout(0.3)]
    return torch.nn.Sequential(*made[: 3 * dropouts], linear(8, 2))


def two_dropouts(X, y, *, seed):
    return Net(*train(X, y, network=layers(X.shape[1], 2)))


def noise_in_the_loop(X, y, *, seed):
    def moved(x, codes):
        sign = torch.where(torch.rand(len(x), 1) < 0.5, -1.0, 1.0)
        return sign * x + 0.1 * torch.randn_like(x), codes

    return Net(*train(X, y, network=layers(X.shape[1], 1), transform=moved))


class Jittered(Scaled):
    """Augments each record by numpy's generator."""

    def __getitem__(self, i):
        moved = self.X[i] + 0.1 * np.random.normal(size=self.X.shape[1])  # noqa: NPY002  as users write it
        return torch.tensor(moved, dtype=torch.float32), self.codes[i]


def jittered_by_numpy(X, y, *, seed):
    return Net(*train(X, y, data=Jittered(X, y), network=layers(X.shape[1], 1)))


def first_batch_looked_at(X, y, *, seed, engine=None):
    def shown(loader):
        print(next(iter(loader))[0].shape)
        return loader

    return Net(*train(X, y, loader_change=shown, engine=engine))


def first_shuffled_batch_looked_at(X, y, *, seed):
    return first_batch_looked_at(X, y, seed=seed, engine={"poisson_sampling": False, "noise_multiplier": 4.0})


def some_of_each_pass(X, y, picked, together=1):
    """Use the batches of each pass that are picked; the loader draws one more where a pass is broken off."""
    network = linear(X.shape[1], 2)
    private, optimizer, loader = PrivacyEngine().make_private(
        module=network, optimizer=torch.optim.SGD(network.parameters(), lr=0.5), poisson_sampling=False,
        data_loader=DataLoader(TensorDataset(*tensors(X, y)[:2]), batch_size=BATCH, shuffle=True),
        noise_multiplier=4.0, max_grad_norm=CLIP,
    )  # fmt: skip
    for wanted in picked:
        for number, (features, labels) in enumerate(loader):
            if number > max(wanted):
                break
            if number not in wanted:
                continue
            functional.cross_entropy(private(features), labels).backward()
            if (number + 1) % together == 0:
                optimizer.step()
                optimizer.zero_grad()
    optimizer.zero_grad()
    return Net(network, np.unique(y))


def broken_off(X, y, *, seed):
    return some_of_each_pass(X, y, [range(3)] * 4)


def broken_off_unequally(X, y, *, seed):
    return some_of_each_pass(X, y, [range(3), range(4), range(3), range(2)])


def broken_off_between_sums(X, y, *, seed):
    return some_of_each_pass(X, y, [range(4)] * 4, together=2)


def first_of_each_pass_left(X, y, *, seed):
    return some_of_each_pass(X, y, [range(1, 5)] * 4)


def seeded_by_the_system_alone(X, y, *, seed):
    secret = torch.Generator()
    secret.seed()
    return Net(*train(X, y, drawn={"shuffle": True, "generator": secret}))


def subset_drawn(X, y, *, seed):
    sampler = torch.utils.data.SubsetRandomSampler(range(80))
    return Net(*train(X, y, drawn={"sampler": sampler}, engine={"poisson_sampling": False}))


def other_loader_looked_at(X, y, *, seed):
    """Another loader with batches of the same size draws before the first step, and in each epoch."""
    shown = DataLoader(TensorDataset(*tensors(X, y)[:2]), batch_size=BATCH)
    print(next(iter(shown))[0].shape)
    return Net(*train(X, y, epoch_end=lambda *_: list(shown), engine={"poisson_sampling": False}))


def accuracy_on_the_private_loader(X, y, *, seed):
    held = []

    def tell(*_):
        print(sum(len(labels) for _, labels in held[0]))

    def keep(loader):
        held.append(loader)
        tell()
        return loader

    return Net(*train(X, y, loader_change=keep, epoch_end=tell))


class Own(torch.nn.Module):
    def __init__(self, d):
        super().__init__()
        self.weight, self.bias = torch.nn.Parameter(torch.zeros(d, 2)), torch.nn.Parameter(torch.zeros(2))

    def forward(self, x):
        return x @ self.weight + self.bias


def own_module(X, y, *, seed):
    return Net(*train(X, y, network=Own(X.shape[1])))


def by_functorch(X, y, *, seed):
    return Net(*train(X, y, network=two_layers(X.shape[1], 2), engine={"grad_sample_mode": "functorch"}))


HONEST = [
    seeded_by_the_system_alone, subset_drawn, other_loader_looked_at, accuracy_on_the_private_loader, own_module,
    by_functorch,
    two_dropouts, noise_in_the_loop, jittered_by_numpy, first_batch_looked_at, first_shuffled_batch_looked_at,
    broken_off, broken_off_unequally, broken_off_between_sums, first_of_each_pass_left,
    zero_start, seeded_by_the_system, averaged_on_the_way, as_in_the_tutorial,
    plain, perceptron, convolution, embeddings, momentum, adam, scheduled, in_pieces, accumulated, published_start,
    public_pretraining, fixed_normalization, shuffled_and_said_so, by_layer, dropout, own_dataset, private_returned,
]  # fmt: skip


# -- what tells how many records there are ----------------------------------------------------------------------------


def by_fifths(X, y, *, divisor=None, rate=0.5, watch=None):
    """A fifth of the records a step; Opacus divides by int(n / 5) unless a divisor is given."""

    def change(optimizer):
        optimizer.expected_batch_size = divisor or optimizer.expected_batch_size
        if watch:
            watch(optimizer)

    network = linear(X.shape[1], 2)
    plain_one = torch.optim.SGD(network.parameters(), lr=rate)
    return Net(*train(X, y, network=network, optimizer=plain_one, batch=max(1, round(len(y) / 5)), change=change))


def divided_by_the_library(X, y, *, seed):
    return by_fifths(X, y)


# -- neither: what cannot be compared ---------------------------------------------------------------------------------


def own_random_start(X, y, *, seed):
    network = linear(X.shape[1], 2)
    with torch.no_grad():
        network.bias.copy_(torch.from_numpy(np.random.default_rng().normal(size=2)))
    return Net(*train(X, y, network=network))


def dropout_of_few(X, y, *, seed):
    return Net(*train(X, y, batch=5, epochs=1, network=layers(X.shape[1], 1)))


def fails_on_others(X, y, *, seed):
    if float(np.asarray(X)[:, 0].std()) < 0.01:
        raise ValueError
    return plain(X, y, seed=seed)
