"""A torch network with a loop of one's own; everything random comes from the seed."""

import numpy as np
import torch

from privgate import Recipe


def fit(X, y, *, seed, width=16, epochs=20, rate=0.05):
    """Train by plain gradient descent on shuffled batches."""
    drawn = torch.Generator().manual_seed(seed)
    classes, codes = np.unique(y, return_inverse=True)
    records, labels = tensor(X), torch.as_tensor(codes)
    with torch.random.fork_rng():  # initial weights come from the global generator; leave it as it was
        torch.manual_seed(seed)
        model = torch.nn.Sequential(
            torch.nn.BatchNorm1d(records.shape[1], affine=False),  # columns of one scale
            torch.nn.Linear(records.shape[1], width),
            torch.nn.Tanh(),
            torch.nn.Linear(width, len(classes)),
        )
    steps = torch.optim.SGD(model.parameters(), lr=rate)
    for _ in range(epochs):
        for batch in torch.randperm(len(records), generator=drawn).split(32):
            steps.zero_grad()
            torch.nn.functional.cross_entropy(model(records[batch]), labels[batch]).backward()
            steps.step()
    return model.eval()


def tensor(X):
    """Return records as torch takes them."""
    return torch.as_tensor(np.asarray(X, dtype=np.float32))


def predict(model, X):
    """Return one column a class, in the order of the sorted labels."""
    with torch.no_grad():
        return torch.softmax(model(tensor(X)), dim=1).double().numpy()


RECIPE = Recipe(fit, params={"width": 16, "epochs": 20}, seed=7, predict=predict)
