"""Bounded-loss adversary: says "non-member" with a probability proportional to the loss."""

import numpy as np
from numpy.random import Generator

from privgate.membership.attacks.attack_base import Attack, Scorer, Signals


class YeomLoss(Attack):
    """Say "non-member" with probability loss / B.

    The loss is ``1 - p(own label)``, bounded by B = 1; its advantage is exactly R_gen / B (Theorem 2), a lower bound on
    better attacks. The score is ``p(own label) - u`` with u uniform in [0, 1]: above 0 says "member".

    Left out: cross-entropy as the loss, which has no bound.
    """

    name, title = "yeom_loss", "Bounded-loss adversary"
    source = "Yeom et al. (2020), Adversary 1"
    threat_model = "probabilities for the record; knows a bound of the loss, trains nothing"
    cut = 0.0

    def fit(self, signals: Signals, rng: Generator) -> Scorer:
        uniform, rows = rng.random(len(signals.labels)), np.arange(len(signals.labels))
        return lambda target: np.exp(target[rows, signals.labels]) - uniform
