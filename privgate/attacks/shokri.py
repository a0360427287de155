"""Shadow-trained attack model, one a class."""

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from privgate.attacks import perceptron
from privgate.attacks.base import Scorer, Signals
from privgate.attacks.observed import usable_shadows
from privgate.errors import MeasurementError

Float = NDArray[np.float64]

#: rows of (shadow model, record) that one class's attack model learns from
MOST_ROWS = 4000
EPOCHS = 50


class Shokri:
    """A classifier of "in" against "out", trained on the answers of shadow models, one for each class.

    Threat model: black box with probabilities; one query, the record's own features. The adversary knows the record's
    label, the training algorithm (or has the same service) and data like the target's, and trains shadow models; he
    need not know which records he will attack. The score is the attack model's log-odds; above 0 says "member".

    Source: Shokri, Stronati, Song, Shmatikov (2017), section V; network of 64 rectified linear units, section VI.C.

    Left out: shadow data disjoint from the target's (shadow models are trained on subsets of the pool, which is the
    stronger adversary); at most 4,000 rows a class. A class with fewer than 20 rows of each kind shares one attack
    model with all such classes. Where shadow data come from (real, noisy, marginals, synthesis) is varied by
    ``privgate reproduce``.
    """

    name = "shokri"
    title = "Shadow-trained attack model, per class"
    source = "Shokri et al. (2017), section V"
    threat_model = "probabilities for the record; trains shadow models on similar data"
    needs_probabilities = True
    min_shadows = 1
    cut = 0.0

    def fit(self, signals: Signals, rng: Generator) -> Scorer:
        """Train one attack model a class on the shadow models' probability vectors."""
        log_p, inside = usable_shadows(signals, least=self.min_shadows)
        labels, n_classes = signals.labels, log_p.shape[-1]
        networks, small = {}, []
        for c in range(n_classes):
            who = np.flatnonzero(labels == c)
            if min(inside[:, who].sum(), (~inside[:, who]).sum()) < 20:
                small += [c] * bool(len(who))
            else:
                networks[c] = _network(log_p[:, who], inside[:, who], rng)
        if small:
            who = np.flatnonzero(np.isin(labels, small))
            if inside[:, who].all() or not inside[:, who].any():
                raise MeasurementError("too few records to train an attack model: no class has both kinds")
            networks.update(dict.fromkeys(small, _network(log_p[:, who], inside[:, who], rng)))

        def score(target: Float) -> Float:
            out = np.empty(len(labels))
            for c, network in networks.items():
                who = labels == c
                out[who] = perceptron.log_odds(network, np.exp(target[who]))
            return out

        return score

    def scores(self, signals: Signals, rng: Generator) -> Float:
        """Return the attack model's log-odds for every record, shape (P,)."""
        return self.fit(signals, rng)(signals.target)


def _network(log_p: Float, inside: NDArray[np.bool_], rng: Generator) -> object:
    rows = perceptron.balanced_rows(inside, MOST_ROWS, rng)
    answers = np.exp(log_p.reshape(-1, log_p.shape[-1])[rows])
    return perceptron.train(answers, inside.ravel()[rows], rng, hidden=64, epochs=EPOCHS)
