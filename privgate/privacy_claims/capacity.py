"""How many records may be deleted before the model has to be trained again.

ρ-MI unlearning (Thudi et al., Definition 2): given the model, the records asked to be deleted were with probability at
least ρ not in the training set, so their owners have plausible deniability and nothing needs to be retrained.

The published proof multiplies posteriors "because records are independent"; given the model they are not (a 4-record
mechanism: joint and product differ by 0.163). The bound stands by the chain rule, each factor being at least the
Corollary 1 bound. It needs: independent inclusion with a size that is not published, add/remove ε (or the fixed-size
form with replace-one ε), and requests that depend neither on membership nor on the model.
"""

import math
from dataclasses import dataclass

from privgate.errors import UsageError
from privgate.privacy_claims.bounds import checked_delta, checked_epsilon, checked_prior


@dataclass(frozen=True, slots=True)
class Capacity:
    """A number of deletion requests and what it rests on.

    Parameters
    ----------
    records : int
        How many requests the model covers together, not each time anew; larger is better.
    rho : float
        Least probability that none of them was in the training set.
    prior : float
        Largest inclusion probability among them.
    epsilon, delta : float
        The guarantee.
    failure : float
        δ > 0 only: probability, over the model given that none was used, with which the statement may not hold.
    """

    records: int
    rho: float
    prior: float
    epsilon: float
    delta: float = 0.0
    failure: float = 0.0

    @property
    def sentence(self) -> str:
        """What a compliance officer can say."""
        but = f", except with probability {self.failure:g} over the training's randomness" if self.failure else ""
        who = f"each by somebody used with probability at most {self.prior:g}"
        return f"at ρ = {self.rho:g} this model covers {self.records:,} deletion requests, {who}{but}"


def checked_rho(rho: float) -> float:
    """Return ``rho`` if it lies strictly between 0 and 1, else raise ``UsageError``."""
    if not 0 < rho < 1:
        raise UsageError(f"rho, the probability of not having been used, must lie strictly between 0 and 1, not {rho}")
    return float(rho)


def deletion_capacity(
    epsilon: float, prior: float, rho: float, *, delta: float = 0.0, failure: float = 0.001
) -> Capacity:
    """Return how many records may be deleted before retraining, independent inclusion.

    Parameters
    ----------
    epsilon : float
        Add/remove ε, nats.
    prior : float in (0, 1)
        Largest inclusion probability among the records.
    rho : float in (0, 1)
    delta : float
        With δ > 0 no statement holds for every model; ``failure`` is the probability of a model for which it may not.
    failure : float in (0, 1)
        Used for δ > 0 only.

    Returns
    -------
    Capacity
        ``m = floor(ln(1/ρ) / ln(1 + e^ε' p/(1-p)))``; ε' = ε for δ = 0.

    Notes
    -----
    For δ > 0 let B be the models at which some posterior odds exceed e^ε' times the prior odds. Each of the m factors
    has Pr[B | record out, the earlier ones out] ≤ e^-ε' δ/(1 - e^(ε-ε')); conditioning on the later ones being out
    divides by at most (1-p)^m ≥ ρ. The sum stays below ``failure`` for ``e^ε' = e^ε + m δ/(ρ · failure)``.

    References
    ----------
    Thudi et al. (2022), Corollary 2, proof corrected by the chain rule.

    Examples
    --------
    >>> deletion_capacity(1.0, 0.001, 0.9).records, deletion_capacity(1.0, 0.001, 0.5).records
    (38, 255)
    """
    checked_epsilon(epsilon), checked_delta(delta)
    odds = checked_prior(prior) / (1 - prior)
    budget = -math.log(checked_rho(rho))
    if delta and not 0 < failure < 1:
        raise UsageError(f"the failure probability must lie strictly between 0 and 1, not {failure}")

    def cost(m: int) -> float:
        extra = m * delta / (rho * failure) if delta else 0.0
        # a value computed as exactly the budget must not fail by rounding in the last place
        return m * math.log1p((math.exp(epsilon) + extra) * odds) * (1 - 1e-13)

    low, high = 0, 1
    while cost(high) <= budget:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if cost(middle) <= budget else (low, middle)
    return Capacity(low, rho, prior, epsilon, delta, failure if delta else 0.0)


def group_capacity(epsilon: float, allowed: float) -> int:
    """Return how many deletions group privacy covers under Sekhari et al.'s (ε, δ)-unlearning, pure DP.

    An ε-DP model is (mε)-indistinguishable from one trained without m records, so ``floor(allowed / ε)`` requests need
    no update; constants are explicit here, which the published rate does not have.
    """
    if checked_epsilon(epsilon) == 0:
        raise UsageError("epsilon 0 does not depend on the data; its capacity has no limit")
    return math.floor(checked_epsilon(allowed) / epsilon * (1 + 1e-12))
