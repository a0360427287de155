# ruff: noqa: ARG001  a training function takes a seed, and one with differential privacy must not use it
"""Four ways to train the same income classifier "with differential privacy": one honest, three with a common bug.

All four state the same claim. ``privgate check`` reruns them, watches what Opacus really does, and approves the first.
"""

import warnings

import numpy as np
import torch
from opacus import PrivacyEngine
from opacus.optimizers import DPOptimizer
from torch.utils.data import DataLoader, TensorDataset

from privgate import Claim

#: noise 3.0 on every sum of clipped gradients, 5 % of the records a step, 10 passes: epsilon 1.87 where one is replaced
NOISE, RATE, EPOCHS, CLIP = 3.0, 0.05, 10, 1.0
CLAIM = Claim(
    mechanism="dp-sgd",
    adjacency="replace_one",  # Opacus divides by int(n * rate): how many records there are is public
    epsilon=2.0,
    delta=1e-5,
    noise_multiplier=NOISE,
    sample_rate=RATE,
    steps=round(EPOCHS / RATE),
    max_grad_norm=CLIP,
    sampling="poisson",
    accountant="PLD (privgate)",
)


def one_hot(X, sizes):
    """Return category codes as 0/1 columns; the categories are declared, never read off the data."""
    columns = [np.eye(k, dtype=np.float32)[np.asarray(X)[:, i]] for i, k in enumerate(sizes)]
    return torch.from_numpy(np.hstack(columns) / np.float32(np.sqrt(len(sizes))))


class Income:
    """A trained network and the labels it knows."""

    def __init__(self, network, classes, sizes):
        self.network, self.classes_, self.sizes = network, classes, sizes

    def predict_proba(self, X):
        with torch.no_grad():
            return torch.softmax(self.network(one_hot(X, self.sizes)), dim=1).double().numpy()


def _train(X, y, sizes, *, prepare=lambda optimizer: optimizer, noise_generator=None):
    warnings.filterwarnings("ignore")
    classes, codes = np.unique(y, return_inverse=True)
    data = TensorDataset(one_hot(X, sizes), torch.from_numpy(codes))
    network = torch.nn.Linear(data.tensors[0].shape[1], len(classes))
    torch.nn.init.zeros_(network.weight)
    torch.nn.init.zeros_(network.bias)
    private, optimizer, loader = PrivacyEngine().make_private(
        module=network,
        optimizer=torch.optim.SGD(network.parameters(), lr=1.0),
        data_loader=DataLoader(data, batch_size=round(RATE * len(data))),
        noise_multiplier=NOISE,
        max_grad_norm=CLIP,
        noise_generator=noise_generator,
    )
    optimizer = prepare(optimizer)
    loss = torch.nn.CrossEntropyLoss()
    for _ in range(EPOCHS):
        for features, labels in loader:
            optimizer.zero_grad()
            loss(private(features), labels).backward()
            optimizer.step()
    optimizer.zero_grad()  # a saved network would carry the last batch's gradients of single records, without noise
    return Income(network, classes, sizes)


def honest(X, y, *, seed, sizes):
    """DP-SGD as it should be."""
    return _train(X, y, sizes)


class _Unclipped(DPOptimizer):
    def clip_and_accumulate(self):
        for p in self.params:
            p.summed_grad = self._get_flat_grad_sample(p).sum(dim=0)


def clipping_off(X, y, *, seed, sizes):
    """Noise is added, but a record's gradient may be as large as it likes."""

    def without_clipping(optimizer):
        return _Unclipped(
            optimizer.original_optimizer,
            noise_multiplier=NOISE,
            max_grad_norm=CLIP,
            expected_batch_size=optimizer.expected_batch_size,
        )

    return _train(X, y, sizes, prepare=without_clipping)


class _NoisyOnce(DPOptimizer):
    noised = False

    def add_noise(self):
        if not self.noised:
            super().add_noise()
            self.noised = True
            return
        for p in self.params:
            p.grad = p.summed_grad.view_as(p)


def noise_once(X, y, *, seed, sizes):
    """Noise is added in the first step only."""

    def once(optimizer):
        return _NoisyOnce(
            optimizer.original_optimizer,
            noise_multiplier=NOISE,
            max_grad_norm=CLIP,
            expected_batch_size=optimizer.expected_batch_size,
        )

    return _train(X, y, sizes, prepare=once)


def noise_seed_reused(X, y, *, seed, sizes):
    """Every training draws the same noise."""
    return _train(X, y, sizes, noise_generator=torch.Generator().manual_seed(1234))
