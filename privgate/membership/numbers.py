"""Membership attacks on regressors: adversaries of Yeom et al., and attacks made for probabilities.

For log-probabilities stand residuals, ``(target - answer)`` in deviations of the training targets, which he knows.
"""

import numpy as np
from numpy.random import Generator

from privgate.arrays import Bool, Float, Index
from privgate.membership.attacks.attack_base import Attack, Scorer, Signals
from privgate.membership.attacks.lira import LiraNeighbours, LiraOnline
from privgate.membership.attacks.observed import FLOOR, usable_shadows
from privgate.membership.attacks.rmia import Rmia
from privgate.membership.attacks.yeom import YeomThreshold, YeomThresholdKnown

#: a deviation of residuals below which they count as none; of the targets' own
LEAST = 1e-9


def divide_by_scale(answers: Float, inside: Bool) -> Scorer:
    """Return what gives residuals, (..., P) from (..., P, 1), in root mean squares of models without the record."""
    scale = max(float(np.sqrt((answers[..., 0][~inside] ** 2).mean())), LEAST)
    return lambda given: given[..., 0] / scale


class SquaredLoss(Attack):
    """Say "non-member" with probability loss / B, the loss being the squared residual.

    B is the largest of the adversary's own models, where others are cut. His advantage is R_gen / B (Theorem 2).
    """

    name, title = "squared_loss", "Bounded-loss adversary, on numbers"
    source, task = "Yeom et al. (2020), Adversary 1", "regression"
    threat_model = "the answer for the record; knows its target and a bound of the squared error"
    min_shadows, cut = 1, 0.0

    def fit(self, signals: Signals, rng: Generator) -> Scorer:
        residual, _ = usable_shadows(signals, least=self.min_shadows)
        bound, uniform = max(float((residual**2).max()), LEAST**2), rng.random(residual.shape[1])
        return lambda target: np.asarray(1 - np.minimum(target[:, 0] ** 2 / bound, 1.0) - uniform)


class ErrorThreshold(YeomThreshold):
    """Say "member" where the residual is at most the training error sigma_S that is published.

    For normal ones of equal sigma_D: ``erf(1 / sqrt 2) - erf(sigma_S / (sqrt 2 sigma_D))`` of advantage (Theorem 3).
    """

    name, title = "error_threshold", "Threshold at the training error, on numbers"
    source, task = "Yeom et al. (2020), Adversary 2, sigma_D unknown", "regression"
    threat_model = "the answer for the record; knows its target and the published training error"
    cut = 0.0

    def read_loss(self, answers: Float, labels: Index) -> Float:
        return np.abs(answers[..., 0])


class ErrorDensities(YeomThresholdKnown):
    """Say "member" where the residual is likelier under the members' normal density than under the population's.

    Where residuals are normal his advantage is ``erf(r sqrt(ln r / (r^2 - 1))) - erf(sqrt(ln r / (r^2 - 1)))``,
    r = sigma_D / sigma_S.
    """

    name, title, task = "error_densities", "Two normal errors, on numbers", "regression"
    threat_model = "the answer for the record; knows its target and the errors on members and others from own models"

    def read_error(self, answers: Float, labels: Index) -> Float:
        return answers[..., 0]


class ResidualLira(LiraOnline):
    """The likelihood ratio of a record's signed residual under "trained with it" and "trained without it"."""

    name, title, task = "residual_lira", "Likelihood ratio, on numbers", "regression"
    source = "Carlini et al. (2022), Algorithm 1, on residuals"
    threat_model = "the answer for the record; trains shadow models with and without it"

    def choose_figure(self, answers: Float, inside: Bool, labels: Index) -> Scorer:
        return divide_by_scale(answers, inside)


class ResidualNeighbours(LiraNeighbours):
    """Likelihood ratios of residuals at the record, beside it and of their differences, added with learned weights."""

    name, title = "residual_neighbours", "Likelihood ratio at the record and beside it, on numbers"
    source, task = "Carlini et al. (2022), Algorithm 1 and section VI.D, on residuals", "regression"
    threat_model = "the answers for the record and beside it; trains shadow models with and without it"
    choose_figure = ResidualLira.choose_figure


class ResidualBeside(ResidualNeighbours):
    """Likelihood ratios of residuals beside a record and of their differences; nobody asks about the record itself."""

    name, title = "residual_beside", "Likelihood ratio beside the record only, on numbers"
    threat_model = "the answers beside the record, never for it; trains shadow models with and without it"
    asks = "near"


class RmiaOnNumbers(Rmia):
    """``rmia`` on a regressor's normal likelihood ``exp(-residual^2 / (2 sigma^2))``, whose constant factor cancels.

    sigma is the root mean square of residuals of models that were trained without a record.
    """

    name, title = "rmia_on_squared_error", "Robust membership inference, on numbers"
    source, task = "Zarifzadeh et al. (2024), equations (8)-(10), squared error", "regression"
    threat_model = f"normal likelihoods of residuals as {Rmia.threat_model}"

    def choose_confidence(self, answers: Float, inside: Bool, labels: Index) -> Scorer:
        scaled = divide_by_scale(answers, inside)
        return lambda given: np.maximum(np.exp(-0.5 * scaled(given) ** 2), FLOOR)


#: every attack on numbers, strongest first
ALL: tuple[Attack, ...] = (
    ResidualLira(), ResidualNeighbours(), ResidualBeside(), RmiaOnNumbers(), ErrorDensities(), ErrorThreshold(),
    SquaredLoss(),
)  # fmt: skip

BY_NAME: dict[str, Attack] = {a.name: a for a in ALL}
