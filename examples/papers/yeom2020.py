"""Yeom et al. (2020), Table 1: one query against dozens of shadow models, on a small convolutional network."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from papers.networks import torch
from papers.table import Row, Table, read_rates
from privgate.membership.attacks import BY_NAME, Signals
from privgate.statistics import roc
from privgate.statistics.roc import Decisions
from privgate.training.fleet import Fleet

Float = NDArray[np.float64]
Bool = NDArray[np.bool_]
Say = Callable[[str], None]

SHADOWS = 20


def train_cnn(X: Float, y: NDArray[np.int64], inside: Bool, *, seed: int, epochs: int = 30) -> Float:
    """Return log-probabilities on all records of a network of two convolutions, trained on the records ``inside``.

    Parameters
    ----------
    X : float64 array of shape (P, 8, 8)
        Pixels in [0, 1].
    y : int64 array of shape (P,)
    inside : bool array of shape (P,)
    seed, epochs : int
    """
    t = torch()
    n = t.nn
    with t.random.fork_rng():
        t.manual_seed(seed)
        network: Any = n.Sequential(
            n.Conv2d(1, 16, 3, padding=1), n.ReLU(), n.MaxPool2d(2), n.Conv2d(16, 32, 3, padding=1), n.ReLU(),
            n.Flatten(), n.Linear(32 * 16, 64), n.ReLU(), n.Linear(64, 10),
        )  # fmt: skip
        data, labels = t.tensor(X, dtype=t.float32)[:, None], t.tensor(y)
        rows = t.tensor(np.flatnonzero(inside))
        optimizer = t.optim.Adam(network.parameters(), lr=0.002)
        for _ in range(epochs):
            for batch in rows[t.randperm(len(rows))].split(64):
                optimizer.zero_grad()
                n.functional.cross_entropy(network(data[batch]), labels[batch]).backward()
                optimizer.step()
        with t.no_grad():
            return np.asarray(t.log_softmax(network(data).double(), dim=1).numpy(), dtype=np.float64)


def run_table_1(folder: Path, fleet: Fleet, say: Say) -> Iterator[Table]:
    """Reproduce Table 1: the threshold adversary with the training loss against a shadow-trained attack model."""
    del folder, fleet
    from sklearn.datasets import load_digits

    digits = load_digits()
    rng = np.random.default_rng(1)
    # 30 % of the labels are replaced, so that the network has something to remember: MNIST-like digits are learned
    for noise, published in ((0.0, (0.505, 0.517)), (0.3, (None, None))):
        y = digits.target.astype(np.int64).copy()
        wrong = rng.random(len(y)) < noise
        y[wrong] = rng.integers(0, 10, int(wrong.sum()))
        halves = [rng.permutation(len(y)) < len(y) // 2 for _ in range(1 + SHADOWS // 2)]
        members = halves[0]
        masks = np.stack([m for half in halves[1:] for m in (half, ~half)])
        X = digits.images / 16.0
        target = train_cnn(X, y, members, seed=0)
        shadow = np.stack([train_cnn(X, y, m, seed=1 + i) for i, m in enumerate(masks)])
        say(f"{1 + SHADOWS} networks, label noise {noise:g}")
        own = target[np.arange(len(y)), y]
        signals = Signals(
            target, y, shadow, masks, features=X.reshape(len(y), -1), training_loss=float(-own[members].mean())
        )
        right = target.argmax(axis=1) == y
        rows = [
            Row("training accuracy", None, float(right[members].mean())),
            Row("test accuracy", None, float(right[~members].mean())),
        ]
        for name, figure in zip(("yeom_threshold", "shokri"), published, strict=True):
            scores = BY_NAME[name].scores(signals, np.random.default_rng(0))
            fired = scores > (BY_NAME[name].cut or 0.0)
            d = Decisions.from_flags(fired, members)
            queries = "one query, no shadow model" if name == "yeom_threshold" else f"{SHADOWS} shadow models"
            rows += [
                Row(f"{name}: precision", figure, read_rates(d).precision, queries),
                Row(f"{name}: recall", None, d.recall),
                Row(f"{name}: AUC", None, roc.auc(scores, members)),
            ]
        title = f"Yeom et al. (2020), Table 1, CNN on scikit-learn's digits, {noise:.0%} of labels replaced"
        note = "published on MNIST; CIFAR-10 (0.694 against 0.72-0.74) and CIFAR-100 (0.874 against 0.99) are not run"
        yield Table(title, rows, (note if noise == 0.0 else "no published figure: something to remember is put in",))
