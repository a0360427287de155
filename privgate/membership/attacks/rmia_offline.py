"""Robust membership inference, offline: shadow models without the record only."""

import numpy as np

from privgate.arrays import Float
from privgate.membership.attacks.observed import FLOOR
from privgate.membership.attacks.rmia import Dominating


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
