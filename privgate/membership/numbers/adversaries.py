"""The adversaries of Yeom et al. against regressors, and the likelihood ratio of a record's residual."""

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from privgate.errors import MeasurementError
from privgate.membership.attacks.base import Attack, Scorer, Signals
from privgate.membership.attacks.lira_online import log_ratio
from privgate.membership.attacks.observed import moments

Float = NDArray[np.float64]
Bool = NDArray[np.bool_]

#: a deviation of residuals below which they count as none; of the targets' own
LEAST = 1e-9


def usable(signals: Signals, *, least: int) -> tuple[Float, Bool]:
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
        seen, _ = usable(signals, least=self.min_shadows)
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
        residual, inside = usable(signals, least=self.min_shadows)
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
        residual, inside = usable(signals, least=self.min_shadows)
        # moments have a smallest variance that suits logits: residuals are put on that scale
        scale = max(float(np.sqrt((residual[~inside] ** 2).mean())), LEAST)
        learned = moments(residual / scale, inside)
        return lambda target: log_ratio(target[:, 0] / scale, learned)
