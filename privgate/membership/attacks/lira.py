"""Likelihood ratio attacks: shadow models with and without every record, or without it only."""

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from privgate.arrays import Bool, Float
from privgate.membership.attacks.attack_base import Attack, Scorer, Signals
from privgate.membership.attacks.observed import Moments, moments, own_logit, resolution, shrunk, usable_shadows


def log_ratio(figure: Float, m: Moments) -> Float:
    """Return ln N(figure; in) - ln N(figure; out), shape of ``figure``: positive speaks for "member"."""
    inside = np.log(m.var_in) + (figure - m.mean_in) ** 2 / m.var_in
    outside = np.log(m.var_out) + (figure - m.mean_out) ** 2 / m.var_out
    return np.asarray(0.5 * (outside - inside), dtype=np.float64)


def turns(figure: Float, inside: Bool) -> Float:
    """Return log-ratios of every model as the target of all pairs but its own, shape (N, P) as ``figure``."""
    out = figure - figure.mean(axis=0)  # sums of squares lose digits far from zero
    count = len(figure) // 2 - 1
    total, squares = np.zeros((2, figure.shape[1])), np.zeros((2, figure.shape[1]))
    for j in range(0, len(figure), 2):
        pair = np.where(inside[j], out[j : j + 2], out[j + 1 : j - 1 if j else None : -1])
        total += pair
        squares += pair * pair
    for j in range(0, len(figure), 2):
        pair = np.where(inside[j], out[j : j + 2], out[j + 1 : j - 1 if j else None : -1])
        mean = (total - pair) / count
        var = (squares - pair * pair) / count - mean * mean
        var = shrunk(var, count, var.mean(axis=1, keepdims=True))
        out[j : j + 2] = log_ratio(out[j : j + 2], Moments(mean[0], mean[1], var[0], var[1]))
    return np.asarray(out, dtype=np.float64)


class LiraOnline(Attack):
    """The likelihood ratio of a record's confidence under "trained with it" and "trained without it".

    Threat model: black box with probabilities; one query, the record's own features. The adversary knows the record and
    its label, the training algorithm, and data of the same population, and trains shadow models with and without the
    record. The score is a log-likelihood ratio in nats of the logit-scaled confidence under two normal distributions.

    Source: Carlini et al. (2022), "Membership Inference Attacks From First Principles", Algorithm 1.

    Left out: queries on augmented copies (their section VI.D), and shadow sets drawn anew for every record: all records
    share one set. Two things differ from the paper, because answers of 0 and 1 (forests, labels) make its logits
    infinite: a step that the shadow models' answers show is added to both sides of the logit, and a record's variance
    is mixed with that of all records (their section VI.C switches from one to the other).
    """

    name = "lira_online"
    title = "Likelihood ratio, online"
    source = "Carlini et al. (2022), Algorithm 1"
    threat_model = "probabilities for the record; trains shadow models with and without it"
    min_shadows = 2
    per_record = True
    cut = 0.0

    def fit(self, signals: Signals, rng: Generator) -> Scorer:
        """Take both sides' moments over the shadow models."""
        del rng
        log_p, inside = usable_shadows(signals, least=self.min_shadows)
        step = resolution(log_p, signals.labels)
        learned = moments(own_logit(log_p, signals.labels, step=step), inside)
        return lambda target: log_ratio(own_logit(target, signals.labels, step=step), learned)

    def each_in_turn(self, log_p: Float, inside: Bool, labels: NDArray[np.int64]) -> Float:
        """Return the same numbers as ``fit`` on all but one pair, by subtracting it from sums over all: O(N P).

        The step of the logits, one number, is read off all models together.
        """
        step = resolution(log_p, labels)
        return turns(np.stack([own_logit(p, labels, step=step) for p in log_p]), inside)


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
