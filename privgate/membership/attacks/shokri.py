"""Shadow-trained attack model, one a class."""

import warnings
from typing import Any

import numpy as np
from numpy.random import Generator

from privgate.arrays import Bool, Float, Index
from privgate.errors import MeasurementError
from privgate.membership.attacks.attack_base import Attack, Scorer, Signals
from privgate.membership.attacks.observed import FLOOR, usable_shadows

#: rows of (shadow model, record) that one class's attack model learns from; fewer of either kind than LEAST_ROWS, and
#: it has none of its own
MOST_ROWS, LEAST_ROWS = 4000, 20
#: units and passes of the attack's network
HIDDEN, EPOCHS = 64, 50
#: rows of one step: 800 learn as much as 200 of many rows, in two fifths of the time
SMALLEST, LARGEST = 200, 800


class Shokri(Attack):
    """A classifier of "in" against "out", trained on the answers of shadow models, one for each class.

    The adversary need not know which records he will attack. The score is the log-odds of a network of 64 rectified
    linear units (their section VI.C).

    Left out: shadow data disjoint from the target's (shadow models are trained on subsets of the pool, which is the
    stronger adversary); at most 4,000 rows a class. A class with fewer than 20 rows of each kind shares one attack
    model with all such classes. Where shadow data come from (real, noisy, marginals, synthesis) is varied by
    ``make reproduce``.
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


def learn(log_p: Float, inside: Bool, labels: Index, rng: Generator) -> dict[int, Any]:
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


def judge(networks: dict[int, Any], log_p: Float, labels: Index) -> Float:
    """Return log-odds of "in", shape (P,), for answers ``log_p`` of shape (P, K) about records with these labels."""
    odds = np.empty(len(labels))
    for c in np.unique(labels):
        if c not in networks:
            raise MeasurementError(f"no attack model for class {c}: the adversary has no records of it")
        odds[labels == c] = log_odds(networks[c], np.exp(log_p[labels == c]))
    return odds


def _learn_one(log_p: Float, inside: Bool, rng: Generator) -> Any:
    rows = balanced_rows(inside, MOST_ROWS, rng)
    answers = np.exp(log_p.reshape(-1, log_p.shape[-1])[rows])
    return train_network(answers, inside.ravel()[rows], rng, hidden=HIDDEN, epochs=EPOCHS)


def train_network(rows: Float, inside: Bool, rng: Generator, *, hidden: int, epochs: int) -> Any:
    """Return a standardised network of one hidden layer that tells "in" from "out" by ``rows`` (n, f)."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    seed = int(rng.integers(2**31))
    size = min(max(SMALLEST, len(rows) // 5), LARGEST)
    network = MLPClassifier((hidden,), learning_rate_init=0.01, max_iter=epochs, random_state=seed, batch_size=size)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the papers stop after so many passes, too
        warnings.filterwarnings("ignore", message="Got `batch_size`")
        return make_pipeline(StandardScaler(), network).fit(rows, inside)


def log_odds(network: Any, rows: Float) -> Float:
    """Return ln P(in) - ln P(out), shape (n,); finite, since a saturated unit's 0 is taken for 1e-30."""
    p = np.log(np.maximum(network.predict_proba(rows), FLOOR))
    return np.asarray(p[:, 1] - p[:, 0], dtype=np.float64)


def balanced_rows(inside: Bool, most: int, rng: Generator) -> Index:
    """Return positions in the flattened ``inside``: equally many of each kind, at most ``most`` in all, shuffled."""
    sides = np.flatnonzero(inside.ravel()), np.flatnonzero(~inside.ravel())
    size = min(*map(len, sides), most // 2)
    picked = np.concatenate([rng.choice(side, size, replace=False) for side in sides])
    return np.asarray(rng.permutation(picked), dtype=np.int64)
