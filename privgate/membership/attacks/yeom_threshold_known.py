"""Threshold adversary that knows the error on members and on the population."""

import numpy as np
from numpy.random import Generator

from privgate.arrays import Float
from privgate.membership.attacks.attack_base import Attack, Scorer, Signals
from privgate.membership.attacks.observed import own_log, usable_shadows


class YeomThresholdKnown(Attack):
    """Say "member" where the error is likelier under the members' normal distribution than under the population's.

    Threat model: black box with probabilities; one query; the adversary knows the record and its label and the standard
    errors sigma_S on members and sigma_D on the population, which he gets by training models himself. The error is
    ``1 - p(own label)``. The score is the log-ratio of the two centred normal densities, nats; above 0 says "member".

    Source: Yeom et al. (2020), Adversary 2 and Theorem 3, sigma_S and sigma_D known.

    Left out: regression errors (the gate measures classifiers). Classification errors are not normal, so Theorem 3's
    advantage is not expected to be met (their section 7.2 finds the same).
    """

    name = "yeom_threshold_known"
    title = "Threshold adversary, both errors known"
    source = "Yeom et al. (2020), Adversary 2 and Theorem 3"
    threat_model = "probabilities for the record; knows the errors on members and on the population from own models"
    min_shadows = 1
    cut = 0.0

    def fit(self, signals: Signals, rng: Generator) -> Scorer:
        """Take root mean squared errors over the shadow models' members and non-members."""
        del rng
        log_p, inside = usable_shadows(signals, least=self.min_shadows)
        error = 1 - np.exp(own_log(log_p, signals.labels))
        variance_in = max(float((error[inside] ** 2).mean()), 1e-12)
        variance_out = max(float((error[~inside] ** 2).mean()), 1e-12)
        constant = 0.5 * np.log(variance_out / variance_in)
        slope = 0.5 / variance_out - 0.5 / variance_in

        def score(target: Float) -> Float:
            return np.asarray(constant + slope * (1 - np.exp(own_log(target, signals.labels))) ** 2, dtype=np.float64)

        return score
