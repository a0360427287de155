"""A small network and its training loop."""

import numpy as np
import torch


class Network:
    """What the registry keeps: ``predict_proba`` and ``classes_`` are all that is asked."""

    def __init__(self, layers, classes):
        self.layers, self.classes_ = layers, classes

    def predict_proba(self, X):
        with torch.no_grad():
            return torch.softmax(self.layers(torch.tensor(np.asarray(X), dtype=torch.float32)), dim=1).double().numpy()


def fit(X, y, *, seed, hidden, epochs):
    """Train by full batches; the same seed gives the same network."""
    generator = torch.Generator().manual_seed(seed)
    classes, codes = np.unique(y, return_inverse=True)
    features, target = torch.tensor(np.asarray(X), dtype=torch.float32), torch.from_numpy(codes)
    layers = torch.nn.Sequential(
        torch.nn.Linear(features.shape[1], hidden), torch.nn.Tanh(), torch.nn.Linear(hidden, len(classes))
    )
    for weights in layers.parameters():
        torch.nn.init.normal_(weights, std=0.3, generator=generator)
    optimizer = torch.optim.SGD(layers.parameters(), lr=0.5, weight_decay=1e-3)
    for _ in range(epochs):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(layers(features), target).backward()
        optimizer.step()
    return Network(layers, classes)
