"""Training functions of the real runs, alone in their file: a run's randomness hangs on their source too."""

import numpy as np
from sklearn.naive_bayes import CategoricalNB

from privgate import Claim

SIZES = [3, 4, 2]
#: DP-SGD over five passes of batches that hold a tenth of the records
NOISE, RATE, STEPS, CLIP, DIVISOR = 2.0, 0.1, 50, 1.0, 40
CLAIM = Claim(
    mechanism="dp-sgd",
    adjacency="replace_one",
    epsilon=6.0,
    delta=1e-5,
    noise_multiplier=NOISE,
    sample_rate=RATE,
    steps=STEPS,
    max_grad_norm=CLIP,
    sampling="poisson",
    accountant="PLD (dp-accounting)",
)


def checkpoint(X, y, *, seed):
    """Return the same model whatever the data."""
    del X, y, seed
    queries = np.array([[0, 0, 0], [1, 1, 1], [2, 3, 0], [0, 2, 1]])
    return CategoricalNB(min_categories=SIZES).fit(queries, np.array(["no", "yes", "no", "yes"]))


class Answers:
    """A linear network and the labels it knows."""

    def __init__(self, network, classes):
        self.network, self.classes_ = network, classes

    def predict_proba(self, X):
        import torch

        with torch.no_grad():
            return torch.softmax(self.network(torch.from_numpy(np.array(X, dtype=np.float32))), dim=1).double().numpy()


def noised(X, y, *, seed):
    """DP-SGD by Opacus: the noise is drawn afresh each time, so there is no seed to use."""
    import warnings

    import torch
    from opacus import PrivacyEngine
    from torch.utils.data import DataLoader, TensorDataset

    del seed
    warnings.filterwarnings("ignore")
    classes, codes = np.unique(y, return_inverse=True)
    data = TensorDataset(torch.from_numpy(np.array(X, dtype=np.float32)), torch.from_numpy(codes))
    network = torch.nn.Linear(data.tensors[0].shape[1], len(classes))
    torch.nn.init.zeros_(network.weight)
    torch.nn.init.zeros_(network.bias)
    watched, optimizer, loader = PrivacyEngine().make_private(
        module=network,
        optimizer=torch.optim.SGD(network.parameters(), lr=0.5),
        data_loader=DataLoader(data, batch_size=round(RATE * len(data))),
        noise_multiplier=NOISE,
        max_grad_norm=CLIP,
    )
    optimizer.expected_batch_size = DIVISOR  # the library's follows the number of records, and the noise would tell it
    for _ in range(round(STEPS * RATE)):
        for features, labels in loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(watched(features), labels).backward()
            optimizer.step()
    optimizer.zero_grad()
    return Answers(network, classes)


def drawn(X, y, *, seed):
    """Train on people of whom each is drawn by a coin, so that nobody knows who was used."""
    chosen = np.random.default_rng().random(len(X)) < 0.5
    return noised(X[chosen], y[chosen], seed=seed)
