"""Membership attacks on regressors: adversaries of Yeom et al., and attacks made for probabilities.

The signals are residuals, ``(target - answer)`` in deviations of the training targets: ``target`` (P, 1), ``shadow``
(N, P, 1), ``training_loss`` the root mean square on the training set, as model cards publish it.
"""

from dataclasses import replace

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from privgate.arrays import Bool, Float
from privgate.errors import MeasurementError
from privgate.evidence import SelfTest
from privgate.membership.attacks.attack_base import Asks, Attack, Scorer, Signals
from privgate.membership.attacks.lira import log_ratio
from privgate.membership.attacks.neighbours import learned
from privgate.membership.attacks.observed import moments
from privgate.membership.attacks.rmia import Rmia
from privgate.membership.attacks.self_test import (
    FOUND,
    FOUND_BY_A_COMMON_THRESHOLD,
    RECORDS,
    SHADOWS,
    Planting,
    balanced_mask,
    plant_two_answers,
    run_plantings,
)

# The adversaries of Yeom et al. against regressors, and the likelihood ratio of a record's residual.

#: a deviation of residuals below which they count as none; of the targets' own
LEAST = 1e-9


def usable_residuals(signals: Signals, *, least: int) -> tuple[Float, Bool]:
    """Return (residuals (N, P), who was in) of the shadow models that were trained.

    Raises
    ------
    MeasurementError
        Some record has fewer than ``least`` models on one side.
    """
    trained = ~np.isnan(signals.shadow).any(axis=(1, 2)) if signals.shadow.ndim == 3 else np.zeros(0, dtype=bool)
    inside = signals.shadow_members[trained]
    fewest = int(min(inside.sum(axis=0).min(), (~inside).sum(axis=0).min())) if len(inside) else 0
    if fewest < least:
        raise MeasurementError(
            f"some record has {fewest} shadow models on one side, at least {least} are needed: train more shadow models"
        )
    return signals.shadow[trained][..., 0], inside


class SquaredLoss(Attack):
    """Say "non-member" with probability loss / B, the loss being the squared residual.

    Threat model: black box; one query; the adversary knows the record and its target and a bound B of the loss, the
    largest squared residual of models that he trains himself, at which larger ones are cut. Its advantage is R_gen / B
    of the cut loss (Theorem 2), a lower bound on better attacks, and small where few residuals are far from 0.

    Source: Yeom et al. (2020), Adversary 1 and Theorem 2.
    """

    name = "squared_loss"
    title = "Bounded-loss adversary, on numbers"
    source = "Yeom et al. (2020), Adversary 1"
    threat_model = "the answer for the record; knows its target and a bound of the squared error"
    min_shadows = 1
    cut = 0.0

    def fit(self, signals: Signals, rng: Generator) -> Scorer:
        """Take the bound off the shadow models and draw one coin a record."""
        seen, _ = usable_residuals(signals, least=self.min_shadows)
        bound = max(float((seen**2).max()), LEAST**2)
        coins = rng.random(seen.shape[1])
        return lambda target: np.asarray(1 - np.minimum(target[:, 0] ** 2 / bound, 1.0) - coins)


class ErrorThreshold(Attack):
    """Say "member" where the residual is at most the training error that is published.

    Threat model: black box; one query; the adversary knows the record, its target and sigma_S, the root mean square of
    the residuals on the training set. Where residuals are normal his advantage is
    ``erf(1 / sqrt 2) - erf(sigma_S / (sqrt 2 sigma_D))``.

    Source: Yeom et al. (2020), Adversary 2 and Theorem 3, sigma_S known, sigma_D taken to be equal.
    """

    name = "error_threshold"
    title = "Threshold at the training error, on numbers"
    source = "Yeom et al. (2020), Adversary 2, sigma_D unknown"
    threat_model = "the answer for the record; knows its target and the published training error"
    cut = 0.0

    def fit(self, signals: Signals, rng: Generator) -> Scorer:
        """Take the published training error."""
        del rng
        if signals.training_loss is None:
            raise MeasurementError("nobody publishes the training error")
        limit = signals.training_loss
        return lambda target: np.asarray(limit - np.abs(target[:, 0]), dtype=np.float64)


class ErrorDensities(Attack):
    """Say "member" where the residual is likelier under the members' normal density than under the population's.

    Threat model: black box; one query; the adversary knows the record, its target, and both errors sigma_S and sigma_D,
    by models that he trains himself. Where residuals are normal he says "member" for ``|residual| < e_eq``,
    ``e_eq = sigma_D sqrt(2 ln r / (r^2 - 1))``, r = sigma_D / sigma_S, and his advantage is
    ``erf(r sqrt(ln r / (r^2 - 1))) - erf(sqrt(ln r / (r^2 - 1)))``.

    Source: Yeom et al. (2020), Adversary 2 and Theorem 3.
    """

    name = "error_densities"
    title = "Two normal errors, on numbers"
    source = "Yeom et al. (2020), Adversary 2 and Theorem 3"
    threat_model = "the answer for the record; knows its target and the errors on members and others from own models"
    min_shadows = 1
    cut = 0.0

    def fit(self, signals: Signals, rng: Generator) -> Scorer:
        """Take root mean squares over the shadow models' members and non-members."""
        del rng
        residual, inside = usable_residuals(signals, least=self.min_shadows)
        variance_in, variance_out = (max(float((residual[m] ** 2).mean()), LEAST**2) for m in (inside, ~inside))
        constant = 0.5 * np.log(variance_out / variance_in)
        slope = 0.5 / variance_out - 0.5 / variance_in
        return lambda target: np.asarray(constant + slope * target[:, 0] ** 2, dtype=np.float64)


class ResidualLira(Attack):
    """The likelihood ratio of a record's residual under "trained with it" and "trained without it".

    Threat model: black box; one query, the record's own features; the adversary knows the record and its target and
    trains shadow models with and without it. The score is a log-likelihood ratio, nats, of the signed residual under
    two normal distributions a record: a number is its own statistic, and needs no logit.

    Source: Carlini et al. (2022), Algorithm 1, with the residual in place of the logit-scaled confidence.
    """

    name = "residual_lira"
    title = "Likelihood ratio, on numbers"
    source = "Carlini et al. (2022), Algorithm 1, on residuals"
    threat_model = "the answer for the record; trains shadow models with and without it"
    min_shadows = 2
    per_record = True
    cut = 0.0

    def fit(self, signals: Signals, rng: Generator) -> Scorer:
        """Take both sides' moments over the shadow models."""
        del rng
        residual, inside = usable_residuals(signals, least=self.min_shadows)
        # moments have a smallest variance that suits logits: residuals are put on that scale
        scale = max(float(np.sqrt((residual[~inside] ** 2).mean())), LEAST)
        learned = moments(residual / scale, inside)
        return lambda target: log_ratio(target[:, 0] / scale, learned)


class ResidualNeighbours(Attack):
    """Likelihood ratios of residuals at the record, beside it and of their differences, added with learned weights.

    Threat model: black box; several queries, the record's own features and questions beside them; the adversary knows
    the record and its target and trains shadow models with and without it. Score and weights as in ``lira_neighbours``.

    Source: Carlini et al. (2022), Algorithm 1 and section VI.D, on residuals.
    """

    name = "residual_neighbours"
    title = "Likelihood ratio at the record and beside it, on numbers"
    source = "Carlini et al. (2022), Algorithm 1 and section VI.D, on residuals"
    threat_model = "the answers for the record and beside it; trains shadow models with and without it"
    min_shadows = 2
    per_record = True
    cut = 0.0
    asks: Asks = "both"

    def fit(self, signals: Signals, rng: Generator) -> Scorer:
        """Take both sides' moments of every figure over the shadow models, and learn how much each says."""
        del rng
        trained = ~np.isnan(signals.shadow).any(axis=(1, 2))
        first, inside = usable_residuals(signals, least=self.min_shadows)
        scale = max(float(np.sqrt((first[~inside] ** 2).mean())), LEAST)

        def figures(answers: Float) -> Float:
            made = np.moveaxis(answers[..., 0] / scale, -1, -2)
            return np.concatenate([made, made[..., 1:, :] - made[..., :1, :]], axis=-2)

        seen = several(self.seen(signals.shadow, signals.shadow_beside), 3)[trained]
        score = learned(enumerate(np.moveaxis(figures(seen), 1, 0)), inside)
        return lambda target: score(figures(several(target, 2)))


def several(answers: Float, alone: int) -> Float:
    """Return answers with an axis of questions, also where there is one question only."""
    return answers[..., None, :] if answers.ndim == alone else answers


class ResidualBeside(ResidualNeighbours):
    """Likelihood ratios of residuals beside a record and of their differences; nobody asks about the record itself.

    Threat model: as ``residual_neighbours``, without the record's own answer.

    Source: Carlini et al. (2022), Algorithm 1 and section VI.D, on residuals.
    """

    name = "residual_beside"
    title = "Likelihood ratio beside the record only, on numbers"
    threat_model = "the answers beside the record, never for it; trains shadow models with and without it"
    asks = "beside"


# Attacks made for probabilities, on numbers: a residual becomes ``exp(-residual^2 / (2 sigma^2))``, its likelihood.


class AsProbability(Attack):
    """An attack of the classifiers' catalogue that looks at the own label only, on a regressor's normal likelihood.

    sigma is the root mean square of residuals of models that were trained without a record. A constant factor, in which
    a normal density differs from this likelihood, is the same for all models and all records.

    Parameters
    ----------
    base : Attack
        Compares own-label probabilities and nothing else.
    """

    def __init__(self, base: Attack) -> None:
        self.base = base
        self.name, self.title = f"{base.name}_on_squared_error", f"{base.title}, on numbers"
        self.source, self.min_shadows, self.cut = f"{base.source}, squared error", base.min_shadows, base.cut
        self.per_record = base.per_record
        self.threat_model = f"normal likelihoods of residuals as {base.threat_model}"

    def fit(self, signals: Signals, rng: Generator) -> Scorer:
        """Learn from the shadow models' likelihoods."""
        residual, inside = usable_residuals(signals, least=max(1, self.min_shadows))
        sigma = max(float(np.sqrt((residual[~inside] ** 2).mean())), LEAST)
        shown = replace(
            signals,
            target=likelihoods(signals.target, sigma),
            shadow=likelihoods(signals.shadow, sigma),
            labels=np.zeros(len(signals.target), dtype=np.int64),
            training_loss=None,
        )
        scorer = self.base.fit(shown, rng)
        return lambda target: scorer(likelihoods(target, sigma))


def likelihoods(residual: Float, sigma: float) -> Float:
    """Return ln p and ln (1 - p) of the likelihood p = exp(-r^2 / (2 sigma^2)), shape (..., P, 2) from (..., P, 1)."""
    own = -0.5 * np.minimum((residual / sigma) ** 2, 1e6)
    with np.errstate(divide="ignore"):
        other = np.log(-np.expm1(own))
    return np.concatenate([own, other], axis=-1)


#: every attack on numbers, strongest first
ALL: tuple[Attack, ...] = (
    ResidualLira(),
    ResidualNeighbours(),
    ResidualBeside(),
    AsProbability(Rmia()),
    ErrorDensities(),
    ErrorThreshold(),
    SquaredLoss(),
)

BY_NAME: dict[str, Attack] = {a.name: a for a in ALL}


# Known answers: residuals of a model that knows its members, and of one that knows nobody.


def planted(rng: Generator, *, leak: bool, records: int = RECORDS, shadows: int = SHADOWS) -> Signals:
    """Return residuals: of members a tenth of what they are of others, where there is a leak; each record has its own.

    A record's residual without it is what its model misses it by, the same for all models but for a little noise.
    """
    usual = rng.normal(0.0, 1.0, records)
    inside = np.vstack([balanced_mask(rng, records) for _ in range(shadows // 2)])
    inside, members = np.concatenate([inside, ~inside]), balanced_mask(rng, records)

    def residuals(masks: NDArray[np.bool_]) -> NDArray[np.float64]:
        share = np.where(masks & leak, 0.1, 1.0)
        return np.asarray((share * usual + rng.normal(0.0, 0.05, masks.shape))[..., None])

    target = residuals(members[None])[0]
    rms = float(np.sqrt((target[members] ** 2).mean()))
    return Signals(target, np.zeros(records, dtype=np.int64), residuals(inside), inside, members, training_loss=rms)


def self_test(attack: Attack) -> SelfTest:
    """Run ``attack`` on residuals with a planted leak, and without one."""
    due = FOUND if attack.per_record else FOUND_BY_A_COMMON_THRESHOLD

    def plant_pair(rng: Generator, *, leak: bool) -> Signals:
        return plant_two_answers(planted(rng, leak=False), rng, lambda numbers: numbers[..., None], leak=leak)

    plantings = [Planting("continuous", due, planted, RECORDS, 11)]
    if attack.asks != "record":
        plantings.append(Planting("two answers", due, plant_pair, RECORDS, 11))
    return run_plantings(attack, plantings)
