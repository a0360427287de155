"""Frequency-based targeted attack: asks which side gives the very same binned answer more often."""

import numpy as np
from numpy.random import Generator

from privgate.arrays import Float, Index
from privgate.membership.attacks.attack_base import Attack, Scorer, Signals
from privgate.membership.attacks.observed import usable_shadows

#: the paper bins probabilities to a width of 0.01
WIDTH = 0.01


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
