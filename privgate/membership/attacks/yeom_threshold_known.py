"""Threshold adversary that knows the error on members and on the population."""

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from privgate.membership.attacks.base import Scorer, Signals
from privgate.membership.attacks.observed import own_log, usable_shadows

Float = NDArray[np.float64]


def equal_density(inside: float, outside: float) -> float:
    """Return the error at which two centred normal densities with these standard deviations are equal.

    Parameters
    ----------
    inside, outside : float
        sigma_S and sigma_D, in the error's unit, above 0.

    Returns
    -------
    float
        ``sigma_D * sqrt(2 ln r / (r^2 - 1))`` with ``r = sigma_D / sigma_S``; sigma_S as r goes to 1. The densities of
        members are larger below it where r > 1, and above it where r < 1.

    References
    ----------
    Yeom et al. (2020), proof of Theorem 3; docs/mathematics.md, section 8.

    Examples
    --------
    >>> round(equal_density(1.0, 2.0), 4), equal_density(1.5, 1.5)
    (1.3596, 1.5)
    """
    r = outside / inside
    if abs(r - 1) < 1e-9:
        return float(inside)
    return float(outside * np.sqrt(2 * np.log(r) / (r * r - 1)))


def normal_advantage(inside: float, outside: float) -> float:
    """Return the adversary's advantage when errors are normal: Theorem 3 of Yeom et al. (2020).

    Examples
    --------
    >>> [round(normal_advantage(1.0, r), 4) for r in (1.5, 2.0, 10.0)]
    [0.1936, 0.3227, 0.7982]
    """
    from scipy.special import erf

    at = equal_density(inside, outside) / np.sqrt(2)
    return abs(float(erf(at / inside) - erf(at / outside)))


class YeomThresholdKnown:
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
    needs_probabilities = True
    min_shadows = 1
    per_record = False
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

    def scores(self, signals: Signals, rng: Generator) -> Float:
        """Return the log-ratio of the two normal densities at every record's error, shape (P,), nats."""
        return self.fit(signals, rng)(signals.target)
