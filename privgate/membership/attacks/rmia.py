"""Robust membership inference: the record's likelihood ratio against that of other people."""

import numpy as np
from numpy.random import Generator

from privgate.arrays import Bool, Float, Index
from privgate.membership.attacks.attack_base import Attack, Scorer, Signals
from privgate.membership.attacks.observed import FLOOR, mean_over, own_log, usable_shadows

#: how much larger the record's ratio must be to dominate another's (their section 4 uses 2)
GAMMA = 2.0


class Rmia(Attack):
    """The share of other people whose likelihood ratio the record's dominates.

    With r(x) = p_target(x) / p(x) and p(x) the mean over shadow models, one half each side, the score is the share of
    records z with r(x) >= 2 r(z): in [0, 1].

    Left out: the record's own place among z, several queries on augmented copies, the Taylor-softmax confidence and the
    offline approximation. z runs over the pool, members among them, as an adversary who samples people cannot exclude.
    """

    name, title = "rmia", "Robust membership inference"
    source = "Zarifzadeh et al. (2024), equations (8)-(10)"
    threat_model = "probabilities for the record and for a sample of the population; trains shadow models"
    min_shadows, per_record = 1, True

    def fit(self, signals: Signals, rng: Generator) -> Scorer:
        answers, inside = usable_shadows(signals, least=self.min_shadows)
        confidence = self.choose_confidence(answers, inside, signals.labels)
        p = confidence(answers)
        usual = self.mix(mean_over(p, inside), mean_over(p, ~inside))
        return lambda target: dominated_share(confidence(target) / usual)

    def choose_confidence(self, answers: Float, inside: Bool, labels: Index) -> Scorer:
        """Return what makes a confidence of an answer, (..., P) from (..., P, K)."""
        return lambda given: np.exp(own_log(given, labels))

    def mix(self, mean_in: Float, mean_out: Float) -> Float:
        """Return each record's usual confidence, shape (P,), from its means over models with and without it."""
        return 0.5 * (mean_in + mean_out)


def dominated_share(ratio: Float) -> Float:
    """Return the share of records z with ``ratio / ratio_z >= GAMMA``, shape (P,): by sorting, not in P x P."""
    order = np.argsort(ratio)
    ascending, share = ratio[order], np.empty(len(ratio))
    # asked in ascending order, so that the search stays in the cache
    share[order] = np.searchsorted(ascending, ascending / GAMMA, side="right") / len(ratio)
    return share


def slope(mean_in: Float, mean_out: Float) -> float:
    """Return a of ``p_in = a p_out + 1 - a`` by least squares over records, in [0, 1]; 1 where none is in doubt."""
    doubt = 1 - mean_out
    square = float(doubt @ doubt)
    return float(np.clip((1 - mean_in) @ doubt / square, 0.0, 1.0)) if square > 0 else 1.0


class RmiaOffline(Rmia):
    """As ``rmia``, by an adversary none of whose models holds the record: he trained before choosing whom to attack.

    A record's usual confidence is half that of models without it and half what models with it would say, ``a p_out + 1
    - a``; ``a``, one number, is learned from how much his own models' confidence in their own records rises.

    Left out: as for ``rmia``. The paper tunes ``a`` by attacks on a shadow model; here it is a least-squares slope.
    """

    name, title = "rmia_offline", "Robust membership inference, offline"
    source = "Zarifzadeh et al. (2024), appendix B.2.2"
    threat_model = "probabilities for the record and for a sample of the population; shadow models never hold it"

    def mix(self, mean_in: Float, mean_out: Float) -> Float:
        a = slope(mean_in, mean_out)
        return np.asarray(np.maximum(0.5 * ((1 + a) * mean_out + 1 - a), FLOOR), dtype=np.float64)
