"""Untargeted attack: one attack model that sees the record, its label and the answer."""

import numpy as np
from numpy.random import Generator

from privgate.arrays import Float
from privgate.membership.attacks.attack_base import Attack, Scorer, Signals
from privgate.membership.attacks.observed import usable_shadows
from privgate.membership.attacks.shokri import balanced_rows, log_odds, train_network

#: rows of (shadow model, record) that the attack model learns from: the paper's 20 models on 2,000 records
MOST_ROWS = 40_000


class LongUntargeted(Attack):
    """One classifier of "in" against "out" for all records, on features, label and answer together.

    The score is the log-odds of a network of 32 rectified linear units, rate 0.01, 30 epochs.

    Left out: at most 40,000 rows (the paper's 20 models x 2,000 records). Features that are not numeric are not shown
    to the attack model.
    """

    name, title = "long_untargeted", "Untargeted attack model"
    source = "Long et al. (2017), section 5.3, Algorithm 1"
    threat_model = "probabilities for the record; knows features and labels of all candidates, trains shadow models"
    min_shadows = 1
    planted_shadows, trains, rows = 2, True, MOST_ROWS
    per_record, cut = True, 0.0

    def fit(self, signals: Signals, rng: Generator) -> Scorer:
        log_p, inside = usable_shadows(signals, least=self.min_shadows)
        known = describe(signals)
        model, record = np.divmod(balanced_rows(inside, MOST_ROWS, rng), inside.shape[1])
        rows = np.hstack([known[record], np.exp(log_p[model, record])])
        network = train_network(rows, inside[model, record], rng, hidden=32, epochs=30)
        return lambda target: log_odds(network, np.hstack([known, np.exp(target)]))


def describe(signals: Signals) -> Float:
    """Return what is known of every record beside the answer: its label one-hot, and its features where numeric."""
    one_hot = np.eye(signals.target.shape[-1])[signals.labels]
    if signals.features is None:
        return one_hot
    return np.hstack([one_hot, np.asarray(signals.features, dtype=np.float64)])
