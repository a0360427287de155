"""From a goal to the ε, and to the noise, that achieve it."""

import math

from privgate.errors import MeasurementError, UsageError
from privgate.privacy_claims.accountant import Mechanism, epsilon_of
from privgate.privacy_claims.bounds import checked_delta, checked_prior, logit
from privgate.privacy_claims.capacity import checked_rho
from privgate.privacy_claims.tradeoff import checked_fpr


def epsilon_for_capacity(
    records: int, rho: float, prior: float, *, delta: float = 0.0, failure: float = 0.001
) -> float:
    """Return the largest ε at which ``records`` deletions are covered at ``rho``; inverse of ``deletion_capacity``.

    Raises
    ------
    UsageError
        Even ε = 0 does not cover them: then fewer of the pool must be used (a smaller ``prior``).
    """
    if records < 1:
        raise UsageError(f"the number of deletion requests must be at least 1, not {records}")
    odds = checked_prior(prior) / (1 - prior)
    growth = math.expm1(-math.log(checked_rho(rho)) / records) / odds
    if checked_delta(delta):
        growth -= records * delta / (rho * failure)
    return _log_growth(growth, f"{records} deletions at rho {rho:g} with inclusion probability {prior:g}")


def epsilon_for_accuracy(largest: float, prior: float = 0.5, *, delta: float = 0.0) -> float:
    """Return the largest ε at which no adversary is right more often than ``largest``, (ε, δ)-DP.

    ``(e^ε + δ)/(1 + e^ε) ≤ a``, and the base rates max(1-p+pδ, p+(1-p)δ) must not exceed a already.
    """
    p = checked_prior(prior)
    base = max(1 - p + p * checked_delta(delta), p + (1 - p) * delta)
    if not base <= largest < 1:
        raise UsageError(
            f"accuracy {largest:g} cannot be promised at prior {p:g}: guessing without a model already reaches {base:g}"
        )
    return _log_growth((largest - delta) / (1 - largest), f"accuracy {largest:g}")


def epsilon_for_positive_accuracy(
    largest: float, prior: float, *, delta: float = 0.0, fpr: float | None = None
) -> float:
    """Return the largest ε at which Pr[member | fires] ≤ ``largest``; with δ > 0 only for tests of FPR ≥ ``fpr``."""
    p = checked_prior(prior)
    if not p < largest < 1:
        raise UsageError(f"a positive accuracy of {largest:g} must lie between the prior {p:g} and 1")
    if fpr is None:
        if checked_delta(delta):
            raise UsageError(
                "with delta above 0, positive accuracy is unbounded without a false-positive rate; pass one"
            )
        return logit(largest) - logit(p)
    f = checked_fpr(fpr)
    allowed = f * (1 - p) * largest / (p * (1 - largest))
    if allowed >= 1:
        raise UsageError(f"at FPR {f:g} and prior {p:g} no test exceeds {largest:g}, whatever epsilon is")
    growth = max((allowed - delta) / f, (1 - delta - f) / (1 - allowed))
    return _log_growth(growth, f"positive accuracy {largest:g} at FPR {f:g}")


def noise_multiplier(
    epsilon: float, delta: float, *, sample_rate: float, steps: int, sampling: str, adjacency: str, records: int = 0
) -> float:
    """Return the least noise multiplier whose recomputed ε at ``delta`` is at most ``epsilon``, rounded up to 1e-4.

    Raises
    ------
    MeasurementError
        No multiplier up to 10^5 is enough.
    """

    def enough(sigma: float) -> bool:
        mechanism = Mechanism(sigma, sample_rate, steps, sampling, adjacency, records)
        return epsilon_of(mechanism, delta) <= epsilon

    low, high = 0.0, 1.0
    while not enough(high):
        low, high = high, 2 * high
        if high > 1e5:
            raise MeasurementError(f"no noise multiplier up to 100000 gives epsilon {epsilon:g} at delta {delta:g}")
    if low == 0.0:
        # very little noise makes the accountant slow, and nobody asks for it
        low = 0.2
        if enough(low):
            return low
    while high - low > 1e-4:
        middle = (low + high) / 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return math.ceil(high * 1e4) / 1e4


def _log_growth(growth: float, goal: str) -> float:
    if growth < 1:
        raise UsageError(f"{goal} cannot be promised by any epsilon, not even 0; use a smaller share of the pool")
    return math.log(growth)
