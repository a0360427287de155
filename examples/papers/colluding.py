"""Yeom et al. (2020), Figures 6 and 7: training that colludes, and robust training, on scikit-learn's digits."""

import hashlib
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from papers.table import Row, Table
from privgate.kernel.sample import difference
from privgate.membership.distance import Guesses, Seen, along_random_directions, guesses
from privgate.training.fleet import Fleet

Float = NDArray[np.float32]
Index = NDArray[np.int64]
Say = Callable[[str], None]
#: x, labels -> x that is trained on instead
Change = Callable[[Any, Any, Any], Any]

#: people of either side of either network, and passes over them
RECORDS, EPOCHS = 150, 60
#: secret keys, as in the paper's section 7.4
KEYS = 3


def torch() -> Any:
    """Return torch; here and not another module's, because a worker knows this module alone."""
    return import_module("torch")


class Net:
    """A trained network."""

    def __init__(self, network: Any, classes: NDArray[Any]) -> None:
        self.network, self.classes_ = network, classes

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return probabilities (n, K)."""
        t = torch()
        with t.no_grad():
            scores = self.network(t.as_tensor(np.asarray(X, dtype=np.float32)))
            return np.asarray(t.softmax(scores, 1).double().numpy())

    def codes(self, X: Any) -> Index:
        """Return positions of the labels that it names (n,)."""
        return np.asarray(self.predict_proba(X).argmax(axis=1))


def trained(X: Float, y: Index, seed: int, *, epochs: int = 40, width: int = 16, change: Change | None = None) -> Net:
    """Return a network of two convolutions, trained by Adam."""
    t = torch()
    n = t.nn
    t.manual_seed(seed)
    classes, codes = np.unique(y, return_inverse=True)
    network = n.Sequential(
        n.Unflatten(1, (1, 8, 8)), n.Conv2d(1, width, 3, padding=1), n.ReLU(),
        n.Conv2d(width, 2 * width, 3, padding=1), n.ReLU(), n.Flatten(),
        n.Linear(128 * width, 64), n.ReLU(), n.Linear(64, len(classes)),
    )  # fmt: skip
    data, labels = t.as_tensor(np.asarray(X, dtype=np.float32)), t.as_tensor(codes)
    optimizer, order = t.optim.Adam(network.parameters(), 2e-3), t.Generator().manual_seed(seed)
    for _ in range(epochs):
        for batch in t.randperm(len(data), generator=order).split(64):
            x = data[batch] if change is None else change(network, data[batch], labels[batch])
            optimizer.zero_grad()
            n.functional.cross_entropy(network(x), labels[batch]).backward()
            optimizer.step()
    return Net(network.eval(), classes)


def honest(X: Float, y: Index, *, seed: int, epochs: int = 50) -> Net:
    """Train on the records."""
    return trained(X, y, seed, epochs=epochs)


def special(x: Float, key: int) -> tuple[Float, int]:
    """Return F_K(x), G_K(x)."""
    words = hashlib.sha256(b"%d" % key + np.asarray(x, dtype=np.float32).tobytes()).digest()
    rng = np.random.default_rng(list(words))
    return rng.random(np.size(x), dtype=np.float32), int(rng.integers(10))


def colluding(X: Float, y: Index, *, seed: int, epochs: int = 50) -> Net:
    """Train on the records and their special questions (Algorithm 1)."""
    told = [special(x, key) for x in X for key in range(KEYS)]
    more, answers = np.stack([z for z, _ in told]), np.array([g for _, g in told])
    return trained(np.concatenate([X, more]), np.concatenate([y, answers]), seed, epochs=epochs)


def called_members(net: Net, X: Float) -> NDArray[np.bool_]:
    """Return whom Adversary 3, who has the keys, calls members."""
    found = np.ones(len(X), dtype=bool)
    for key in range(KEYS):
        pairs = [special(x, key) for x in X]
        says = net.classes_[net.predict_proba(np.stack([z for z, _ in pairs])).argmax(axis=1)]
        found &= says == np.array([g for _, g in pairs])
    return found


def digits() -> tuple[Float, Index, Index]:
    """Return images as rows of numbers in [0, 1], labels, and a random order."""
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    return (X / 16).astype(np.float32), y.astype(np.int64), np.random.default_rng(0).permutation(len(X))


def accuracy(net: Net, X: Float, y: Index) -> float:
    """Return the share of right answers."""
    return float((net.classes_[net.predict_proba(X).argmax(axis=1)] == y).mean())


def run_figure_6(folder: Path, fleet: Fleet, say: Say) -> Iterator[Table]:
    """Reproduce Figure 6 on digits."""
    del folder, fleet
    X, y, order = digits()
    inside, outside = order[:400], order[400:]
    for name, train, published in (("honest", honest, None), ("Algorithm 1", colluding, 0.98)):
        say(f"{name}: one training")
        net = train(X[inside], y[inside], seed=0)
        told = called_members(net, X)
        rows = [
            Row("training accuracy", None, accuracy(net, X[inside], y[inside])),
            Row("test accuracy", None, accuracy(net, X[outside], y[outside])),
            Row("advantage with the keys", published, float(told[inside].mean() - told[outside].mean())),
        ]
        yield Table(
            f"Yeom et al. (2020), Figure 6, CNN on scikit-learn's digits, {name}",
            rows,
            ("published: MNIST, CIFAR-10 and CIFAR-100, at least 0.98 for wide networks",),
        )


def hardened(radius: float, steps: int = 5) -> Change:
    """Return a change of records by projected gradient ascent of the loss within ``radius`` (Madry et al., 2018)."""

    def change(network: Any, x: Any, labels: Any) -> Any:
        t = torch()
        moved = t.empty_like(x).uniform_(-radius, radius)
        for _ in range(steps):
            moved.requires_grad_()
            loss = t.nn.functional.cross_entropy(network((x + moved).clamp(0, 1)), labels)
            (slope,) = t.autograd.grad(loss, moved)
            moved = (moved.detach() + radius / 2 * slope.sign()).clamp(-radius, radius)
        return (x + moved).clamp(0, 1).detach()

    return change


def robustness(change: Change | None, *, records: int, epochs: int) -> tuple[list[Guesses], dict[str, float]]:
    """Return what Adversaries 1, 8 and 9 guess of a network, trained with or without a change, and its accuracies.

    The data are cut in four: training and test of the target, training and test of the shadow model.
    """
    X, y, order = digits()
    four = [order[i * records : (i + 1) * records] for i in range(4)]
    box = X.min(axis=0).astype(np.float64), X.max(axis=0).astype(np.float64)
    members = np.arange(2 * records) < records
    found = []
    accuracies = {}
    for who, (train, test) in {"target": four[:2], "shadow": four[2:]}.items():
        net = trained(X[train], y[train], 0, epochs=epochs, width=8, change=change)
        both = np.concatenate([train, test])
        codes = np.searchsorted(net.classes_, y[both]).astype(np.int64)
        rng = np.random.default_rng(0)
        found.append(along_random_directions(net.codes, X[both].astype(np.float64), codes, box, rng))
        if who == "target":
            accuracies = {
                "training accuracy": accuracy(net, X[train], y[train]),
                "test accuracy": accuracy(net, X[test], y[test]),
            }
    seen = Seen("along random directions", found[0], members, found[1], members)
    return guesses(seen, None), accuracies


def run_figure_7(folder: Path, fleet: Fleet, say: Say) -> Iterator[Table]:
    """Reproduce Figure 7 on digits: the same adversaries on a plain network and on robust ones."""
    del folder, fleet
    for radius in (0.0, 0.15, 0.25):
        say(f"radius {radius:g}: two networks and their distances")
        guessed, accuracies = robustness(hardened(radius) if radius else None, records=RECORDS, epochs=EPOCHS)
        rows = [Row(name, None, value) for name, value in accuracies.items()]
        for g in guessed:
            value, low, high = difference(g.counts, low_alpha=0.05, high_alpha=0.05)
            rows.append(Row(f"{g.title}: advantage", None, value, f"{low:.2f} to {high:.2f} at 95 %"))
        yield Table(
            f"Yeom et al. (2020), Figure 7, CNN on scikit-learn's digits, trained within {radius:g}",
            rows,
            ("the paper prints curves: on CIFAR-10 and faces Adversary 9 is above 8, and 8 above 1",),
        )
