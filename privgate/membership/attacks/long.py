"""Attacks of Long et al. (2017): two that are targeted, at one record each, and one for all records."""

import numpy as np
from numpy.random import Generator

from privgate.arrays import Float, Index
from privgate.membership.attacks.attack_base import Attack, Scorer, Signals
from privgate.membership.attacks.observed import FLOOR, usable_shadows
from privgate.membership.attacks.shokri import balanced_rows, train_network

#: the paper bins probabilities to a width of 0.01
WIDTH = 0.01
#: rows of (shadow model, record) that the attack model learns from: the paper's 20 models on 2,000 records
MOST_ROWS = 40_000


class LongDistance(Attack):
    """Kullback-Leibler distance of the answer to the average answer with, and without, the record.

    The score is ``KL(q || mean out) - KL(q || mean in)`` in nats.

    Left out: 5 pairs for every record; all share one set of models, which differ by more than the record. The paper
    bins answers to 0.01; ours sees them exactly, which is the stronger adversary (0.91 instead of 0.87 on Location).
    """

    name, title = "long_distance", "Distance-based targeted attack"
    source = "Long et al. (2017), section 5.3"
    threat_model = "probabilities for the record; knows the candidate set and trains models with and without the record"
    min_shadows, per_record, cut = 1, True, 0.0

    def fit(self, signals: Signals, rng: Generator) -> Scorer:
        log_p, inside = usable_shadows(signals, least=self.min_shadows)
        p = np.exp(log_p)
        means = (np.einsum("npk,np->pk", p, w) / w.sum(axis=0)[:, None] for w in (inside * 1.0, ~inside * 1.0))
        with_it, without = (np.log(np.maximum(mean, FLOOR)) for mean in means)
        # KL(q|out) - KL(q|in) = sum_k q_k (ln in_k - ln out_k): the entropy of q cancels
        return lambda target: np.einsum("pk,pk->p", np.exp(target), with_it - without)


class LongFrequency(Attack):
    """How much oftener models with the record fall into the answer's bins than models without it.

    The score is ``sum over labels of ln(o_in / o_out)``, o the share of models whose probability of the label falls
    into the answer's bin of width 0.01.

    Left out: shadow models for every record apart (all records share one set). The paper does not say what 0/0 is; half
    a model is added to every count, so that an answer which nobody gave says nothing.
    """

    name, title = "long_frequency", "Frequency-based targeted attack"
    source = "Long et al. (2017), section 5.3"
    threat_model = "binned probabilities for the record; knows the candidate set and trains models with and without it"
    min_shadows, per_record, cut = 1, True, 0.0

    def fit(self, signals: Signals, rng: Generator) -> Scorer:
        log_p, inside = usable_shadows(signals, least=self.min_shadows)
        bins, sides = _bin(log_p), (inside[..., None], ~inside[..., None])

        def score(target: Float) -> Float:
            same = bins == _bin(target)
            with_it, without = (((same & side).sum(axis=0) + 0.5) / (side.sum(axis=0) + 1) for side in sides)
            return np.asarray(np.log(with_it / without).sum(axis=-1), dtype=np.float64)

        return score


def _bin(log_p: Float) -> Index:
    return np.minimum(np.floor(np.exp(log_p) / WIDTH + 1e-12).astype(np.int64), round(1 / WIDTH) - 1)


class LongUntargeted(Attack):
    """One classifier of "in" against "out" for all records, on features, label and answer together.

    The score is the log-odds of a network of 32 rectified linear units, rate 0.01, 30 epochs.

    Left out: more than 40,000 rows (20 models x 2,000 records), and features that are not numeric.
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
        return lambda target: network(np.hstack([known, np.exp(target)]))


def describe(signals: Signals) -> Float:
    """Return what is known of every record beside the answer: its label one-hot, and its features where numeric."""
    one_hot = np.eye(signals.target.shape[-1])[signals.labels]
    if signals.features is None:
        return one_hot
    return np.hstack([one_hot, np.asarray(signals.features, dtype=np.float64)])
