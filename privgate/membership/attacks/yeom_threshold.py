"""Threshold adversaries: who loses less than members usually do is called a member."""

import numpy as np
from numpy.random import Generator

from privgate.arrays import Float
from privgate.errors import MeasurementError
from privgate.membership.attacks.attack_base import Attack, Scorer, Signals
from privgate.membership.attacks.observed import own_log, usable_shadows


class YeomThreshold(Attack):
    """Say "member" where the loss is below the average training loss.

    Threat model: black box with probabilities; one query; the adversary knows the record and its label and the average
    training loss, which is often published, and trains nothing. This is Adversary 2 with unknown sigma_D, which the
    paper replaces by sigma_S; for classification it compares cross-entropy with the training loss (their section 7.2
    and Table 1). The score is training loss minus loss, in nats; at or above 0 says "member".

    Source: Yeom et al. (2020), Adversary 2, section 3.2 "unknown sigma_D", and Table 1.

    Left out: regression errors (the gate measures classifiers). Where no training loss is published, its mean over the
    shadow models stands in.
    """

    name = "yeom_threshold"
    title = "Threshold adversary, population error unknown"
    source = "Yeom et al. (2020), Adversary 2 and Table 1"
    threat_model = "probabilities for the record; knows the average training loss, trains nothing"
    cut = -1e-12  # a loss equal to the average training loss counts as a member's

    def fit(self, signals: Signals, rng: Generator) -> Scorer:
        """Find the average training loss."""
        del rng
        usual = signals.training_loss
        if usual is None:
            log_p, inside = usable_shadows(signals, least=0)
            usual = float(-own_log(log_p, signals.labels)[inside].mean())
        if not np.isfinite(usual):
            raise MeasurementError(f"the average training loss is {usual}; the threshold adversary needs a finite one")
        return lambda target: own_log(target, signals.labels) + usual


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
