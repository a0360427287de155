"""Attacks made for probabilities, on numbers: a residual becomes ``exp(-residual^2 / (2 sigma^2))``, its likelihood."""

from dataclasses import replace

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from privgate.membership.attacks.base import Attack, Scorer, Signals
from privgate.membership.numbers.adversaries import LEAST, usable

Float = NDArray[np.float64]


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
        residual, inside = usable(signals, least=max(1, self.min_shadows))
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
