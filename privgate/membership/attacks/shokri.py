"""Shadow-trained attack model, one a class."""

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from privgate.arrays import Bool, Float, Index
from privgate.errors import MeasurementError
from privgate.membership.attacks.attack_base import Attack, Scorer, Signals
from privgate.membership.attacks.observed import usable_shadows

#: rows of (shadow model, record) that one class's attack model learns from; fewer of either kind than LEAST_ROWS, and
#: it has none of its own
MOST_ROWS, LEAST_ROWS = 4000, 20
#: units and passes of the attack's network
HIDDEN, EPOCHS = 64, 50
#: rows of one step: 800 learn as much as 200 of many rows, in two fifths of the time
SMALLEST, LARGEST = 200, 800
#: deviations that a row lies from the mean at most: among 40,000 rows none does by more than 200
FARTHEST = 1000.0


class Shokri(Attack):
    """A classifier of "in" against "out", trained on the answers of shadow models, one for each class.

    The adversary need not know which records he will attack. The score is the log-odds of a network of 64 rectified
    linear units (their section VI.C).

    Left out: shadow data disjoint from the target's (subsets of the pool make the stronger adversary); at most 4,000
    rows a class. Classes with fewer than 20 rows of each kind share one attack model. ``make reproduce`` varies where
    shadow data come from.
    """

    name, title = "shokri", "Shadow-trained attack model, per class"
    source = "Shokri et al. (2017), section V"
    threat_model = "probabilities for the record; trains shadow models on similar data"
    min_shadows = 1
    planted_shadows, trains = 2, True
    cut = 0.0

    def fit(self, signals: Signals, rng: Generator) -> Scorer:
        log_p, inside = usable_shadows(signals, least=self.min_shadows)
        networks = learn(log_p, inside, signals.labels, rng)
        return lambda target: judge(networks, target, signals.labels)


def learn(log_p: Float, inside: Bool, labels: Index, rng: Generator) -> dict[int, Scorer]:
    """Return one attack model a class, of shadow models' log-probabilities (N, P, K) and who was in each (N, P)."""
    networks, small = {}, []
    for c in range(log_p.shape[-1]):
        who = np.flatnonzero(labels == c)
        if min(inside[:, who].sum(), (~inside[:, who]).sum()) < LEAST_ROWS:
            small.append(c)
        else:
            networks[c] = _learn_one(log_p[:, who], inside[:, who], rng)
    who = np.flatnonzero(np.isin(labels, small))
    if small and len(who):
        if inside[:, who].all() or not inside[:, who].any():
            raise MeasurementError("too few records to train an attack model: a class is seen on one side only")
        networks.update(dict.fromkeys(small, _learn_one(log_p[:, who], inside[:, who], rng)))
    return networks


def judge(networks: dict[int, Scorer], log_p: Float, labels: Index) -> Float:
    """Return log-odds of "in", shape (P,), for answers ``log_p`` of shape (P, K) about records with these labels."""
    odds = np.empty(len(labels))
    for c in np.unique(labels):
        if c not in networks:
            raise MeasurementError(f"no attack model for class {c}: the adversary has no records of it")
        odds[labels == c] = networks[c](np.exp(log_p[labels == c]))
    return odds


def _learn_one(log_p: Float, inside: Bool, rng: Generator) -> Scorer:
    rows = balanced_rows(inside, MOST_ROWS, rng)
    answers = np.exp(log_p.reshape(-1, log_p.shape[-1])[rows])
    return train_network(answers, inside.ravel()[rows], rng, hidden=HIDDEN, epochs=EPOCHS)


def train_network(rows: Float, inside: Bool, rng: Generator, *, hidden: int, epochs: int) -> Scorer:
    """Return what gives the log-odds of "in", (n,), by a network of one hidden layer that learned ``rows`` (n, f).

    As scikit-learn's ``MLPClassifier`` with Adam at rate 0.01 on standardised rows, in single precision.
    """
    mean, scale, count = rows.mean(axis=0), rows.std(axis=0), len(rows)

    def prepare(given: Float) -> NDArray[np.float32]:
        units = np.clip((given - mean) / np.where(scale > 0, scale, 1.0), -FARTHEST, FARTHEST)
        return np.column_stack([units, np.ones(len(given))]).astype("f4")

    x, t, size = prepare(rows), inside.astype("f4"), min(max(SMALLEST, count // 5), LARGEST)
    shape = x.shape[1], hidden
    cut, ends = shape[0] * hidden, np.sqrt([6 / (shape[0] - 1 + hidden), 6 / (hidden + 1)])
    w = rng.uniform(-1, 1, cut + hidden + 1).astype("f4") * np.repeat(ends, [cut, hidden + 1]).astype("f4")
    (slope, drift, spread), steps = (np.zeros_like(w) for _ in range(3)), 0
    for _ in range(epochs):
        for some in np.split(rng.permutation(count), range(size, count, size)):
            units = np.maximum(x[some] @ w[:cut].reshape(shape), 0)
            p = 0.5 + 0.5 * np.tanh((units @ w[cut:-1] + w[-1]) / 2)
            off = (p - t[some]) / len(some)
            slope[:cut] = (x[some].T @ (off[:, None] * w[cut:-1] * (units > 0))).ravel()
            slope[cut:-1], slope[-1], steps = off @ units, off.sum(), steps + 1
            drift += 0.1 * (slope - drift)
            spread += 0.001 * (slope * slope - spread)
            w -= 0.01 * np.sqrt(1 - 0.999**steps) / (1 - 0.9**steps) * drift / (np.sqrt(spread) + 1e-8)

    def score(given: Float) -> Float:
        units = np.maximum(prepare(given) @ w[:cut].reshape(shape), 0)
        return np.asarray(units @ w[cut:-1] + w[-1], dtype=np.float64)

    return score


def balanced_rows(inside: Bool, most: int, rng: Generator) -> Index:
    """Return positions in the flattened ``inside``: equally many of each kind, at most ``most`` in all, shuffled."""
    sides = np.flatnonzero(inside.ravel()), np.flatnonzero(~inside.ravel())
    size = min(*map(len, sides), most // 2)
    picked = np.concatenate([rng.choice(side, size, replace=False) for side in sides])
    return np.asarray(rng.permutation(picked), dtype=np.int64)
