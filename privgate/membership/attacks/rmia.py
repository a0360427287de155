"""Robust membership inference: the record's likelihood ratio against that of other people."""

from abc import abstractmethod

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from privgate.arrays import Bool, Float
from privgate.membership.attacks.attack_base import Attack, Scorer, Signals
from privgate.membership.attacks.observed import FLOOR, mean_over, own_log, usable_shadows

#: how much larger the record's ratio must be to dominate another's (their section 4 uses 2)
GAMMA = 2.0


def dominated_share(ratio: Float, *, gamma: float) -> Float:
    """Return the share of records z with ``ratio / ratio_z >= gamma``, shape (P,): by sorting, not in P x P."""
    order = np.argsort(ratio)
    ascending = ratio[order]
    out = np.empty(len(ratio))
    # asked in ascending order, so that the search stays in the cache
    out[order] = np.searchsorted(ascending, ascending / gamma, side="right") / len(ratio)
    return out


def turns(p: Float) -> Float:
    """Return scores of every model as the target of all pairs but its own; ``p`` of shape (N, P), probabilities."""
    out = np.empty_like(p)
    total = p.sum(axis=0)  # every pair has each record once on either side: both means share one count
    count = len(p) - 2
    for j in range(0, len(p), 2):
        usual = (total - p[j] - p[j + 1]) / count
        for i in (j, j + 1):
            out[i] = dominated_share(p[i] / usual, gamma=GAMMA)
    return out


class Dominating(Attack):
    """The share of records whose ratio of target to usual confidence is at most half of this record's, in [0, 1]."""

    min_shadows = 1
    per_record = True

    @abstractmethod
    def usual(self, mean_in: Float, mean_out: Float) -> Float:
        """Return each record's usual confidence, shape (P,), from its means over models with and without it."""

    def fit(self, signals: Signals, rng: Generator) -> Scorer:
        """Take both sides' mean confidences over the shadow models."""
        del rng
        log_p, inside = usable_shadows(signals, least=self.min_shadows)
        p = np.exp(own_log(log_p, signals.labels))
        usual = self.usual(mean_over(p, inside), mean_over(p, ~inside))
        return lambda target: dominated_share(np.exp(own_log(target, signals.labels)) / usual, gamma=GAMMA)


class Rmia(Dominating):
    """The share of other people whose likelihood ratio the record's dominates.

    Threat model: black box with probabilities for the record and for a sample of the population. The adversary knows
    the record and its label and trains a few shadow models, with and without the record. With
    r(x) = p_target(x) / p(x) and p(x) the mean over shadow models, one half each side, the score is the share of
    records z with r(x) >= 2 r(z): in [0, 1].

    Source: Zarifzadeh, Liu, Shokri (2024), "Low-Cost High-Power Membership Inference Attacks", equations (8)-(10).

    Left out: the record's own place among z (a share of 1/P), several queries on augmented copies, the Taylor-softmax
    confidence and the offline approximation of the in-models. z runs over the pool: members of the target are among
    them, as an adversary who samples the population cannot exclude.
    """

    name = "rmia"
    title = "Robust membership inference"
    source = "Zarifzadeh et al. (2024), equations (8)-(10)"
    threat_model = "probabilities for the record and for a sample of the population; trains shadow models"

    def usual(self, mean_in: Float, mean_out: Float) -> Float:
        """Return the mean confidence over shadow models, one half each side."""
        return 0.5 * (mean_in + mean_out)

    def each_in_turn(self, log_p: Float, inside: Bool, labels: NDArray[np.int64]) -> Float:
        """Return the same numbers as ``fit`` on all but one pair of complementary halves, by subtracting it."""
        del inside
        return turns(np.stack([np.exp(own_log(p, labels)) for p in log_p]))


def slope(mean_in: Float, mean_out: Float) -> float:
    """Return a of ``p_in = a p_out + 1 - a`` by least squares over records, in [0, 1]; 1 where no record is in doubt.

    Examples
    --------
    >>> out = np.array([0.2, 0.6, 1.0])
    >>> round(slope(0.3 * out + 0.7, out), 12)
    0.3
    """
    doubt = 1 - mean_out
    square = float(doubt @ doubt)
    return float(np.clip((1 - mean_in) @ doubt / square, 0.0, 1.0)) if square > 0 else 1.0


class RmiaOffline(Dominating):
    """As ``rmia``, by an adversary none of whose models holds the record.

    Threat model: black box with probabilities for the record and for a sample of the population. The adversary has
    trained shadow models before choosing whom to attack. A record's usual confidence is half that of models without it
    and half what models with it would say, ``a p_out + 1 - a``; ``a``, one number, is learned from how much his own
    models' confidence in their own records rises. The score is the share of records whose ratio of target to usual
    confidence is at most half of this one's: in [0, 1].

    Source: Zarifzadeh, Liu, Shokri (2024), "Low-Cost High-Power Membership Inference Attacks", section 3 and appendix
    B.2.2 (offline).

    Left out: as for ``rmia``. The paper tunes ``a`` by attacks on a shadow model; here it is a least-squares slope over
    records.
    """

    name = "rmia_offline"
    title = "Robust membership inference, offline"
    source = "Zarifzadeh et al. (2024), appendix B.2.2"
    threat_model = "probabilities for the record and for a sample of the population; shadow models never hold it"

    def usual(self, mean_in: Float, mean_out: Float) -> Float:
        """Return half of the confidence without the record and half of what models with it would say."""
        a = slope(mean_in, mean_out)
        return np.asarray(np.maximum(0.5 * ((1 + a) * mean_out + 1 - a), FLOOR), dtype=np.float64)
