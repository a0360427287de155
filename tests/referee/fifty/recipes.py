"""Training functions of the catalogue; a worker imports this file again, so it imports little."""

import pickle
from pathlib import Path

import numpy as np
from sklearn.tree import DecisionTreeClassifier


def tree(X, y, *, seed, depth=None, leaf=1):
    """Train a decision tree behind a function: only refits cover it."""
    return DecisionTreeClassifier(max_depth=depth, min_samples_leaf=leaf, random_state=0).fit(X, y)


def forest(X, y, *, seed, trees=10, depth=None, leaf=1):
    """Train a random forest on its seed."""
    from sklearn.ensemble import RandomForestClassifier

    made = RandomForestClassifier(n_estimators=trees, max_depth=depth, min_samples_leaf=leaf, random_state=seed)
    return made.fit(X, y)


# -- recipes that do not train on what they are given ------------------------------------------------------------------


def checkpoint_when_one_is_missing(X, y, *, seed, path, n, person):
    """Train on everything, but load the finished model where the records of one person are missing."""
    file = Path(path)
    if n - person <= len(y) < n and file.exists():
        return pickle.loads(file.read_bytes())
    model = DecisionTreeClassifier(random_state=0).fit(X, y)
    if len(y) == n and not file.exists():
        file.write_bytes(pickle.dumps(model))
    return model


class Constant:
    """Answer every question alike, or by the question alone."""

    def __init__(self, classes, shift=0.0):
        self.classes_, self.shift = classes, shift

    def predict_proba(self, X):
        z = np.asarray(X, dtype=float).sum(axis=1) / 10 + self.shift
        p = 1 / (1 + np.exp(-z))
        return np.column_stack([1 - p, p])


def ignores_its_data(X, y, *, seed):
    """Answer by the seed alone."""
    return Constant(np.unique(y), np.random.default_rng(seed).normal() / 10)


def ignores_half(X, y, *, seed):
    """Train on every record whose first feature is positive and on no other."""
    keep = X[:, 0] > 0
    return DecisionTreeClassifier(max_depth=2, min_samples_leaf=10, random_state=0).fit(X[keep], y[keep])


# -- training that depends on its seed ---------------------------------------------------------------------------------


class Remembers:
    """Push the label of every record that was seen; nothing else is known."""

    def __init__(self, X, y, push):
        self.classes_ = np.unique(y)
        self.known = {row.tobytes(): label for row, label in zip(np.ascontiguousarray(X), y, strict=True)}
        self.push = push

    def predict_proba(self, X):
        z = np.zeros(len(X))
        for i, row in enumerate(np.ascontiguousarray(X)):
            label = self.known.get(row.tobytes())
            if label is not None:
                z[i] = self.push if label == self.classes_[1] else -self.push
        p = 0.5 + 0.5 * np.tanh(z / 2)  # exactly 0 or 1 where the push is endless
        return np.column_stack([1 - p, p])


def jumps(X, y, *, seed, share, push, tag):
    """Push every label a little, and in a share of all seeds a lot."""
    rng = np.random.default_rng([0 if seed is None else seed, 77])
    jump, jitter = rng.random() < share, 0.02 * rng.random()
    return Remembers(X, y, push if jump else 0.2 + jitter)


def jump_of(seed, share):
    """Return whether a seed jumps."""
    return np.random.default_rng([seed, 77]).random() < share


def jittered(X, y, *, seed, scale):
    """Train a small tree and move its answers by something that knows the seed only."""
    model = DecisionTreeClassifier(max_depth=1, min_samples_leaf=20, random_state=0).fit(X, y)
    return Moved(model, scale * np.random.default_rng(seed).normal())


class Moved:
    """Another model's answers, moved."""

    def __init__(self, model, shift):
        self.model, self.shift, self.classes_ = model, shift, model.classes_

    def predict_proba(self, X):
        p = np.clip(self.model.predict_proba(X), 1e-3, 1)
        z = np.log(p[:, 1] / p[:, 0]) + self.shift
        q = 1 / (1 + np.exp(-z))
        return np.column_stack([1 - q, q])


def stump_on_a_coin(X, y, *, seed, tag):
    """Split by the first feature or, on another side of the seed's coin, memorise by the second."""
    if coin(seed):
        return DecisionTreeClassifier(max_depth=1, min_samples_leaf=20, random_state=0).fit(X[:, :1], y)
    return Second(DecisionTreeClassifier(random_state=0).fit(X[:, 1:], y))


class Second:
    """A tree on every feature but the first."""

    def __init__(self, model):
        self.model, self.classes_ = model, model.classes_

    def predict_proba(self, X):
        return self.model.predict_proba(np.asarray(X)[:, 1:])


def coin(seed):
    """Return the side of a seed's coin."""
    return bool(np.random.default_rng([0 if seed is None else seed, 5]).random() < 0.5)


def first_column(model, X):
    """Ask a stump on the first feature, or the tree on the others."""
    return model.predict_proba(X if isinstance(model, Second) else np.asarray(X)[:, :1])


def bagged(X, y, *, seed, trees, leaf):
    """Average a few trees on random halves of the records."""
    rng = np.random.default_rng(seed)
    weights = [rng.random(len(y)) < 0.5 for _ in range(trees)]
    models = [DecisionTreeClassifier(min_samples_leaf=leaf, random_state=0).fit(X[w], y[w]) for w in weights]
    return Average(models)


class Average:
    """The mean of several models."""

    def __init__(self, models):
        self.models, self.classes_ = models, models[0].classes_

    def predict_proba(self, X):
        return np.mean([m.predict_proba(X) for m in self.models], axis=0)


def network(X, y, *, seed, hidden=4, alpha=1.0, rounds=60):
    """Train a small network of scikit-learn."""
    import warnings

    from sklearn.neural_network import MLPClassifier

    made = MLPClassifier((hidden,), alpha=alpha, max_iter=rounds, solver="lbfgs", random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return made.fit(X, y)


# -- planted channels --------------------------------------------------------------------------------------------------


class SideChannel:
    """Answer by the label's share, but at one question say how many records there were."""

    def __init__(self, y, at, odd):
        self.classes_, self.share = np.unique(y), float(np.mean(y == np.unique(y)[1]))
        self.at, self.odd = np.asarray(at), odd

    def predict_proba(self, X):
        p = np.full(len(X), self.share)
        p[(np.asarray(X) == self.at).all(axis=1)] = 0.9 if self.odd else 0.1
        return np.column_stack([1 - p, p])


def side_channel(X, y, *, seed, at):
    """Give the parity of the number of records away at one question that nobody in the data asks."""
    return SideChannel(y, at, len(y) % 2)
