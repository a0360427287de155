"""Likelihood ratio attack, offline: shadow models without the record only."""

import numpy as np
from numpy.random import Generator

from privgate.membership.attacks.attack_base import Attack, Scorer, Signals
from privgate.membership.attacks.observed import moments, own_logit, resolution, usable_shadows


class LiraOffline(Attack):
    """How far a record's confidence lies above what models without it give.

    Threat model: black box with probabilities; one query. The adversary knows the record and its label, the training
    algorithm and data of the same population, and has trained shadow models before choosing whom to attack, so none of
    them holds the record. The score is the number of standard deviations above the mean; the paper's
    ``1 - P(Z > confidence)`` is its normal distribution function, hence the same order.

    Source: Carlini et al. (2022), "Membership Inference Attacks From First Principles", section V.B, equation (4).

    Left out: queries on augmented copies; all records share one set of shadow models. Logits and variances as in
    ``lira_online``.
    """

    name = "lira_offline"
    title = "Likelihood ratio, offline"
    source = "Carlini et al. (2022), section V.B"
    threat_model = "probabilities for the record; trains shadow models that never hold it"
    min_shadows = 2
    per_record = True

    def fit(self, signals: Signals, rng: Generator) -> Scorer:
        """Take the moments over the shadow models without each record."""
        del rng
        log_p, inside = usable_shadows(signals, least=self.min_shadows)
        step = resolution(log_p, signals.labels)
        learned = moments(own_logit(log_p, signals.labels, step=step), inside)
        spread = np.sqrt(learned.var_out)
        return lambda target: (own_logit(target, signals.labels, step=step) - learned.mean_out) / spread
