"""Likelihood ratio attacks: shadow models with and without every record, or without it only."""

import numpy as np
from numpy.random import Generator

from privgate.arrays import Bool, Float, Index
from privgate.membership.attacks.attack_base import Attack, Scorer, Signals
from privgate.membership.attacks.observed import Moments, moments, own_logit, resolution, shrunk, usable_shadows


def log_ratio(figure: Float, m: Moments) -> Float:
    """Return ln N(figure; in) - ln N(figure; out), shape of ``figure``: positive speaks for "member"."""
    inside = np.log(m.var_in) + (figure - m.mean_in) ** 2 / m.var_in
    outside = np.log(m.var_out) + (figure - m.mean_out) ** 2 / m.var_out
    return np.asarray(0.5 * (outside - inside), dtype=np.float64)


def ratios_in_turn(figures: Float, inside: Bool) -> Float:
    """Return log-ratios of every model by all others but its complement, shape (N, F, P) as ``figures``."""
    x = figures - figures.mean(axis=0)  # sums of squares lose digits far from zero
    side = inside[:, None].astype(np.float64), (~inside)[:, None].astype(np.float64)
    sums = [(w.sum(axis=0), (w * x).sum(axis=0), (w * x * x).sum(axis=0)) for w in side]
    twin = {mask.tobytes(): k for k, mask in enumerate(inside)}
    out, waiting = np.empty_like(x), set(range(len(x)))
    for k in range(len(x)):
        if k not in waiting:
            continue  # done with its complement
        own = sorted({k, twin.get((~inside[k]).tobytes(), k)} & waiting)
        waiting -= {*own}
        means, spreads = [], []
        for w, (count, total, squares) in zip(side, sums, strict=True):
            rest = np.maximum(count - w[own].sum(axis=0), 1.0)
            mean = (total - (w[own] * x[own]).sum(axis=0)) / rest
            var = np.maximum((squares - (w[own] * x[own] ** 2).sum(axis=0)) / rest - mean * mean, 0.0)
            means.append(mean)
            spreads.append(shrunk(var, rest, var.mean(axis=1, keepdims=True)))
        out[own] = log_ratio(x[own], Moments(*means, *spreads))
    return np.asarray(out)


class LiraOffline(Attack):
    """How far a record's confidence lies above what models without it give.

    The adversary trained before choosing whom to attack. The score is the number of standard deviations above the mean;
    the paper's ``1 - P(Z > confidence)`` (equation 4) is its normal distribution function, hence the same order.

    Left out: queries on augmented copies (their section VI.D), and shadow sets drawn anew for every record: all records
    share one set. Two things differ from the paper, because answers of 0 and 1 (forests, labels) make its logits
    infinite: a step that the shadow models' answers show is added to both sides of the logit, and a record's variance
    is mixed with that of all records (their section VI.C switches from one to the other).
    """

    name, title = "lira_offline", "Likelihood ratio, offline"
    source = "Carlini et al. (2022), section V.B"
    threat_model = "probabilities for the record; trains shadow models that never hold it"
    min_shadows, per_record = 2, True

    def fit(self, signals: Signals, rng: Generator) -> Scorer:
        answers, inside = usable_shadows(signals, least=self.min_shadows)
        figure = self.choose_figure(answers, inside, signals.labels)
        learned = moments(figure(answers), inside)
        return lambda target: self.compare(figure(target), learned)

    def choose_figure(self, answers: Float, inside: Bool, labels: Index) -> Scorer:
        """Return what makes one number of an answer, (..., P) from (..., P, K), on a scale that the answers show."""
        step = resolution(answers, labels)
        return lambda given: own_logit(given, labels, step=step)

    def compare(self, figure: Float, learned: Moments) -> Float:
        """Return scores of the records' confidences, shape (P,)."""
        return np.asarray((figure - learned.mean_out) / np.sqrt(learned.var_out))


class LiraOnline(LiraOffline):
    """The likelihood ratio of a record's confidence under "trained with it" and "trained without it".

    The score is a log-likelihood ratio in nats of the logit-scaled confidence under two normal distributions.

    Left out: what ``lira_offline`` leaves out; logits and variances are as there.
    """

    name, title = "lira_online", "Likelihood ratio, online"
    source = "Carlini et al. (2022), Algorithm 1"
    threat_model = "probabilities for the record; trains shadow models with and without it"
    cut = 0.0

    def compare(self, figure: Float, learned: Moments) -> Float:
        return log_ratio(figure, learned)
