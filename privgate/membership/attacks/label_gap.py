"""Label-only gap attack: who is classified rightly is called a member."""

import numpy as np
from numpy.random import Generator

from privgate.membership.attacks.attack_base import Attack, Scorer, Signals


class LabelGap(Attack):
    """Say "member" of everybody whom the model classifies rightly.

    Its advantage is exactly the gap between training and test accuracy. Score 1 or 0. Choquette-Choo et al. (2021) call
    it the gap attack.

    Left out: label-only attacks that query neighbours of the record to find its distance from the decision boundary.
    """

    name, title = "label_gap", "Label-only gap attack"
    source = "Yeom et al. (2020), Adversary 1 with 0-1 loss"
    threat_model = "the label for the record, nothing else; trains nothing"
    cut = 0.5

    def fit(self, signals: Signals, rng: Generator) -> Scorer:
        return lambda target: (target.argmax(axis=-1) == signals.labels).astype(np.float64)
