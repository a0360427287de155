"""Adversaries of Yeom et al. (2020) on classifiers: bounded losses, right or wrong labels, and thresholds."""

import numpy as np
from numpy.random import Generator

from privgate.arrays import Float, Index
from privgate.errors import MeasurementError
from privgate.membership.attacks.attack_base import Attack, Scorer, Signals
from privgate.membership.attacks.observed import own_log, usable_shadows

#: least mean square of an error
LEAST = 1e-18


class LabelGap(Attack):
    """Say "member" of everybody whom the model classifies rightly: score 1 or 0.

    Its advantage is the gap between training and test accuracy; the gap attack of Choquette-Choo et al. (2021).

    Left out: label-only attacks that query neighbours of the record to find its distance from the decision boundary.
    """

    name, title = "label_gap", "Label-only gap attack"
    source = "Yeom et al. (2020), Adversary 1 with 0-1 loss"
    threat_model = "the label for the record, nothing else; trains nothing"
    cut = 0.5

    def fit(self, signals: Signals, rng: Generator) -> Scorer:
        return lambda target: (target.argmax(axis=-1) == signals.labels).astype(np.float64)


class YeomLoss(Attack):
    """Say "non-member" with probability loss / B, the loss being ``1 - p(own label)`` and B = 1.

    Its advantage is exactly R_gen / B (Theorem 2). The score ``p(own label) - u``, u uniform, says "member" above 0.

    Left out: cross-entropy as the loss, which has no bound.
    """

    name, title = "yeom_loss", "Bounded-loss adversary"
    source = "Yeom et al. (2020), Adversary 1"
    threat_model = "probabilities for the record; knows a bound of the loss, trains nothing"
    cut = 0.0

    def fit(self, signals: Signals, rng: Generator) -> Scorer:
        uniform, rows = rng.random(len(signals.labels)), np.arange(len(signals.labels))
        return lambda target: np.exp(target[rows, signals.labels]) - uniform


class YeomThreshold(Attack):
    """Say "member" where the loss is at most the average training loss, which is often published.

    Adversary 2 with unknown sigma_D, which the paper replaces by sigma_S; for classification it compares cross-entropy
    with the training loss (their section 7.2 and Table 1). The score is training loss minus loss, in nats.

    Left out: nothing. Where no training loss is published, its mean over the shadow models stands in.
    """

    name, title = "yeom_threshold", "Threshold adversary, population error unknown"
    source = "Yeom et al. (2020), Adversary 2 and Table 1"
    threat_model = "probabilities for the record; knows the average training loss, trains nothing"
    cut = -1e-12  # a loss equal to the average training loss counts as a member's

    def fit(self, signals: Signals, rng: Generator) -> Scorer:
        usual = signals.training_loss
        if usual is None:
            answers, inside = usable_shadows(signals, least=0)
            usual = float(self.read_loss(answers, signals.labels)[inside].mean())
        if not np.isfinite(usual):
            raise MeasurementError(f"the average training loss is {usual}; the threshold adversary needs a finite one")
        return lambda target: usual - self.read_loss(target, signals.labels)

    def read_loss(self, answers: Float, labels: Index) -> Float:
        """Return losses, shape (..., P), of answers (..., P, K)."""
        return -own_log(answers, labels)


class YeomThresholdKnown(Attack):
    """Say "member" where the error is likelier under the members' normal distribution than under the population's.

    The error is ``1 - p(own label)``; its standard errors sigma_S on members and sigma_D on the population the
    adversary gets by training models himself. The score is the log-ratio of the two centred normal densities, nats.

    Left out: nothing. Errors of classification are not normal: Theorem 3's advantage is not met (their section 7.2).
    """

    name, title = "yeom_threshold_known", "Threshold adversary, both errors known"
    source = "Yeom et al. (2020), Adversary 2 and Theorem 3"
    threat_model = "probabilities for the record; knows the errors on members and on the population from own models"
    min_shadows, cut = 1, 0.0

    def fit(self, signals: Signals, rng: Generator) -> Scorer:
        answers, inside = usable_shadows(signals, least=self.min_shadows)
        error = self.read_error(answers, signals.labels)
        variance_in, variance_out = (max(float((error[side] ** 2).mean()), LEAST) for side in (inside, ~inside))
        constant, slope = 0.5 * np.log(variance_out / variance_in), 0.5 / variance_out - 0.5 / variance_in
        return lambda target: constant + slope * self.read_error(target, signals.labels) ** 2

    def read_error(self, answers: Float, labels: Index) -> Float:
        """Return errors, shape (..., P), of answers (..., P, K)."""
        return 1 - np.exp(own_log(answers, labels))
