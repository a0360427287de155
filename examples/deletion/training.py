# ruff: noqa: ARG001  a training function takes a seed, and one with differential privacy must not use it
"""Ordinary Opacus code, ``PrivacyEngine.make_private``, with the noise that five deletions need."""

import numpy as np
import torch
from opacus import PrivacyEngine
from torch.utils.data import DataLoader, TensorDataset

from privgate import Claim

CLAIM = Claim(mechanism="dp-sgd", adjacency="add_remove", epsilon=0.8, delta=1e-6, sampling="poisson")


class Net:
    """A trained network that answers with probabilities."""

    def __init__(self, network):
        self.network = network

    def predict_proba(self, X):
        with torch.no_grad():
            return torch.softmax(self.network(torch.as_tensor(X, dtype=torch.float32)), 1).double().numpy()


def fit(X, y, *, seed):
    network = torch.nn.Linear(X.shape[1], 2)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.5)
    data = TensorDataset(torch.as_tensor(np.array(X), dtype=torch.float32), torch.as_tensor(np.array(y)))
    private, optimizer, loader = PrivacyEngine().make_private(
        module=network,
        optimizer=optimizer,
        data_loader=DataLoader(data, batch_size=50),
        noise_multiplier=4.0,
        max_grad_norm=1.0,
    )
    for features, labels in loader:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(private(features), labels).backward()
        optimizer.step()
    optimizer.zero_grad()  # a saved network would carry the last batch's gradients of single records
    return Net(network)


def people():
    """Return 1,000 invented people."""
    from privgate import TrainingData

    rng = np.random.default_rng(3)
    X = np.clip(rng.normal(size=(1900, 4)), -3, 3)
    y = (X[:, 0] + 0.5 * rng.normal(size=1900) > 0).astype(np.int64)
    ids = [f"person {i}" for i in range(1000)]
    return TrainingData(X[:1000], y[:1000], ids=ids, candidates=(X[1000:], y[1000:]), one_record_each=True)
