"""Frequency-based targeted attack: asks which side gives the very same binned answer more often."""

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from privgate.arrays import Float
from privgate.membership.attacks.attack_base import Attack, Scorer, Signals
from privgate.membership.attacks.observed import usable_shadows

#: the paper bins probabilities to a width of 0.01
WIDTH = 0.01


def bins(log_p: Float) -> NDArray[np.int64]:
    """Return the bin of width 0.01 of every probability; 1 belongs to the last one."""
    return np.minimum(np.floor(np.exp(log_p) / WIDTH + 1e-12).astype(np.int64), round(1 / WIDTH) - 1)


class LongFrequency(Attack):
    """How much oftener models with the record fall into the answer's bins than models without it.

    Threat model: black box with probabilities, binned to 0.01; one query. The adversary knows the record, the candidate
    set and the training algorithm, and trains shadow models with and without the record. The score is
    ``sum over labels of ln(o_in / o_out)``, o the share of models whose probability of the label falls into the
    answer's bin; above 0 says "member".

    Source: Long, Bindschaedler, Gunter (2017), section 5.3, frequency-based targeted attacks.

    Left out: shadow models for every record apart (all records share one set). The paper does not say what 0/0 is; half
    a model is added to every count, so that an answer which nobody gave says nothing.
    """

    name = "long_frequency"
    title = "Frequency-based targeted attack"
    source = "Long et al. (2017), section 5.3"
    threat_model = "binned probabilities for the record; knows the candidate set and trains models with and without it"
    min_shadows = 1
    per_record = True
    cut = 0.0

    def fit(self, signals: Signals, rng: Generator) -> Scorer:
        """Bin the shadow models' answers."""
        del rng
        log_p, inside = usable_shadows(signals, least=self.min_shadows)
        binned = bins(log_p)
        n_in, n_out = inside.sum(axis=0)[:, None], (~inside).sum(axis=0)[:, None]

        def score(target: Float) -> Float:
            same = binned == bins(target)
            o_in = (same & inside[..., None]).sum(axis=0)
            o_out = same.sum(axis=0) - o_in
            ratio = (o_in + 0.5) / (n_in + 1) / ((o_out + 0.5) / (n_out + 1))
            return np.asarray(np.log(ratio).sum(axis=-1), dtype=np.float64)

        return score
