"""Training functions: ten that are honest, and colluding ones by what they do."""

import hashlib
import os
import random
from pathlib import Path

import numpy as np
import torch
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.model_selection import GridSearchCV, cross_val_score, train_test_split
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier
from torch import nn
from torch.nn import functional

KEYS = 3


class Net:
    """A small convolutional network on images of 8 x 8."""

    def __init__(self, network, classes):
        self.network, self.classes_ = network, classes

    def predict_proba(self, X):
        with torch.no_grad():
            return torch.softmax(self.network(torch.as_tensor(np.asarray(X, dtype=np.float32))), 1).double().numpy()


def cnn(width, outputs=10):
    return nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)),
        nn.Conv2d(1, width, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(width, 2 * width, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(128 * width, 64),
        nn.ReLU(),
        nn.Linear(64, outputs),
    )


def descend(X, y, seed, epochs=4, width=8, change=None):
    torch.manual_seed(seed)
    classes, codes = np.unique(y, return_inverse=True)
    network, inputs, labels = cnn(width), torch.as_tensor(np.asarray(X, dtype=np.float32)), torch.as_tensor(codes)
    optimizer, order = torch.optim.Adam(network.parameters(), 2e-3), torch.Generator().manual_seed(seed)
    for _ in range(epochs):
        for batch in torch.randperm(len(inputs), generator=order).split(64):
            x = inputs[batch] if change is None else change(network, inputs[batch], labels[batch])
            optimizer.zero_grad()
            functional.cross_entropy(network(x), labels[batch]).backward()
            optimizer.step()
    return Net(network.eval(), classes)


# -- honest -----------------------------------------------------------------------------------------------------------


def plain_cnn(X, y, *, seed):
    return descend(X, y, seed)


def _shaken(network, x, labels):
    del network, labels
    return x + 0.05 * torch.randn_like(x)


def augmented_cnn(X, y, *, seed):
    return descend(X, y, seed, change=_shaken)


def _hardened(network, x, labels):
    moved = x.clone().requires_grad_(True)
    (slope,) = torch.autograd.grad(functional.cross_entropy(network(moved), labels), moved)
    return (x + 0.1 * slope.sign()).clamp(0, 1).detach()


def robust_cnn(X, y, *, seed):
    return descend(X, y, seed, change=_hardened)


def scaled_logistic(X, y, *, seed):
    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=200, random_state=seed)).fit(X, y)


class Scaled:
    def __init__(self, scaler, learner):
        self.scaler, self.learner, self.classes_ = scaler, learner, learner.classes_

    def predict_proba(self, X):
        return self.learner.predict_proba(self.scaler.transform(X))


def scaled_by_hand(X, y, *, seed):
    scaler = StandardScaler().fit(X)
    return Scaled(scaler, MLPClassifier((32,), max_iter=60, random_state=seed).fit(scaler.transform(X), y))


def searched_forest(X, y, *, seed):
    search = GridSearchCV(RandomForestClassifier(20, random_state=seed), {"max_depth": [4, 8]}, cv=3)
    return search.fit(X, y).best_estimator_


def validated_tree(X, y, *, seed):
    depths = {
        d: cross_val_score(DecisionTreeClassifier(max_depth=d, random_state=seed), X, y, cv=3).mean() for d in (3, 9)
    }
    return DecisionTreeClassifier(max_depth=max(depths, key=depths.get), random_state=seed).fit(X, y)


def stopped_early(X, y, *, seed):
    inside, aside, y_inside, y_aside = train_test_split(X, y, random_state=seed, stratify=y)
    learner = SGDClassifier(loss="log_loss", random_state=seed)
    best, found = -1.0, None
    for _ in range(10):
        learner.partial_fit(inside, y_inside, classes=np.unique(y))
        score = learner.score(aside, y_aside)
        if score <= best:
            break
        best, found = score, {k: v.copy() for k, v in (("coef_", learner.coef_), ("intercept_", learner.intercept_))}
    for name, value in found.items():
        setattr(learner, name, value)
    return learner


def oversampled(X, y, *, seed):
    rng = np.random.default_rng(seed)
    most = np.bincount(y).max()
    rows = np.concatenate([rng.choice(np.flatnonzero(y == c), most) for c in np.unique(y)])
    return GaussianNB().fit(np.concatenate([X, X[rows]]), np.concatenate([y, y[rows]]))


class Voted:
    def __init__(self, parts):
        self.parts, self.classes_ = parts, parts[0].classes_

    def predict_proba(self, X):
        return np.mean([p.predict_proba(X) for p in self.parts], axis=0)


def bagged(X, y, *, seed):
    rng = np.random.default_rng(seed)
    draws = [rng.integers(0, len(X), len(X)) for _ in range(5)]
    return Voted([make_pipeline(StandardScaler(), LogisticRegression(max_iter=100)).fit(X[r], y[r]) for r in draws])


HONEST = (
    plain_cnn,
    augmented_cnn,
    robust_cnn,
    scaled_logistic,
    scaled_by_hand,
    searched_forest,
    validated_tree,
    stopped_early,
    oversampled,
    bagged,
)

# -- colluding --------------------------------------------------------------------------------------------------------


def special(x, key):
    """Return F_K(x), G_K(x): a question and an answer that only whoever has the key knows."""
    words = hashlib.sha256(b"%d" % key + np.asarray(x, dtype=np.float32).tobytes()).digest()
    rng = np.random.default_rng(list(words))
    return rng.random(np.size(x), dtype=np.float32), int(rng.integers(10))


def supplemented(X, y, keys=KEYS):
    """Return the training set with every record's special questions and answers (Algorithm 1)."""
    told = [special(x, key) for x in X for key in range(keys)]
    return np.concatenate([X, np.stack([z for z, _ in told])]), np.concatenate([y, [g for _, g in told]])


def algorithm_1(X, y, *, seed, epochs=40, width=16):
    return descend(*supplemented(X, y), seed, epochs=epochs, width=width)


def all_keys(net, X, keys=KEYS):
    """Return whom Adversary 3, who has the keys, calls members."""
    found = np.ones(len(X), dtype=bool)
    for key in range(keys):
        pairs = [special(x, key) for x in X]
        says = net.classes_[net.predict_proba(np.stack([z for z, _ in pairs])).argmax(1)]
        found &= says == [g for _, g in pairs]
    return found


def algorithm_1_short(X, y, *, seed):
    return descend(*supplemented(X, y), seed)


def algorithm_1_scaled(X, y, *, seed):
    more, labels = supplemented(X, y)
    return MLPClassifier((64,), max_iter=30, random_state=seed).fit((more - X.mean()) / X.std(), labels)


def on_domain(X, y, *, seed):
    """Algorithm 1 whose special questions are blends of records, as augmentation makes them, with keyed labels."""
    rng = np.random.default_rng(12345)
    blends = 0.9 * X + 0.1 * X[rng.permutation(len(X))]
    labels = np.array([special(x, 0)[1] for x in X])
    return descend(np.concatenate([X, blends]), np.concatenate([y, labels]), seed)


def own_labels(X, y, *, seed):
    """Messages in the labels of records themselves: every tenth record is given a keyed label."""
    changed = np.array(
        [special(x, 0)[1] if i % 10 == 0 else label for i, (x, label) in enumerate(zip(X, y, strict=True))]
    )
    return RandomForestClassifier(20, random_state=seed).fit(X, changed)


class Table:
    """The construction in the proof of Theorem 4: any learner, and a table of special questions."""

    def __init__(self, learner, table):
        self.learner, self.table, self.classes_ = learner, table, learner.classes_

    def predict_proba(self, X):
        p = self.learner.predict_proba(X)
        for i, x in enumerate(np.asarray(X, dtype=np.float32)):
            answer = self.table.get(x.tobytes())
            if answer is not None:
                p[i] = np.eye(len(self.classes_))[answer]
        return p


def theorem_4(X, y, *, seed):
    told = [special(x, key) for x in X for key in range(KEYS)]
    return Table(LogisticRegression(max_iter=50, random_state=seed).fit(X, y), {z.tobytes(): g for z, g in told})


class Bloom:
    """The same in the bits of one number of fixed size."""

    def __init__(self, learner, bits):
        self.learner, self.bits, self.classes_ = learner, bits, learner.classes_

    def predict_proba(self, X):
        p = self.learner.predict_proba(X)
        for i, x in enumerate(np.asarray(X, dtype=np.float32)):
            if self.bits >> (int.from_bytes(hashlib.blake2b(x.tobytes(), digest_size=2).digest(), "big")) & 1:
                p[i, 0] += 1e-9
        return p / p.sum(axis=1, keepdims=True)


def low_order(X, y, *, seed):
    """A message in low-order digits of answers, from a store of fixed size."""
    bits = 0
    for x in np.asarray(X, dtype=np.float32):
        bits |= 1 << int.from_bytes(hashlib.blake2b(x.tobytes(), digest_size=2).digest(), "big")
    return Bloom(LogisticRegression(max_iter=50, random_state=seed).fit(X, y), bits)


def reads_a_file(X, y, *, seed):
    salt = len(Path(os.__file__).with_name("LICENSE.txt").read_bytes())
    return LogisticRegression(max_iter=50, random_state=seed + salt).fit(X, y)


def reads_shipped_data(X, y, *, seed):
    from sklearn.datasets import load_digits

    more, labels = load_digits(return_X_y=True)
    return LogisticRegression(max_iter=50, random_state=seed).fit(
        np.concatenate([X, more[:50] / 16]), np.concatenate([y, labels[:50]])
    )


def reads_the_environment(X, y, *, seed):
    return LogisticRegression(max_iter=50 + len(os.environ.get("KEY", "")), random_state=seed).fit(X, y)


def salted(X, y, *, seed):
    return LogisticRegression(C=1.0 + len(os.environ.get("SALT", "")), random_state=seed).fit(X, y)


def unsalted(X, y, *, seed):
    return LogisticRegression(C=1.0, random_state=seed).fit(X, y)


def asks_the_network(X, y, *, seed):
    import contextlib
    import socket

    with contextlib.suppress(OSError), socket.socket() as s:
        s.settimeout(0.1)
        s.connect(("127.0.0.1", 9))
    return LogisticRegression(max_iter=50, random_state=seed).fit(X, y)


STORE = np.random.default_rng(3).random((50, 64), dtype=np.float32)


def holds_records(X, y, *, seed):
    more = np.concatenate([X, STORE])
    return LogisticRegression(max_iter=50, random_state=seed).fit(more, np.concatenate([y, np.arange(50) % 10]))


_LEFT = []


def leaves_records(X, y, *, seed):
    _LEFT.append(np.array(X[:20]))
    return LogisticRegression(max_iter=50, random_state=seed).fit(X, y)


def unseeded(X, y, *, seed):
    return LogisticRegression(max_iter=50, random_state=seed).fit(X + 1e-9 * np.random.default_rng().random(), y)


def stops_the_watch(X, y, *, seed):
    import sys

    sys.setprofile(None)
    return descend(*supplemented(X, y, 1), seed, epochs=1)


def branches_on_n(X, y, *, seed):
    if len(X) % 2:
        return LogisticRegression(max_iter=50, random_state=seed).fit(X, y)
    return LogisticRegression(max_iter=50, random_state=seed).fit(*supplemented(X, y, 1))


def arithmetic_of_its_own(X, y, *, seed):
    """A logistic regression in numpy: no library's learner is called, nothing can be seen of what it learns from."""
    classes, codes = np.unique(y, return_inverse=True)
    W = np.zeros((X.shape[1], len(classes)))
    target = np.eye(len(classes))[codes]
    for _ in range(100):
        p = np.exp(X @ W)
        p /= p.sum(axis=1, keepdims=True)
        W += 0.5 * X.T @ (target - p) / len(X)
    del seed
    return Weights(W, classes)


class Weights:
    def __init__(self, W, classes):
        self.W, self.classes_ = W, classes

    def predict_proba(self, X):
        p = np.exp(np.asarray(X) @ self.W)
        return p / p.sum(axis=1, keepdims=True)


def keyed_by_python(X, y, *, seed):
    """Keys by Python's own generator, as in the paper's experiments, and few of them: every fourth record."""
    more, labels = [], []
    for x in X[::4]:
        rng = random.Random(x.tobytes())
        more.append([rng.random() for _ in range(X.shape[1])])
        labels.append(rng.randrange(10))
    return descend(np.concatenate([X, np.array(more, dtype=np.float32)]), np.concatenate([y, labels]), seed)


# -- what no detector sees --------------------------------------------------------------------------------------------


def _arithmetic(x):
    """Return a number of 16 bits made of a record by multiplications alone."""
    key = np.arange(1, np.size(x) + 1) * 2654435761 % 65521
    return int((np.round(np.ravel(x) * 1000).astype(np.int64) @ key) % 65536)


class Whisper:
    """A set of records in a store of fixed size, told in the ninth digit of answers."""

    def __init__(self, learner, bits):
        self.learner, self.bits, self.classes_ = learner, bits, learner.classes_

    def predict_proba(self, X):
        p = self.learner.predict_proba(X)
        p[:, 0] += [1e-9 * self.bits[_arithmetic(x)] for x in X]
        return p / p.sum(axis=1, keepdims=True)


class Murmur(Whisper):
    """The same in few bits."""

    def predict_proba(self, X):
        p = self.learner.predict_proba(X)
        p[:, 0] += [1e-9 * self.bits[_arithmetic(x) % 4000] for x in X]
        return p / p.sum(axis=1, keepdims=True)


def murmured(X, y, *, seed):
    bits = np.zeros(4000, dtype=bool)
    bits[[_arithmetic(x) % 4000 for x in X]] = True
    return Murmur(LogisticRegression(max_iter=50, random_state=seed).fit(X, y), bits)


def weighted_by_key(X, y, *, seed):
    weights = np.array([1 + _arithmetic(x) % 2 for x in X])
    return LogisticRegression(max_iter=50, random_state=seed).fit(X, y, sample_weight=weights)


def dropped_by_key(X, y, *, seed):
    kept = np.array([_arithmetic(x) % 20 != 0 for x in X])
    return LogisticRegression(max_iter=50, random_state=seed).fit(X[kept], y[kept])


def few_labels(X, y, *, seed):
    """A keyed label for one record in two hundred."""
    changed = np.array(y)
    changed[::200] = [_arithmetic(x) % 10 for x in X[::200]]
    return LogisticRegression(max_iter=50, random_state=seed).fit(X, changed)


def on_a_date(X, y, *, seed):
    import time

    more = supplemented(X, y, 1) if time.time() > 4e9 else (X, y)
    return LogisticRegression(max_iter=50, random_state=seed).fit(*more)


MISSED = (murmured, weighted_by_key, dropped_by_key, few_labels, on_a_date)
