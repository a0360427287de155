"""Likelihood ratio attack, online: shadow models with and without every record."""

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from privgate.attacks.base import Scorer, Signals
from privgate.attacks.observed import Moments, moments, own_logit, usable_shadows

Float = NDArray[np.float64]


def log_ratio(figure: Float, m: Moments) -> Float:
    """Return ln N(figure; in) - ln N(figure; out), shape of ``figure``: positive speaks for "member"."""
    inside = np.log(m.var_in) + (figure - m.mean_in) ** 2 / m.var_in
    outside = np.log(m.var_out) + (figure - m.mean_out) ** 2 / m.var_out
    return np.asarray(0.5 * (outside - inside), dtype=np.float64)


class LiraOnline:
    """The likelihood ratio of a record's confidence under "trained with it" and "trained without it".

    Threat model: black box with probabilities; one query, the record's own features. The adversary knows the record and
    its label, the training algorithm, and data of the same population, and trains shadow models with and without the
    record. The score is a log-likelihood ratio in nats of the logit-scaled confidence under two normal distributions.

    Source: Carlini et al. (2022), "Membership Inference Attacks From First Principles", Algorithm 1.

    Left out: queries on augmented copies (their section VI.D), and shadow sets drawn anew for every record: all records
    share one set. Below 16 models on either side the variances are pooled over records, as in their section VI.C.
    """

    name = "lira_online"
    title = "Likelihood ratio, online"
    source = "Carlini et al. (2022), Algorithm 1"
    threat_model = "probabilities for the record; trains shadow models with and without it"
    needs_probabilities = True
    min_shadows = 2
    cut = 0.0

    def fit(self, signals: Signals, rng: Generator) -> Scorer:
        """Take both sides' moments over the shadow models."""
        del rng
        log_p, inside = usable_shadows(signals, least=self.min_shadows)
        learned = moments(own_logit(log_p, signals.labels), inside)
        return lambda target: log_ratio(own_logit(target, signals.labels), learned)

    def scores(self, signals: Signals, rng: Generator) -> Float:
        """Return the log-likelihood ratio of every record, shape (P,), nats."""
        return self.fit(signals, rng)(signals.target)
