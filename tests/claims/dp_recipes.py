"""Trainings "with differential privacy": contradicted ones, own code that nobody knows, honest ones."""

import numpy as np
import torch
from opacus import PrivacyEngine
from opacus.optimizers import DPOptimizer
from opacus.utils.batch_memory_manager import BatchMemoryManager
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

NOISE, CLIP, BATCH, EPOCHS = 1.0, 0.5, 20, 4


class Net:
    def __init__(self, network, classes):
        self.network, self.classes_ = network, classes

    def predict_proba(self, X):
        with torch.no_grad():
            return (
                torch.softmax(self.network(torch.from_numpy(np.asarray(X, dtype=np.float32))), dim=1).double().numpy()
            )


def tensors(X, y):
    classes, codes = np.unique(y, return_inverse=True)
    return torch.from_numpy(np.array(X, dtype=np.float32)), torch.from_numpy(codes), classes


def two_layers(d):
    return torch.nn.Sequential(torch.nn.Linear(d, 5), torch.nn.Tanh(), torch.nn.Linear(5, 2))


def train(X, y, *, network=None, optimizer=None, data=None, batch=BATCH, epochs=EPOCHS, change=None, loader_change=None,
          after=None, skip_clear=1, drawn=None, **engine):  # fmt: skip
    """Return a model by DP-SGD, with one thing done otherwise."""
    x, codes, classes = tensors(X, y)
    network = network or torch.nn.Linear(x.shape[1], len(classes))
    optimizer = optimizer or torch.optim.SGD(network.parameters(), lr=0.5)
    loader = DataLoader(data or TensorDataset(x, codes), batch_size=batch, **(drawn or {}))
    private, optimizer, loader = PrivacyEngine().make_private(
        module=network, optimizer=optimizer, data_loader=loader,
        **{"noise_multiplier": NOISE, "max_grad_norm": CLIP, **engine},
    )  # fmt: skip
    optimizer = change(optimizer) if change else optimizer
    loader = loader_change(loader) if loader_change else loader
    count = 0
    for _ in range(epochs):
        for features, labels in loader:
            functional.cross_entropy(private(features), labels).backward()
            count += 1
            if count % skip_clear == 0:
                optimizer.step()
                optimizer.zero_grad()
                if after:
                    after(network, x, codes)
    optimizer.zero_grad()
    return Net(network, classes)


def wrapped(kind):
    """Return a change that puts the plain optimizer into another private one."""
    return lambda o: kind(o.original_optimizer, noise_multiplier=NOISE, max_grad_norm=CLIP, expected_batch_size=BATCH)


# -- contradicted ------------------------------------------------------------------------------------------------------


class Silent(DPOptimizer):
    def add_noise(self):
        for p in self.params:
            p.grad = p.summed_grad.view_as(p)


class Once(DPOptimizer):
    noised = False

    def add_noise(self):
        Silent.add_noise(self) if self.noised else super().add_noise()
        self.noised = True


class Quiet(DPOptimizer):
    """States one noise and adds a quarter of it."""

    def add_noise(self):
        for p in self.params:
            p.grad = (p.summed_grad + 0.25 * self.max_grad_norm * torch.randn_like(p)).view_as(p)


class OneTensor(DPOptimizer):
    def add_noise(self):
        super().add_noise()
        self.params[0].grad = self.params[0].summed_grad.view_as(self.params[0])


def noise_once(X, y, *, seed):
    return train(X, y, change=wrapped(Once))


def noise_on_one_tensor(X, y, *, seed):
    return train(X, y, change=wrapped(OneTensor))


def noise_of_a_quarter(X, y, *, seed):
    return train(X, y, change=wrapped(Quiet))


def known_seed(X, y, *, seed):
    torch.manual_seed(0)
    return train(X, y)


def fixed_noise_seed(X, y, *, seed):
    return train(X, y, noise_generator=torch.Generator().manual_seed(20261129054350))


def plain_step(network, x, codes):
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    loss = functional.cross_entropy(functional.linear(x, network.weight, network.bias), codes)
    for p, g in zip(network.parameters(), torch.autograd.grad(loss, list(network.parameters())), strict=True):
        p.grad = g
    optimizer.step()
    optimizer.zero_grad()


def two_optimizers(X, y, *, seed):
    return train(X, y, after=plain_step)


def pretrained_without_privacy(X, y, *, seed):
    x, codes, _ = tensors(X, y)
    network = torch.nn.Linear(X.shape[1], 2)
    plain_step(network, x, codes)
    return train(X, y, network=network)


def shuffled(X, y, *, seed):
    return train(X, y, poisson_sampling=False)


class Twice:
    def __init__(self, loader):
        self.loader = loader

    def __iter__(self):
        for batch in self.loader:
            yield batch
            yield batch


def batches_used_twice(X, y, *, seed):
    return train(X, y, loader_change=Twice)


def five_times(X, y, *, seed):
    x, codes, _ = tensors(X, y)
    return train(X, y, data=TensorDataset(x.repeat(5, 1), codes.repeat(5)), batch=5 * BATCH)


def more_epochs_than_claimed(X, y, *, seed):
    return train(X, y, epochs=3 * EPOCHS)


BROKEN = {
    noise_once: "19 of 20 updates of the model got no noise",
    noise_on_one_tensor: "20 of 20 updates of the model got no noise",
    fixed_noise_seed: "20 of 20 updates of the model got no noise, or noise from a seed",
    known_seed: "20 of 20 updates of the model got no noise, or noise from a seed",
    two_optimizers: "20 of 40 updates of the model got no noise",
    pretrained_without_privacy: "1 of 21 updates of the model got no noise",
    noise_of_a_quarter: "the noise is smaller than stated",
    shuffled: "batches were shuffled",
    batches_used_twice: "batches were not seen to be drawn in secret",
    five_times: "a person has up to 5 records",
    more_epochs_than_claimed: "the recipe claims epsilon 9.192, but what was observed costs",
}

# -- own code: what it does is not known -------------------------------------------------------------------------------


class Unclipped(DPOptimizer):
    def clip_and_accumulate(self):
        for p in self.params:
            p.summed_grad = self._get_flat_grad_sample(p).sum(dim=0)


def clipping_off(X, y, *, seed):
    return train(X, y, change=wrapped(Unclipped))


# -- honest ------------------------------------------------------------------------------------------------------------


def plain(X, y, *, seed):
    return train(X, y)


def by_layer(X, y, *, seed):
    return train(X, y, network=two_layers(X.shape[1]), clipping="per_layer", max_grad_norm=[0.25] * 4)


def seeded_by_the_system(X, y, *, seed):
    secret = torch.Generator()
    secret.seed()
    return train(X, y, drawn={"shuffle": True, "generator": secret})


def in_pieces(X, y, *, seed):
    x, codes, classes = tensors(X, y)
    network = torch.nn.Linear(x.shape[1], len(classes))
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
    optimizer.zero_grad()
    return Net(network, classes)


def as_in_the_tutorial(X, y, *, seed):
    """Accuracy on the training set is printed on the way, from a second loader."""
    shown = DataLoader(TensorDataset(*tensors(X, y)[:2]), batch_size=50)

    def tell(network, *_):
        with torch.no_grad():
            print(sum(int((network(a).argmax(1) == b).sum()) for a, b in shown))

    return train(X, y, after=tell)


HONEST = (plain, by_layer, seeded_by_the_system, in_pieces, as_in_the_tutorial)


def gradients_left(X, y, *, seed):
    """The wrapped network comes back, gradients of the last batch still on it."""
    held = []
    made = train(X, y, change=lambda optimizer: held.append(optimizer) or optimizer)
    optimizer = held[0]
    optimizer.zero_grad = lambda *_: None
    for p in made.network.parameters():
        p.grad_sample = torch.zeros(len(X), *p.shape)
    return made


def drawn_from_a_pool(X, y, *, seed):
    """Each record enters the training set with probability 1/5."""
    x, codes, _ = tensors(X, y)
    kept = torch.rand(len(x)) < 0.2
    return train(X, y, data=TensorDataset(x[kept], codes[kept]), batch=5)


def the_first_of_a_pool(X, y, *, seed):
    x, codes, _ = tensors(X, y)
    return train(X, y, data=TensorDataset(x[:20], codes[:20]), batch=5)
